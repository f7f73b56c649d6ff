"""The reference loop against loops written by hand."""

import itertools
import math

import pytest
import torch

from recgen.lang import compile_spec
from recgen.lang.source import Source
from recgen.lang.terms import ELEMENTWISE, ROW_FUNCTIONS
from recgen.verify.reference import OPERATIONS, ROWS, Sizes, evaluate
from tests.verify.helpers import compiled

SIZES = Sizes(2, 9, 4, (("K", 5), ("V", 3)))


def draw(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def inputs(heads=4, key_heads=2, tokens=9, batch=2):
    q, k = (draw(batch, tokens, key_heads, 5, seed=s) for s in (1, 2))
    v = draw(batch, tokens, heads, 3, seed=3)
    return {
        "q": q,
        "k": k,
        "v": v,
        "g": -draw(batch, tokens, heads, seed=4).abs(),
        "beta": torch.sigmoid(draw(batch, tokens, heads, seed=5)),
    }


def gated_delta(x, state, scale):
    """Gated DeltaNet by einsum."""
    outputs = []
    q, k = (x[name].repeat_interleave(2, 2) for name in ("q", "k"))
    for t in range(q.shape[1]):
        state = state * torch.exp(x["g"][:, t])[..., None, None]
        found = torch.einsum("bhkv,bhk->bhv", state, k[:, t])
        state = state + torch.einsum("bhk,bhv->bhkv", k[:, t], x["beta"][:, t, :, None] * (x["v"][:, t] - found))
        outputs.append(scale * torch.einsum("bhkv,bhk->bhv", state, q[:, t]))
    return torch.stack(outputs, 1), state


def test_gated_delta_rule():
    x, initial = inputs(), draw(2, 4, 5, 3, seed=6)
    run = evaluate(compiled("specs/gated_delta_rule").recurrence, x, {}, SIZES, (initial,))
    o, state = gated_delta(x, initial, 5**-0.5)
    torch.testing.assert_close(run.outputs[0], o)
    torch.testing.assert_close(run.states[0], state)
    assert run.largest >= float(state.abs().max())


def test_options_are_numbers_and_branches():
    x = inputs()
    run = evaluate(compiled("specs/gated_delta_rule").recurrence, x, {"scale": 2.0, "use_qk_l2norm_in_kernel": True}, SIZES)
    unit = {name: x[name] / torch.sqrt((x[name] ** 2).sum(-1, keepdim=True) + 1e-6) for name in ("q", "k")}
    o, _ = gated_delta({**x, **unit}, torch.zeros(2, 4, 5, 3, dtype=torch.float64), 2.0)
    torch.testing.assert_close(run.outputs[0], o)


def test_packed_sequences_run_alone():
    x, bounds = inputs(batch=1), (0, 0, 4, 5, 9)
    sizes, initial = Sizes(1, 9, 4, SIZES.axes), draw(4, 4, 5, 3, seed=7)
    run = evaluate(compiled("specs/gated_delta_rule").recurrence, x, {}, sizes, (initial,), bounds)
    torch.testing.assert_close(run.states[0][0], initial[0])
    for i, (first, last) in enumerate(itertools.pairwise(bounds)):
        if first == last:
            continue
        o, state = gated_delta({name: a[:, first:last] for name, a in x.items()}, initial[i : i + 1], 5**-0.5)
        torch.testing.assert_close(run.outputs[0][:, first:last], o)
        torch.testing.assert_close(run.states[0][i : i + 1], state)


def test_several_states_of_several_shapes():
    """A normalised linear attention: a matrix, a vector and a number are carried; one state feeds another's equation."""
    lines = (
        "input q : [K]", "input k : [K]", "input v : [V]", "state S : [K, V]", "state z : [K]", "state n : []",
        "S[t] = S[t-1] + k @ v^T / n[t]", "z[t] = z[t-1] + k", "n[t] = n[t-1] + 1", "o = S[t]^T @ q / (z[t]^T @ q)",
    )  # fmt: skip
    recurrence = compile_spec(Source("n.rec", "language 1\nrecurrence n\n" + "\n".join(f"    {line}" for line in lines) + "\n"))
    x = {name: value for name, value in inputs(key_heads=4).items() if name in ("q", "k", "v")}
    run = evaluate(recurrence, x, {}, SIZES)
    weights = torch.arange(1, 10, dtype=torch.float64)
    state = torch.einsum("bthk,bthv,t->bhkv", x["k"], x["v"], 1 / weights)
    normaliser = x["k"].sum(1)
    torch.testing.assert_close(run.states, (state, normaliser, torch.full((2, 4), 9.0, dtype=torch.float64)))
    last = torch.einsum("bhkv,bhk->bhv", state, x["q"][:, -1]) / torch.einsum("bhk,bhk->bh", normaliser, x["q"][:, -1])[..., None]
    torch.testing.assert_close(run.outputs[0][:, -1], last)


def test_every_operation_of_the_language_is_known():
    others = {"neg", "add", "sub", "mul", "div", "pow", "matmul", "transpose", "min", "max"}
    assert set(OPERATIONS) == {*ELEMENTWISE, *others}
    assert set(ROWS) == set(ROW_FUNCTIONS)


@pytest.mark.parametrize(
    ("name", "x", "value"),
    [
        ("softplus", 30.0, math.log1p(math.exp(30.0))),
        ("softplus", -800.0, 0.0),
        ("logsigmoid", -40.0, -40.0),
        ("logsigmoid", 40.0, -math.exp(-40.0)),
    ],
)
def test_functions_keep_their_digits(name, x, value):
    found = OPERATIONS[name](torch.tensor(x, dtype=torch.float64, requires_grad=True))
    assert found.item() == pytest.approx(value, rel=1e-14)
    found.backward()


def test_gradients_are_those_of_the_loop():
    x = {name: value.clone().requires_grad_() for name, value in inputs().items()}
    run = evaluate(compiled("specs/gated_delta_rule").recurrence, x, {}, SIZES)
    o, _ = gated_delta(x, torch.zeros(2, 4, 5, 3, dtype=torch.float64), 5**-0.5)
    found = torch.autograd.grad(run.outputs[0].square().sum(), tuple(x.values()))
    wanted = torch.autograd.grad(o.square().sum(), tuple(x.values()))
    torch.testing.assert_close(found, wanted)
