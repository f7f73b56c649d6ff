"""Gates of any strength: hard resets anywhere, weak and strong decays together, their gradients in float32."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from tests.numerics.helpers import (
    ALL_CASES,
    BOTH,
    FORMS,
    GATED,
    Case,
    Sample,
    assert_close,
    case_of,
    cotangents,
    draw,
    each_gated,
    errors,
    evaluate,
    names,
    reference,
    set_gates,
)

NAIVE = ("naive_recurrent_", None)
STRENGTHS = (-1e3, -1e8, -3e38, -math.inf)
PLACES = [(0,), (1,), (15,), (16,), (3, 4, 5, 9), (0, 1, 15, 16, 17, 31, 32, 63, 64, 79)]
ANY_GATE = 2e-6
"""The limit on a float32 gate gradient's relative RMS error; twice that at -60, where a rounded exponent alone costs 2.6e-6."""

whole_resets = pytest.mark.parametrize("case", [c for c in GATED if c.forgets_all], ids=str)


def with_resets(case: Case, sample: Sample, places: tuple[int, ...], strength: float, channels: slice | None = None) -> Sample:
    """Log decays replaced at some tokens, in every channel or in some."""
    inputs = {k: x.clone() for k, x in sample.inputs.items()}
    for name in case.gates:
        gate = inputs[name]
        gate[(slice(None), list(places)) if channels is None else (slice(None), list(places), slice(None), channels)] = strength
    return Sample(inputs, sample.state, sample.bounds)


@pytest.mark.parametrize("places", PLACES, ids=str)
@whole_resets
def test_a_reset_starts_a_new_sequence(case: Case, places: tuple[int, ...]) -> None:
    """Forward and gradients equal packed sequences that start there; what came before gets no gradient from after."""
    bounds = (0, *(p for p in places if p), 80)
    for dtype, limit in ((torch.float64, 1e-11), (torch.float32, 5e-6)):
        sample = draw(case, 80, batch=1).to(dtype)
        incoming = cotangents(case, sample)
        states = torch.zeros(len(bounds) - 1, *sample.state.shape[1:], dtype=sample.state.dtype)
        states[0] = 0 if 0 in places else sample.state[0]
        packed = Sample(with_resets(case, sample, places, 0.0).inputs, states, torch.tensor(bounds))
        to_states = torch.zeros_like(states)
        to_states[-1] = incoming[-1][0]
        expected = reference(case, packed, [*incoming[:-1], to_states])
        expected["final state"] = expected["final state"][-1:]
        expected["d initial state"] = expected["d initial state"][:1] * (0 not in places)
        for name in case.gates:
            expected[f"d {name}"][:, list(places)] = 0
        for strength in STRENGTHS:
            for form in BOTH:
                assert_close(case, evaluate(case, form, with_resets(case, sample, places, strength), incoming), expected, dtype, limit)


@pytest.mark.parametrize("strength", STRENGTHS)
@each_gated
def test_resets_against_the_recurrence(case: Case, strength: float) -> None:
    """With any read-out, in all channels or in some, the first token among them."""
    vector = all(next(a for a in case.arguments if a.name == name).axes for name in case.gates)
    for channels in (None, slice(0, 2)) if vector else (None,):
        for dtype, limit in ((torch.float64, 1e-11), (torch.float32, 5e-6)):
            sample = with_resets(case, draw(case, 70).to(dtype), (0, 5, 6, 20, 40, 64), strength, channels)
            incoming = cotangents(case, sample)
            expected = reference(case, sample, incoming)
            for form in BOTH:
                assert_close(case, evaluate(case, form, sample, incoming), expected, dtype, limit)


@each_gated
def test_every_token_resets(case: Case) -> None:
    for strength in STRENGTHS:
        sample = with_resets(case, draw(case, 40).to(torch.float32), tuple(range(40)), strength)
        incoming = cotangents(case, sample)
        expected = reference(case, sample, incoming)
        for form in BOTH:
            assert_close(case, evaluate(case, form, sample, incoming), expected, torch.float32)


