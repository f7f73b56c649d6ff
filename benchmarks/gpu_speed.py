"""Times of the chunkwise kernels on a GPU beside flash-linear-attention's, where that is installed: one JSON line per operator and shape.

    TRITON_PTXAS_PATH=/usr/local/cuda/bin/ptxas python benchmarks/gpu_speed.py [OPERATOR...] [--peer] [--shapes long batch few]

bfloat16 inputs, float32 gates and states, initial and final state on; medians in milliseconds, the extra memory of one forward and
backward in MiB, the traffic that a forward cannot do without (inputs, outputs and states once), the seconds of the first calls (with
compilation), and the kernels' times in one forward and backward with their share of it. Selective scans have no peer here and a shape of
their own.
"""

from __future__ import annotations

import argparse
import functools
import importlib
import json
import time
from collections.abc import Callable

import torch
import torch.nn.functional as F
from triton.testing import do_bench

SHAPES = {"long": (1, 8192, 32, 32, 128), "batch": (8, 2048, 16, 16, 128), "few": (1, 32768, 2, 8, 128)}
"""B, T, H, HV, K = V."""
OPERATORS = {
    "simple_gla": ("q", "k", "v", "g"),
    "delta_rule": ("q", "k", "v", "beta"),
    "gated_delta_rule": ("q", "k", "v", "g", "beta"),
    "gla": ("q", "k", "v", "gk"),
    "kda": ("q", "k", "v", "gk", "beta"),
}

SELECTIVE = {"selective": (8, 2048, 4096, 16), "channels": (1, 32768, 1024, 16)}
"""B, T, channels, N."""
SCANS = ("mamba1", "mamba1_zoh")

Forward = Callable[..., tuple[torch.Tensor, torch.Tensor]]


def normal(*extent: int) -> torch.Tensor:
    """Random numbers in bfloat16."""
    return torch.randn(*extent, device="cuda", dtype=torch.bfloat16)


def inputs(shape: tuple[int, ...], names: tuple[str, ...]) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
    """The arguments of an operator, and an initial state."""
    batch, tokens, key_heads, heads, size = shape

    def unit() -> torch.Tensor:
        return F.normalize(normal(batch, tokens, key_heads, size).float(), dim=-1).bfloat16()

    def gate(*extent: int) -> torch.Tensor:
        return F.logsigmoid(torch.randn(*extent, device="cuda") + 4)

    made = {"q": unit, "k": unit, "v": lambda: normal(batch, tokens, heads, size), "beta": lambda: normal(batch, tokens, heads).sigmoid()}
    made |= {"g": lambda: gate(batch, tokens, heads), "gk": lambda: gate(batch, tokens, heads, size)}
    return {name.replace("gk", "g"): made[name]() for name in names}, torch.randn(batch, heads, size, size, device="cuda")


def selective_inputs(shape: tuple[int, ...]) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
    """The arguments of a selective scan with all that it can do, and an initial state."""
    batch, tokens, channels, size = shape

    rates = -torch.arange(1, size + 1, device="cuda", dtype=torch.float32).expand(1, channels, size).contiguous()
    u, delta, z = (normal(batch, tokens, 1, channels) for _ in range(3))
    B, C = (normal(batch, tokens, 1, size) for _ in range(2))
    D, bias = torch.ones(1, channels, device="cuda"), torch.full((1, channels), -4.0, device="cuda")
    arguments = {"u": u, "delta": delta, "A": rates, "B": B, "C": C, "D": D, "z": z, "delta_bias": bias}
    return arguments, torch.randn(batch, 1, channels, size, device="cuda")


def measure(forward: Forward, arguments: dict[str, torch.Tensor], state: torch.Tensor) -> dict[str, object]:
    """Times and memory of one implementation; a peer's guard against a faulty compiler is a result too, after what ran before it."""
    row: dict[str, object] = {}
    try:
        fill(row, forward, arguments, state)
    except RuntimeError as refusal:
        row["refused"] = str(refusal)[:200]
    return row


