"""One token in place, against the recurrent kernel and the contract of state pools."""

import functools

import pytest
import torch

from tests.triton.harness import Case, Inputs, compare, forward, module

SIZES = {"K": 7, "V": 5, "D": 6, "F": 3, "M": 7, "P": 5, "N": 7}


def token(inputs: Inputs, t: int) -> list[object]:
    """The arguments of one token."""
    is_input = {a.name: a.role == "input" for a in inputs.recurrence.arguments}
    values = [x[:, t] if x is not None and is_input[k] else x for k, x in inputs.arguments.items()]
    return [*values, *inputs.values[len(values) :]]


STEPS = [
    "gated_delta_product",
    "gated_delta_rule",
    "kda",
    "mamba2",
    "rwkv6",
    "rwkv7",
    "outputs",
    "features",
    "square",
    "forget_after_correct",
]


@pytest.mark.parametrize("spec", STEPS)
def test_steps_are_the_recurrence(spec: str):
    inputs = Inputs(Case(spec, SIZES, tokens=3, batch=2, heads=4, key_heads=2))
    *outputs, final, _ = forward(inputs)
    state = inputs.oriented(inputs.initial.clone())
    for t in range(3):
        found = module(spec)._triton_step(*token(inputs, t), state, None)
        for x, y in zip(found, outputs, strict=True):
            compare(f"token {t}", x, y[:, t], 1e-5)
    compare("state", state, final, 1e-5)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_dtypes_of_the_state(dtype: torch.dtype):
    inputs = Inputs(Case("gated_delta_rule", SIZES, tokens=1, batch=2))
    output, final, _ = forward(inputs)
    state = inputs.initial.to(dtype)
    (found,) = module("gated_delta_rule")._triton_step(*token(inputs, 0), state, None)
    limit = 2e-2 if dtype == torch.bfloat16 else 1e-5
    compare("output", found, output[:, 0], limit)
    compare("state", state, final, limit)


@pytest.mark.parametrize("spec", ["gated_delta_rule", "forget_after_correct"])
def test_slots(spec: str):
    """Rows go to the slots they name, in any layout; a negative slot is skipped, its outputs are zero."""
    inputs = Inputs(Case(spec, SIZES, tokens=1, batch=3))
    start = inputs.oriented(inputs.initial)
    outputs = forward(inputs)
    pool = torch.full((6, start.shape[1], start.shape[3], start.shape[2]), 7.0).mT
    pool[4], pool[1] = start[0], start[2]
    before = pool.clone()
    for dtype in (torch.int32, torch.int64):
        pool.copy_(before)
        (found,) = module(spec)._triton_step(*token(inputs, 0), pool, torch.tensor([4, -1, 1], dtype=dtype))
        compare("first row", found[0], outputs[0][0, 0], 1e-5)
        compare("last row", found[2], outputs[0][2, 0], 1e-5)
        assert (found[1] == 0).all()
        compare("its state", pool[4], outputs[-2][0], 1e-5)
        compare("its state", pool[1], outputs[-2][2], 1e-5)
        untouched = [0, 2, 3, 5]
        assert torch.equal(pool[untouched], before[untouched])


def test_slots_of_any_strides():
    inputs = Inputs(Case("gated_delta_rule", SIZES, tokens=1, batch=2))
    run = functools.partial(module("gated_delta_rule").step_gated_delta_rule, **dict(zip(inputs.arguments, token(inputs, 0), strict=False)))
    spread = torch.tensor([1, 7, 0, 7])[::2]
    one, other = inputs.initial.clone(), inputs.initial.clone()
    assert torch.equal(run(state=one, state_indices=spread), run(state=other, state_indices=spread.contiguous()))
    assert torch.equal(one, other)


def test_a_slot_that_the_pool_does_not_have_is_skipped():
    inputs = Inputs(Case("gated_delta_rule", SIZES, tokens=1, batch=2))
    memory = torch.cat((inputs.initial, torch.full_like(inputs.initial[:1], 7.0)))
    before = memory.clone()
    (found,) = module("gated_delta_rule")._triton_step(*token(inputs, 0), memory[:2], torch.tensor([1, 2]))
    assert (found[1] == 0).all()
    assert torch.equal(memory[[0, 2]], before[[0, 2]])
    assert not torch.equal(memory[1], before[1])


def test_no_rows():
    inputs = Inputs(Case("gated_delta_rule", SIZES, tokens=1, batch=0))
    (found,) = module("gated_delta_rule")._triton_step(*token(inputs, 0), inputs.initial, None)
    assert found.shape == (0, 2, 5)
