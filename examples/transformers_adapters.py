"""Adapters from transformers' kernel calls to generated functions.

What they add is small: transformers' spelling of the arguments, and packed sequences. transformers describes a packed
batch twice, by `cu_seq_lens_q` (boundaries) and by `seq_idx` (which sequence a token belongs to); its PyTorch path
refuses both. The short convolution in front of each kernel must not mix neighbours either, and belongs to no
recurrence, so it is done here, in PyTorch.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers.activations import ACT2FN
from transformers.utils.generic import TransformersKwargs

Function = Callable[..., Any]

# Keywords that every transformers layer hands down to its kernel and that a kernel may leave unused. Anything else that an
# adapter does not name is an error, because ignoring it could change the result.
PASSED_DOWN = frozenset(TransformersKwargs.__annotations__) | {"use_cache"}


# --- packed sequences -------------------------------------------------------------------------------------------------


def sequence_bounds(cu_seqlens: Tensor | None, cu_seq_lens_q: Tensor | None, seq_idx: Tensor | None) -> Tensor | None:
    """Boundaries [N+1] of a packed batch from whichever description the caller gave, or None if nothing is packed."""
    bounds = cu_seqlens if cu_seqlens is not None else cu_seq_lens_q
    if bounds is not None:
        return bounds.long()
    if seq_idx is None:
        return None
    if seq_idx.shape[0] != 1:
        raise ValueError(f"seq_idx: packed sequences need a batch of 1, got shape {tuple(seq_idx.shape)}")
    inner = (seq_idx[0, 1:] != seq_idx[0, :-1]).nonzero()[:, 0] + 1
    ends = inner.new_tensor([0, seq_idx.shape[1]])
    return torch.cat((ends[:1], inner, ends[1:]))


def packed_causal_conv1d(x: Tensor, weight: Tensor, bias: Tensor | None, bounds: Tensor) -> Tensor:
    """Depthwise causal convolution of x [1, D, T] with weight [D, W] that never reads across a boundary."""
    length, width = x.shape[-1], weight.shape[-1]
    sequence = torch.searchsorted(bounds, torch.arange(length, device=x.device), right=True)
    out = x * weight[:, -1:]
    for shift in range(1, min(width, length)):
        same = F.pad(sequence, (shift, 0), value=-1)[:length] == sequence
        out = out + F.pad(x, (shift, 0))[..., :length] * same * weight[:, width - 1 - shift, None]
    return out if bias is None else out + bias[:, None]


# --- adapters: transformers' calls on the left, generated functions on the right ----------------------------------------


def refuse_unknown(name: str, extra: dict[str, Any]) -> None:
    """Raise if a layer passed a keyword that neither the adapter nor transformers' common list knows."""
    unknown = sorted(key for key, value in extra.items() if key not in PASSED_DOWN and value is not None)
    if unknown:
        raise TypeError(f"{name}: transformers passes {', '.join(unknown)}, which this adapter does not know")


def delta_rule_adapter(kernel: Function, name: str, calls: Counter[str]) -> Function:
    """Gated delta rule and KDA, chunk and single-step form: the same call up to the shape of g."""

    def adapter(
        query: Tensor, key: Tensor, value: Tensor, g: Tensor, beta: Tensor,
        initial_state: Tensor | None = None, output_final_state: bool = False, use_qk_l2norm_in_kernel: bool = False,
        cu_seqlens: Tensor | None = None, cu_seq_lens_q: Tensor | None = None, seq_idx: Tensor | None = None, **extra: Any,
    ) -> tuple[Tensor, Tensor | None]:  # fmt: skip
        refuse_unknown(name, extra)
        calls[name] += 1
        return kernel(
            q=query,
            k=key,
            v=value,
            g=g,
            beta=beta,
            use_qk_l2norm_in_kernel=use_qk_l2norm_in_kernel,
            initial_state=initial_state,
            output_final_state=output_final_state,
            cu_seqlens=sequence_bounds(cu_seqlens, cu_seq_lens_q, seq_idx),
        )

    return adapter


