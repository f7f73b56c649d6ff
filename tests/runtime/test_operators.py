"""The operators under torch's own machinery: opcheck, double backward, autocast, checkpointing, copies, many outputs."""

from __future__ import annotations

import copy
import io
import pickle

import pytest
import torch
from torch.utils.checkpoint import checkpoint

from tests.numerics.helpers import (
    BOTH,
    FORMS,
    Case,
    Sample,
    assert_equal,
    call,
    case_of,
    cotangents,
    draw,
    each_case,
    each_default,
    each_form,
    evaluate,
    names,
    operator_inputs,
    sizes_of,
)

# --- opcheck ---------------------------------------------------------------------------------------------------------------------


def operators(case: Case):
    return getattr(torch.ops, case.module._NAMESPACE)


def operator_arguments(case: Case, sample: Sample) -> list[object]:
    """An operator's leading arguments: tensors in order, numbers, flags."""
    arguments = operator_inputs(case, sample)
    numbers = [0.5 + 0.25 * i for i, o in enumerate(case.compiled.recurrence.options) if not isinstance(o.default, bool)]
    return [*arguments, *numbers, *(value for _, value in case.flags)]


def key_first(case: Case, state: torch.Tensor | None) -> tuple[torch.Tensor | None, ...]:
    """Operators take every matrix state [N, HV, K, V], whatever the spec declares."""
    pairs = zip(case.apart(state), case.module._STATES, strict=True)
    return tuple(x.mT if x is not None and info.turned else x for x, info in pairs)


SAMPLES = {
    "state": {"tokens": 20, "bounds": None, "state": True, "dtype": torch.float32},
    "packed": {"tokens": 20, "bounds": (0, 0, 3, 20), "state": True, "dtype": torch.float32},
    "plain": {"tokens": 7, "bounds": None, "state": False, "dtype": torch.float64},
    "nothing": {"tokens": 0, "bounds": None, "state": True, "dtype": torch.float32},
    "half": {"tokens": 18, "bounds": None, "state": True, "dtype": torch.bfloat16},
}


@pytest.mark.parametrize("kind", SAMPLES)
@each_default
def test_opcheck_of_the_forward_operators(case: Case, kind: str) -> None:
    """Schema, autograd registration, fake kernel (shapes, dtypes, strides) and AOT dispatch with symbolic shapes."""
    of = SAMPLES[kind]
    sample = draw(case, of["tokens"], batch=1 if of["bounds"] else 2, bounds=of["bounds"], state=of["state"]).to(of["dtype"])
    states = tuple(None if x is None else x.detach().clone() for x in key_first(case, sample.state))
    for x in (*sample.inputs.values(), *(x for x in states if x is not None)):
        x.requires_grad_()
    for name in ("chunk_forward", "recurrent_forward"):
        arguments = (*operator_arguments(case, sample), *states, sample.bounds, 16, True)
        torch.library.opcheck(getattr(operators(case), name).default, arguments, test_utils=("test_schema", "test_faketensor"))
    if kind == "packed":
        tests = ("test_autograd_registration", "test_aot_dispatch_dynamic")
        torch.library.opcheck(operators(case).chunk_forward.default, arguments, test_utils=tests)


@each_case
def test_opcheck_of_the_backward_operators(case: Case) -> None:
    for bounds in (None, (0, 3, 3, 20)):
        sample = draw(case, 20, batch=1 if bounds else 2, bounds=bounds).to(torch.float32)
        incoming, leading = cotangents(case, sample), operator_arguments(case, sample)
        initial, outgoing = key_first(case, sample.state), key_first(case, incoming[-1])
        for kind in ("chunk", "recurrent"):
            *_, states = getattr(operators(case), f"{kind}_forward")(*leading, *initial, sample.bounds, 16, True)
            for given in (incoming[:-1], [None] * (len(incoming) - 1)):
                arguments = (*leading, *initial, sample.bounds, 16, states, *given, *outgoing)
                operator = getattr(operators(case), f"{kind}_backward").default
                torch.library.opcheck(operator, arguments, test_utils=("test_schema", "test_faketensor"))


@each_default
def test_opcheck_of_the_step(case: Case) -> None:
    sample = draw(case, 1).to(torch.float32)
    for indices in (None, torch.tensor([1, -1])):
        arguments = (*operator_arguments(case, sample), *(x.clone() for x in key_first(case, sample.state)), indices)
        torch.library.opcheck(operators(case).step.default, arguments, test_utils=("test_schema", "test_faketensor"))


@each_default
def test_fake_results_have_the_real_layout(case: Case) -> None:
    """On meta tensors: shapes, dtypes and strides without a value, for no token and one too."""
    for tokens in (0, 1, 20):
        sample = draw(case, tokens).to(torch.float32)
        real = call(case, ("chunk_", 16), sample)
        meta = Sample({k: x.to("meta") for k, x in sample.inputs.items()}, sample.state.to("meta"))
        fake = call(case, ("chunk_", 16), meta)
        layout = [(x.shape, x.dtype, x.stride()) for x in real]
        assert [(x.shape, x.dtype, x.stride()) for x in fake] == layout


# --- double backward -------------------------------------------------------------------------------------------------------------


