"""Inputs of any size for timing and for comparing: ordinary values inside the declared domains."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from recgen.analysis.normal_form import NormalForm
from recgen.lang.recurrence import ArgumentInfo
from recgen.verify.inputs import Roles, roles

Tensor = torch.Tensor


@dataclass(frozen=True)
class Shape:
    """B, T, H, HV, and the sizes of the key and the value axis; an axis that is neither has the keys' size."""

    batch: int
    tokens: int
    key_heads: int
    heads: int
    keys: int
    values: int

    def axis(self, form: NormalForm, name: str) -> int:
        """The size of an axis of the spec."""
        return self.values if name == form.value_axis != form.key_axis else self.keys


def draw_inputs(form: NormalForm, shape: Shape, dtype: torch.dtype, device: str, seed: int = 0) -> dict[str, Tensor]:
    """Arguments that are always needed.

    Args:
        form: of the spec.
        shape: sizes.
        dtype: of the inputs; params and what the decay is made of stay in float32.
        device: where the tensors go.
        seed: the same seed gives the same values.
    """
    parts, generator = roles(form), torch.Generator(device).manual_seed(seed)
    arguments = {}
    for info in form.recurrence.arguments:
        if info.needed_if:
            continue
        heads = shape.key_heads if info.grouped else shape.heads
        lead = (heads,) if info.role == "param" else (shape.batch, shape.tokens, heads)
        x = torch.randn(*lead, *(shape.axis(form, a) for a in info.axes), generator=generator, device=device)
        wide = info.role == "param" or info.name in parts.gate
        arguments[info.name] = _ordinary(x, info, parts).to(torch.float32 if wide else dtype)
    return arguments


def _ordinary(x: Tensor, info: ArgumentInfo, parts: Roles) -> Tensor:
    """Normal numbers brought into the domain: decays near 1, correcting vectors of unit norm."""
    low, high = info.interval.low, info.interval.high
    if math.isfinite(low) and math.isfinite(high):
        middle = 3.0 if info.name in parts.gate else 0.0
        return low + (high - low) * torch.sigmoid(x + middle)
    if math.isfinite(high):
        return high - torch.exp(x - 3)
    if math.isfinite(low):
        return low + torch.exp(x - 3)
    if info.axes:
        return torch.nn.functional.normalize(x, dim=-1) if info.name in parts.unit else x
    return torch.sigmoid(x) if info.name in parts.strength else x
