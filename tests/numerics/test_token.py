"""Recurrences that are compiled token by token: every form against the float64 loop, an LSTM against torch's, and the contract of several
states."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest
import torch
from torch import Tensor
from torch._dynamo.testing import CompileCounterWithBackend
from torch.nn import functional as F

import recgen
from recgen.pipeline import TokenCompiled, compile_text
from recgen.verify import verify

SPECS = sorted((Path(__file__).parents[1] / "specs" / "recurrent").glob("*.rec"))


def compiled(name: str) -> TokenCompiled:
    path = next(p for p in SPECS if p.stem == name)
    found = compile_text(path.read_text(encoding="utf-8"), path.name)
    assert isinstance(found, TokenCompiled)
    return found


def module(name: str) -> ModuleType:
    return recgen.load(next(p for p in SPECS if p.stem == name))


def inputs_of(name: str, tokens: int, batch: int = 2, dtype: torch.dtype = torch.float64, seed: int = 0) -> dict[str, Tensor]:
    """Arguments inside their domains, four entries on every axis, two value heads."""
    draw = torch.Generator().manual_seed(seed)
    found = {}
    for a in compiled(name).recurrence.arguments:
        lead = (batch, tokens, 1 if a.grouped else 2) if a.role == "input" else (2,)
        x = torch.randn(*lead, *(4 for _ in a.axes), generator=draw, dtype=torch.float64)
        x = -F.softplus(x) if a.domain == "log_decay" else torch.sigmoid(x) if a.domain == "in" else x
        found[a.name] = x.to(dtype)
    return found


# --- every form ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", SPECS, ids=lambda p: p.stem)
def test_verified(path: Path) -> None:
    """Options, lengths, splits, packed sequences, strides, losses, and what holds to the bit: as for a spec that is shipped."""
    report = verify(compiled(path.stem))
    assert report.ok, "\n".join(line for line in str(report).split("\n") if not line.startswith("ok"))
    assert {row.form for row in report.rows} == {"naive", "recurrent", "step"}
    states = compiled(path.stem).recurrence.states
    named = {row.tensor for row in report.rows if "state" in row.tensor}
    ends = [""] if len(states) == 1 else [f" {i + 1}" for i in range(len(states))]
    assert named == {f"{word} state{end}" for word in ("final", "d initial") for end in ends}


def test_an_lstm_is_that_of_torch() -> None:
    """With the weights of torch.nn.LSTM, whose gates come in the order i, f, g, o; outputs and every gradient."""
    size, batch, tokens = 4, 2, 70
    torch.manual_seed(0)
    theirs = torch.nn.LSTM(size, size, batch_first=True, dtype=torch.float64)
    x = torch.randn(batch, tokens, size, dtype=torch.float64)
    start = [torch.randn(1, batch, size, dtype=torch.float64) for _ in range(2)]
    projected = x @ theirs.weight_ih_l0.T + theirs.bias_ih_l0 + theirs.bias_hh_l0
    gates = [g.detach().unsqueeze(2).requires_grad_() for g in projected.split(size, -1)]
    weights = [w.detach().unsqueeze(0).requires_grad_() for w in theirs.weight_hh_l0.split(size)]
    i, f, z, o = gates
    ri, rf, rz, ro = weights
    initial = tuple(s.transpose(0, 1).clone().requires_grad_() for s in start)
    y, (h, c) = module("lstm").lstm(i, f, z, o, ri, rf, rz, ro, initial_state=initial, output_final_state=True)
    expected, (h_end, c_end) = theirs(x, tuple(start))
    torch.testing.assert_close(y.squeeze(2), expected, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(h.transpose(0, 1), h_end, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(c.transpose(0, 1), c_end, rtol=1e-10, atol=1e-10)
    along = torch.randn_like(expected)
    (expected_gradient,) = torch.autograd.grad(expected, theirs.weight_hh_l0, along)
    found = torch.autograd.grad(y.squeeze(2), weights, along)
    torch.testing.assert_close(torch.cat([g.squeeze(0) for g in found]), expected_gradient, rtol=1e-9, atol=1e-9)


# --- extremes --------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("g", [-torch.inf, -1e4])
def test_a_reset_is_an_ordinary_token(g: float) -> None:
    """What the memory held is gone, and every gradient is that of the recurrence; the one of the gate is finite."""
    functions, results = module("momentum"), []
    for form in (functions.naive_recurrent_momentum, functions.fused_recurrent_momentum):
        given = inputs_of("momentum", 9)
        given["g"][:, 4] = g
        given = {k: x.requires_grad_() for k, x in given.items()}
        output, states = form(**given, output_final_state=True)
        results.append((output, *states, *torch.autograd.grad((output.sum(), states[1].sum()), [*given.values()])))
    for x, y in zip(*results, strict=True):
        assert y.isfinite().all()
        torch.testing.assert_close(y, x, rtol=1e-9, atol=1e-9)


def test_exponential_gates_of_any_size() -> None:
    """The stabiliser keeps every exponent at or below zero."""
    given = {k: x.requires_grad_() for k, x in inputs_of("slstm", 6, dtype=torch.float32).items()}
    large = given | {"i": (given["i"].detach() * 1e4).requires_grad_(), "f": (given["f"].detach() * 1e4).requires_grad_()}
    output, states = module("slstm").slstm(**large, output_final_state=True)
    gradients = torch.autograd.grad(output.sum(), [*large.values()])
    assert all(x.isfinite().all() for x in (output, *states, *gradients))


def test_gradcheck() -> None:
    """Every entry of the Jacobian, of outputs and all final states."""
    given = {k: x.requires_grad_() for k, x in inputs_of("fed_key", 3, batch=1).items()}
    states = tuple(torch.randn(1, 2, *axes, dtype=torch.float64, requires_grad=True) for axes in ((4,), (4, 4)))

    def run(*tensors: Tensor) -> tuple[Tensor, ...]:
        named = dict(zip(given, tensors[:-2], strict=True))
        *outputs, final = module("fed_key").fused_recurrent_fed_key(**named, initial_state=tensors[-2:], output_final_state=True)
        return (*outputs, *final)

    assert torch.autograd.gradcheck(run, (*given.values(), *states))


# --- several states --------------------------------------------------------------------------------------------------------------


def test_the_order_of_a_matrix_state_s_axes() -> None:
    """True puts the value axis first and False the key axis, whatever was declared; a vector has no order."""
    functions, given = module("fed_key"), inputs_of("fed_key", 5)
    given = {k: x.float() for k, x in given.items()}
    vector, matrix = torch.randn(2, 2, 4), torch.randn(2, 2, 4, 4)
    for form in (functions.fed_key, functions.naive_recurrent_fed_key):
        results = []
        for first, state in ((None, matrix), (True, matrix), (False, matrix.mT)):
            *outputs, (h, S) = form(**given, initial_state=(vector, state), output_final_state=True, state_v_first=first)
            results.append((*outputs, h, S.mT if first is False else S))
        assert all(torch.equal(x, y) for other in results[1:] for x, y in zip(results[0], other, strict=True))


def test_no_order_without_a_matrix() -> None:
    with pytest.raises(TypeError, match="unexpected keyword argument 'state_v_first'"):
        module("lstm").lstm(**inputs_of("lstm", 2), state_v_first=True)


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        (torch.zeros(2, 2, 4), TypeError, "argument `initial_state` should be a tuple of the states (c, n, m), but is a float32 tensor"),
        ((torch.zeros(2, 2, 4),), ValueError, "argument `initial_state` should be a tuple of the 3 states (c, n, m), but is of 1"),
        (
            (torch.zeros(2, 2, 4), torch.zeros(2, 2, 4), torch.zeros(2, 2)),
            ValueError,
            "argument `initial_state[1]` should be of layout [N, HV], but is a float32 tensor of shape (2, 2, 4)",
        ),
        (
            (torch.zeros(2, 2, 5), torch.zeros(2, 2), torch.zeros(2, 2)),
            ValueError,
            "argument `initial_state[0]` should be [N, HV, D] with D = 4, but is",
        ),
    ],
)
def test_wrong_states(given: object, error: type[Exception], message: str) -> None:
    with pytest.raises(error) as failure:
        module("slstm").slstm(**inputs_of("slstm", 3), initial_state=given)
    assert f"slstm: {message}" in str(failure.value)


def test_pools_of_one_size() -> None:
    given = {k: x[:, 0] for k, x in inputs_of("slstm", 1).items()}
    pools = (torch.zeros(3, 2, 4), torch.zeros(4, 2), torch.zeros(3, 2))
    with pytest.raises(ValueError, match=r"argument `state\[1\]` should be \[slots, HV\] with slots = 3"):
        module("slstm").step_slstm(**given, state=pools, state_indices=torch.tensor([0, 1]))


# --- torch's machinery -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["slstm", "momentum"])
def test_opcheck(name: str) -> None:
    functions, given = module(name), inputs_of(name, 7, dtype=torch.float32)
    operators = getattr(torch.ops, functions._NAMESPACE)
    numbers = [0.5 for o in compiled(name).recurrence.options if not isinstance(o.default, bool)]
    states = [torch.randn(2, 2, *(4 for _ in info.axes)) for info in functions._STATES]
    leaves = [x.requires_grad_() for x in (*given.values(), *states)]
    count = len(given)
    arguments = (*leaves[:count], *numbers, *leaves[count:], None, 64, True)
    torch.library.opcheck(operators.recurrent_forward.default, arguments)
    tokens = [x.detach()[:, :1] for x in leaves[:count]]
    step = (*tokens, *numbers, *(x.detach() for x in leaves[count:]), None)
    torch.library.opcheck(operators.step.default, step, test_utils=("test_schema", "test_faketensor"))


def test_every_length_shares_one_graph() -> None:
    torch._dynamo.reset()
    counter = CompileCounterWithBackend("aot_eager")
    function = module("momentum").momentum

    def run(given: dict[str, Tensor], states: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        output, final = function(**given, initial_state=states, output_final_state=True)
        return (2.0 * output, *final)

    compiled_run = torch.compile(run, fullgraph=True, dynamic=True, backend=counter)
    counts = []
    for tokens in (20, 3, 70):
        given = {k: x.requires_grad_() for k, x in inputs_of("momentum", tokens, batch=3, dtype=torch.float32).items()}
        states = tuple(torch.randn(3, 2, 4, 4, requires_grad=True) for _ in range(2))
        results = []
        for each in (run, compiled_run):
            found = each(given, states)
            results.append((*found, *torch.autograd.grad(sum(x.sum() for x in found), (*given.values(), *states))))
        for x, y in zip(*results, strict=True):
            torch.testing.assert_close(y, x)
        counts.append(counter.frame_count)
    assert counts[0] >= 1
    assert set(counts) == {counts[0]}
    torch._dynamo.reset()


def test_no_gradient_of_a_gradient() -> None:
    given = {k: x.requires_grad_() for k, x in inputs_of("slstm", 3).items()}
    (gradient,) = torch.autograd.grad(module("slstm").slstm(**given)[0].sum(), given["z"], create_graph=True)
    with pytest.raises(RuntimeError, match="naive_recurrent_slstm has one"):
        gradient.sum().backward()


def test_nothing_is_saved_without_a_gradient() -> None:
    functions, given = module("slstm"), inputs_of("slstm", 130, dtype=torch.float32)
    operators = getattr(torch.ops, functions._NAMESPACE)
    for save, rows in ((False, 0), (True, 2 * 130 // 64 + 2)):
        saved = operators.recurrent_forward(*given.values(), None, None, None, None, 64, save)[-1]
        assert saved.shape == (rows, 2, 4 + 1 + 1)
