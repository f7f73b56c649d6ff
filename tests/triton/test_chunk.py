"""The chunkwise kernels, forward and backward, against the float64 loop and its autograd."""

import functools
import math
from pathlib import Path

import pytest
import torch

from recgen.resources import resource
from tests.triton.harness import Case, Inputs, check, compiled, forward, gradients, module, with_chunk_kernels

HERE = Path(__file__).parent
SIZES = {"K": 7, "V": 5, "D": 6, "F": 3, "M": 7, "P": 5, "N": 7}
GATES = {"use_qk_l2norm_in_kernel": True, "use_gate_in_kernel": True, "use_beta_sigmoid_in_kernel": True}
DELTA = Case("gated_delta_rule", SIZES, tokens=20, chunk=16)
SPECS = with_chunk_kernels(resource("specs"), HERE.parent / "specs", HERE / "specs")


@pytest.mark.parametrize("spec", SPECS)
def test_every_spec(spec: str) -> None:
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
    "a decay per channel, several blocks": Case("kda", {"K": 16, "V": 40}, tokens=18, chunk=16, heads=1, options=GATES),
    "a decay per channel, a chunk of 32": Case("kda", SIZES, tokens=40, chunk=32, heads=1),
    "a decay per channel, a chunk of 64": Case("gla", SIZES, tokens=70, chunk=64, heads=1),
    "a decay per channel, packed": Case("kda", SIZES, tokens=40, bounds=(0, 17, 17, 18, 40), chunk=16),
    "a decay per channel, a chunk of 32, several corrections": Case("two_corrections", SIZES, tokens=40, chunk=32, heads=1),
    "outputs beside the value axis, several blocks": Case("narrow_outputs", {"K": 7, "V": 40}, tokens=21, chunk=16),
    "keys beyond 256": Case("gla", {"K": 300, "V": 5}, tokens=20, heads=1, key_heads=1, chunk=64),
    "read across, no value block": Case("value_correction", {"K": 20, "V": 40}, tokens=18, chunk=16, heads=1),
    "read across, a chunk of 32": Case("value_error", SIZES, tokens=40, chunk=32, heads=1),
    "read across, a decay per channel, a chunk of 32, packed": Case("value_decay_read", SIZES, tokens=40, bounds=(0, 17, 17, 18, 40)),
    "bfloat16": Case("gated_delta_rule", SIZES, tokens=20, dtype=torch.bfloat16, options=GATES, chunk=16),
}


SEGMENTS = {
    "no decay": Case("linear_attention", SIZES, tokens=70, chunk=16, segment=2),
    "a decay": Case("simple_gla", SIZES, tokens=70, chunk=16, segment=2, initial=False),
    "a correction": DELTA.but(tokens=70, segment=2),
    "a decay per channel": Case("gla", SIZES, tokens=70, chunk=16, segment=3),
    "a decay per channel and a correction": Case("kda", SIZES, tokens=70, chunk=16, segment=2),
    "more keys than values, in blocks": DELTA.but(sizes={"K": 40, "V": 5}, tokens=50, segment=1, heads=1),
    "a whole value axis": Case("outputs", SIZES | {"D": 6}, tokens=50, chunk=16, segment=2),
    "a square state": Case("square", SIZES, tokens=50, chunk=16, segment=2),
    "read across": Case("value_error", SIZES, tokens=50, chunk=16, segment=2),
    "read across, a decay per channel": Case("value_correction", SIZES, tokens=50, chunk=16, segment=2),
    "read across, a square state": Case("square_across", SIZES, tokens=50, chunk=16, segment=2),
    "two corrections": Case("two_corrections", SIZES, tokens=50, chunk=16, segment=2),
    "signs": Case("signed_decay", SIZES, tokens=50, chunk=16, segment=2),
    "packed": DELTA.but(tokens=90, bounds=(0, 0, 40, 41, 41, 90), segment=1),
    "packed, no decay per channel to pass": Case("gla", SIZES, tokens=90, bounds=(0, 40, 41, 41, 90), chunk=16, segment=2),
    "a further column": Case("linear_attention_normalized", SIZES, tokens=70, chunk=16, segment=2),
    "a further column in blocks": Case("linear_attention_normalized", {"K": 20, "V": 40}, tokens=50, heads=1, chunk=16, segment=1),
    "further columns and corrections": Case("normalized_corrections", SIZES, tokens=70, chunk=16, segment=2),
    "further columns and corrections, in blocks": Case(
        "normalized_corrections", {"K": 40, "V": 40}, tokens=50, heads=1, chunk=16, segment=1
    ),
    "further columns, packed": Case("normalized_corrections", SIZES, tokens=90, bounds=(0, 0, 40, 41, 41, 90), chunk=16, segment=1),
    "a running maximum": Case("mlstm", SIZES, tokens=70, chunk=16, segment=2),
    "a running maximum, no initial state": Case("mlstm", SIZES, tokens=50, chunk=16, segment=1, initial=False),
    "a running maximum, in blocks, packed": Case(
        "mlstm", {"K": 20, "V": 40}, tokens=90, heads=1, bounds=(0, 40, 41, 41, 90), chunk=16, segment=1
    ),
    "a single segment": DELTA.but(tokens=20, segment=4),
}


