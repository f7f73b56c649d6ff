"""The reference side of flash-linear-attention's tests, where it is another of its Triton functions.

On a GPU that function itself; elsewhere its package's own PyTorch recurrences, called here under the Triton function's arguments.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from tests.peer.fla_adapters import retention_decay
from tests.peer.fla_adapters_wider import lightning_slope
from tests.peer.translation import Function

REFERENCES: dict[str, dict[str, tuple[str, ...]]] = {
    "test_gla": {"fused_recurrent_gla": ("test_chunk", "test_chunk_varlen")},
    "test_simple_gla": {
        "fused_recurrent_simple_gla": (
            "test_chunk",
            "test_chunk_with_chunk_size",
            "test_chunk_varlen",
            "test_fused_chunk",
            "test_fused_chunk_varlen",
            "test_parallel",
            "test_parallel_varlen",
        )
    },
    "test_delta": {"fused_recurrent_delta_rule": ("test_chunk", "test_chunk_with_chunk_size", "test_chunk_varlen")},
    "test_linear_attn": {"fused_recurrent_linear_attn": ("test_chunk", "test_fused_chunk")},
    "test_rwkv6": {"fused_recurrent_rwkv6": ("test_chunk", "test_chunk_with_chunk_size", "test_chunk_varlen")},
    "test_rwkv7": {
        "fused_recurrent_dplr_delta_rule": ("test_fused_mul_recurrent_fwd",),
        "chunk_dplr_delta_rule": ("test_chunk_wrapper_chunk_size",),
    },
    "test_lightning_attn": {"fused_recurrent_lightning_attn": ("test_chunk_with_chunk_size",)},
    "test_retention": {
        "fused_recurrent_retention": (
            "test_chunk",
            "test_chunk_with_chunk_size",
            "test_chunk_varlen",
            "test_fused_chunk",
            "test_fused_chunk_varlen",
            "test_parallel",
        )
    },
}
"""By test module: the function that is the reference, not the subject, of these tests."""


def references_of(module: str, test: str) -> tuple[str, ...]:
    """The functions that keep their place as references in this test."""
    return tuple(name for name, tests in REFERENCES.get(module, {}).items() if test in tests)


def _each_sequence(function: Function, *tensors: Tensor, initial_state: Tensor | None, cu_seqlens: Tensor | None) -> tuple[Tensor, Tensor]:
    """Outputs and final states, one packed sequence after the other."""
    if cu_seqlens is None:
        return function(*tensors, initial_state)
    bounds, outputs, states = cu_seqlens.tolist(), [], []
    for i, (start, end) in enumerate(pairwise(bounds)):
        o, state = function(*(x[:, start:end] for x in tensors), None if initial_state is None else initial_state[i : i + 1])
        outputs.append(o)
        states.append(state)
    return torch.cat(outputs, 1), torch.cat(states, 0)


def _gla(q: Tensor, k: Tensor, v: Tensor, gk: Tensor, initial_state: Any = None, cu_seqlens: Any = None, **_: Any) -> Any:
    from fla.ops.gla.naive import naive_recurrent_gla

    def one(*x: Any) -> Any:
        return naive_recurrent_gla(*x, output_final_state=True)

    return _each_sequence(one, q, k, v, gk, initial_state=initial_state, cu_seqlens=cu_seqlens)


def _simple_gla(
    q: Tensor, k: Tensor, v: Tensor, g: Tensor, scale: Any = None, initial_state: Any = None, cu_seqlens: Any = None, **_: Any
) -> Any:
    from fla.ops.simple_gla.naive import naive_recurrent_simple_gla

    def one(q: Tensor, k: Tensor, v: Tensor, g: Tensor, state: Any) -> Any:
        return naive_recurrent_simple_gla(q, k, v, g, scale, state, output_final_state=True)

    return _each_sequence(one, q, k, v, g, initial_state=initial_state, cu_seqlens=cu_seqlens)


def _retention(q: Tensor, k: Tensor, v: Tensor, initial_state: Any = None, cu_seqlens: Any = None, **_: Any) -> Any:
    g = retention_decay(v.shape[2], v.device).expand(*v.shape[:3])
    return _simple_gla(q, k, v, g, initial_state=initial_state, cu_seqlens=cu_seqlens)


def _delta_rule(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    beta: Tensor,
    scale: Any = None,
    initial_state: Any = None,
    use_qk_l2norm_in_kernel: bool = False,
    cu_seqlens: Any = None,
    **_: Any,
) -> Any:
    from fla.ops.gated_delta_rule.naive import naive_recurrent_gated_delta_rule

    if use_qk_l2norm_in_kernel:
        q, k = (F.normalize(x.float(), p=2, dim=-1) for x in (q, k))

    def one(q: Tensor, k: Tensor, v: Tensor, beta: Tensor, state: Any) -> Any:
        g = torch.zeros_like(beta, dtype=torch.float32)
        return naive_recurrent_gated_delta_rule(q, k, v, beta, g, scale, state, output_final_state=True)

    return _each_sequence(one, q, k, v, beta, initial_state=initial_state, cu_seqlens=cu_seqlens)


def _rwkv6(
    r: Tensor,
    k: Tensor,
    v: Tensor,
    w: Tensor,
    u: Tensor,
    scale: Any = None,
    initial_state: Any = None,
    cu_seqlens: Any = None,
    **_: Any,
) -> Any:
    from fla.ops.rwkv6.recurrent_naive import naive_recurrent_rwkv6

    def one(r: Tensor, k: Tensor, v: Tensor, w: Tensor, state: Any) -> Any:
        o, state = naive_recurrent_rwkv6(*(x.transpose(1, 2) for x in (r, k, v, w)), u, scale, state, output_final_state=True)
        return o.transpose(1, 2), state

    return _each_sequence(one, r, k, v, w, initial_state=initial_state, cu_seqlens=cu_seqlens)


def _dplr(q: Tensor, k: Tensor, v: Tensor, a: Tensor, b: Tensor, gk: Tensor, scale: Any = None, initial_state: Any = None, **_: Any) -> Any:
    from fla.ops.generalized_delta_rule.dplr.naive import dplr_recurrence

    q = q if scale is None else q * (scale * q.shape[-1] ** 0.5)  # it scales by K^-0.5
    o, state = dplr_recurrence(*(x.transpose(1, 2) for x in (q, k, v, a, b, gk)), initial_state)
    return o.transpose(1, 2), state


def _lightning(q: Tensor, k: Tensor, v: Tensor, layer_idx: int, num_layers: int, initial_state: Any = None, **_: Any) -> Any:
    g = -lightning_slope(v.shape[2], layer_idx, num_layers, v.device).expand(*v.shape[:3])
    return _simple_gla(q, k, v, g, initial_state=initial_state)


def _linear_attention(q: Tensor, k: Tensor, v: Tensor, scale: Any = None, initial_state: Any = None, **_: Any) -> Any:
    from fla.ops.linear_attn.naive import naive_recurrent_linear_attn

    return naive_recurrent_linear_attn(q, k, v, scale, initial_state, output_final_state=True, normalize=False)


NAIVE: dict[str, Function] = {
    "fused_recurrent_gla": _gla,
    "fused_recurrent_simple_gla": _simple_gla,
    "fused_recurrent_delta_rule": _delta_rule,
    "fused_recurrent_linear_attn": _linear_attention,
    "fused_recurrent_retention": _retention,
    "fused_recurrent_rwkv6": _rwkv6,
    "fused_recurrent_dplr_delta_rule": _dplr,
    "chunk_dplr_delta_rule": _dplr,
    "fused_recurrent_lightning_attn": _lightning,
}
