"""Our functions under the peer's names: RWKV-6, RWKV-7 and its general transition, lightning attention, Gated DeltaProduct."""

from __future__ import annotations

from functools import cache
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

import recgen
from recgen.resources import resource
from tests.peer.translation import CALLS, SEQUENCE, Function, Result, ours, refuse, renamed

CHUNKED = ("chunk_size", "cu_seqlens_cpu")


def _rwkv6(form: str, chunked: tuple[str, ...]) -> Function:
    def function(r: Tensor, k: Tensor, v: Tensor, w: Tensor, u: Tensor, scale: float | None = None, **extra: Any) -> Result:
        refuse(reverse=extra.pop("reverse", None))
        return ours(form, "rwkv6", r, k, v, w, u, scale, **renamed(extra, *SEQUENCE, *chunked))

    return function


def _dplr(form: str, chunked: tuple[str, ...]) -> Function:
    def function(
        q: Tensor,
        k: Tensor,
        v: Tensor,
        a: Tensor,
        b: Tensor,
        gk: Tensor,
        scale: float | None = None,
        safe_gate: bool = False,
        lower_bound: float | None = None,
        **extra: Any,
    ) -> Result:
        """The recurrence is RWKV-7's; `safe_gate` and `lower_bound` are the caller's promise about the gates."""
        refuse(reverse=extra.pop("reverse", None))
        scale = q.shape[-1] ** -0.5 if scale is None else scale
        return ours(form, "rwkv7", q, gk, k, v, a, b, scale, **renamed(extra, *SEQUENCE, *chunked))

    return function


def chunk_rwkv7(
    r: Tensor,
    w: Tensor,
    k: Tensor,
    v: Tensor,
    a: Tensor,
    b: Tensor,
    scale: float = 1.0,
    safe_gate: bool = False,
    lower_bound: float | None = None,
    **extra: Any,
) -> Result:
    """Our `chunk_rwkv7`."""
    return ours("chunk", "rwkv7", r, w, k, v, a, b, scale, **renamed(extra, *SEQUENCE, *CHUNKED, "disable_recompute"))


def fused_mul_recurrent_rwkv7(
    r: Tensor, w: Tensor, k: Tensor, v: Tensor, kk: Tensor, a: Tensor, scale: float | None = 1.0, **extra: Any
) -> Result:
    """RWKV-7 as its layer has it: erase along -kk, write along kk * a."""
    refuse(reverse=extra.pop("reverse", None))
    scale = r.shape[-1] ** -0.5 if scale is None else scale
    return ours("fused_recurrent", "rwkv7", r, w, k, v, -kk, kk * a, scale, **renamed(extra, *SEQUENCE))


def lightning_slope(heads: int, layer_idx: int, num_layers: int, device: torch.device) -> Tensor:
    """The rate at which every head of a layer forgets."""
    return 8 / heads * (1 - layer_idx / num_layers) * torch.arange(heads, dtype=torch.float32, device=device)


def _lightning(form: str, chunked: tuple[str, ...]) -> Function:
    def function(
        q: Tensor, k: Tensor, v: Tensor, layer_idx: int = 0, num_layers: int = 1, scale: float | None = None, **extra: Any
    ) -> Result:
        refuse(reverse=extra.pop("reverse", None))
        slope = lightning_slope(v.shape[2], layer_idx, num_layers, v.device)
        return ours(form, "lightning_attention", q, k, v, slope, scale, **renamed(extra, *SEQUENCE, *chunked))

    return function


@cache
def product_of(steps: int) -> ModuleType:
    """The module of Gated DeltaProduct with so many steps a token."""
    text = (resource("specs") / "gated_delta_product.rec").read_text(encoding="utf-8")
    assert "const n = 2" in text
    return recgen.load(text.replace("const n = 2", f"const n = {steps}"))


def chunk_gated_delta_product(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Tensor | None = None,
    beta: Tensor | None = None,
    num_householder: int = 2,
    scale: float | None = None,
    **extra: Any,
) -> Result:
    """Keys, values and strengths of a token's steps lie one after the other along time there; without a gate nothing is forgotten."""
    same = renamed(extra, *SEQUENCE, "use_qk_l2norm_in_kernel", "cu_seqlens_cpu")
    if beta is None:
        raise NotImplementedError("the adapter has no translation of `beta` = None")
    k, v, beta = (x.unflatten(1, (q.shape[1], num_householder)).transpose(2, 3) for x in (k, v, beta))
    g = torch.zeros(q.shape[:3], device=q.device) if g is None else g
    CALLS["chunk_gated_delta_product"] += 1
    found: Result = product_of(num_householder).chunk_gated_delta_product(q, k, v, g, beta, scale, **same)
    return found


def wider_table() -> dict[str, dict[str, Function]]:
    """Our wrappers by the package of `fla.ops` that has the function."""
    dplr = {
        "chunk_dplr_delta_rule": _dplr("chunk", (*CHUNKED, "disable_recompute")),
        "fused_recurrent_dplr_delta_rule": _dplr("fused_recurrent", ()),
    }
    return {
        "rwkv6": {"chunk_rwkv6": _rwkv6("chunk", CHUNKED), "fused_recurrent_rwkv6": _rwkv6("fused_recurrent", ())},
        "generalized_delta_rule.dplr": dplr,
        "rwkv7": {"chunk_rwkv7": chunk_rwkv7, "fused_mul_recurrent_rwkv7": fused_mul_recurrent_rwkv7},
        "lightning_attn": {
            "chunk_lightning_attn": _lightning("chunk", CHUNKED),
            "fused_recurrent_lightning_attn": _lightning("fused_recurrent", ()),
        },
        "gated_delta_product": {"chunk_gated_delta_product": chunk_gated_delta_product},
    }
