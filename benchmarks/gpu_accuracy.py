"""The chunkwise kernels on a GPU against the same module's float64 form: one JSON line per spec, shape and dtype.

    TRITON_PTXAS_PATH=/usr/local/cuda/bin/ptxas python benchmarks/gpu_accuracy.py [SPEC...]

The figure of a tensor is the larger of its relative RMS error and a quarter of its largest error over its largest entry. `same`: a second
forward gave the same bits.
"""

from __future__ import annotations

import argparse
import importlib
import json
from types import ModuleType

import torch
import torch.nn.functional as F

SHAPES = (
    ((2, 517, 2, 4, 128, 128), None, (torch.float32, torch.bfloat16, torch.float16)),
    ((1, 300, 2, 2, 80, 48), (0, 0, 1, 64, 130, 300), (torch.float32, torch.bfloat16)),
    ((1, 70, 1, 2, 7, 5), None, (torch.bfloat16,)),
    ((1, 130, 1, 1, 192, 64), None, (torch.bfloat16,)),
)
"""(B, T, H, HV, K, V), boundaries of packed sequences, dtypes."""
WIDE = ("A", "D", "dt_bias", "g")
"""Arguments that stay in float32 beside half-precision inputs."""
SPECS = ("linear_attention", "retnet", "simple_gla", "mamba2", "delta_rule", "gated_delta_rule")

Tensors = dict[str, torch.Tensor]


def inputs(spec: str, shape: tuple[int, ...]) -> Tensors:
    """Float64 inputs on the GPU, keys and queries of unit norm."""
    batch, tokens, key_heads, heads, keys, values = shape

    def normal(*size: int) -> torch.Tensor:
        return torch.randn(*size, dtype=torch.float64, device="cuda")

    q, k = (F.normalize(normal(batch, tokens, key_heads, keys), dim=-1) for _ in range(2))
    v, g = normal(batch, tokens, heads, values), F.logsigmoid(normal(batch, tokens, heads) + 3)
    beta, gate = torch.sigmoid(normal(batch, tokens, heads)), F.logsigmoid(normal(heads) + 3)
    if spec == "mamba2":
        params = {"A": -normal(heads).abs() - 0.1, "B": k, "C": q, "D": normal(heads), "dt_bias": normal(heads)}
        return {"x": v, "dt": normal(batch, tokens, heads), **params}
    extra = {"retnet": {"g": gate}, "simple_gla": {"g": g}, "delta_rule": {"beta": beta}, "gated_delta_rule": {"g": g, "beta": beta}}
    return {"q": q, "k": k, "v": v, **extra.get(spec, {})}


def error(x: torch.Tensor, reference: torch.Tensor) -> float:
    """See the module's docstring."""
    difference = x.double() - reference
    rms = difference.pow(2).mean().sqrt() / reference.pow(2).mean().sqrt().clamp(min=1e-30)
    return float(max(rms, difference.abs().max() / reference.abs().max().clamp(min=1e-30) / 4))


def compare(spec: str, module: ModuleType, shape: tuple[int, ...], bounds: tuple[int, ...] | None, dtype: torch.dtype) -> dict[str, object]:
    """One row."""
    packed = None if bounds is None else torch.tensor(bounds, device="cuda")
    low = {name: x.float() if name in WIDE else x.to(dtype) for name, x in inputs(spec, shape).items()}
    rows = shape[0] if bounds is None else len(bounds) - 1
    axes = (shape[5], shape[4]) if spec == "mamba2" else (shape[4], shape[5])
    state = torch.randn(rows, shape[3], *axes, device="cuda")
    chunk = getattr(module, f"chunk_{spec}")
    results = []
    for wide in (True, False):
        x = {name: (v.double() if wide else v.clone()).requires_grad_() for name, v in low.items()}
        s = (state.double() if wide else state.clone()).requires_grad_()
        o, final = chunk(**x, initial_state=s, output_final_state=True, cu_seqlens=packed)
        if wide:
            d_o, d_final = torch.randn_like(o), torch.randn_like(final)
        gradients = torch.autograd.grad((o.double() * d_o).sum() + (final.double() * d_final).sum(), [*x.values(), s])
        results.append([o, final, *gradients])
    again = chunk(**x, initial_state=s, output_final_state=True, cu_seqlens=packed)
    names = ["o", "state", *(f"d_{name}" for name in x), "d_initial_state"]
    errors = {name: float(f"{error(a, r):.1e}") for name, r, a in zip(names, *results, strict=True)}
    same = all(torch.equal(a, b) for a, b in zip(again, results[1], strict=False))
    return {"spec": spec, "shape": shape, "bounds": bounds, "dtype": str(dtype).removeprefix("torch."), "same": same, "errors": errors}


def main() -> None:
    """Prints the rows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("specs", nargs="*", default=SPECS, choices=SPECS, metavar="SPEC")
    torch.manual_seed(0)
    for spec in parser.parse_args().specs:
        module = importlib.import_module(f"recgen.kernels.{spec}")
        for shape, bounds, dtypes in SHAPES:
            for dtype in dtypes:
                print(json.dumps(compare(spec, module, shape, bounds, dtype)), flush=True)


if __name__ == "__main__":
    main()
