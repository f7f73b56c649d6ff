"""Memory: strides of inputs and incoming gradients, sizes, head groups, uninitialised memory, repeatability."""

from __future__ import annotations

import itertools
from collections.abc import Callable

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
    case_of,
    cotangents,
    draw,
    each_case,
    each_default,
    evaluate,
    names,
    reference,
)

# --- strides ---------------------------------------------------------------------------------------------------------------------


def permuted(x: Tensor) -> Tensor:
    """Axes stored in the opposite order."""
    order = list(reversed(range(x.dim())))
    return x.permute(order).contiguous().permute(order)


def sliced(x: Tensor) -> Tensor:
    """Every second element of larger memory, with an offset."""
    wide = torch.full([n * 2 + 1 for n in x.shape], float("nan"), dtype=x.dtype)
    cut = wide[tuple(slice(1, None, 2) for _ in x.shape)]
    cut.copy_(x)
    return cut


def head_first(x: Tensor) -> Tensor:
    """[B, T, H, ...] that lies as [B, H, T, ...]."""
    return x.transpose(1, 2).contiguous().transpose(1, 2) if x.dim() > 2 else x


@pytest.mark.parametrize("layout", [permuted, sliced, head_first], ids=lambda f: f.__name__)
@each_default
def test_any_strides(case: Case, layout: Callable[[Tensor], Tensor]) -> None:
    """Of the inputs, the state and the incoming gradients: the same numbers as from contiguous memory."""
    sample = draw(case, 40).to(torch.float32)
    incoming = cotangents(case, sample)
    other = Sample({k: layout(x) for k, x in sample.inputs.items()}, layout(sample.state))
    strided = [layout(d) for d in incoming]
    for form in (*FORMS, ("naive_recurrent_", None)):
        actual, expected = evaluate(case, form, other, strided), evaluate(case, form, sample, incoming)
        assert_close(case, actual, expected, torch.float32, 2e-6)


@each_default
def test_expanded_inputs_and_gradients(case: Case) -> None:
    """Stride 0: each argument in turn is one number or one row seen everywhere; so is the gradient of a sum."""
    base = draw(case, 8)  # one multiplier for all tokens may make the state grow
    shapes = {k: x.shape for k, x in base.inputs.items()}
    for name in base.inputs:
        first = base.inputs[name][(slice(0, 1),) * base.inputs[name].dim()]
        sample = Sample({**base.inputs, name: first.expand(shapes[name])}, base.state[:1, :1].expand_as(base.state))
        incoming = [torch.ones((), dtype=torch.float64).expand(d.shape) for d in cotangents(case, sample)]
        expected = reference(case, sample, incoming)
        for form in BOTH:
            assert_close(case, evaluate(case, form, sample, incoming), expected, torch.float64)


@each_default
def test_gradient_accumulates_through_a_broadcast(case: Case) -> None:
    """An argument broadcast over the batch gets the sum of the rows' gradients."""
    sample = draw(case, 20)
    incoming = cotangents(case, sample)
    name = next(iter(sample.inputs))
    leaf = sample.inputs[name][:1].clone().requires_grad_()
    for form in BOTH:
        expanded = Sample({**sample.inputs, name: leaf.expand_as(sample.inputs[name])}, sample.state)
        (got,) = torch.autograd.grad(call(case, form, expanded), [leaf], incoming)
        detached = Sample({**sample.inputs, name: leaf.detach().expand_as(sample.inputs[name])}, sample.state)
        right = reference(case, detached, incoming)[f"d {name}"].sum(0, keepdim=True)
        assert_close(case, {f"d {name}": got}, {f"d {name}": right}, torch.float64)


@each_case
def test_arguments_are_never_modified(case: Case) -> None:
    sample = draw(case, 40, batch=1, bounds=(0, 3, 3, 40)).to(torch.float32)
    incoming = cotangents(case, sample)
    given = [*sample.inputs.values(), sample.state, sample.bounds, *incoming]
    before, versions = [x.clone() for x in given], [x._version for x in given]
    for form in (*FORMS, ("naive_recurrent_", None)):
        evaluate(case, form, sample, incoming)
    assert all(torch.equal(x, y) for x, y in zip(given, before, strict=True))
    assert [x._version for x in given] == versions


@each_default
def test_results_share_no_memory_with_arguments(case: Case) -> None:
    """Also for no token at all, where the final state is the initial one."""
    orders = [{"state_v_first": order} for order in (None, True, False)] if len(case.state_axes) == 2 else [{}]
    for tokens, order in itertools.product((0, 1, 20), orders):
        sample = draw(case, tokens, sizes=dict.fromkeys(case.axes, 4)).to(torch.float32)
        taken = {x.untyped_storage().data_ptr() for x in (*sample.inputs.values(), sample.state) if x.numel()}
        for form in FORMS:
            with torch.no_grad():
                results = call(case, form, sample, **order)
            assert not taken & {x.untyped_storage().data_ptr() for x in results if x.numel()}


# --- sizes -----------------------------------------------------------------------------------------------------------------------

SIZES = (1, 7, 48, 80, 96, 192, 256)


