"""How close a result has to be: by dtype, and by what the tensor is."""

from __future__ import annotations

import torch

from recgen.lang.recurrence import ArgumentInfo

VALUES = {torch.float64: 1e-10, torch.float32: 1e-5, torch.bfloat16: 5e-3, torch.float16: 5e-3}
"""Outputs and states."""

GRADIENTS = {torch.float64: 1e-9, torch.float32: 5e-5, torch.bfloat16: 8e-3, torch.float16: 8e-3}
"""Gradients of vectors and of states."""

GATE_GRADIENTS = {torch.float64: 1e-9, torch.float32: 1e-4, torch.bfloat16: 2e-2, torch.float16: 2e-2}
"""Gradients of gates, write strengths and params, which sum over many links or tokens."""


def gradient_tolerance(info: ArgumentInfo | None, gates: frozenset[str], dtype: torch.dtype) -> float:
    """For the gradient of an argument (None: of the initial state)."""
    if info is not None and (info.name in gates or not info.axes or info.role == "param"):
        return GATE_GRADIENTS[dtype]
    return GRADIENTS[dtype]