def call_mamba(
    kernel: Function, A: Tensor, D: Tensor | None, dt_bias: Tensor | None, z: Tensor | None, **inputs: Any
) -> tuple[Tensor, Tensor]:
    """Call the generated Mamba-2: D and dt_bias are parameters there, so an absent one is zero; the gate z follows."""
    zero = torch.zeros_like(A)
    y, state = kernel(A=A, D=zero if D is None else D, dt_bias=zero if dt_bias is None else dt_bias, **inputs)
    return (y if z is None else y * F.silu(z)), state


def mamba_chunk_adapter(kernel: Function, name: str, calls: Counter[str]) -> Function:
    """`mamba_chunk_scan_combined`: y, or (y, state) when the state is asked for. The generated kernel picks its own chunk size."""

    def adapter(
        hidden_states: Tensor, dt: Tensor, A: Tensor, B: Tensor, C: Tensor, chunk_size: int,
        D: Tensor | None = None, z: Tensor | None = None, dt_bias: Tensor | None = None, initial_states: Tensor | None = None,
        dt_softplus: bool = False, dt_limit: tuple[float, float] = (0.0, float("inf")), return_final_states: bool = False,
        seq_idx: Tensor | None = None, cu_seqlens: Tensor | None = None, cu_seq_lens_q: Tensor | None = None, **extra: Any,
    ) -> Tensor | tuple[Tensor, Tensor]:  # fmt: skip
        refuse_unknown(name, extra)
        calls[name] += 1
        bounds = sequence_bounds(cu_seqlens, cu_seq_lens_q, seq_idx)
        options = {"dt_softplus": dt_softplus, "dt_min": dt_limit[0], "dt_max": dt_limit[1]}
        states = {"initial_state": initial_states, "output_final_state": return_final_states, "cu_seqlens": bounds}
        y, state = call_mamba(kernel, A, D, dt_bias, z, x=hidden_states, dt=dt, B=B, C=C, **options, **states)
        return (y, state) if return_final_states else y

    return adapter


def per_head(name: str, tensor: Tensor | None, axes: int) -> Tensor | None:
    """Undo transformers' expand: the last `axes` axes repeat one number per head."""
    for _ in range(axes if tensor is not None else 0):
        if tensor.shape[-1] != 1 and tensor.stride(-1) != 0:
            raise ValueError(f"{name}: Mamba-2 has one value per head, got independent values of shape {tuple(tensor.shape)}")
        tensor = tensor[..., 0]
    return tensor


def mamba_step_adapter(kernel: Function, name: str, calls: Counter[str]) -> Function:
    """`selective_state_update`: one token, x [B, H, P], everything expanded to the state's shape; the state changes in place."""

    def adapter(
        state: Tensor, hidden_states: Tensor, dt: Tensor, A: Tensor, B: Tensor, C: Tensor,
        D: Tensor | None = None, z: Tensor | None = None, dt_bias: Tensor | None = None, dt_softplus: bool = False, **extra: Any,
    ) -> Tensor:  # fmt: skip
        refuse_unknown(name, extra)
        calls[name] += 1
        decay, skip, bias = per_head("A", A, 2), per_head("D", D, 1), per_head("dt_bias", dt_bias, 1)
        token = {"x": hidden_states[:, None], "dt": per_head("dt", dt, 1)[:, None], "B": B[:, None], "C": C[:, None]}
        gate = None if z is None else z[:, None]
        y, new_state = call_mamba(
            kernel, decay, skip, bias, gate, **token, dt_softplus=dt_softplus, initial_state=state.float(), output_final_state=True
        )
        state.copy_(new_state)
        return y[:, 0]

    return adapter


def channels(x: Tensor | None) -> Tensor | None:
    """[B, D, T] as one head of channels, [B, T, 1, D]."""
    return None if x is None else x.transpose(1, 2).unsqueeze(2)


