"""One module under two names in one process: the operators of neither replace the other's."""

import importlib.util
import sys

import torch

import recgen
from recgen.kernels import delta_rule
from recgen.resources import resource


def test_both_work() -> None:
    loaded = recgen.load(resource("specs") / "delta_rule.rec")
    spec = importlib.util.spec_from_file_location("delta_rule_once_more", delta_rule.__file__)
    assert spec is not None and spec.loader is not None
    again = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = again
    try:
        spec.loader.exec_module(again)
        q, k, v = (torch.randn(1, 20, 2, 4) for _ in range(3))
        results = [m.chunk_delta_rule(q, k, v, torch.rand(1, 20, 2).fill_(0.5))[0] for m in (delta_rule, loaded, again)]
    finally:
        del sys.modules[spec.name]
    assert len({m._NAMESPACE for m in (delta_rule, loaded, again)}) == 3
    assert all(torch.equal(results[0], other) for other in results[1:])
