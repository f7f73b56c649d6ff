"""Splitting anywhere, packed sequences, and causality to the bit."""

from __future__ import annotations

import itertools

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

BOUNDS = (0, 0, 1, 18, 18, 34, 50, 51, 120, 120)  # none, one, several chunks; empty ones first, in the middle and last


# --- split -----------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("at", [0, 1, 31, 64])
@each_case
def test_split_anywhere(case: Case, at: int) -> None:
    """Up to `at` and on from that state, forward and backward, equals all at once."""
    sample = draw(case, 77)
    incoming = cotangents(case, sample)
    expected = reference(case, sample, incoming)
    for form, second in ((FORMS[0], FORMS[3]), (FORMS[2], FORMS[1]), (FORMS[3], FORMS[4])):
        leaves = Sample({k: x.clone().requires_grad_() for k, x in sample.inputs.items()}, sample.state.clone().requires_grad_())
        *early, middle = call(case, form, leaves.tokens(case, slice(0, at), leaves.state))
        *late, final = call(case, second, leaves.tokens(case, slice(at, 77), middle))
        results = [*(torch.cat(x, 1) for x in zip(early, late, strict=True)), final]
        wanted = {**leaves.inputs, "initial state": leaves.state}
        gradients = torch.autograd.grad(results, [*wanted.values()], incoming)
        actual = dict(zip((*names(case), *(f"d {k}" for k in wanted)), (*(x.detach() for x in results), *gradients), strict=True))
        assert_close(case, actual, expected, torch.float64)


# --- packed ----------------------------------------------------------------------------------------------------------------------


def alone(case: Case, sample: Sample, incoming: list[Tensor], form: tuple[str, int | None]) -> dict[str, Tensor]:
    """Each packed sequence by itself; gradients of params are summed."""
    parts = []
    for i, (first, last) in enumerate(itertools.pairwise(BOUNDS)):
        part = sample.tokens(case, slice(first, last), None if sample.state is None else sample.state[i : i + 1])
        cut = [*(d[:, first:last] for d in incoming[:-1]), incoming[-1][i : i + 1]]
        parts.append(evaluate(case, form, part, cut))
    params = {f"d {a.name}" for a in case.arguments if a.role == "param"}
    joined = {k: torch.cat([p[k] for p in parts if k in p], 0 if "state" in k else 1) for k in parts[2] if k not in params}
    return joined | {k: sum(p[k] for p in parts if k in p) for k in params}  # an empty sequence has no gradient of a param


@each_case
def test_packed_equals_each_alone(case: Case) -> None:
    """Bit for bit, params apart, whose sums are taken in another order."""
    for dtype, index_dtype in ((torch.float32, torch.int32), (torch.float64, torch.int64)):
        sample = draw(case, BOUNDS[-1], batch=1, bounds=BOUNDS).to(dtype)
        sample.bounds = sample.bounds.to(index_dtype)
        incoming = cotangents(case, sample)
        params = {f"d {a.name}" for a in case.arguments if a.role == "param"}
        for form in (("chunk_", 16), ("chunk_", 64), ("fused_recurrent_", None)):
            actual, expected = evaluate(case, form, sample, incoming), alone(case, sample, incoming, form)
            assert_close(case, actual, expected, dtype)
            assert_equal({k: x for k, x in actual.items() if k not in params}, {k: x for k, x in expected.items() if k not in params})


@each_case
def test_packed_is_right(case: Case) -> None:
    """Against the recurrence over each sequence, with and without initial states."""
    for state in (False, True):
        sample = draw(case, BOUNDS[-1], batch=1, bounds=BOUNDS, heads=(2, 4), state=state)
        incoming = cotangents(case, sample)
        expected = alone(case, sample, incoming, ("naive_recurrent_", None))
        for form in (*FORMS, ("naive_recurrent_", None)):
            assert_close(case, evaluate(case, form, sample, incoming), expected, torch.float64)


@each_default
def test_no_sequence_at_all(case: Case) -> None:
    """Boundaries [0]: nothing in, nothing out, no gradient but zeros."""
    sample = draw(case, 0, batch=1, bounds=(0,))
    for form in FORMS:
        found = evaluate(case, form, sample, cotangents(case, sample))
        assert found["final state"].shape == (0, *sample.state.shape[1:])
        assert not any(x.any() for x in found.values())


# --- causality -------------------------------------------------------------------------------------------------------------------


def unbounded(case: Case) -> set[str]:
    """Vectors of any finite value, apart from those of a feedback, whose products over many tokens would overflow."""
    return {a.name for a in case.arguments if a.role == "input" and a.axes and a.interval.high > 1} - case.feedback


def changed(case: Case, sample: Sample, first: int, magnitude: float) -> Sample:
    """Other values from token `first` on, those that may be `magnitude` times as large."""
    other, large, inputs = draw(case, 80, seed=9).to(sample.state.dtype).inputs, unbounded(case), dict(sample.inputs)
    for a in case.arguments:
        if a.role == "input":
            late = other[a.name][:, first:] * (magnitude if a.name in large or case.is_log_decay(a) else 1)
            inputs[a.name] = torch.cat((inputs[a.name][:, :first], late), 1)
    return Sample(inputs, sample.state)


@pytest.mark.parametrize("magnitude", [1.0, 1e9], ids=["ordinary", "huge"])
@pytest.mark.parametrize("first", [1, 15, 16, 37, 64, 79])
@each_form
@each_default
def test_later_tokens_change_nothing_before(case: Case, form: tuple[str, int | None], first: int, magnitude: float) -> None:
    """Outputs before `first`, and the gradients of a loss on them, stay the same to the bit."""
    sample = draw(case, 80).to(torch.float32)
    incoming = cotangents(case, sample)[:-1]
    for d in incoming:
        d[:, first:] = 0
    before, after = (evaluate(case, form, x, [*incoming, None]) for x in (sample, changed(case, sample, first, magnitude)))
    per_token = {*names(case)[:-1], *(f"d {a.name}" for a in case.arguments if a.role == "input")}
    for name in before.keys() - {"final state"}:
        cut = (slice(None), slice(0, first)) if name in per_token else ...
        assert torch.equal(before[name][cut], after[name][cut]), name


@each_default
def test_a_loss_on_a_prefix_has_the_gradients_of_the_prefix(case: Case) -> None:
    sample = draw(case, 80)
    incoming = cotangents(case, sample)[:-1]
    prefix = sample.tokens(case, slice(0, 37), sample.state)
    expected = reference(case, prefix, [*(d[:, :37] for d in incoming), None])
    for form in BOTH:
        found = evaluate(case, form, sample, [*(torch.cat((d[:, :37], torch.zeros_like(d[:, 37:])), 1) for d in incoming), None])
        for a in case.arguments:
            if a.role == "input":
                assert not found[f"d {a.name}"][:, 37:].any(), a.name
                found[f"d {a.name}"] = found[f"d {a.name}"][:, :37]
        found = {k: x[:, :37] if k in names(case) else x for k, x in found.items() if k != "final state"}
        assert_close(case, found, {k: x for k, x in expected.items() if k != "final state"}, torch.float64)
