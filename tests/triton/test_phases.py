"""The chunkwise kernels that are printed from a chunk form's steps, forward and backward, against the float64 loop and its autograd."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from recgen.resources import resource
from tests.triton.harness import Case, Inputs, check, forward, gradients, module, printed_from_steps

SIZES = {"K": 7, "V": 5}
COUPLED = ("momentum_delta", "titans", "two_memories", "three_memories")
BY_VALUE = ("gated_delta_beta_v", "value_forget", "value_forget_after", "value_strengths", "value_turns")
QUICK = (*COUPLED, "gated_delta_beta_v", "value_strengths", "value_forget_after")
"""Those without many links by channel, which the interpreter walks slowly."""
MOMENTUM = Case("momentum_delta", SIZES, tokens=21, chunk=16)
MEMORIES = MOMENTUM.but(spec="three_memories")
FORGET = MOMENTUM.but(spec="value_forget", heads=1)
Arguments = dict[str, torch.Tensor | None]


def test_these_are_all() -> None:
    specs = Path(__file__).parents[1] / "specs"
    found = printed_from_steps(resource("specs"), specs, specs / "coupled")
    assert set(found) == {*COUPLED, *BY_VALUE} - {path.stem for path in (specs / "strangers").glob("*.rec")}


@pytest.mark.parametrize("spec", [*COUPLED, *BY_VALUE])
@pytest.mark.parametrize("tokens", [1, 2, 17])
def test_lengths(spec: str, tokens: int) -> None:
    check(MOMENTUM.but(spec=spec, tokens=tokens, heads=2 if spec in COUPLED else 1))


@pytest.mark.parametrize("spec", QUICK)
def test_several_chunks(spec: str) -> None:
    check(MOMENTUM.but(spec=spec, tokens=67, heads=1))


@pytest.mark.parametrize("spec", [*COUPLED, *BY_VALUE])
def test_packed_sequences(spec: str) -> None:
    check(MOMENTUM.but(spec=spec, tokens=21, heads=1, bounds=(0, 0, 17, 17, 18, 21, 21)))


CASES = {
    "eight chunks and three tokens": MOMENTUM.but(tokens=131, heads=1),
    "a chunk of 32": MOMENTUM.but(tokens=40, chunk=32, heads=1),
    "a chunk of 64": Case("two_memories", SIZES, tokens=70, chunk=64, heads=1),
    "several value blocks": MOMENTUM.but(sizes={"K": 20, "V": 40}, heads=1),
    "three states, several value blocks": MEMORIES.but(sizes={"K": 20, "V": 40}, heads=1, tokens=18),
    "sizes of one": MOMENTUM.but(sizes={"K": 1, "V": 1}, options={"use_l2norm": False}),
    "no token": MOMENTUM.but(tokens=0),
    "whole chunks": MOMENTUM.but(tokens=32),
    "no batch": MOMENTUM.but(batch=0),
    "no initial state": MOMENTUM.but(initial=False),
    "no initial state, three states, packed": MEMORIES.but(initial=False, tokens=30, bounds=(0, 1, 18, 30)),
    "groups of two": MOMENTUM.but(heads=4, key_heads=2, batch=2, tokens=18),
    "several rows": MEMORIES.but(batch=3, tokens=18),
    "other options": MOMENTUM.but(options={"use_l2norm": False, "scale": 0.7}),
    "a matrix declared by values": Case("titans", {"K": 20, "V": 5}, tokens=18, batch=2, chunk=16),
    "a strength by channel, several value blocks": Case("gated_delta_beta_v", {"K": 20, "V": 40}, tokens=18, heads=1, chunk=16),
    "values that forget, several value blocks": Case("value_turns", {"K": 5, "V": 40}, tokens=18, heads=1, chunk=16),
    "values that forget, groups of two": FORGET.but(heads=2, tokens=5),
    "values that forget, no initial state": FORGET.but(tokens=18, initial=False),
    "values read across, whole": Case("value_strengths", {"K": 20, "V": 40}, tokens=18, heads=1, chunk=16),
    "values by channel, several rows": Case("value_forget_after", {"K": 20, "V": 5}, tokens=18, batch=2, chunk=16),
    "values by channel, float16": Case("gated_delta_beta_v", SIZES, tokens=21, dtype=torch.float16, chunk=16),
    "bfloat16": MOMENTUM.but(dtype=torch.bfloat16),
    "float16": MEMORIES.but(dtype=torch.float16),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_case(case: Case) -> None:
    check(case)


def resetting(gates: tuple[str, ...], value: float) -> Callable[[Arguments], Arguments]:
    """Every seventh token of some gates at a value."""

    def change(arguments: Arguments) -> Arguments:
        changed = {}
        for i, name in enumerate(gates):
            gate = arguments[name]
            assert gate is not None
            changed[name] = gate.clone()
            changed[name][:, 3 + i :: 7] = value
        return arguments | changed

    return change


@pytest.mark.parametrize("gate", [-math.inf, -1e8, -30.0])
def test_a_reset_costs_no_precision(gate: float) -> None:
    check(MOMENTUM.but(tokens=40, heads=1, change=resetting(("g", "m"), gate)))


@pytest.mark.parametrize("gate", [-math.inf, -1e8, -30.0])
def test_a_reset_of_keys_and_values_costs_no_precision(gate: float) -> None:
    check(FORGET.but(tokens=18, change=resetting(("g", "h"), gate)))
    check(FORGET.but(spec="value_forget_after", tokens=18, change=resetting(("a", "h"), gate)))


def test_a_multiplier_of_zero_resets() -> None:
    check(FORGET.but(spec="value_turns", tokens=18, change=resetting(("f", "turn"), 0.0)))
    check(MEMORIES.but(tokens=40, heads=1, change=resetting(("c",), 0.0)))
    check(Case("titans", SIZES, tokens=40, heads=1, chunk=16, change=resetting(("eta",), 0.0)))


def test_the_first_gates_gradients_without_a_state_are_zero() -> None:
    inputs = Inputs(MOMENTUM.but(initial=False))
    *results, saved = forward(inputs)
    found = gradients(inputs, saved, [torch.ones_like(x) for x in results])
    for name in ("g", "m"):
        gradient = found[name]
        assert gradient is not None
        assert (gradient[:, 0] == 0).all()
        assert (gradient[:, 1] != 0).any()


@pytest.mark.parametrize("spec", QUICK)
def test_later_tokens_leave_earlier_ones_alone_and_runs_are_equal(spec: str) -> None:
    """To the bit: outputs, and the gradients of a loss on the first tokens."""
    inputs, other = (Inputs(MOMENTUM.but(spec=spec, tokens=40, heads=1)) for _ in range(2))
    for name, x in other.arguments.items():
        if x is not None and x.dim() > 2:
            x[:, 27:] = 0.5 * x[:, 27:] if x.dim() < 4 else 2 * torch.randn(x[:, 27:].shape)
            assert name in inputs.arguments
    runs = [forward(x) for x in (inputs, inputs, other)]
    assert all(torch.equal(x, y) for x, y in zip(runs[0], runs[1], strict=True))
    (o, *states, _), changed = runs[0], runs[2][0]
    assert torch.equal(o[:, :27], changed[:, :27])
    loss = [torch.ones_like(o), *(torch.zeros_like(x) for x in states)]
    loss[0][:, 27:] = 0
    found = [gradients(x, run[-1], loss) for x, run in zip((inputs, inputs, other), runs, strict=True)]
    for name in inputs.arguments:
        first, second, after = (x[name] for x in found)
        if first is None or second is None or after is None:
            continue
        assert torch.equal(first, second), name
        assert first.dim() < 3 or torch.equal(first[:, :27], after[:, :27]), name


def test_a_gradient_of_some_results_alone() -> None:
    inputs = Inputs(MOMENTUM)
    *results, saved = forward(inputs)
    whole = gradients(inputs, saved, [torch.ones_like(results[0]), torch.zeros_like(results[1]), torch.ones_like(results[2])])
    some = gradients(inputs, saved, [torch.ones_like(results[0]), None, torch.ones_like(results[2])])
    for name, x in whole.items():
        y = some[name]
        assert (x is None) == (y is None)
        assert x is None or y is None or torch.equal(x, y), name


def test_sizes_that_no_tiles_fit_are_refused() -> None:
    case = MOMENTUM.but(sizes={"K": 600, "V": 5}, tokens=2, heads=1)
    with pytest.raises(ValueError, match=r"momentum_delta: the chunkwise kernels take K up to \d+ for torch.float32"):
        forward(Inputs(case))


@pytest.mark.parametrize("spec", ["momentum_delta", "value_strengths"])
@pytest.mark.parametrize("initial", [True, False])
def test_a_forward_that_is_differentiated_compiles_the_backward_with_it(spec: str, initial: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every kernel gets as many arguments of the same types as when it is launched."""
    built: list[tuple[object, list[object]]] = []
    launched: list[tuple[object, list[object]]] = []
    functions, inputs = module(spec), Inputs(MOMENTUM.but(spec=spec, tokens=5, initial=initial))

    def noted(found: list[tuple[object, list[object]]], launches: tuple[Any, ...]) -> None:
        found.extend((x.kernel, [y.dtype if isinstance(y, torch.Tensor) else y for y in x.arguments]) for x in launches)

    launch = functions._launch
    monkeypatch.setattr(functions, "_build_first", lambda _, launches, like: noted(built, launches()) if not built else None)
    monkeypatch.setattr(functions, "_launch", lambda launches, like: (noted(launched, launches), launch(launches, like)))
    *results, saved = forward(inputs)
    count = len(results) - len(inputs.recurrence.states)
    gradients(inputs, saved, [torch.ones_like(x) if initial or i < count else None for i, x in enumerate(results)])
    kernels = {kernel for kernel, _ in launched}
    assert kernels == {kernel for kernel, _ in built}
    assert all(arguments in [x for k, x in launched if k is kernel] for kernel, arguments in built)


def test_the_operator_runs_the_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    class Unreachable:
        def __getitem__(self, grid: tuple[int, ...]) -> None:
            raise LookupError(grid)

    inputs = Inputs(MOMENTUM)
    functions = module("momentum_delta")
    functions.chunk_momentum_delta(**inputs.arguments)
    monkeypatch.setattr(functions, "_chunk_scan_kernel", Unreachable())
    with pytest.raises(LookupError):
        functions.chunk_momentum_delta(**inputs.arguments)
    wide = {name: None if x is None else x.double() for name, x in inputs.arguments.items()}
    functions.chunk_momentum_delta(**wide)
