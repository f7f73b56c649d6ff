"""Every form equals the recurrence, token by token in float64: every length around the chunk sizes, every chunk size, every option."""

from __future__ import annotations

import pytest
import torch

from tests.numerics.helpers import (
    BOTH,
    FORMS,
    Case,
    Sample,
    assert_close,
    call,
    cotangents,
    draw,
    each_case,
    each_combination,
    each_default,
    evaluate,
    names,
    reference,
)

LENGTHS = (0, 1, 2, 15, 16, 17, 63, 64, 65, 130, 200)


@pytest.mark.parametrize("tokens", LENGTHS)
@each_case
def test_outputs_states_and_gradients(case: Case, tokens: int) -> None:
    for dtype, forms in ((torch.float64, BOTH), (torch.float32, FORMS)):
        sample = draw(case, tokens).to(dtype)
        incoming = cotangents(case, sample)
        expected = reference(case, sample, incoming)
        for form in forms:
            actual = evaluate(case, form, sample, incoming)
            assert all(x.dtype == dtype for x in actual.values()), form
            assert_close(case, actual, expected, dtype)


@each_combination
def test_every_combination_of_options(case: Case) -> None:
    """Two rows, two groups of two heads, no initial state."""
    sample = draw(case, 40, heads=(2, 4), state=False, seed=3)
    incoming = cotangents(case, sample)
    expected = reference(case, sample, incoming)
    for form in BOTH:
        assert_close(case, evaluate(case, form, sample, incoming), expected, torch.float64)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=["bf16", "fp16"])
@each_case
def test_half_precision(case: Case, dtype: torch.dtype) -> None:
    """Inputs, outputs and gradients of 16 bits; the state stays float32."""
    sample = draw(case, 70).to(dtype)
    incoming = cotangents(case, sample)
    expected = reference(case, sample, incoming)
    for form in FORMS:
        actual = evaluate(case, form, sample, incoming)
        assert all(x.dtype == (torch.float32 if "state" in k else dtype) for k, x in actual.items())
        assert_close(case, actual, expected, dtype)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=["f64", "f32", "bf16"])
@each_case
def test_step_after_step(case: Case, dtype: torch.dtype) -> None:
    """One token at a time, the state updated in place."""
    sample = draw(case, 33).to(dtype)
    state = sample.state.clone()
    steps = []
    per_token = {a.name for a in case.arguments if a.role == "input"}
    for t in range(33):
        token = {k: x[:, t] if k in per_token else x for k, x in sample.inputs.items()}
        result = case.function("step_")(**token, **dict(case.flags), state=state)
        steps.append(result if isinstance(result, tuple) else (result,))
    actual = dict(zip(names(case), (*(torch.stack(x, 1) for x in zip(*steps, strict=True)), state), strict=True))
    expected = reference(case, sample, [None] * (len(names(case)) - 1) + [torch.ones_like(state)])
    assert all(x.dtype == dtype for k, x in actual.items() if k != "final state")
    assert_close(case, actual, {k: expected[k] for k in names(case)}, dtype)


@each_default
def test_mixed_precision_keeps_each_dtype(case: Case) -> None:
    """16-bit vectors with float32 gates and a 16-bit state: gradients in the dtype of their argument."""
    sample = draw(case, 20).to(torch.bfloat16)
    vectors = {a.name for a in case.arguments if a.axes and not case.is_log_decay(a)}
    mixed = Sample({k: x if k in vectors else x.float() for k, x in sample.inputs.items()}, sample.state.bfloat16())
    incoming = cotangents(case, mixed)
    expected = reference(case, mixed, incoming)
    for form in BOTH:
        actual = evaluate(case, form, mixed, incoming)
        assert {k: actual[f"d {k}"].dtype for k in mixed.inputs} == {k: x.dtype for k, x in mixed.inputs.items()}
        assert actual["d initial state"].dtype == torch.bfloat16
        assert actual["final state"].dtype == torch.float32
        assert_close(case, actual, expected, torch.bfloat16)


@each_default
def test_float64_anywhere_computes_in_float64(case: Case) -> None:
    """A single float64 argument is enough."""
    sample = draw(case, 20, state=False).to(torch.float32)
    first = next(iter(sample.inputs))
    sample.inputs[first] = sample.inputs[first].double()
    for form in FORMS:
        assert call(case, form, sample)[-1].dtype == torch.float64