@pytest.mark.parametrize("case", SEGMENTS.values(), ids=SEGMENTS)
def test_sequences_in_segments(case: Case) -> None:
    check(case)


@pytest.mark.parametrize("segment", [0, 1])
def test_a_running_maximum_that_jumps(segment: int) -> None:
    """Weights from e^-60 to e^60, resets, and stretches that nothing is written in."""

    def strong(arguments: dict[str, torch.Tensor | None]) -> dict[str, torch.Tensor | None]:
        i, f = arguments["i"], arguments["f"]
        assert i is not None and f is not None
        i, f = 20 * i, f.clone()
        i[:, 20:40], f[:, 5::9], f[:, 36] = -math.inf, -60.0, -1e8
        return arguments | {"i": i, "f": f}

    check(Case("mlstm", SIZES, tokens=70, chunk=16, segment=segment, heads=1, change=strong))


def test_a_running_maximum_over_more_chunks_than_are_taken_at_once() -> None:
    check(Case("mlstm", {"K": 3, "V": 2}, tokens=1060, chunk=16, segment=20, heads=1), backward=False)


def test_segments_meet_in_the_combination(monkeypatch: pytest.MonkeyPatch) -> None:
    class Unreachable:
        def __getitem__(self, grid: tuple[int, ...]) -> None:
            raise LookupError(grid)

    case = DELTA.but(tokens=50, segment=2, heads=1)
    monkeypatch.setattr(module(case.spec), "_chunk_combine_kernel", Unreachable())
    with pytest.raises(LookupError):
        forward(Inputs(case))
    forward(Inputs(case.but(segment=0)))


@pytest.mark.parametrize("spec", ["gated_delta_rule", "linear_attention_normalized", "normalized_corrections", "mlstm"])
def test_segments_are_equal_from_run_to_run_and_whatever_comes_after(spec: str) -> None:
    """To the bit; the gradients of a loss on the first tokens too."""
    inputs, other = (Inputs(Case(spec, SIZES, tokens=50, chunk=16, segment=1, heads=1)) for _ in range(2))
    for x in other.arguments.values():
        if x is not None and x.dim() > 2:
            x[:, 27:] = 3 * torch.randn(x[:, 27:].shape) if x.dim() > 3 else 0.3 * x[:, 27:]
    runs = [forward(x) for x in (inputs, inputs, other)]
    assert all(torch.equal(x, y) for x, y in zip(runs[0], runs[1], strict=True))
    (o, *states, _), changed = runs[0], runs[2][0]
    assert torch.equal(o[:, :27], changed[:, :27])
    assert not torch.equal(o, changed)
    loss = [torch.ones_like(o), *(torch.zeros_like(x) for x in states)]
    loss[0][:, 27:] = 0
    found = [gradients(x, run[-1], loss) for x, run in zip((inputs, inputs, other), runs, strict=True)]
    for name in (name for name, x in found[0].items() if x is not None):
        first, second, after = (x[name] for x in found)
        assert torch.equal(first, second), name
        assert torch.equal(first[:, :27], after[:, :27]) or name not in inputs.arguments, name


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_case(case: Case) -> None:
    check(case)