@each_gated
def test_error_does_not_grow_with_the_gate(case: Case) -> None:
    """A plain prefix sum would lose 6e-8 |g| after a reset."""
    worst = {}
    for strength in (-20.0, -1e3, -1e5, -1e8):
        sample = with_resets(case, draw(case, 64).to(torch.float32), (2, 17), strength)
        incoming = cotangents(case, sample)
        expected = reference(case, sample, incoming)
        actual = evaluate(case, ("chunk_", 64), sample, incoming)
        worst[strength] = max(max(errors(actual[k], expected[k])) for k in expected)
    assert max(worst.values()) < 5e-6, worst


# --- any strength ----------------------------------------------------------------------------------------------------------------


def constant(value: float):
    return lambda old: torch.full_like(old, value)


def few_strong(old: Tensor) -> Tensor:
    """Weak decays, and every ninth token a strong one."""
    gate = old * 0.01
    gate[:, 4::9] = -30.0
    return gate


def spread(old: Tensor) -> Tensor:
    """From 1e-4 to 1e2 by token and channel."""
    return -torch.exp(torch.empty_like(old).uniform_(math.log(1e-4), math.log(1e2), generator=torch.Generator().manual_seed(5)))


GATES = {str(x): constant(x) for x in (0.0, -0.01, -0.1, -1.0, -3.0, -10.0, -60.0)} | {"few strong": few_strong, "spread": spread}


@pytest.mark.parametrize("gate", GATES)
@each_gated
def test_gates_of_any_strength(case: Case, gate: str) -> None:
    """In float32: the table's tolerances, and gate gradients within 2e-6."""
    sample = draw(case, 100)
    set_gates(case, sample, GATES[gate])
    sample = sample.to(torch.float32)
    incoming = cotangents(case, sample)
    expected = reference(case, sample, incoming)
    for form in FORMS[:4]:
        actual = evaluate(case, form, sample, incoming)
        assert_close(case, actual, expected, torch.float32)
        for name in case.gates:
            assert errors(actual[f"d {name}"], expected[f"d {name}"])[0] < (2 if gate == "-60.0" else 1) * ANY_GATE


@each_gated
def test_no_gate_gradient_at_the_start_without_a_state(case: Case) -> None:
    """Nothing decays there: exactly 0, in a batch and at the start of every packed sequence."""
    for bounds in (None, (0, 1, 1, 30, 70)):
        starts = [0] if bounds is None else [0, 1, 30]
        sample = draw(case, 70, batch=1, state=False, bounds=bounds).to(torch.float32)
        for form in FORMS[:4]:
            found = evaluate(case, form, sample, cotangents(case, sample))
            for name in case.gates:
                assert not found[f"d {name}"][:, starts].any()
                assert found[f"d {name}"][:, 2:29].all()


# --- decays that are no plain gate -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("log_decay", [0.0, -1e-4, -0.5, -20.0, -1e8, -math.inf])
def test_constant_decay_of_a_head(log_decay: float) -> None:
    """RetNet's decay is a param: one head with it, one ordinary; its gradient is the sum over all tokens."""
    case = case_of("retnet")
    for dtype, limit in ((torch.float64, 1e-11), (torch.float32, 5e-6)):
        sample = draw(case, 150).to(dtype)
        sample.inputs["g"][0] = log_decay
        incoming = cotangents(case, sample)
        expected = reference(case, sample, incoming)
        for form in FORMS:
            assert_close(case, evaluate(case, form, sample, incoming), expected, dtype, limit)


