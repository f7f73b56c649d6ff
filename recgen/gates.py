"""Values of constant gates that papers give."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


def retnet_log_decay(heads: int, *, dtype: torch.dtype | None = None, device: torch.device | str | None = None) -> torch.Tensor:
    """RetNet's decay of every head, for the param `g` of `retnet`.

    Sun et al. 2023, "Retentive Network: A Successor to Transformer for Large Language Models", section 2.2: head i keeps 1 - 2^(-5 - i).

    Args:
        heads: the number of heads HV, at least 1.
        dtype: of the result; float32 if None.
        device: of the result.

    Returns:
        natural logarithms [HV], log(1 - 2^(-5 - i)).

    Raises:
        ValueError: when `heads` is below 1.
    """
    import torch

    if heads < 1:
        raise ValueError(f"heads should be at least 1; got {heads}")
    steps = torch.arange(heads, dtype=torch.float64, device=device)
    return torch.log1p(-torch.exp2(-5.0 - steps)).to(dtype or torch.float32)
