"""Our functions under flash-linear-attention's names and arguments.

A wrapper renames or translates arguments and calls a function of `recgen.kernels`; `translation.py` says what is accepted, translated and
refused.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from tests.peer.fla_adapters_wider import wider_table
from tests.peer.translation import DELTA, SEQUENCE, Function, Result, ours, refuse, renamed, scalar_gate, strength, vector_gate


def _gated_delta_rule(form: str, chunked: tuple[str, ...]) -> Function:
    def function(
        q: Tensor,
        k: Tensor,
        v: Tensor,
        g: Tensor,
        *,
        beta: Tensor | None = None,
        scale: float | None = None,
        use_gate_in_kernel: bool = False,
        A_log: Tensor | None = None,
        dt_bias: Tensor | None = None,
        use_beta_sigmoid_in_kernel: bool = False,
        allow_neg_eigval: bool = False,
        **extra: Any,
    ) -> Result:
        same = renamed(extra, *DELTA, "state_v_first", *chunked)
        b, sigmoid = strength(beta, v, use_beta_sigmoid_in_kernel, allow_neg_eigval)
        gate = scalar_gate(g, use_gate_in_kernel, A_log, dt_bias)
        return ours(form, "gated_delta_rule", q, k, v, beta=b, scale=scale, use_beta_sigmoid_in_kernel=sigmoid, **gate, **same)

    return function


def _kda(form: str, chunked: tuple[str, ...]) -> Function:
    def function(
        q: Tensor,
        k: Tensor,
        v: Tensor,
        g: Tensor,
        beta: Tensor,
        *,
        scale: float | None = None,
        use_gate_in_kernel: bool = False,
        A_log: Tensor | None = None,
        dt_bias: Tensor | None = None,
        safe_gate: bool = False,
        lower_bound: float | None = None,
        use_beta_sigmoid_in_kernel: bool = False,
        allow_neg_eigval: bool = False,
        **extra: Any,
    ) -> Result:
        same = renamed(extra, *DELTA, "state_v_first", *chunked)
        b, sigmoid = strength(beta, v, use_beta_sigmoid_in_kernel, allow_neg_eigval)
        gate = vector_gate(g, use_gate_in_kernel, A_log, dt_bias, safe_gate, lower_bound)
        return ours(form, "kda", q, k, v, beta=b, scale=scale, use_beta_sigmoid_in_kernel=sigmoid, **gate, **same)

    return function


def fused_recurrent_kda_fwd(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Tensor,
    beta: Tensor,
    *,
    initial_state: Tensor,
    ssm_state_indices: Tensor | None = None,
    cu_seqlens: Tensor | None = None,
    output_final_state: bool = False,
    inplace_final_state: bool = True,
    num_accepted_tokens: Tensor | None = None,
    scale: float | None = None,
    use_gate_in_kernel: bool = False,
    A_log: Tensor | None = None,
    dt_bias: Tensor | None = None,
    lower_bound: float | None = None,
    use_qk_l2norm_in_kernel: bool = False,
    use_beta_sigmoid_in_kernel: bool = False,
    allow_neg_eigval: bool = False,
    **extra: Any,
) -> Result:
    """Decoding of one token a sequence, with the states in a pool: our step, whose rows are the packed sequences."""
    renamed(extra)
    refuse(num_accepted_tokens=num_accepted_tokens, output_final_state=output_final_state)
    if not inplace_final_state or ssm_state_indices is None:
        raise NotImplementedError("the adapter translates `inplace_final_state` = True with `ssm_state_indices` only")
    if cu_seqlens is None or cu_seqlens.tolist() != list(range(q.shape[1] + 1)):
        raise NotImplementedError("the adapter translates `cu_seqlens` of one token a sequence only")
    b, sigmoid = strength(beta, v, use_beta_sigmoid_in_kernel, allow_neg_eigval)
    gate = vector_gate(g, use_gate_in_kernel, A_log, dt_bias, lower_bound is not None, lower_bound)
    flags = {"use_qk_l2norm_in_kernel": use_qk_l2norm_in_kernel, "use_beta_sigmoid_in_kernel": sigmoid}
    pool = {"state": initial_state, "state_indices": ssm_state_indices}
    o = ours("step", "kda", q[0], k[0], v[0], gate.pop("g")[0], b[0], scale=scale, **pool, **gate, **flags)
    return o[None], initial_state


def chunk_gla(q: Tensor, k: Tensor, v: Tensor, g: Tensor, scale: float | None = None, **extra: Any) -> Result:
    """Our `chunk_gla`."""
    return ours("chunk", "gla", q, k, v, g, scale, **renamed(extra, *SEQUENCE, "state_v_first", "cu_seqlens_cpu"))


def fused_recurrent_gla(
    q: Tensor, k: Tensor, v: Tensor, gk: Tensor | None = None, gv: Tensor | None = None, scale: float | None = None, **extra: Any
) -> Result:
    """Our `fused_recurrent_gla`; a gate per value channel has no translation."""
    refuse(gv=gv, reverse=extra.pop("reverse", None))
    if gk is None:
        raise NotImplementedError("the adapter has no translation of `gk` = None")
    return ours("fused_recurrent", "gla", q, k, v, gk, scale, **renamed(extra, *SEQUENCE, "state_v_first"))


def _simple_gla(form: str, chunked: tuple[str, ...]) -> Function:
    def function(
        q: Tensor,
        k: Tensor,
        v: Tensor,
        g: Tensor | None = None,
        g_gamma: Tensor | None = None,
        scale: float | None = None,
        **extra: Any,
    ) -> Result:
        """No gate is linear attention, a gate per head is retention with this decay (without a gradient, as in the original)."""
        refuse(reverse=extra.pop("reverse", None))
        same = renamed(extra, *SEQUENCE, *chunked)
        if g is not None and g_gamma is not None:
            raise NotImplementedError("the adapter has no translation of `g_gamma` beside g")
        if g_gamma is not None:
            return ours(form, "retnet", q, k, v, g_gamma.detach().float(), scale, **same)
        if g is None:
            return ours(form, "linear_attention", q, k, v, scale, **same)
        return ours(form, "simple_gla", q, k, v, g, scale, **same)

    return function


def parallel_simple_gla(
    q: Tensor, k: Tensor, v: Tensor, g: Tensor | None = None, scale: float | None = None, output_attentions: bool = False, **extra: Any
) -> Result:
    """The chunkwise form; the attention matrix [B, H, T, T] is what it reads when the values are the unit vectors of the tokens."""
    same = renamed(extra, "cu_seqlens", "cu_seqlens_cpu")
    chunk = _simple_gla("chunk", SEQUENCE)
    attention = None
    if output_attentions:
        refuse(cu_seqlens=same.get("cu_seqlens"))
        batch, tokens, heads = v.shape[:3]
        units = torch.eye(tokens, dtype=v.dtype, device=v.device)[None, :, None].expand(batch, -1, heads, -1)
        attention = chunk(q.detach(), k.detach(), units, g=None if g is None else g.detach(), scale=scale)[0].transpose(1, 2)
    return chunk(q, k, v, g=g, scale=scale, **same)[0], attention


def _delta_rule(form: str, chunked: tuple[str, ...]) -> Function:
    def function(q: Tensor, k: Tensor, v: Tensor, beta: Tensor | None = None, scale: float | None = None, **extra: Any) -> Result:
        b, _ = strength(beta, v, sigmoid=False, negative=False)
        return ours(form, "delta_rule", q, k, v, b, scale, **renamed(extra, *DELTA, *chunked))

    return function


def _linear_attention(form: str, normalize: bool) -> Function:
    default = normalize

    def function(
        q: Tensor,
        k: Tensor,
        v: Tensor,
        scale: float | None = None,
        initial_state: Any = None,
        output_final_state: bool = False,
        normalize: bool = default,
        **extra: Any,
    ) -> Result:
        """The normaliser is the same recurrence with one value, 1, whose state is the sum of the keys."""
        refuse(reverse=extra.pop("reverse", None))
        same = {**renamed(extra, "cu_seqlens"), "output_final_state": output_final_state}
        if not normalize:
            return ours(form, "linear_attention", q, k, v, scale, initial_state, **same)
        state, keys = initial_state if isinstance(initial_state, tuple) else (initial_state, None)
        keys = None if keys is None else keys.transpose(1, 2).mT
        o, state = ours(form, "linear_attention", q, k, v, scale, state, **same)
        norm, keys = ours(form, "linear_attention", q, k, torch.ones_like(v[..., :1]), scale, keys, **same)
        return o / (norm + 1e-10), (state, keys.mT.transpose(1, 2)) if output_final_state else None

    return function


def retention_decay(heads: int, device: torch.device) -> Tensor:
    """RetNet's log decay of every head."""
    return torch.log1p(-(2.0 ** (-5.0 - torch.arange(heads, dtype=torch.float32, device=device))))


