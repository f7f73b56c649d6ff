"""Gradients through any part of the results, to any part of the arguments, of any layout; and gradcheck."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from tests.numerics.helpers import (
    BOTH,
    FORMS,
    Case,
    Sample,
    assert_close,
    assert_equal,
    call,
    cotangents,
    draw,
    each_case,
    each_default,
    each_form,
    evaluate,
    names,
    reference,
)


@pytest.mark.parametrize("state", [False, True], ids=["no-state", "state"])
@each_case
def test_through_each_result_alone(case: Case, state: bool) -> None:
    """Through one output, through the final state, or through all."""
    sample = draw(case, 40, state=state)
    full = cotangents(case, sample)
    for chosen in (*range(len(full)), None):
        incoming = [d if chosen is None or i == chosen else None for i, d in enumerate(full)]
        expected = reference(case, sample, incoming)
        for form in BOTH:
            actual = evaluate(case, form, sample, incoming)
            assert_close(case, actual, expected, torch.float64)
            for a in case.arguments:  # what the recurrence does not reach is 0 or absent, never noise
                if f"d {a.name}" not in expected and f"d {a.name}" in actual:
                    assert not actual[f"d {a.name}"].any(), a.name


@each_case
def test_outputs_without_the_final_state(case: Case) -> None:
    """The last result is None, and the gradients are those of the outputs."""
    sample = draw(case, 40)
    incoming = [*cotangents(case, sample)[:-1], None]
    expected = reference(case, sample, incoming)
    for form in FORMS:
        leaves = Sample({k: x.clone().requires_grad_() for k, x in sample.inputs.items()}, sample.state.clone().requires_grad_())
        *outputs, final = call(case, form, leaves, output_final_state=False)
        assert final is None
        gradients = torch.autograd.grad(outputs, [*leaves.inputs.values(), leaves.state], incoming[:-1])
        actual = dict(zip((f"d {k}" for k in (*leaves.inputs, "initial state")), gradients, strict=True))
        assert_close(case, actual, {k: expected[k] for k in actual}, torch.float64)


@each_default
def test_to_one_argument_alone(case: Case) -> None:
    """Each argument in turn is the only one that asks for a gradient; it is the same to the bit, and nothing else gets one."""
    sample = draw(case, 20).to(torch.float32)
    incoming = cotangents(case, sample)
    for form in BOTH:
        full = evaluate(case, form, sample, incoming)
        for name in (*sample.inputs, "initial state"):
            leaves = {k: x.clone().requires_grad_(k == name) for k, x in sample.inputs.items()}
            state = sample.state.clone().requires_grad_(name == "initial state")
            results = call(case, form, Sample(leaves, state))
            torch.autograd.backward(results, incoming)
            got = {k: x.grad for k, x in {**leaves, "initial state": state}.items() if x.grad is not None}
            assert_equal(got, {name: full[f"d {name}"]})


@each_default
def test_without_gradient(case: Case) -> None:
    """Under no_grad, inference_mode, or for plain tensors the results are the same and remember nothing."""
    sample = draw(case, 40).to(torch.float32)
    for form in FORMS:
        right = evaluate(case, form, sample, cotangents(case, sample))
        results = call(case, form, sample)
        with torch.inference_mode():
            inferred = call(case, form, sample)
        with torch.no_grad():
            leaves = {k: x.clone().requires_grad_() for k, x in sample.inputs.items()}
            silent = call(case, form, Sample(leaves, sample.state))
        for found in (results, inferred, silent):
            assert not any(x.requires_grad for x in found)
            assert_equal(dict(zip(names(case), found, strict=True)), {k: right[k] for k in names(case)})


def free_of_scale(case: Case, form: tuple[str, int | None], sample: Sample) -> tuple[Tensor, ...]:
    """What a form gives, free of the choice of a scale: states times its exponential, from one that is held, and no eps beside states."""
    scales = case.compiled.recurrence.scales
    if not scales:
        return call(case, form, sample)
    (scale,) = (case.states.index(s) for s in scales)
    sizes = {axis: sample.inputs[a.name].shape[-1] for a in case.arguments for axis in a.axes}
    given = list(case.apart(sample.state, sizes))
    given[scale] = torch.full_like(given[scale], 0.25)
    *outputs, final = case.function(form[0])(
        **sample.inputs, initial_state=case.together(given), output_final_state=True, cu_seqlens=sample.bounds, eps=0.0,
        **({} if form[1] is None else {"chunk_size": form[1]}),
    )  # fmt: skip
    found = case.apart(final, sizes)
    factor = found[scale].exp()
    return (*outputs, *(x * factor.view(*factor.shape, *(1,) * (x.dim() - 2)) for i, x in enumerate(found) if i != scale))


@each_form
@each_case
def test_gradcheck(case: Case, form: tuple[str, int | None]) -> None:
    """Against finite differences: a derivation of its own, over more than one chunk."""
    sample = draw(case, 18, batch=1, sizes=dict.fromkeys(case.axes, 3), seed=4)
    leaves = [x.requires_grad_() for x in (*sample.inputs.values(), sample.state)]

    def run(*values):
        return free_of_scale(case, form, Sample(dict(zip(sample.inputs, values[:-1], strict=True)), values[-1]))

    assert torch.autograd.gradcheck(run, leaves, fast_mode=True)


@each_default
def test_gradcheck_in_full(case: Case) -> None:
    """Every entry of the Jacobian, for three tokens."""
    sample = draw(case, 3, batch=1, sizes=dict.fromkeys(case.axes, 2), seed=4)
    leaves = [x.requires_grad_() for x in (*sample.inputs.values(), sample.state)]
    values = dict.fromkeys(sample.inputs)

    def run(*tensors):
        return free_of_scale(case, ("chunk_", 16), Sample(dict(zip(values, tensors[:-1], strict=True)), tensors[-1]))

    assert torch.autograd.gradcheck(run, leaves)


@each_default
def test_packed_gradcheck(case: Case) -> None:
    bounds = (0, 2, 2, 3, 20)
    sample = draw(case, 20, batch=1, sizes=dict.fromkeys(case.axes, 3), seed=6, bounds=bounds)
    leaves = [x.requires_grad_() for x in (*sample.inputs.values(), sample.state)]

    def run(*values):
        return free_of_scale(case, ("chunk_", 16), Sample(dict(zip(sample.inputs, values[:-1], strict=True)), values[-1], sample.bounds))

    assert torch.autograd.gradcheck(run, leaves, fast_mode=True)
