"""The recurrent kernels, forward and backward, against the float64 loop and its autograd."""

from pathlib import Path

import pytest
import torch

from tests.triton.harness import Case, Inputs, check, compare, compiled, forward, gradients, result, with_normal_form

SIZES = {"K": 7, "V": 5, "D": 6, "F": 3, "M": 7, "P": 5, "N": 7}
GATES = {"use_qk_l2norm_in_kernel": True, "use_gate_in_kernel": True, "use_beta_sigmoid_in_kernel": True}
DELTA = Case("gated_delta_rule", SIZES)

EVERY_SPEC = [
    "delta_rule", "gated_delta_product", "gated_delta_rule", "gla", "hgrn2", "kda", "lightning_attention", "linear_attention", "mamba2",
    "retnet", "rwkv6", "rwkv7", "simple_gla", "features", "forget_after_correct", "forgetting", "functions", "narrow_outputs",
    "outputs", "signed", "square", "two_rank",
]  # fmt: skip


@pytest.mark.parametrize("spec", EVERY_SPEC)
def test_every_spec(spec: str):
    check(Case(spec, SIZES, tokens=9))


@pytest.mark.parametrize("spec", with_normal_form(Path(__file__).parents[1] / "specs"))
def test_every_spec_of_the_tests(spec: str):
    arguments = compiled(spec)[0].recurrence.arguments
    check(Case(spec, {axis: 4 for a in arguments for axis in a.axes} | SIZES, tokens=5))