def _retention(form: str, chunked: tuple[str, ...]) -> Function:
    def function(q: Tensor, k: Tensor, v: Tensor, scale: float | None = None, **extra: Any) -> Result:
        refuse(reverse=extra.pop("reverse", None), output_attentions=extra.pop("output_attentions", None))
        return ours(form, "retnet", q, k, v, retention_decay(v.shape[2], v.device), scale, **renamed(extra, *SEQUENCE, *chunked))

    return function


def table() -> dict[str, dict[str, Function]]:
    """Our wrapper for every function that the tests import, by the package of `fla.ops` that has it."""
    chunked = ("chunk_size", "cu_seqlens_cpu")
    return {
        "gated_delta_rule": {
            "chunk_gated_delta_rule": _gated_delta_rule("chunk", chunked),
            "fused_recurrent_gated_delta_rule": _gated_delta_rule("fused_recurrent", ()),
        },
        "kda": {
            "chunk_kda": _kda("chunk", (*chunked, "disable_recompute")),
            "fused_recurrent_kda": _kda("fused_recurrent", ()),
            "fused_recurrent_kda_fwd": fused_recurrent_kda_fwd,
        },
        "gla": {"chunk_gla": chunk_gla, "fused_recurrent_gla": fused_recurrent_gla},
        "simple_gla": {
            "chunk_simple_gla": _simple_gla("chunk", ("state_v_first", *chunked)),
            "fused_chunk_simple_gla": _simple_gla("chunk", ()),
            "parallel_simple_gla": parallel_simple_gla,
            "fused_recurrent_simple_gla": _simple_gla("fused_recurrent", ("state_v_first",)),
        },
        "delta_rule": {"chunk_delta_rule": _delta_rule("chunk", chunked), "fused_recurrent_delta_rule": _delta_rule("fused_recurrent", ())},
        "linear_attn": {
            "chunk_linear_attn": _linear_attention("chunk", normalize=True),
            "fused_chunk_linear_attn": _linear_attention("chunk", normalize=True),
            "fused_recurrent_linear_attn": _linear_attention("fused_recurrent", normalize=False),
        },
        "retention": {
            "chunk_retention": _retention("chunk", chunked),
            "fused_chunk_retention": _retention("chunk", ()),
            "parallel_retention": _retention("chunk", ()),
            "fused_recurrent_retention": _retention("fused_recurrent", ("state_v_first",)),
        },
        **wider_table(),
    }
