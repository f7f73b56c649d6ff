"""Times of the chunkwise kernels on a GPU beside flash-linear-attention's, where that is installed: one JSON line per operator and shape.

    TRITON_PTXAS_PATH=/usr/local/cuda/bin/ptxas python benchmarks/gpu_speed.py [--peer]

bfloat16 inputs, float32 states, initial and final state on; medians in milliseconds, the extra memory of one forward and backward in MiB,
and the seconds of the first call (compilation included).
"""

from __future__ import annotations

import argparse
import importlib
import json
import time
from collections.abc import Callable

import torch
import torch.nn.functional as F
from triton.testing import do_bench

SHAPES = {"long": (1, 8192, 32, 128), "batch": (8, 2048, 16, 128)}
OPERATORS = {"simple_gla": ("q", "k", "v", "g"), "delta_rule": ("q", "k", "v", "beta"), "gated_delta_rule": ("q", "k", "v", "g", "beta")}

Forward = Callable[..., tuple[torch.Tensor, torch.Tensor]]


def inputs(shape: tuple[int, int, int, int], names: tuple[str, ...]) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
    """The arguments of an operator, and an initial state."""
    batch, tokens, heads, size = shape

    def normal(*extent: int) -> torch.Tensor:
        return torch.randn(*extent, device="cuda", dtype=torch.bfloat16)

    def unit() -> torch.Tensor:
        return F.normalize(normal(batch, tokens, heads, size).float(), dim=-1).bfloat16()

    gate = F.logsigmoid(torch.randn(batch, tokens, heads, device="cuda") + 4)
    made = {"q": unit(), "k": unit(), "v": normal(batch, tokens, heads, size), "g": gate, "beta": normal(batch, tokens, heads).sigmoid()}
    return {name: made[name] for name in names}, torch.randn(batch, heads, size, size, device="cuda")


def measure(forward: Forward, arguments: dict[str, torch.Tensor], state: torch.Tensor) -> dict[str, float]:
    """Times and memory of one implementation."""

    def both() -> None:
        o, final = forward(**x, initial_state=s, output_final_state=True)
        torch.autograd.grad((o, final), [*x.values(), s], (d_o, d_final))

    row = {"first forward, s": seconds(lambda: forward(**arguments, initial_state=state, output_final_state=True))}
    with torch.no_grad():
        row["forward, ms"] = median(lambda: forward(**arguments, initial_state=state, output_final_state=True))
    x = {name: v.detach().requires_grad_() for name, v in arguments.items()}
    s = state.detach().requires_grad_()
    d_o, d_final = (torch.randn_like(y) for y in forward(**x, initial_state=s, output_final_state=True))
    row["first backward, s"] = seconds(both)
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    both()
    row["extra memory, MiB"] = (torch.cuda.max_memory_allocated() - before) >> 20
    row["forward and backward, ms"] = median(both)
    return row


def seconds(run: Callable[[], object]) -> float:
    """The time of one call."""
    start = time.time()
    run()
    torch.cuda.synchronize()
    return round(time.time() - start, 1)


def median(run: Callable[[], object]) -> float:
    """The median time of many, in milliseconds."""
    return round(do_bench(run, return_mode="median", rep=60, warmup=20), 3)


def main() -> None:
    """Prints the rows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer", action="store_true", help="also time flash-linear-attention")
    packages = {"recgen": "recgen.kernels"} | ({"fla": "fla.ops"} if parser.parse_args().peer else {})
    for operator, names in OPERATORS.items():
        for shape_name, shape in SHAPES.items():
            torch.manual_seed(0)
            arguments, state = inputs(shape, names)
            for who, package in packages.items():
                forward = getattr(importlib.import_module(f"{package}.{operator}"), f"chunk_{operator}")
                try:
                    row: dict[str, object] = dict(measure(forward, arguments, state))
                except RuntimeError as refusal:  # a peer's guard against a faulty compiler is a result too
                    row = {"refused": str(refusal)[:200]}
                print(json.dumps({"operator": operator, "shape": shape_name, "by": who, **row}), flush=True)


if __name__ == "__main__":
    main()
