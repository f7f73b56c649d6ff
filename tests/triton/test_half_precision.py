"""The chunkwise kernels in half precision with a GPU's roundings, so that what each product loses is seen without one.

The interpreter cuts float32 numbers to bfloat16 instead of rounding them and multiplies bfloat16 numbers by their bits, for which
reason the kernels use float32 factors in it. Both are mended here, and the factors those of a GPU.
"""

from typing import Any

import numpy as np
import pytest
import torch
import triton.language as tl
from triton.runtime import interpreter

from tests.triton import harness
from tests.triton.harness import Case, check, module

LIMITS = {
    "linear_attention": (2.25e-3, 2.5e-3),
    "retnet": (2.0e-3, 2.6e-3),
    "delta_rule": (3.3e-3, 4.2e-3),
    "gated_delta_rule": (3.4e-3, 4.0e-3),
    "gla": (1.75e-3, 2.5e-3),
    "kda": (3.7e-3, 4.6e-3),
    "momentum_delta": (4.2e-3, 5.0e-3),
    "three_memories": (3.3e-3, 5.8e-3),
    "gated_delta_beta_v": (4.0e-3, 6.2e-3),
    "value_turns": (2.2e-3, 4.3e-3),
}
"""Of the relative RMS error of outputs and states, and of gradients."""


def rounded(x: np.ndarray) -> np.ndarray:
    """The bits of bfloat16 numbers, rounded to nearest even."""
    return torch.from_numpy(x.astype(np.float32)).to(torch.bfloat16).view(torch.uint16).numpy().reshape(x.shape)


def widened(handle: Any) -> np.ndarray:
    """A tile's numbers, those of bfloat16 as float32."""
    if handle.dtype.scalar != tl.bfloat16:
        return handle.data
    return (
        torch.from_numpy(np.ascontiguousarray(handle.data).view(np.int16)).view(torch.bfloat16).float().numpy().reshape(handle.data.shape)
    )


@pytest.fixture
def gpu_rounding(monkeypatch: pytest.MonkeyPatch) -> None:
    """Conversions and products of bfloat16 as a GPU makes them."""
    convert = interpreter._convert_float

    def converted(x: np.ndarray, given: tl.dtype, wanted: tl.dtype, mode: object) -> np.ndarray:
        return rounded(x) if (given, wanted) == (tl.float32, tl.bfloat16) else convert(x, given, wanted, mode)

    def product(_: object, a: Any, b: Any, total: Any, *precision: object) -> Any:
        return interpreter.TensorHandle(np.matmul(widened(a), widened(b)) + total.data, total.dtype.scalar)

    monkeypatch.setattr(interpreter, "_convert_float", converted)
    monkeypatch.setattr(interpreter.InterpreterBuilder, "create_dot", product)


@pytest.mark.usefixtures("gpu_rounding")
@pytest.mark.parametrize("spec", LIMITS)
def test_errors_of_bfloat16(spec: str, monkeypatch: pytest.MonkeyPatch) -> None:
    functions = module(spec)
    planned = functions._chunk_plan
    monkeypatch.setattr(functions, "_chunk_plan", lambda *given: planned(*given)._replace(dot=tl.bfloat16))
    monkeypatch.setitem(harness.LIMITS, torch.bfloat16, LIMITS[spec])
    check(Case(spec, {"K": 40, "V": 32}, tokens=100, heads=1, chunk=64, dtype=torch.bfloat16))
