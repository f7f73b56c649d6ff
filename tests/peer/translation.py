"""What the adapters share: the counted call of our functions, keywords that mean the same, gates and write strengths.

What cannot be translated raises NotImplementedError and names the argument. Accepted without effect, since no result depends on them:
`disable_recompute` (time against memory), `cu_seqlens_cpu` (a copy, which is compared), and `safe_gate` with its `lower_bound` beside
finished gates (the caller's promise about their range, which our functions do not need).
"""

from __future__ import annotations

import importlib
import warnings
from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

Function = Callable[..., Any]
Result = tuple[Any, Any]

CALLS: Counter[str] = Counter()
"""How often each of our functions was called."""


def ours(form: str, spec: str, *args: Any, **kwargs: Any) -> Any:
    """Calls `<form>_<spec>` of the generated module and counts it."""
    label = f"{form}_{spec}"
    function = getattr(importlib.import_module(f"recgen.kernels.{spec}"), label)
    CALLS[label] += 1
    return function(*args, **kwargs)


def refuse(**arguments: Any) -> None:
    """Raises for the first argument that is neither None nor False."""
    for name, value in arguments.items():
        if value is not None and value is not False:
            raise NotImplementedError(f"the adapter has no translation of `{name}` = {type(value).__name__}")


def renamed(extra: dict[str, Any], *allowed: str) -> dict[str, Any]:
    """The keywords of one call that mean the same to our functions; every other one is translated, refused or unknown.

    Args:
        extra: the keywords as they were passed.
        allowed: those that the function of this name has, from `RENAMED`, and `cu_seqlens_cpu`, `disable_recompute`.
    """
    extra = dict(extra)
    if "transpose_state_layout" in extra and "state_v_first" in allowed:
        if "state_v_first" in extra:
            raise ValueError("state_v_first and its former name transpose_state_layout were both given")
        warnings.warn("transpose_state_layout is now called state_v_first", DeprecationWarning, stacklevel=3)
        extra["state_v_first"] = extra.pop("transpose_state_layout")
    for name in extra:
        if name not in allowed:
            raise NotImplementedError(f"the adapter has no translation of `{name}`")
    extra.pop("disable_recompute", None)
    copy = extra.pop("cu_seqlens_cpu", None)
    if copy is not None and not torch.equal(copy.cpu(), extra["cu_seqlens"].cpu()):
        raise ValueError("cu_seqlens_cpu and cu_seqlens hold different numbers")
    return extra


SEQUENCE = ("initial_state", "output_final_state", "cu_seqlens")
DELTA = (*SEQUENCE, "use_qk_l2norm_in_kernel")


# --- gates and write strengths ----------------------------------------------------------------------------------------------------------


def strength(beta: Tensor | None, v: Tensor, sigmoid: bool, negative: bool) -> tuple[Tensor, bool]:
    """The write strength, and whether our function still has to apply the sigmoid; `allow_neg_eigval` doubles the strength."""
    if negative and not sigmoid:
        raise ValueError("allow_neg_eigval needs use_beta_sigmoid_in_kernel")
    if beta is None:
        return torch.ones_like(v[..., 0]), sigmoid
    return (2 * torch.sigmoid(beta.float()), False) if negative else (beta, sigmoid)


def scalar_gate(g: Tensor, use_gate: bool, a_log: Tensor | None, dt_bias: Tensor | None) -> dict[str, Any]:
    """Gated DeltaNet's gate: an absent `dt_bias` is one of zeros."""
    if not use_gate:
        return {"g": g, "A_log": a_log, "dt_bias": dt_bias}
    bias = g.new_zeros(g.shape[-1:], dtype=torch.float32) if dt_bias is None else dt_bias
    return {"g": g, "use_gate_in_kernel": True, "A_log": a_log, "dt_bias": bias}


def vector_gate(
    g: Tensor, use_gate: bool, a_log: Tensor | None, dt_bias: Tensor | None, safe_gate: bool, lower_bound: float | None
) -> dict[str, Any]:
    """KDA's gate: `A_log` of any shape with HV entries, a flat `dt_bias` [HV * K], and the bounded gate, which our spec does not have."""
    if not use_gate:
        if lower_bound is not None and not safe_gate:
            raise NotImplementedError("the adapter has no translation of `lower_bound` without use_gate_in_kernel or safe_gate")
        return {"g": g, "A_log": a_log, "dt_bias": dt_bias}
    if safe_gate and lower_bound is None:
        raise ValueError("safe_gate with use_gate_in_kernel needs lower_bound")
    bias = g.new_zeros(g.shape[-2:], dtype=torch.float32) if dt_bias is None else dt_bias.reshape(g.shape[-2:])
    a_log = None if a_log is None else a_log.reshape(-1)
    if lower_bound is None:
        return {"g": g, "use_gate_in_kernel": True, "A_log": a_log, "dt_bias": bias}
    rate = 1.0 if a_log is None else a_log.float().exp()[:, None]
    return {"g": lower_bound * torch.sigmoid(rate * (g.float() + bias))}