CASES = {
    "many value blocks": Case("kda", {"K": 48, "V": 40}, tokens=5, entries=64, options=GATES),
    "value blocks, outputs without value axis": Case("narrow_outputs", SIZES | {"V": 20}, tokens=5, entries=8),
    "value blocks, read before the write": Case("signed", SIZES | {"V": 20}, tokens=6, entries=8, heads=4, key_heads=2),
    "value blocks, two streams": Case("two_rank", SIZES | {"V": 20}, tokens=6, entries=8),
    "large": Case("gated_delta_rule", {"K": 48, "V": 80}, tokens=4),
    "sizes of one": Case("gated_delta_rule", {"K": 1, "V": 1}, tokens=5),
    "checkpoints": Case("gated_delta_rule", {"K": 4, "V": 3}, tokens=131, heads=1),
    "exactly one segment": Case("signed", {"K": 4, "V": 3}, tokens=64, heads=1),
    "no token": DELTA.but(tokens=0),
    "one token": DELTA.but(tokens=1),
    "two tokens": DELTA.but(tokens=2, batch=2),
    "no batch": DELTA.but(batch=0),
    "no initial state": DELTA.but(initial=False, tokens=5),
    "groups of two": DELTA.but(heads=4, key_heads=2, batch=2, tokens=5),
    "packed": DELTA.but(tokens=12, bounds=(0, 5, 5, 6, 12)),
    "packed, ends empty": Case("kda", SIZES, tokens=4, bounds=(0, 0, 3, 4, 4), initial=False, options=GATES),
    "packed, checkpoints": Case("gla", {"K": 2, "V": 2}, tokens=140, bounds=(0, 1, 66, 66, 140), heads=1),
    "other options": Case("mamba2", SIZES, tokens=6, options={"dt_softplus": False, "dt_min": 0.01, "dt_max": 0.1}),
    "an option off": Case("features", SIZES, tokens=5, options={"strength": False, "D": 2.5}),
    "float64": Case("kda", SIZES, tokens=5, dtype=torch.float64, options=GATES),
    "float64, every function": Case("functions", SIZES, tokens=3, dtype=torch.float64),
    "float64, constants": Case("two_rank", SIZES, tokens=5, dtype=torch.float64),
    "bfloat16": Case("kda", SIZES, tokens=5, dtype=torch.bfloat16, options=GATES),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_case(case: Case):
    check(case)


def strided(arguments):
    """Heads before tokens, a slice of wider rows, and an axis repeated without memory."""
    q, v = arguments["q"], arguments["v"]
    wide = torch.full((*v.shape[:3], 2 * v.shape[3]), torch.nan)
    wide[..., ::2] = v
    beta = arguments["beta"][:, :, :1]
    return arguments | {
        "q": q.transpose(1, 2).contiguous().transpose(1, 2),
        "v": wide[..., ::2],
        "beta": beta.expand(arguments["beta"].shape),
    }


def test_strides():
    check(DELTA.but(tokens=5, batch=2, change=strided))


def resets(value: float):
    def change(arguments):
        g = arguments["g"].clone()
        g[:, 3], g[:, 4], g[:, 0] = value, value, value
        return arguments | {"g": g}

    return change


@pytest.mark.parametrize("spec", ["gated_delta_rule", "gla", "kda"])
@pytest.mark.parametrize("value", [-float("inf"), -1e4, 0.0])
def test_resets(spec: str, value: float):
    check(Case(spec, SIZES, tokens=7, change=resets(value)))


def zeros_and_ones(arguments):
    alpha = arguments["alpha"].clone()
    alpha[:, 2], alpha[:, 3], alpha[:, 4, :, ::2] = 0.0, 1.0, 0.0
    return arguments | {"alpha": alpha}


def test_multipliers_of_zero_and_one():
    check(Case("forgetting", SIZES, tokens=7, change=zeros_and_ones))


def test_a_signed_multiplier_of_zero():
    check(Case("signed", SIZES, tokens=7, change=lambda arguments: arguments | {"a": arguments["a"] * torch.tensor([0.0, 1.0])}))


def test_far_out_gates_are_finite():
    """softplus of 1e4 and of -1e4, and a gradient wherever there is a value."""
    spread = lambda arguments: arguments | {"g": 1e4 * torch.sign(arguments["g"])}  # noqa: E731
    check(Case("kda", SIZES, tokens=5, options=GATES, change=spread))


def test_no_gradient_reaches_a_decay_that_meets_no_state():
    inputs = Inputs(DELTA.but(initial=False, tokens=3))
    *outputs, final, saved = forward(inputs)
    found = gradients(inputs, saved, [torch.ones_like(outputs[0]), torch.ones_like(final)])
    assert (found["g"][:, 0] == 0).all()


@pytest.mark.parametrize("absent", ["output", "final state", "one of several outputs"])
def test_absent_gradients(absent: str):
    """None stands for zeros."""
    inputs = Inputs(Case("outputs", SIZES, tokens=4))
    *outputs, final, saved = forward(inputs)
    given = [torch.ones_like(x) for x in (*outputs, final)]
    none = {"output": slice(0, -1), "final state": slice(-1, None), "one of several outputs": slice(1, 2)}[absent]
    left_out, zeroed = list(given), list(given)
    left_out[none] = [None] * len(given[none])
    zeroed[none] = [torch.zeros_like(x) for x in given[none]]
    for x, y in zip(gradients(inputs, saved, left_out).values(), gradients(inputs, saved, zeroed).values(), strict=True):
        assert torch.equal(x, y)


def test_gradients_of_any_strides():
    """The gradient of a sum is one number without memory of its own."""
    inputs = Inputs(DELTA.but(tokens=4))
    *outputs, final, saved = forward(inputs)
    dense = [torch.ones_like(x) for x in (*outputs, final)]
    expanded = [torch.ones(()).expand(x.shape) for x in (*outputs, final)]
    for x, y in zip(gradients(inputs, saved, dense).values(), gradients(inputs, saved, expanded).values(), strict=True):
        assert x is y is None or torch.equal(x, y)


@pytest.mark.parametrize("spec", ["gated_delta_rule", "forget_after_correct"])
def test_causality(spec: str):
    """What comes later changes nothing before it, to the bit: neither outputs nor gradients of a loss on them."""
    inputs, other = Inputs(Case(spec, SIZES, tokens=6)), Inputs(Case(spec, SIZES, tokens=6, seed=5))
    is_input = {a.name: a.role == "input" for a in inputs.recurrence.arguments}
    for name, x in other.arguments.items():
        if x is not None:
            other.arguments[name] = torch.cat([inputs.arguments[name][:, :4], x[:, 4:]], 1) if is_input[name] else inputs.arguments[name]
    other.initial = inputs.initial
    found = []
    for each in (inputs, other):
        output, _, saved = forward(each)
        cotangent = torch.ones_like(output)
        cotangent[:, 4:] = 0.0
        found.append((output, gradients(each, saved, [cotangent, None])))
    assert torch.equal(found[0][0][:, :4], found[1][0][:, :4])
    for name, x in found[0][1].items():
        y = found[1][1][name]
        assert x is y is None or torch.equal(x[:, :4] if is_input.get(name) else x, y[:, :4] if is_input.get(name) else y), name


@pytest.mark.parametrize("at", [1, 3])
def test_split(at: int):
    """Two parts, the second from where the first ended, are the whole."""
    inputs = Inputs(DELTA.but(tokens=6))
    output, final, _ = forward(inputs)
    parts = []
    state = inputs.initial
    for piece in (slice(0, at), slice(at, None)):
        part = Inputs(inputs.case)
        part.arguments = {k: None if x is None else x[:, piece] for k, x in inputs.arguments.items()}
        part.initial = state
        found, state, _ = forward(part)
        parts.append(found)
    assert torch.equal(torch.cat(parts, 1), output)
    assert torch.equal(state, final)


def test_checkpoints_only_on_demand():
    inputs = Inputs(DELTA.but(tokens=3))
    assert forward(inputs, save=False)[-1].shape[0] == 0
    compare("output", forward(inputs, save=False)[0], forward(inputs)[0], 0.0)


def test_emitted_text():
    """The same at every run."""
    for spec in EVERY_SPEC:
        text = compiled(spec)[1]
        assert result.__wrapped__(spec).module.text == text
