"""What a recurrence as written loses itself, which no form is asked to do better than."""

import pytest
import torch

from recgen.pipeline import Compiled, compile_text
from recgen.verify.cases import Case
from recgen.verify.inputs import draw, roles
from recgen.verify.loop import Conditioning, results
from recgen.verify.runner import form_of
from tests.verify.helpers import compiled


def conditioning(spec: Compiled, dtype: torch.dtype) -> Conditioning:
    case = Case(tokens=83, key_heads=2, small=True, seed=201)
    parts = roles(form_of(spec))
    sample, run = draw(form_of(spec), parts, case, dtype)
    return Conditioning(spec.recurrence, sample, results(sample, run), parts.gate, 0.0)


def test_a_squashed_read_keeps_fewer_digits_in_half_precision_than_the_read() -> None:
    loop = conditioning(compiled("tests/specs/value_decay_read"), torch.bfloat16)
    assert loop.excuses("found", (1.4e-3, 1.0e-2), torch.bfloat16)
    for tensor in ("after", "before", "final state", "d q", "d k"):
        assert not loop.excuses(tensor, (1e-2, 1e-2), torch.bfloat16), tensor
    assert not loop.excuses("found", (1.4e-3, 0.2), torch.bfloat16)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_well_conditioned_result_is_held_to_the_tolerance(dtype: torch.dtype) -> None:
    loop = conditioning(compiled("tests/specs/value_decay_read"), dtype)
    for tensor in ("after", "before", "found", "final state", "d q", "d g"):
        assert not loop.excuses(tensor, (1e-4, 1e-4), dtype), tensor


def test_a_difference_of_near_numbers_keeps_what_the_loop_keeps() -> None:
    text = """language 1
recurrence near
    "Writes are scaled by what a weak gate leaves, the difference of two numbers near 1."
    input q : [K] grouped
    input k : [K] grouped
    input v : [V]
    input g : [] in(0, 1)
    state S : [K, V]
    S[t] = S[t-1] + ((1 + 1e-4 * g) - 1) * k @ v^T
    o    = S[t]^T @ q
"""
    spec = compile_text(text)
    assert isinstance(spec, Compiled)
    loop = conditioning(spec, torch.float32)
    assert loop.excuses("d v", (5e-5, 5e-5), torch.float32)
    assert not loop.excuses("d v", (1e-1, 1e-1), torch.float32)
    assert not loop.excuses("d v", (float("inf"), float("inf")), torch.float32)
