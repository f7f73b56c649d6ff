"""The reference itself: loops written by hand from the papers, and transformers' own step functions."""

from __future__ import annotations

import importlib
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from tests.numerics.helpers import Case, Sample, call, case_of, cotangents, draw, errors, evaluate

NAIVE = ("naive_recurrent_", None)
Loop = Callable[[dict[str, Tensor], Tensor], tuple[Tensor, Tensor]]


def spread(x: Tensor, heads: int) -> Tensor:
    """[B, T, H, D] to [B, T, HV, D]: value head i reads key head i // (HV // H)."""
    return torch.stack([x[:, :, i // (heads // x.shape[2])] for i in range(heads)], 2)


def gated_delta_rule(x: dict[str, Tensor], state: Tensor) -> tuple[Tensor, Tensor]:
    """What is there decays; the key's value is replaced."""
    heads, outputs = x["v"].shape[2], []
    q, k = spread(x["q"], heads), spread(x["k"], heads)
    for t in range(q.shape[1]):
        state = state * x["g"][:, t, :, None, None].exp()
        found = torch.einsum("bhkv,bhk->bhv", state, k[:, t])
        state = state + torch.einsum("bhk,bhv->bhkv", k[:, t], x["beta"][:, t, :, None] * (x["v"][:, t] - found))
        outputs.append(torch.einsum("bhkv,bhk->bhv", state, q[:, t]) / q.shape[-1] ** 0.5)
    return torch.stack(outputs, 1), state


def gla(x: dict[str, Tensor], state: Tensor) -> tuple[Tensor, Tensor]:
    """Every key channel decays at its own rate."""
    heads, outputs = x["v"].shape[2], []
    q, k = spread(x["q"], heads), spread(x["k"], heads)
    for t in range(q.shape[1]):
        state = state * x["g"][:, t].exp()[..., None] + k[:, t][..., None] * x["v"][:, t][..., None, :]
        outputs.append((state * q[:, t][..., None]).sum(-2) * q.shape[-1] ** -0.5)
    return torch.stack(outputs, 1), state


def retnet(x: dict[str, Tensor], state: Tensor) -> tuple[Tensor, Tensor]:
    """Retention's parallel form: sums over earlier tokens with powers of the head's decay."""
    heads, tokens = x["v"].shape[2], x["v"].shape[1]
    q, k = spread(x["q"], heads) * x["q"].shape[-1] ** -0.5, spread(x["k"], heads)
    age = torch.arange(tokens)[:, None] - torch.arange(tokens)
    decay = torch.where(age >= 0, torch.exp(x["g"][:, None, None] * age.clamp(min=0)), 0.0)
    since = torch.exp(x["g"] * torch.arange(1, tokens + 1)[:, None])
    output = torch.einsum("bihk,bjhk,hij,bjhv->bihv", q, k, decay, x["v"]) + torch.einsum("bihk,ih,bhkv->bihv", q, since, state)
    final = torch.einsum("bjhk,hj,bjhv->bhkv", k, decay[:, -1], x["v"]) + since[-1][:, None, None] * state
    return output, final


def forget_after_correct(x: dict[str, Tensor], state: Tensor) -> tuple[Tensor, Tensor]:
    """State [P, M]: correct, forget by channel, write; the read before the write is gated, the one after it normalised."""
    outputs, e = [], x["e"] / (x["e"].square().sum(-1, keepdim=True) + 1e-6).sqrt()
    for t in range(e.shape[1]):
        before, e_t, w_t, x_t = state, e[:, t][..., None, :], x["w"][:, t][..., None, :], x["x"][:, t][..., None]
        eta, mix = x["eta"][:, t, :, None, None], x["mix"][:, t, :, None, None]
        state = (before - eta * (before * e_t).sum(-1, keepdim=True) * e_t) * x["f"][:, t].exp()[..., None, :] + mix * x_t * w_t
        after = (state * w_t).sum(-1)
        normed = after / (after.square().mean(-1, keepdim=True) + 1e-6).sqrt()
        read = (before * x["r"][:, t][..., None, :]).sum(-1)
        outputs.append(F.silu(x["z"][:, t]) * read + normed + x["skip"] * x["x"][:, t])
    return torch.stack(outputs, 1), state


@pytest.mark.parametrize("loop", [gated_delta_rule, gla, retnet, forget_after_correct], ids=lambda f: f.__name__)
def test_naive_equals_a_loop_by_hand(loop: Loop) -> None:
    case = case_of(loop.__name__)
    heads = (2, 4) if any(a.grouped for a in case.arguments) else (3, 3)
    sample = draw(case, 21, heads=heads)
    incoming = cotangents(case, sample)
    actual = evaluate(case, NAIVE, sample, incoming)
    leaves = {k: x.clone().requires_grad_() for k, x in sample.inputs.items()}
    state = sample.state.clone().requires_grad_()
    results = loop(leaves, state)
    gradients = torch.autograd.grad(results, [*leaves.values(), state], incoming)
    expected = dict(zip([*actual], (*results, *gradients), strict=True))
    for name in actual:
        assert max(errors(actual[name], expected[name].detach())) < 1e-13, name


# --- transformers ----------------------------------------------------------------------------------------------------------------


def original(model: str, name: str):
    """A step function of transformers."""
    pytest.importorskip("transformers")
    return getattr(importlib.import_module(f"transformers.models.{model}.modeling_{model}"), name)


def assert_like(case: Case, sample: Sample, expected: tuple[Tensor, Tensor]) -> None:
    for form in (NAIVE, ("chunk_", 64), ("fused_recurrent_", None)):
        for actual, right in zip(call(case, form, sample), expected, strict=True):
            assert max(errors(actual, right)) < 2e-6


@pytest.mark.parametrize("norm", [False, True])
def test_gated_delta_rule_of_transformers(norm: bool) -> None:
    case = case_of("gated_delta_rule", use_qk_l2norm_in_kernel=norm)
    sample = draw(case, 70, heads=(2, 4)).to(torch.float32)
    right = original("qwen3_next", "torch_recurrent_gated_delta_rule")
    options = {"initial_state": sample.state, "output_final_state": True, "use_qk_l2norm_in_kernel": norm}
    assert_like(case, sample, right(*sample.inputs.values(), **options))


@pytest.mark.parametrize("norm", [False, True])
def test_kimi_delta_attention_of_transformers(norm: bool) -> None:
    case = case_of("kda", use_qk_l2norm_in_kernel=norm)
    sample = draw(case, 70, heads=(3, 3)).to(torch.float32)
    right = original("kimi_linear", "recurrent_kimi_delta_attention")
    assert_like(case, sample, right(*sample.inputs.values(), sample.state, True, use_qk_l2norm_in_kernel=norm))


def test_kimi_gate_of_the_paper() -> None:
    """-exp(A_log) * softplus(g + dt_bias) and sigmoid(beta), computed inside or before."""
    inside = case_of("kda", use_gate_in_kernel=True, use_beta_sigmoid_in_kernel=True)
    sample = draw(inside, 40)
    x = dict(sample.inputs)
    a_log, bias = x.pop("A_log"), x.pop("dt_bias")
    x["g"] = -a_log.exp()[:, None] * F.softplus(x["g"] + bias)
    x["beta"] = x["beta"].sigmoid()
    expected = call(case_of("kda"), NAIVE, Sample(x, sample.state))
    for form in (NAIVE, ("chunk_", 32), ("fused_recurrent_", None)):
        for actual, right in zip(call(inside, form, sample), expected, strict=True):
            assert max(errors(actual, right)) < 1e-12


@pytest.mark.parametrize("softplus", [False, True])
def test_mamba_step_of_transformers(softplus: bool) -> None:
    case = case_of("mamba2", dt_softplus=softplus)
    sample = draw(case, 20, heads=(2, 4)).to(torch.float32)
    if not softplus:
        sample.inputs["dt"] = sample.inputs["dt"].abs() - sample.inputs["dt_bias"]  # theirs is not held at 0
    step, state, outputs = original("mamba2", "mamba2_selective_state_update"), sample.state.clone(), []
    x = sample.inputs
    wide = {k: x[k][:, None].expand(4, x["x"].shape[-1]) for k in ("D", "dt_bias")}
    decay = x["A"][:, None, None].expand(4, *state.shape[-2:])
    for t in range(20):
        dt = x["dt"][:, t, :, None].expand(-1, -1, x["x"].shape[-1])
        outputs.append(step(state, x["x"][:, t], dt, decay, x["B"][:, t], x["C"][:, t], dt_softplus=softplus, **wide))
    assert_like(case, sample, (torch.stack(outputs, 1).reshape(x["x"].shape), state))
