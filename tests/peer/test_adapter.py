"""The wrappers that stand in for flash-linear-attention's functions, against our own functions. It need not be installed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from recgen.kernels import gated_delta_product, gated_delta_rule, gla, kda, linear_attention, retnet, simple_gla
from tests.peer.fla_adapters import retention_decay, table
from tests.peer.fla_left_out import FILES, LEFT_OUT, reason_left_out, size
from tests.peer.fla_references import NAIVE, REFERENCES, references_of
from tests.peer.run_fla_tests import OUTCOMES, markdown, results, summary
from tests.peer.translation import CALLS, Function

B, T, H, HV, K, V = 2, 20, 2, 4, 6, 5
FUNCTIONS: dict[str, Function] = {name: function for functions in table().values() for name, function in functions.items()}
SUBJECTS = sorted(set(FUNCTIONS) - {"fused_recurrent_kda_fwd"})


@pytest.fixture(autouse=True)
def fresh() -> None:
    torch.manual_seed(0)
    CALLS.clear()


def qkv(heads: int = HV) -> tuple[Tensor, Tensor, Tensor]:
    q, k = (F.normalize(torch.randn(B, T, heads, K), dim=-1) for _ in range(2))
    return q, k, torch.randn(B, T, HV, V)


def decays(*axes: int) -> Tensor:
    return F.logsigmoid(torch.randn(B, T, *axes))


def arguments(name: str) -> dict[str, Any]:
    """What a function needs."""
    q, k, v = qkv()
    if "rwkv" in name or "dplr" in name:
        return rwkv(name, q, k, v)
    needed: dict[str, Any] = {"q": q, "k": k, "v": v}
    if "product" in name:
        keys, values = (torch.cat((x, x), 1) for x in (k, v))
        return {"q": q, "k": keys, "v": values, "g": decays(HV), "beta": torch.rand(B, 2 * T, HV), "num_householder": 2}
    if "kda" in name or name == "chunk_gla":
        needed["g"] = decays(HV, K)
    elif name == "fused_recurrent_gla":
        needed["gk"] = decays(HV, K)
    elif "gated_delta" in name or "simple_gla" in name:
        needed["g"] = decays(HV)
    return {**needed, "beta": torch.rand(B, T, HV)} if "delta" in name or "kda" in name else needed


def rwkv(name: str, q: Tensor, k: Tensor, v: Tensor) -> dict[str, Any]:
    """What RWKV's functions need, and those of the general transition."""
    w, (a, b, _) = decays(HV, K), qkv()
    if "dplr" in name:
        return {"q": q, "k": k, "v": v, "a": -a, "b": a, "gk": w}
    if "rwkv6" in name:
        return {"r": q, "k": k, "v": v, "w": w, "u": torch.randn(HV, K)}
    return {"r": q, "w": w, "k": k, "v": v, **({"kk": a, "a": b} if "mul" in name else {"a": -a, "b": a})}


