"""Use the installed wheel as its users do: run from outside the checkout by scripts/wheel.sh."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import torch

import recgen
from recgen.kernels import gated_delta_rule
from recgen.resources import KINDS, resource


def command(*arguments: str) -> None:
    """Run one recgen command; its failure is this script's."""
    subprocess.run([sys.executable, "-m", "recgen", *arguments], check=True)


def main(site: Path) -> None:
    """Everything comes from the wheel, every command works, and the committed kernel runs forward and backward."""
    for name in (str(recgen.__file__), str(gated_delta_rule.__file__), *(str(resource(kind)) for kind in KINDS)):
        assert Path(name).is_relative_to(site), f"{name} is not the wheel's"
    spec = str(resource("specs") / "gated_delta_rule.rec")
    command("check", spec)
    command("build", spec, "-o", "out")
    assert Path("out/gated_delta_rule.py").read_text() == (resource("generated") / "gated_delta_rule.py").read_text()

    q, k, v = (torch.randn(1, 70, 2, size) for size in (8, 8, 4))
    k = torch.nn.functional.normalize(k, dim=-1)
    q.requires_grad_()
    o, state = gated_delta_rule.gated_delta_rule(q, k, v, -torch.rand(1, 70, 2), torch.rand(1, 70, 2), output_final_state=True)
    o.sum().backward()
    assert o.shape == v.shape
    assert state.shape == (1, 2, 8, 4)
    assert q.grad is not None
    assert bool(q.grad.isfinite().all())
    print("the wheel works from outside the checkout")


main(Path(sys.argv[1]).resolve())