def test_boundaries_of_any_strides() -> None:
    inputs = Inputs(DELTA.but(tokens=40, bounds=(0, 17, 18, 40)))
    run = functools.partial(module("gated_delta_rule").chunk_gated_delta_rule, **inputs.arguments, output_final_state=True, chunk_size=16)
    spread = torch.stack((inputs.bounds, torch.full((4,), 999, dtype=torch.int32)), 1)[:, 0]
    assert not spread.is_contiguous()
    assert all(torch.equal(x, y) for x, y in zip(run(cu_seqlens=spread), run(cu_seqlens=inputs.bounds), strict=True))


@pytest.mark.parametrize("spec", ["simple_gla", "gla"])
def test_a_gate_that_is_not_a_number_shows(spec: str) -> None:
    def spoiled(arguments: dict[str, torch.Tensor | None]) -> dict[str, torch.Tensor | None]:
        g = arguments["g"]
        assert g is not None
        g = g.clone()
        g[:, 3] = math.nan
        return arguments | {"g": g}

    assert forward(Inputs(Case(spec, SIZES, tokens=20, chunk=16, change=spoiled)))[0][:, 3:].isnan().all()


@pytest.mark.parametrize("spec", ["simple_gla", "gla", "kda"])
@pytest.mark.parametrize("gate", [-math.inf, -1e8, -30.0])
def test_a_reset_costs_no_precision(spec: str, gate: float) -> None:
    def strong(arguments: dict[str, torch.Tensor | None]) -> dict[str, torch.Tensor | None]:
        g = arguments["g"]
        assert g is not None
        g = g.clone()
        g[:, 3::7] = gate
        return arguments | {"g": g}

    check(Case(spec, SIZES, tokens=20, chunk=16, change=strong))


def test_float16_resolves_the_gradient_of_a_multiplier_of_zero() -> None:
    """It is that of a logarithm divided by the multiplier, and links through the multiplier are too small for float16."""

    def reset(arguments: dict[str, torch.Tensor | None]) -> dict[str, torch.Tensor | None]:
        a = arguments["a"]
        assert a is not None
        a = a.clone()
        a[:, 3::7] = 0.0
        return arguments | {"a": a}

    check(Case("undecayed_correction", SIZES, tokens=20, chunk=16, dtype=torch.float16, change=reset))


@pytest.mark.parametrize("spec", ["gated_delta_rule", "kda"])
def test_the_first_gate_s_gradient_without_a_state_is_zero(spec: str) -> None:
    inputs = Inputs(Case(spec, SIZES, tokens=20, chunk=16, initial=False))
    *outputs, final, saved = forward(inputs)
    found = gradients(inputs, saved, [*(torch.ones_like(o) for o in outputs), torch.ones_like(final)])["g"]
    assert found is not None
    assert (found[:, 0] == 0).all()
    assert (found[:, 1] != 0).any()


@pytest.mark.parametrize("spec", ["gated_delta_rule", "kda"])
def test_later_tokens_leave_earlier_outputs_alone(spec: str) -> None:
    inputs = Inputs(DELTA.but(spec=spec))
    before = forward(inputs)[0][:, :11].clone()
    for x in inputs.arguments.values():
        if x is not None and x.dim() > 2:
            x[:, 11:] = 3 * torch.randn(x[:, 11:].shape)
    assert torch.equal(forward(inputs)[0][:, :11], before)


def test_two_runs_are_equal_to_the_bit() -> None:
    inputs = Inputs(DELTA)
    first, second = forward(inputs), forward(inputs)
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