@each_form
@each_default
def test_double_backward_says_that_it_is_missing(case: Case, form: tuple[str, int | None]) -> None:
    """A second-order term must not vanish silently."""
    sample = draw(case, 10)
    for x in (*sample.inputs.values(), sample.state):
        x.requires_grad_()
    outputs = call(case, form, sample)
    gradients = torch.autograd.grad([x.square().sum() for x in outputs], list(sample.inputs.values()), create_graph=True)
    with pytest.raises(RuntimeError, match=f"{case.name}: the gradient of a gradient is not implemented; naive_recurrent_{case.name} has"):
        sum(g.square().sum() for g in gradients).backward()


@each_default
def test_the_recurrence_has_second_derivatives(case: Case) -> None:
    sample = draw(case, 3, batch=1, sizes=dict.fromkeys(case.axes, 2))
    first = next(iter(sample.inputs))

    def run(x):
        return call(case, ("naive_recurrent_", None), Sample({**sample.inputs, first: x}, sample.state))

    assert torch.autograd.gradgradcheck(run, sample.inputs[first].requires_grad_())


# --- autocast, checkpointing, copies ---------------------------------------------------------------------------------------------


@each_case
def test_autocast_changes_nothing(case: Case) -> None:
    """Gates and states keep float32, forward and backward."""
    sample = draw(case, 40).to(torch.float32)
    incoming = cotangents(case, sample)
    for form in FORMS:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            under = evaluate(case, form, sample, incoming)
        assert_equal(under, evaluate(case, form, sample, incoming))


class Layer(torch.nn.Module):
    """Projects its input to every vector and gate, runs a form, and adds the outputs up."""

    def __init__(self, case: Case, form: tuple[str, int | None], width: int = 6) -> None:
        super().__init__()
        self.function, self.flags = case.function(form[0]), dict(case.flags)
        self.chunk = {} if form[1] is None else {"chunk_size": form[1]}
        shapes = {a.name: x.shape for a, x in zip(case.arguments, draw(case, 1).inputs.values(), strict=True)}
        per_token = {a.name: shapes[a.name][2:] for a in case.arguments if a.role == "input"}
        self.projections = torch.nn.ModuleDict({k: torch.nn.Linear(width, s.numel()) for k, s in per_token.items()})
        params = {a.name: torch.nn.Parameter(torch.full(shapes[a.name], -0.5)) for a in case.arguments if a.role == "param"}
        self.params, self.shapes = torch.nn.ParameterDict(params), per_token
        self.bounded = {a.name for a in case.arguments if case.is_log_decay(a)}
        self.free = {a.name for a in case.arguments if not a.domain} - self.bounded

    def forward(self, x):
        inputs = {k: projection(x).unflatten(-1, self.shapes[k]) for k, projection in self.projections.items()}
        inputs = {k: -v.square() if k in self.bounded else 0.3 * (v.tanh() if k in self.free else v.sigmoid()) for k, v in inputs.items()}
        *outputs, _ = self.function(**inputs, **self.params, **self.flags, **self.chunk)
        return sum(o.flatten(2).sum(-1) for o in outputs)


def layer_gradients(layer: torch.nn.Module, run, x: torch.Tensor) -> dict[str, torch.Tensor]:
    layer.zero_grad()
    y = run(x)
    y.square().mean().backward()
    return {"y": y.detach()} | {k: p.grad.clone() for k, p in layer.named_parameters()}


@each_form
@each_default
def test_activation_checkpointing(case: Case, form: tuple[str, int | None]) -> None:
    """Recomputation gives the same bits."""
    torch.manual_seed(0)
    layer, x = Layer(case, form), torch.randn(2, 20, 6)
    plain = layer_gradients(layer, layer, x)
    assert any(p.any() for p in plain.values())
    assert_equal(layer_gradients(layer, lambda v: checkpoint(layer, v, use_reentrant=False), x), plain)


@each_default
def test_copies_and_pickles_of_a_module(case: Case) -> None:
    torch.manual_seed(0)
    layer, x = Layer(case, BOTH[0]), torch.randn(2, 20, 6)
    right = layer_gradients(layer, layer, x)
    memory = io.BytesIO()
    torch.save(layer, memory)
    memory.seek(0)
    for other in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer)), torch.load(memory, weights_only=False)):
        assert_equal(layer_gradients(other, other, x), right)


def test_gradients_sum_over_uses() -> None:
    """Two calls on one leaf, backward twice with retain_graph: plain accumulation."""
    case = case_of("gated_delta_rule")
    sample = draw(case, 20)
    leaf = sample.inputs["k"].requires_grad_()
    one, other = (call(case, form, sample)[0].sum() for form in BOTH)
    (one + other).backward(retain_graph=True)
    first = leaf.grad.clone()
    (one + other).backward()
    torch.testing.assert_close(leaf.grad, 2 * first)


@each_default
def test_results_come_in_order(case: Case) -> None:
    """Outputs as declared, then the state or None; each with the shape and dtype of the contract."""
    sample = draw(case, 9, heads=(2, 4)).to(torch.bfloat16)
    sizes = sizes_of(case)
    terms = {name: case.compiled.recurrence.definition(name).shape for name in names(case)[:-1]}
    for form in FORMS:
        *outputs, state = call(case, form, sample)
        assert len(outputs) == len(names(case)) - 1
        for x, name in zip(outputs, names(case), strict=False):
            axes = [sizes[a] for a in terms[name] if a != "1"]
            assert x.shape == (2, 9, 4, *axes)
            assert x.dtype == torch.bfloat16
            assert x.is_contiguous()
        assert state.shape == (2, 4, *(sizes[a] for a in case.state_axes))
        assert state.dtype == torch.float32