def call_scan(kernel: Function, A: Tensor, D: Tensor | None, bias: Tensor | None, z: Tensor | None, **inputs: Any) -> tuple[Tensor, Tensor]:
    """Call the generated Mamba-1 with one head that holds all channels; an absent D is zero, an absent bias or gate an option."""
    skip = torch.zeros_like(A[:, 0]) if D is None else D
    options = {"use_delta_bias": bias is not None, "use_z": z is not None}
    return kernel(A=A[None], D=skip[None], delta_bias=None if bias is None else bias[None], z=z, **options, **inputs)


def selective_scan_adapter(kernel: Function, name: str, calls: Counter[str]) -> Function:
    """`selective_scan_fn`: channels before tokens, y [B, D, T], or (y, state [B, D, N]) when the state is asked for."""

    def adapter(
        hidden_states: Tensor, dt: Tensor, A: Tensor, B: Tensor, C: Tensor, D: Tensor | None = None, z: Tensor | None = None,
        delta_bias: Tensor | None = None, delta_softplus: bool = False, return_last_state: bool = False,
        use_mambapy: bool = False, use_associative_scan: bool = False, **extra: Any,
    ) -> Tensor | tuple[Tensor, Tensor]:  # fmt: skip
        refuse_unknown(name, extra)
        calls[name] += 1
        tokens = {"u": channels(hidden_states), "delta": channels(dt), "B": channels(B), "C": channels(C)}
        y, state = call_scan(
            kernel, A, D, delta_bias, channels(z), **tokens, delta_softplus=delta_softplus, output_final_state=return_last_state
        )
        y = y[:, :, 0].transpose(1, 2)
        return (y, state[:, 0]) if return_last_state else y

    return adapter


def selective_step_adapter(kernel: Function, name: str, calls: Counter[str]) -> Function:
    """`selective_state_update`: one token x [B, D]; the state [B, D, N] changes in place."""

    def adapter(
        state: Tensor, hidden_states: Tensor, dt: Tensor, A: Tensor, B: Tensor, C: Tensor,
        D: Tensor | None = None, dt_bias: Tensor | None = None, dt_softplus: bool = False, z: Tensor | None = None, **extra: Any,
    ) -> Tensor:  # fmt: skip
        refuse_unknown(name, extra)
        calls[name] += 1
        token = {"u": hidden_states[:, None, None], "delta": dt[:, None, None], "B": B[:, None, None], "C": C[:, None, None]}
        states = {"initial_state": state[:, None].float(), "output_final_state": True}
        y, new_state = call_scan(
            kernel, A, D, dt_bias, None if z is None else z[:, None, None], **token, delta_softplus=dt_softplus, **states
        )
        state.copy_(new_state[:, 0])
        return y[:, 0, 0]

    return adapter


def conv_adapter(original: Function) -> Function:
    """`causal_conv1d_fn`: transformers' own function, except for packed sequences."""

    def adapter(
        hidden_states: Tensor,
        weight: Tensor,
        bias: Tensor | None = None,
        activation: str | None = None,
        cu_seqlens: Tensor | None = None,
        cu_seq_lens_q: Tensor | None = None,
        seq_idx: Tensor | None = None,
        **extra: Any,
    ) -> Tensor:
        refuse_unknown("causal_conv1d_fn", extra)
        bounds = sequence_bounds(cu_seqlens, cu_seq_lens_q, seq_idx)
        if bounds is None:
            return original(hidden_states, weight, bias, activation=activation)
        out = packed_causal_conv1d(hidden_states, weight, bias, bounds)
        return out if activation is None else ACT2FN[activation](out)

    return adapter


def not_available(*args: Any, **kwargs: Any) -> None:
    """`mamba_split_conv1d_scan_combined` and `mamba_inner_fn`, fused training paths: None tells the layer to take the separate steps."""
