"""The chunkwise kernels, forward and backward, against the float64 loop and its autograd."""

import math

import pytest
import torch

from recgen.analysis.normal_form import NormalForm
from recgen.derive.operands import name_operands
from recgen.plan import unsupported
from tests.triton.harness import Case, Inputs, check, compiled, forward, gradients

SIZES = {"K": 7, "V": 5, "D": 6, "F": 3, "M": 7, "P": 5, "N": 7}
GATES = {"use_qk_l2norm_in_kernel": True, "use_gate_in_kernel": True, "use_beta_sigmoid_in_kernel": True}
DELTA = Case("gated_delta_rule", SIZES, tokens=20, chunk=16)
COVERED = [
    "delta_rule", "gated_delta_rule", "linear_attention", "mamba2", "retnet", "simple_gla",
    "gated_writes", "undecayed_correction", "narrow_outputs", "erase_apart",
]  # fmt: skip
LEFT_OUT = {"gla": "decay per key channel", "kda": "decay per key channel", "growing_scalar": "a decay that is not proved to lie in [0, 1]"}


def why(form: NormalForm) -> str:
    return unsupported(form, name_operands(form))


def test_what_the_kernels_cover() -> None:
    assert [why(compiled(spec)[0]) for spec in COVERED] == [""] * len(COVERED)
    assert {spec: why(compiled(spec)[0]) for spec in LEFT_OUT} == LEFT_OUT
    assert "_triton_chunk_forward" not in compiled("kda")[1]


@pytest.mark.parametrize("spec", COVERED)
def test_every_covered_spec(spec: str) -> None:
    axes = {axis: 4 for a in compiled(spec)[0].recurrence.arguments for axis in a.axes}
    check(Case(spec, axes | SIZES, tokens=21, chunk=16))


CASES = {
    "several value blocks": Case("gated_delta_rule", {"K": 16, "V": 40}, tokens=18, chunk=16, heads=1, options=GATES),
    "a chunk of 32": DELTA.but(tokens=40, chunk=32, heads=1),
    "a chunk of 64": DELTA.but(tokens=70, chunk=64, heads=1),
    "sizes of one": Case("gated_delta_rule", {"K": 1, "V": 1}, tokens=17, chunk=16),
    "no token": DELTA.but(tokens=0),
    "one token": DELTA.but(tokens=1),
    "whole chunks": DELTA.but(tokens=32),
    "no batch": DELTA.but(batch=0),
    "no initial state": DELTA.but(initial=False),
    "groups of two": DELTA.but(heads=4, key_heads=2, batch=2, tokens=5),
    "packed": DELTA.but(tokens=40, bounds=(0, 17, 17, 18, 40)),
    "packed, ends empty": Case("simple_gla", SIZES, tokens=20, bounds=(0, 0, 3, 20, 20), initial=False, chunk=16),
    "packed, a param": Case("retnet", SIZES, tokens=20, bounds=(0, 1, 20), chunk=16),
    "other options": Case("mamba2", SIZES, tokens=18, options={"dt_softplus": False, "dt_min": 0.01, "dt_max": 0.1}, chunk=16),
    "bfloat16": Case("gated_delta_rule", SIZES, tokens=20, dtype=torch.bfloat16, options=GATES, chunk=16),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_case(case: Case) -> None:
    check(case)


@pytest.mark.parametrize("gate", [-math.inf, -1e8, -30.0])
def test_a_reset_costs_no_precision(gate: float) -> None:
    def strong(arguments: dict[str, torch.Tensor | None]) -> dict[str, torch.Tensor | None]:
        g = arguments["g"]
        assert g is not None
        g = g.clone()
        g[:, 3::7] = gate
        return arguments | {"g": g}

    check(Case("simple_gla", SIZES, tokens=20, chunk=16, change=strong))


def test_the_first_gate_s_gradient_without_a_state_is_zero() -> None:
    inputs = Inputs(Case("gated_delta_rule", SIZES, tokens=20, chunk=16, initial=False))
    *outputs, final, saved = forward(inputs)
    found = gradients(inputs, saved, [*(torch.ones_like(o) for o in outputs), torch.ones_like(final)])["g"]
    assert found is not None
    assert (found[:, 0] == 0).all()
    assert (found[:, 1] != 0).any()


def test_later_tokens_leave_earlier_outputs_alone() -> None:
    inputs = Inputs(DELTA)
    before = forward(inputs)[0][:, :11].clone()
    for x in inputs.arguments.values():
        if x is not None and x.dim() > 2:
            x[:, 11:] = 3 * torch.randn(x[:, 11:].shape)
    assert torch.equal(forward(inputs)[0][:, :11], before)


def test_two_runs_are_equal_to_the_bit() -> None:
    inputs = Inputs(DELTA)
    first, second = forward(inputs), forward(inputs)
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