def equal(found: Any, expected: Any) -> None:
    for x, y in zip(found, expected, strict=True):
        assert (x is None and y is None) or torch.allclose(x, y, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", SUBJECTS)
def test_every_function_calls_one_of_ours(name: str) -> None:
    o, _ = FUNCTIONS[name](**arguments(name))
    assert o.shape == (B, T, HV, V)
    assert sum(CALLS.values()) == (2 if name in ("chunk_linear_attn", "fused_chunk_linear_attn") else 1)


@pytest.mark.parametrize("name", SUBJECTS)
def test_an_unknown_keyword_is_named(name: str) -> None:
    with pytest.raises(NotImplementedError, match="`no_such_option`"):
        FUNCTIONS[name](**arguments(name), no_such_option=None)


@pytest.mark.parametrize(
    ("name", "keyword", "value"),
    [
        ("chunk_gated_delta_rule", "cp_context", object()),
        ("chunk_gated_delta_rule", "chunk_indices", torch.zeros(1, 2)),
        ("fused_recurrent_gated_delta_rule", "gv", decays(HV, V)),
        ("chunk_kda", "return_intermediate_states", True),
        ("chunk_kda", "lower_bound", -5.0),
        ("fused_recurrent_gla", "gv", decays(HV, V)),
        ("fused_recurrent_gla", "reverse", True),
        ("fused_recurrent_simple_gla", "reverse", True),
        ("chunk_simple_gla", "g_gamma", torch.zeros(HV)),
        ("fused_recurrent_linear_attn", "reverse", True),
        ("parallel_retention", "output_attentions", True),
    ],
)
def test_what_has_no_translation_is_refused(name: str, keyword: str, value: object) -> None:
    with pytest.raises(NotImplementedError, match=f"`{keyword}`"):
        FUNCTIONS[name](**arguments(name), **{keyword: value})


def test_a_decay_per_head_equals_a_constant_gate() -> None:
    (q, k, v), gamma = qkv(), retention_decay(HV, torch.device("cpu"))
    constant = simple_gla.chunk_simple_gla(q, k, v, gamma.expand(B, T, HV), output_final_state=True)
    equal(FUNCTIONS["chunk_simple_gla"](q, k, v, g_gamma=gamma, output_final_state=True), constant)
    equal(FUNCTIONS["chunk_retention"](q, k, v, output_final_state=True), constant)
    equal(retnet.chunk_retnet(q, k, v, gamma, output_final_state=True), constant)
    assert CALLS == {"chunk_retnet": 2}


def test_steps_that_lie_one_after_the_other() -> None:
    given = arguments("chunk_gated_delta_product")
    k, v, beta = (given[x].unflatten(1, (T, 2)).transpose(2, 3) for x in ("k", "v", "beta"))
    expected = gated_delta_product.chunk_gated_delta_product(given["q"], k, v, given["g"], beta, output_final_state=True)
    equal(FUNCTIONS["chunk_gated_delta_product"](**given, output_final_state=True), expected)
    single = {**given, "k": given["k"][:, :T], "v": given["v"][:, :T], "beta": given["beta"][:, :T], "num_householder": 1}
    delta = gated_delta_rule.chunk_gated_delta_rule(single["q"], single["k"], single["v"], single["g"], single["beta"])
    equal(FUNCTIONS["chunk_gated_delta_product"](**single), delta)


def test_no_gate_is_linear_attention() -> None:
    q, k, v = qkv()
    equal(FUNCTIONS["chunk_simple_gla"](q, k, v), linear_attention.chunk_linear_attention(q, k, v))


@pytest.mark.parametrize("name", ["chunk_kda", "fused_recurrent_kda", "chunk_gated_delta_rule", "fused_recurrent_gated_delta_rule"])
def test_negative_eigenvalues_double_the_strength(name: str) -> None:
    given = arguments(name)
    raw = given.pop("beta").requires_grad_()
    found, _ = FUNCTIONS[name](**given, beta=raw, use_beta_sigmoid_in_kernel=True, allow_neg_eigval=True)
    expected, _ = FUNCTIONS[name](**given, beta=2 * torch.sigmoid(raw))
    equal((found, *torch.autograd.grad(found.sum(), raw)), (expected, *torch.autograd.grad(expected.sum(), raw)))
    with pytest.raises(ValueError, match="use_beta_sigmoid_in_kernel"):
        FUNCTIONS[name](**given, beta=raw, allow_neg_eigval=True)


def test_gates_in_kernel() -> None:
    q, k, v = qkv(H)
    beta, rate, bias = torch.rand(B, T, HV), torch.randn(HV), torch.randn(HV, K)
    wide, narrow = torch.randn(B, T, HV, K), torch.randn(B, T, HV)
    flat = FUNCTIONS["chunk_kda"](q, k, v, wide, beta, use_gate_in_kernel=True, A_log=rate.view(1, 1, HV, 1), dt_bias=bias.flatten())
    equal(flat, kda.chunk_kda(q, k, v, wide, beta, use_gate_in_kernel=True, A_log=rate, dt_bias=bias))
    bounded = FUNCTIONS["chunk_kda"](q, k, v, wide, beta, use_gate_in_kernel=True, A_log=rate, safe_gate=True, lower_bound=-5.0)
    equal(bounded, kda.chunk_kda(q, k, v, -5 * torch.sigmoid(rate.exp()[:, None] * wide), beta))
    free = FUNCTIONS["chunk_gated_delta_rule"](q, k, v, narrow, beta=beta, use_gate_in_kernel=True, A_log=rate)
    equal(free, gated_delta_rule.chunk_gated_delta_rule(q, k, v, -rate.exp() * F.softplus(narrow), beta))
    with pytest.raises(ValueError, match="lower_bound"):
        FUNCTIONS["chunk_kda"](q, k, v, wide, beta, use_gate_in_kernel=True, A_log=rate, safe_gate=True)


def test_finished_gates_need_no_promise() -> None:
    given = arguments("chunk_kda")
    expected = kda.chunk_kda(**given)
    equal(FUNCTIONS["chunk_kda"](**given, safe_gate=True, lower_bound=-5.0, disable_recompute=True, chunk_size=32), expected)


def test_states_with_their_values_first() -> None:
    (q, k, v), g, state = qkv(), decays(HV, K), torch.randn(B, HV, V, K)
    expected = gla.fused_recurrent_gla(q, k, v, g, initial_state=state, output_final_state=True, state_v_first=True)
    given = {"gk": g, "initial_state": state, "output_final_state": True}
    equal(FUNCTIONS["fused_recurrent_gla"](q, k, v, **given, state_v_first=True), expected)
    with pytest.warns(DeprecationWarning, match="state_v_first"):
        equal(FUNCTIONS["fused_recurrent_gla"](q, k, v, **given, transpose_state_layout=True), expected)
    with pytest.raises(ValueError, match="state_v_first"):
        FUNCTIONS["fused_recurrent_gla"](q, k, v, **given, state_v_first=True, transpose_state_layout=True)


def test_a_copy_of_the_boundaries_is_compared() -> None:
    (q, k, v), bounds = (x[:1] for x in qkv()), torch.tensor([0, 7, T])
    same = FUNCTIONS["chunk_retention"](q, k, v, cu_seqlens=bounds, cu_seqlens_cpu=bounds.clone())
    equal(same, FUNCTIONS["chunk_retention"](q, k, v, cu_seqlens=bounds))
    with pytest.raises(ValueError, match="cu_seqlens_cpu"):
        FUNCTIONS["chunk_retention"](q, k, v, cu_seqlens=bounds, cu_seqlens_cpu=bounds + 1)


@pytest.mark.parametrize("name", ["chunk_linear_attn", "fused_recurrent_linear_attn"])
def test_the_normaliser_and_its_state(name: str) -> None:
    q, k, v = (x.abs() + 0.1 for x in qkv())
    scores = (torch.einsum("bthk,bshk->bhts", q, k)).tril()
    expected = torch.einsum("bhts,bshv->bthv", scores / scores.sum(-1, keepdim=True), v)
    found, (_, keys) = FUNCTIONS[name](q, k, v, normalize=True, output_final_state=True)
    equal((found, keys), (expected, k.sum(1, keepdim=True)))
    first, state = FUNCTIONS[name](q[:, :9], k[:, :9], v[:, :9], normalize=True, output_final_state=True)
    second, _ = FUNCTIONS[name](q[:, 9:], k[:, 9:], v[:, 9:], initial_state=state, normalize=True)
    equal((torch.cat((first, second), 1),), (expected,))


def test_the_attention_matrix() -> None:
    (q, k, v), g = qkv(), decays(HV)
    o, attention = FUNCTIONS["parallel_simple_gla"](q, k, v, g, output_attentions=True)
    assert attention.shape == (B, HV, T, T)
    equal((attention.triu(1), torch.einsum("bhts,bshv->bthv", attention, v)), (torch.zeros(B, HV, T, T), o))


def test_decoding_with_a_pool_of_states() -> None:
    q, k, v, g, beta = (x[:1, :3] for x in (*qkv(), decays(HV, K), torch.rand(B, T, HV)))
    pool, slots = torch.randn(7, HV, K, V), torch.tensor([5, 0, 3], dtype=torch.int32)
    chosen, rest = pool[slots.long()], pool[[1, 2, 4, 6]]
    expected, states = kda.fused_recurrent_kda(*(x[0][:, None] for x in (q, k, v, g, beta)), initial_state=chosen, output_final_state=True)
    decode, call = FUNCTIONS["fused_recurrent_kda_fwd"], {"initial_state": pool, "cu_seqlens": torch.arange(4)}
    o, _ = decode(q, k, v, g, beta, ssm_state_indices=slots, **call)
    equal((o[0], pool[slots.long()], pool[[1, 2, 4, 6]]), (expected[:, 0], states, rest))
    with pytest.raises(NotImplementedError, match="`ssm_state_indices`"):
        decode(q, k, v, g, beta, **call)
    with pytest.raises(NotImplementedError, match="`cu_seqlens`"):
        decode(q, k, v, g, beta, ssm_state_indices=slots, **{**call, "cu_seqlens": torch.tensor([0, 3])})


def test_tables_name_known_files_and_functions() -> None:
    assert {where for where, _ in LEFT_OUT} | set(REFERENCES) <= set(FILES)
    assert {name for functions in REFERENCES.values() for name in functions} == set(NAIVE) <= set(FUNCTIONS)
    assert references_of("test_gla", "test_chunk") == ("fused_recurrent_gla",)
    assert references_of("test_gla", "test_fused_recurrent") == references_of("test_kda", "test_chunk") == ()
    assert reason_left_out("test_gdn", "test_flash_qla_chunk") and not reason_left_out("test_gdn", "test_chunk")
    assert size({"B": 2, "T": 10, "H": 2, "HV": 4, "D": 8}) == 2 * 10 * 4 * 64
    assert size({"H": 3, "K": 8, "expand_ratio": 2, "cu_seqlens": [0, 4, 10]}) == 10 * 3 * 128


def test_the_summary_counts_every_test(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    lines = [{"id": f"f::{name}", "collected": True} for name in "abc"]
    lines += [{"id": "f::a", "started": True}, {"id": "f::a", "outcome": "passed", "message": "", "calls": {"chunk_gla": 2}}]
    lines += [{"id": "f::b", "outcome": "failed", "message": "AssertionError: o\nmore", "calls": {"chunk_gla": 1}}]
    log.write_text("".join(json.dumps(line) + "\n" for line in lines))
    found = summary({"test_gla": results(log)}, {"device": "cpu"})
    assert found["counts"] == {"test_gla": {**dict.fromkeys(OUTCOMES, 0), "passed": 1, "failed": 1, "not run": 1}}
    assert found["calls"] == {"chunk_gla": 2}
    text = markdown(found)
    assert "- `f::b`: AssertionError: o\n" in text and "more" not in text and "| all | 1 | 1 |" in text