def fill(row: dict[str, object], forward: Forward, arguments: dict[str, torch.Tensor], state: torch.Tensor) -> None:
    """Adds times and memory to a row."""

    def both() -> None:
        o, final = forward(**x, initial_state=s, output_final_state=True)
        torch.autograd.grad((o, final), [*x.values(), s], (d_o, d_final))

    row["first forward, s"] = seconds(lambda: forward(**arguments, initial_state=state, output_final_state=True))
    with torch.no_grad():
        row["forward, ms"] = median(lambda: forward(**arguments, initial_state=state, output_final_state=True))
    moved = [*arguments.values(), state, *forward(**arguments, initial_state=state, output_final_state=True)]
    row["least traffic of a forward, MiB"] = sum(x.numel() * x.element_size() for x in moved) >> 20
    x = {name: v.detach().requires_grad_() for name, v in arguments.items()}
    s = state.detach().requires_grad_()
    d_o, d_final = (torch.randn_like(y) for y in forward(**x, initial_state=s, output_final_state=True))
    row["first backward, s"] = seconds(both)
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    both()
    row["extra memory, MiB"] = (torch.cuda.max_memory_allocated() - before) >> 20
    row["forward and backward, ms"] = total = median(both)
    row["kernels, ms"] = times = kernels(both)
    row["kernels' share"] = round(sum(times.values()) / total, 2)


def kernels(run: Callable[[], object]) -> dict[str, float]:
    """The time of every kernel that takes more than a hundredth of a millisecond in one call."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        for _ in range(5):
            run()
        torch.cuda.synchronize()
    found = {event.key[:60]: round(event.self_device_time_total / 5000, 3) for event in profile.key_averages()}
    return {name: time for name, time in sorted(found.items(), key=lambda each: -each[1]) if time > 0.01}


def seconds(run: Callable[[], object]) -> float:
    """The time of one call."""
    start = time.time()
    run()
    torch.cuda.synchronize()
    return round(time.time() - start, 1)


def median(run: Callable[[], object]) -> float:
    """The median time of many, in milliseconds."""
    return round(do_bench(run, return_mode="median", rep=60, warmup=20), 3)


def compared(operator: str, shape: str, packages: dict[str, str]) -> None:
    """Prints a row for everyone who has the operator."""
    torch.manual_seed(0)
    arguments, state = inputs(SHAPES[shape], OPERATORS[operator])
    for who, package in packages.items():
        if who == "fla" and operator in ("simple_gla", "gla", "delta_rule"):  # it has no grouped heads there
            groups = state.shape[1] // arguments["q"].shape[2]
            arguments = {k: x.repeat_interleave(groups, 2) if k in "qk" else x for k, x in arguments.items()}
        forward = getattr(importlib.import_module(f"{package}.{operator}"), f"chunk_{operator}")
        print(json.dumps({"operator": operator, "shape": shape, "by": who, **measure(forward, arguments, state)}), flush=True)


def selective(operator: str, shape: str) -> None:
    """Prints the row of a selective scan."""
    torch.manual_seed(0)
    function = getattr(importlib.import_module(f"recgen.kernels.{operator}"), f"chunk_{operator}")
    forward = functools.partial(function, delta_softplus=True, use_delta_bias=True, use_z=True)
    row = measure(forward, *selective_inputs(SELECTIVE[shape]))
    print(json.dumps({"operator": operator, "shape": shape, "by": "recgen", **row}), flush=True)


def main() -> None:
    """Prints the rows."""
    every = (*OPERATORS, *SCANS)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("operators", nargs="*", metavar="OPERATOR", help=f"of {', '.join(every)}; all of them by default")
    parser.add_argument("--peer", action="store_true", help="also time flash-linear-attention")
    parser.add_argument("--shapes", nargs="+", choices=SHAPES | SELECTIVE, default=list(SHAPES | SELECTIVE))
    options = parser.parse_args()
    if unknown := set(options.operators) - set(every):
        parser.error(f"unknown: {', '.join(sorted(unknown))}")
    packages = {"recgen": "recgen.kernels"} | ({"fla": "fla.ops"} if options.peer else {})
    for operator in options.operators or every:
        for shape in options.shapes:
            if operator in SCANS and shape in SELECTIVE:
                selective(operator, shape)
            elif operator in OPERATORS and shape in SHAPES:
                compared(operator, shape, packages)


if __name__ == "__main__":
    main()