@pytest.mark.parametrize("step", [0.0, 1e-3, 30.0, 1e3])
def test_step_sizes_of_any_strength(step: float) -> None:
    """Mamba-2's step sets the decay and the write: at some tokens `step`, the write brought to the usual size."""
    case = case_of("mamba2", dt_softplus=False)
    sample = draw(case, 90)
    sample.inputs["dt"] = sample.inputs["dt"].abs()
    sample.inputs["dt_bias"].zero_()
    sample.inputs["dt"][:, [0, 7, 8, 40, 70]] = step
    sample.inputs["x"][:, [0, 7, 8, 40, 70]] /= max(step, 1)
    for dtype, limit in ((torch.float64, 1e-11), (torch.float32, 5e-6)):
        rounded = sample.to(dtype)
        incoming = cotangents(case, rounded)
        expected = reference(case, rounded, incoming)
        for form in FORMS:
            assert_close(case, evaluate(case, form, rounded, incoming), expected, dtype, limit)


def test_pre_activations_of_any_size_have_finite_gradients() -> None:
    """Gates computed inside: softplus, sigmoid and exp far out."""
    for name, gates in (("kda", ("g", "beta")), ("gated_delta_rule", ("g", "beta")), ("mamba2", ("dt",))):
        case = next(c for c in ALL_CASES if c.name == name and all(value for _, value in c.flags))
        sample = draw(case, 40)
        for gate in gates:
            sample.inputs[gate][:, ::3] *= 100
            sample.inputs[gate][:, 1::7] = -1e4
        incoming = cotangents(case, sample)
        expected = reference(case, sample, incoming)
        for form in FORMS:
            assert_close(case, evaluate(case, form, sample, incoming), expected, torch.float64)


@pytest.mark.parametrize("name", ["kda", "gated_delta_rule", "mamba2"])
def test_a_pre_activation_of_exactly_zero(name: str) -> None:
    """As a fresh model has it: softplus has the slope 1/2 there, in every form."""
    case = next(c for c in ALL_CASES if c.name == name and all(value for _, value in c.flags))
    gate = "dt" if name == "mamba2" else "g"
    sample = draw(case, 30)
    sample.inputs[gate][:, ::2] = 0
    sample.inputs["dt_bias"].zero_()
    incoming = cotangents(case, sample)
    nearby = Sample(dict(sample.inputs), sample.state)
    nearby.inputs[gate] = torch.where(sample.inputs[gate] == 0, 1e-14, sample.inputs[gate])
    expected = reference(case, nearby, incoming)
    for form in (*FORMS, ("naive_recurrent_", None)):
        assert_close(case, evaluate(case, form, sample, incoming), expected, torch.float64)


def test_a_zero_vector_is_normalised_with_a_finite_gradient() -> None:
    case = case_of("gated_delta_rule", use_qk_l2norm_in_kernel=True)
    sample = draw(case, 40)
    sample.inputs["q"][:, 3] = 0
    sample.inputs["k"][:, 5:8] = 0
    incoming = cotangents(case, sample)
    expected = reference(case, sample, incoming)
    assert all(expected[k].isfinite().all() for k in (*names(case), "d q", "d k"))
    for form in FORMS:
        assert_close(case, evaluate(case, form, sample, incoming), expected, torch.float64)


@pytest.mark.parametrize("name", ["delta_rule", "gated_delta_rule", "kda"])
@pytest.mark.parametrize("noise", [0.0, 1e-3, 0.1])
def test_near_parallel_keys_with_beta_near_two(name: str, noise: float) -> None:
    """The triangular inverse is at its worst: 1e-4 in float32."""
    case = case_of(name)
    sample = draw(case, 200)
    key = torch.randn(sample.inputs["k"].shape[-1], dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    sample.inputs["k"] = torch.nn.functional.normalize(key / key.norm() + noise * sample.inputs["k"], dim=-1)
    sample.inputs["beta"] = 1.98 + 0.0199 * sample.inputs["beta"]
    set_gates(case, sample, constant(-1e-4))
    sample = sample.to(torch.float32)
    incoming = cotangents(case, sample)
    expected = reference(case, sample, incoming)
    for form in FORMS:
        assert_close(case, evaluate(case, form, sample, incoming), expected, torch.float32, 1e-4)
