"""Shapes, strides, gates, boundaries and options drawn at random, each against the recurrence in float64."""

from __future__ import annotations

import itertools

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.numerics.helpers import (
    ALL_CASES,
    SPECS,
    Case,
    Sample,
    assert_close,
    cotangents,
    draw,
    evaluate,
    reference,
    set_gates,
)


@st.composite
def problems(choose, cases: list[Case]):
    """A case, a sample with gates of mixed strength, a form, a dtype, and whether memory is permuted.

    No axis of size 1: a normalised single number has a gradient of nothing but rounding.
    """
    case = choose(st.sampled_from(cases))
    lengths = choose(st.lists(st.integers(0, 40), min_size=1, max_size=4))
    packed = len(lengths) > 1 or choose(st.booleans())
    bounds = tuple(itertools.accumulate(lengths, initial=0)) if packed else None
    key_heads, group = choose(st.integers(1, 2)), choose(st.integers(1, 3))
    sample = draw(
        case,
        sum(lengths),
        batch=1 if packed else choose(st.integers(1, 3)),
        heads=(key_heads, key_heads * group),
        sizes={axis: choose(st.integers(2, 9)) for axis in case.axes},
        seed=choose(st.integers(0, 2**16)),
        state=choose(st.booleans()),
        bounds=bounds,
    )
    strengths = choose(st.lists(st.sampled_from((1e-3, 1.0, 10.0, 1e4, float("inf"))), min_size=1, max_size=7))
    cycle = torch.tensor(strengths, dtype=torch.float64).repeat(sum(lengths))[: sum(lengths)]
    set_gates(case, sample, lambda g: g * cycle.reshape(1, -1, *(1,) * (g.dim() - 2)))
    form = choose(st.sampled_from((("chunk_", 16), ("chunk_", 32), ("chunk_", 64), ("fused_recurrent_", None), ("", None))))
    return case, sample, form, choose(st.sampled_from((torch.float64, torch.float32))), choose(st.booleans())


def transposed(x: torch.Tensor) -> torch.Tensor:
    return x.mT.contiguous().mT if x.dim() > 1 else x


@pytest.mark.parametrize("path", SPECS, ids=lambda p: p.stem)
def test_equals_the_recurrence(path) -> None:
    @settings(max_examples=20, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
    @given(problems([c for c in ALL_CASES if c.path == path]))
    def check(problem) -> None:
        case, exact, form, dtype, permuted = problem
        sample = exact.to(dtype)
        incoming = cotangents(case, sample)
        expected = reference(case, sample, incoming)
        if permuted:
            state = None if sample.state is None else transposed(sample.state)
            sample = Sample({k: transposed(x) for k, x in sample.inputs.items()}, state, sample.bounds)
            incoming = [transposed(d) for d in incoming]
        assert_close(case, evaluate(case, form, sample, incoming), expected, dtype)

    check()