@pytest.mark.parametrize("size", SIZES)
@each_default
def test_sizes_of_any_kind(case: Case, size: int) -> None:
    """Each axis in turn has the size, the others another one. (Normalising a single number is ill-conditioned: in float64.)"""
    dtype = torch.float64 if size == 1 else torch.float32
    for axis in case.axes:
        sizes = {**dict.fromkeys(case.axes, 3), axis: size}
        sample = draw(case, 20, batch=1, sizes=sizes).to(dtype)
        incoming = cotangents(case, sample)
        expected = reference(case, sample, incoming)
        for form in BOTH:
            assert_close(case, evaluate(case, form, sample, incoming), expected, dtype)


@pytest.mark.parametrize(("key_heads", "heads"), [(1, 1), (3, 3), (1, 3), (2, 4), (2, 8), (3, 12)])
@each_default
def test_groups_of_heads(case: Case, key_heads: int, heads: int) -> None:
    """HV = H, 2 H, 3 H, 4 H: value head i reads key head i // (HV // H), whose gradient is the sum over its group."""
    for dtype in (torch.float64, torch.bfloat16):
        sample = draw(case, 34, heads=(key_heads, heads)).to(dtype)
        incoming = cotangents(case, sample)
        expected = reference(case, sample, incoming)
        for form in BOTH:
            assert_close(case, evaluate(case, form, sample, incoming), expected, dtype)


@pytest.mark.parametrize("batch", [0, 1, 5])
@each_default
def test_batches(case: Case, batch: int) -> None:
    sample = draw(case, 34, batch=batch)
    incoming = cotangents(case, sample)
    if batch:
        expected = reference(case, sample, incoming)
    for form in FORMS:
        actual = evaluate(case, form, sample, incoming)
        if batch:
            assert_close(case, actual, expected, torch.float64)
        else:
            assert not any(x.any() for x in actual.values())


@each_default
def test_rows_and_heads_do_not_touch_one_another(case: Case) -> None:
    """A row full of NaN leaves the other rows alone."""
    sample = draw(case, 34, batch=3).to(torch.float32)
    incoming = cotangents(case, sample)
    spoilt = sample.to(torch.float32)
    per_token = [a.name for a in case.arguments if a.role == "input"]
    for name in per_token:
        spoilt.inputs[name] = sample.inputs[name].clone()
        spoilt.inputs[name][1] = float("nan")
    for form in FORMS:
        clean, dirty = evaluate(case, form, sample, incoming), evaluate(case, form, spoilt, incoming)
        for name in (*names(case), *(f"d {x}" for x in per_token), "d initial state"):
            assert torch.equal(clean[name][::2], dirty[name][::2]), name


# --- memory ----------------------------------------------------------------------------------------------------------------------


@pytest.fixture
def nan_memory(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Uninitialised memory is full of NaN; counts how often it was asked for."""
    count = [0]

    def filled(function):
        def allocate(*args, **kwargs):
            count[0] += 1
            x = function(*args, **kwargs)
            return x.fill_(float("nan")) if x.is_floating_point() else x

        return allocate

    for owner, name in ((torch, "empty"), (torch, "empty_like"), (torch.Tensor, "new_empty"), (torch, "empty_strided")):
        monkeypatch.setattr(owner, name, filled(getattr(owner, name)))
    return count


@pytest.mark.parametrize("bounds", [None, (0, 0, 1, 17, 17, 70)], ids=["batch", "packed"])
@each_case
def test_every_element_is_written(case: Case, bounds: tuple[int, ...] | None, nan_memory: list[int]) -> None:
    sample = draw(case, 70, batch=1 if bounds else 2, bounds=bounds).to(torch.float32)
    incoming = cotangents(case, sample)
    for form in FORMS:
        before = nan_memory[0]
        assert all(x.isfinite().all() for x in evaluate(case, form, sample, incoming).values())
        assert nan_memory[0] > before, "the fixture no longer reaches the module's memory"


@each_case
def test_every_element_of_a_step_is_written(case: Case, nan_memory: list[int]) -> None:
    token = {k: x[:, 0] if k in {a.name for a in case.arguments if a.role == "input"} else x for k, x in draw(case, 1).inputs.items()}
    state, indices = draw(case, 1, batch=3).state, torch.tensor([-1, 2])
    before = nan_memory[0]
    result = case.function("step_")(**token, **dict(case.flags), state=state, state_indices=indices)
    assert nan_memory[0] > before
    assert all(x.isfinite().all() and not x[0].any() and x[1].any() for x in (result if isinstance(result, tuple) else (result,)))
    assert state.isfinite().all()


@each_case
def test_run_to_run_equal_to_the_bit(case: Case) -> None:
    sample = draw(case, 100, heads=(2, 4)).to(torch.float32)
    incoming = cotangents(case, sample)
    for form in FORMS:
        assert_equal(evaluate(case, form, sample, incoming), evaluate(case, form, sample, incoming))


@pytest.mark.parametrize("name", ["gated_delta_rule", "kda"])
def test_work_in_several_stretches_of_tokens(name: str) -> None:
    """Longer than what is computed together in either form."""
    case = case_of(name)
    sample = draw(case, 600, batch=1, sizes=dict.fromkeys(case.axes, 3)).to(torch.float32)
    incoming = cotangents(case, sample)
    expected = reference(case, sample, incoming)
    for form in FORMS:
        assert_close(case, evaluate(case, form, sample, incoming), expected, torch.float32)
