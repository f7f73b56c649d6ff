"""The check of the adjoint at build time."""

from dataclasses import replace

import pytest

from recgen.derive.proof import ProofFailed
from recgen.pipeline import compile_text
from recgen.resources import resource
from recgen.verify.adjoint import check_adjoint

COMPILED = compile_text((resource("specs") / "gated_delta_rule.rec").read_text(encoding="utf-8"))


def test_the_emitted_adjoint_passes() -> None:
    check_adjoint(COMPILED)


def test_a_wrong_gradient_is_not_built() -> None:
    right = "d_value = dX"
    assert right in COMPILED.module.text
    text = COMPILED.module.text.replace(right, "d_value = -dX").replace('_NAMESPACE = "recgen_', '_NAMESPACE = "recgen_wrong_')
    with pytest.raises(ProofFailed, match="gated_delta_rule differs"):
        check_adjoint(replace(COMPILED, module=replace(COMPILED.module, text=text)))


def test_a_recurrence_that_grows_is_checked_over_fewer_tokens() -> None:
    text = """language 1
recurrence growing
    "Never forgets and grows."
    input q : [K] grouped
    input k : [K] grouped
    input v : [V]
    input g : [] positive
    state S : [K, V]
    S[t] = exp(g) * S[t-1] + k @ v^T
    o    = S[t]^T @ q
"""
    check_adjoint(compile_text(text))
