"""The step: state in place, in any layout and any slots; never a gradient."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from tests.numerics.helpers import Case, assert_close, call, draw, each_case, each_default, each_matrix, each_single, errors, names


def token_of(case: Case, seed: int = 0, batch: int = 2) -> dict[str, Tensor]:
    """One token for every row, float32."""
    per_token = {a.name for a in case.arguments if a.role == "input"}
    return {k: x[:, 0] if k in per_token else x for k, x in draw(case, 1, seed=seed, batch=batch).to(torch.float32).inputs.items()}


def state_of(case: Case, slots: int) -> Tensor:
    return draw(case, 0, batch=slots, seed=8).state.float()


def step(case: Case, token: dict[str, Tensor], state: Tensor, **more) -> tuple[Tensor, ...]:
    result = case.function("step_")(**token, **dict(case.flags), state=state, **more)
    return result if isinstance(result, tuple) else (result,)


def right(case: Case, token: dict[str, Tensor], state: Tensor) -> dict[str, Tensor]:
    """The same token through the recurrence in float64."""
    per_token = {a.name for a in case.arguments if a.role == "input"}
    inputs = {k: (x.unsqueeze(1) if k in per_token else x).double() for k, x in token.items()}
    results = case.function("naive_recurrent_")(**inputs, **dict(case.flags), initial_state=state.double(), output_final_state=True)
    *outputs, final = results
    return dict(zip(names(case), (*(x.squeeze(1) for x in outputs), final), strict=True))


@each_case
def test_outputs_and_state_in_place(case: Case) -> None:
    token, state = token_of(case), state_of(case, 2)
    expected, pointer = right(case, token, state), state.data_ptr()
    outputs = step(case, token, state)
    assert state.data_ptr() == pointer
    assert_close(case, dict(zip(names(case), (*outputs, state), strict=True)), expected, torch.float32)


@each_default
def test_slots_of_a_pool(case: Case) -> None:
    """Rows read and write their slots; a negative index skips its row, whose output is 0; the other slots stay."""
    for dtype in (torch.int32, torch.int64):
        token, pool = token_of(case, batch=4), state_of(case, 6)
        indices, before = torch.tensor([4, -1, 0, 5], dtype=dtype), pool.clone()
        outputs = step(case, token, pool, state_indices=indices)
        live = indices >= 0
        per_token = {a.name for a in case.arguments if a.role == "input"}
        some = {k: x[live] if k in per_token else x for k, x in token.items()}
        slots = indices[live].long()
        expected = right(case, some, before[slots])
        assert not any(x[1].any() for x in outputs)
        assert_close(case, dict(zip(names(case), (*(x[live] for x in outputs), pool[slots]), strict=True)), expected, torch.float32)
        assert torch.equal(pool[[1, 2, 3]], before[[1, 2, 3]])


@each_default
def test_every_row_skipped(case: Case) -> None:
    token, pool = token_of(case), state_of(case, 3)
    before = pool.clone()
    outputs = step(case, token, pool, state_indices=torch.tensor([-1, -7]))
    assert not any(x.any() for x in outputs)
    assert torch.equal(pool, before)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16], ids=str)
@each_default
def test_state_of_any_floating_dtype(case: Case, dtype: torch.dtype) -> None:
    token, state = token_of(case), state_of(case, 2).to(dtype)
    expected = right(case, token, state)
    outputs = step(case, token, state)
    assert state.dtype == dtype
    assert max(errors(outputs[0], expected[names(case)[0]])) < 2e-6
    assert max(errors(state, expected["final state"])) < (5e-3 if dtype.itemsize == 2 else 2e-6)


@each_matrix
def test_state_v_first_on_a_view(case: Case) -> None:
    """The other order of axes, in memory that is a slice of something larger, gives the same numbers in place."""
    token, state = token_of(case), state_of(case, 2)
    declared_v_first = case.turned
    wide = torch.full((2, 2, state.shape[3] + 2, state.shape[2]), 7.0)
    view = wide[:, :, 1:-1]
    view.copy_(state.mT)
    expected = step(case, token, state)
    found = step(case, token, view, state_v_first=not declared_v_first)
    assert all(torch.equal(x, y) for x, y in zip(found, expected, strict=True))
    assert torch.equal(view.mT, state)
    assert bool((wide[:, :, [0, -1]] == 7).all())


@pytest.mark.parametrize("form", ["naive_recurrent_", "fused_recurrent_", "chunk_", ""])
@each_matrix
def test_state_v_first_in_every_form(case: Case, form: str) -> None:
    """Given and returned transposed; named explicitly, the declared order changes nothing; gradients follow."""
    sample = draw(case, 20)
    declared_v_first = case.turned
    *outputs, state = call(case, (form, None), sample)
    *same, named = call(case, (form, None), sample, state_v_first=declared_v_first)
    initial = sample.state.mT.clone().requires_grad_()
    *other, turned = call(case, (form, None), sample, state_v_first=not declared_v_first, initial_state=initial)
    assert all(torch.equal(x, y) and torch.equal(x, z) for x, y, z in zip(outputs, same, other, strict=True))
    assert torch.equal(named, state)
    assert torch.equal(turned.mT, state)
    weight = torch.randn_like(turned)
    leaf = sample.state.clone().requires_grad_()
    (d_turned,) = torch.autograd.grad(turned, initial, weight)
    (d_state,) = torch.autograd.grad(call(case, (form, None), sample, initial_state=leaf)[-1], leaf, weight.mT)
    assert max(errors(d_turned.mT, d_state)) < 1e-13


@each_default
def test_no_gradient_is_promised(case: Case) -> None:
    """With grad mode on and an argument that asks for a gradient: a sentence, and the state untouched."""
    token, state = token_of(case), state_of(case, 2)
    before = state.clone()
    for name in token:
        leaves = {k: x.clone().requires_grad_(k == name) for k, x in token.items()}
        with pytest.raises(RuntimeError, match=f"step_{case.name} has no gradient: .*no_grad.*fused_recurrent_{case.name}"):
            step(case, leaves, state)
        with torch.no_grad():
            assert not any(x.requires_grad for x in step(case, leaves, state.clone()))
    with pytest.raises(RuntimeError, match="has no gradient"):
        step(case, token, state.clone().requires_grad_())
    assert torch.equal(state, before)


@each_single
def test_wrong_states_and_slots(case: Case) -> None:
    token, state = token_of(case), state_of(case, 2)

    def fails(name: str, expected: str, given: Tensor | object, **more) -> None:
        with pytest.raises((ValueError, TypeError), match=rf"{case.name}: argument `{name}` should be {expected}.*, but is"):
            step(case, token, given, **more)

    fails("state", "a tensor", None)
    fails("state", r"\[slots, HV, .* with slots = 2", state_of(case, 3))
    fails("state", r"\[slots, HV, .* with HV = 2", state[:, :1])
    fails("state", r"\[slots, HV, .* with \w+ = ", state.mT)
    fails("state", r"of layout \[slots, HV, ", state[0])
    fails("state", "float64, float32", state.int())
    fails("state", "on cpu", state.to("meta"))
    for indices in (torch.tensor([0]), torch.tensor([[0, 1]]), torch.tensor([0.0, 1.0]), [0, 1], torch.tensor([0, 1], dtype=torch.int16)):
        fails("state_indices", r"an int32 or int64 tensor \[B\] with B = 2", state, state_indices=indices)
    fails("state_indices", "on cpu", state, state_indices=torch.tensor([0, 1], device="meta"))
    assert torch.equal(state, state_of(case, 2))


@each_default
def test_a_slot_that_does_not_exist(case: Case) -> None:
    """An index past the pool is an error on the CPU, never a write elsewhere."""
    token, pool = token_of(case), state_of(case, 3)
    before = pool.clone()
    with pytest.raises(ValueError, match="argument `state_indices` should be slots below 3"):
        step(case, token, pool, state_indices=torch.tensor([0, 3]))
    assert torch.equal(pool, before)
