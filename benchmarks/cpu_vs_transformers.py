"""Generated PyTorch chunk forms against transformers' PyTorch functions, on this machine's CPU, in float32.

    python benchmarks/cpu_vs_transformers.py
    python benchmarks/cpu_vs_transformers.py --kernels kda --repeat 3 --threads 2 --json result.json

Both sides get the same tensors: batch 1, 2048 tokens, 8 heads, K = V = 128 (Mamba-2: P = N = 128, with 1 and with 8 groups; Mamba-1,
by `--kernels mamba1`: N = 16, other sizes in the case's name).
Outputs and gradients are compared before anything is timed. Times are medians of interleaved runs (ours, theirs, ours, ...),
so that other load on the machine meets both; "best" is the ratio of the fastest runs, which such load distorts least.
Peak memory is that of one forward and backward pass in a process of its own, told by two figures: the growth of the
resident set, and the most bytes that PyTorch held at once. Ratios are theirs / ours.
transformers' Mamba-2 takes its chunk size from the model; it is timed at Mamba-2's default, 256, and at 64, where it is faster.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import logging
import re
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

BATCH, TOKENS, HEADS, WIDTH = 1, 2048, 8, 128
TOLERANCE = {"outputs": 1e-4, "gradients": 1e-3}
Tensors = dict[str, Tensor]
Side = Callable[[Tensors], Tensor]
Times = dict[str, list[float]]

# --- the cases: inputs by our names, and one function of them for each side ---------------------------------------------------


def transformers_function(model: str, name: str) -> Callable[..., Any]:
    module = importlib.import_module(f"transformers.models.{model}.modeling_{model}")
    logging.getLogger("transformers").setLevel(logging.ERROR)  # it warns that its PyTorch functions are slow
    function: Callable[..., Any] = getattr(module, name)
    return function


def recgen_function(name: str) -> Callable[..., Any]:
    function: Callable[..., Any] = getattr(importlib.import_module(f"recgen.kernels.{name}"), f"chunk_{name}")
    return function


def delta_inputs(tokens: int, gate_shape: tuple[int, ...]) -> Tensors:
    def heads(*shape: int) -> Tensor:
        return torch.randn(BATCH, tokens, HEADS, *shape)

    gate, strength = F.logsigmoid(heads(*gate_shape) + 3), torch.sigmoid(heads())
    return {"q": heads(WIDTH), "k": heads(WIDTH), "v": heads(WIDTH), "g": gate, "beta": strength}


def mamba_inputs(tokens: int, groups: int) -> Tensors:
    return {
        "x": torch.randn(BATCH, tokens, HEADS, WIDTH),
        "dt": torch.randn(BATCH, tokens, HEADS),
        "A": -torch.linspace(1, 16, HEADS),
        "B": torch.randn(BATCH, tokens, groups, WIDTH),
        "C": torch.randn(BATCH, tokens, groups, WIDTH),
        "D": torch.randn(HEADS),
        "dt_bias": torch.empty(HEADS).uniform_(-6, -3),
    }


def scan_inputs(batch: int, tokens: int, channels: int) -> Tensors:
    """Of Mamba-1 with N = 16, channels before tokens as transformers has them."""
    return {
        "hidden_states": torch.randn(batch, channels, tokens),
        "dt": torch.randn(batch, channels, tokens),
        "A": -torch.arange(1.0, 17.0).repeat(channels, 1),
        "B": torch.randn(batch, 16, tokens),
        "C": torch.randn(batch, 16, tokens),
        "D": torch.randn(channels),
        "z": torch.randn(batch, channels, tokens),
        "delta_bias": torch.empty(channels).uniform_(-6, -3),
    }


def selective_scan(t: Tensors) -> Tensor:
    """Ours, called as transformers calls its own."""
    u, delta, B, C, z = (t[name].transpose(1, 2).unsqueeze(2) for name in ("hidden_states", "dt", "B", "C", "z"))
    A, D, bias = (t[name][None] for name in ("A", "D", "delta_bias"))
    options = {"delta_softplus": True, "use_delta_bias": True, "use_z": True}
    y, _ = recgen_function("mamba1")(u, delta, A, B, C, D, z=z, delta_bias=bias, **options)
    return y[:, :, 0].transpose(1, 2)


@dataclass(frozen=True)
class Case:
    """`name` is <kernel>, mamba2_g<groups>_c<chunk size of transformers>, or mamba1_b<batch>_t<tokens>_d<channels>."""

    name: str

    @property
    def mamba(self) -> tuple[int, int] | None:
        match = re.fullmatch(r"mamba2_g(\d+)_c(\d+)", self.name)
        return (int(match[1]), int(match[2])) if match else None

    @property
    def scan(self) -> tuple[int, int, int] | None:
        match = re.fullmatch(r"mamba1_b(\d+)_t(\d+)_d(\d+)", self.name)
        return (int(match[1]), int(match[2]), int(match[3])) if match else None

    def inputs(self, tokens: int = TOKENS) -> Tensors:
        torch.manual_seed(0)
        if self.scan:
            batch, length, channels = self.scan
            tensors = scan_inputs(batch, min(tokens, length), channels)
        elif self.mamba:
            tensors = mamba_inputs(tokens, self.mamba[0])
        else:
            tensors = delta_inputs(tokens, (WIDTH,) if self.name == "kda" else ())
        return {name: tensor.requires_grad_() for name, tensor in tensors.items()}

    def ours(self) -> Side:
        if self.scan:
            return selective_scan
        if self.mamba:
            scan = recgen_function("mamba2")
            return lambda t: scan(**t, dt_softplus=True)[0]
        rule = recgen_function(self.name)
        return lambda t: rule(**t, use_qk_l2norm_in_kernel=True)[0]

    def theirs(self) -> Side:
        if self.scan:
            function = transformers_function("mamba", "mamba_selective_scan")
            return lambda t: function(**t, delta_softplus=True)
        if self.mamba:
            chunk, scan = self.mamba[1], transformers_function("mamba2", "mamba2_chunk_scan")
            return lambda t: scan(hidden_states=t["x"], **{k: v for k, v in t.items() if k != "x"}, chunk_size=chunk, dt_softplus=True)
        names = {"kda": ("kimi_linear", "chunk_kimi_delta_attention"), "gated_delta_rule": ("qwen3_next", "torch_chunk_gated_delta_rule")}
        rule = transformers_function(*names[self.name])
        return lambda t: rule(t["q"], t["k"], t["v"], g=t["g"], beta=t["beta"], use_qk_l2norm_in_kernel=True)[0]


CASES = ("gated_delta_rule", "kda", "mamba2_g1_c256", "mamba2_g8_c256", "mamba2_g1_c64", "mamba2_g8_c64")
SCANS = ("mamba1_b1_t1024_d1536", "mamba1_b4_t512_d768", "mamba1_b1_t256_d1536")
"""Asked for by name, as is any other size: a backward of transformers takes minutes, quadratic in the tokens."""

# --- measuring ------------------------------------------------------------------------------------------------------------------


def forward(side: Side, tensors: Tensors) -> Tensor:
    with torch.no_grad():
        return side(tensors)


def forward_backward(side: Side, tensors: Tensors) -> tuple[Tensor, ...]:
    output = side(tensors)
    gradient = torch.linspace(-1, 1, output.numel()).view_as(output)
    return (output.detach(), *torch.autograd.grad(output, list(tensors.values()), gradient))


def check(case: Case, ours: Side, theirs: Side, tensors: Tensors, forward_only: bool) -> dict[str, float]:
    """Largest relative error of the output and of the gradients, between the two sides; also the warm-up."""
    run = (lambda side: (forward(side, tensors),)) if forward_only else (lambda side: forward_backward(side, tensors))
    errors = [((a - b).abs().max() / b.abs().max()).item() for a, b in zip(run(ours), run(theirs), strict=True)]
    found = {"outputs": errors[0]} | ({} if forward_only else {"gradients": max(errors[1:])})
    for kind, error in found.items():
        if not error <= TOLERANCE[kind]:
            names = dict(zip(["output", *tensors], errors, strict=True))
            raise SystemExit(f"{case.name}: {kind} differ by {error:.1e}, allowed {TOLERANCE[kind]:.0e}: {names}")
    return found


def interleaved(runs: dict[str, Callable[[], object]], repeat: int) -> Times:
    """Milliseconds of every run of each, run in turn."""
    times: Times = {name: [] for name in runs}
    for _ in range(repeat):
        for name, run in runs.items():
            start = time.perf_counter()
            run()
            times[name].append((time.perf_counter() - start) * 1e3)
    return times


def peak_resident() -> float:
    """High-water mark of the resident set in MB. `getrusage` knows it too, but on Linux counts the process that started this one."""
    status = Path("/proc/self/status")
    if status.exists():
        return int(status.read_text().split("VmHWM:")[1].split()[0]) / 2**10
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (2**20 if sys.platform == "darwin" else 2**10)


def restart_peak() -> None:
    """Lower the high-water mark to what is resident now, where the system can (Linux)."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def peak_allocated(run: Callable[[], object]) -> float:
    """Most MB that PyTorch's CPU allocator held at once while `run` ran, beyond what it held before."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        run()
    events = [event for event in profile.profiler.kineto_results.events() if event.name() == "[memory]"]
    held = most = 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        held += event.nbytes()
        most = max(most, held)
    return most / 2**20


def measure_memory(case: Case, side_name: str) -> dict[str, float]:
    """In this process, which has done nothing else: a short run loads what a first call loads, then one full pass."""
    side: Side = getattr(case, side_name)()
    forward_backward(side, case.inputs(tokens=130))
    tensors = case.inputs()
    restart_peak()
    before = peak_resident()
    forward_backward(side, tensors)
    return {"resident": peak_resident() - before, "allocated": peak_allocated(lambda: forward_backward(side, tensors))}


def memory_in_child(case: Case, side_name: str, threads: int) -> dict[str, float]:
    command = [sys.executable, str(Path(__file__).resolve()), "--memory-of", case.name, side_name, "--threads", str(threads)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    figures: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return figures


# --- the table --------------------------------------------------------------------------------------------------------------------


@dataclass
class Row:
    """One kernel: milliseconds of every run, megabytes of each side, and the errors between them."""

    kernel: str
    forward: Times
    forward_backward: Times
    resident: dict[str, float]
    allocated: dict[str, float]
    errors: dict[str, float]


def measure(case: Case, sides: tuple[str, ...], repeat: int, threads: int, forward_only: bool) -> Row:
    functions = {name: getattr(case, name)() for name in sides}
    tensors = case.inputs()
    errors = check(case, functions["ours"], functions["theirs"], tensors, forward_only) if len(sides) == 2 else {}

    def timed(run: Callable[[Side, Tensors], object]) -> Times:
        for side in functions.values():
            run(side, tensors)
        return interleaved({name: partial(run, side, tensors) for name, side in functions.items()}, repeat)

    times = timed(forward)
    both_times = {} if forward_only else timed(forward_backward)
    memory = {} if forward_only else {name: memory_in_child(case, name, threads) for name in sides}
    resident, allocated = ({name: figures[kind] for name, figures in memory.items()} for kind in ("resident", "allocated"))
    return Row(case.name, times, both_times, resident, allocated, errors)


def ratio(pair: dict[str, float]) -> str:
    return f"{pair['theirs'] / pair['ours']:.2f}x" if len(pair) == 2 and pair.get("ours", 0) > 0 else "-"


def show(row: Row) -> str:
    medians = [{name: statistics.median(values) for name, values in times.items()} for times in (row.forward, row.forward_backward)]
    best = [{name: min(values) for name, values in times.items()} for times in (row.forward, row.forward_backward)]
    cells = [f"{row.kernel:17}"]
    for pair in (*medians, row.resident, row.allocated):
        numbers = [f"{pair[name]:.1f}" if name in pair else "-" for name in ("ours", "theirs")]
        cells.append(f"{numbers[0]:>8} {numbers[1]:>8} {ratio(pair):>7}")
    errors = " ".join(f"{kind} {error:.0e}" for kind, error in row.errors.items())
    return "  ".join(cells) + f"   best {ratio(best[0])} {ratio(best[1])}   {errors}"


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument(
        "--kernels",
        nargs="+",
        default=list(CASES),
        help=f"of {', '.join((*CASES, *SCANS))}; a prefix takes all that start with it, and mamba1_b2_t100_d64 that size",
    )
    parser.add_argument("--repeat", type=int, default=5, help="timed runs of each side (default 5)")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads(), help="threads of PyTorch (default: its own choice)")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    parser.add_argument("--forward-only", action="store_true", help="time no backward and measure no memory")
    parser.add_argument("--theirs-only", action="store_true", help="transformers alone, without generated kernels")
    parser.add_argument("--memory-of", nargs=2, metavar=("CASE", "SIDE"), help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> None:
    options = parse(arguments)
    torch.set_num_threads(options.threads)
    if options.memory_of:
        print(json.dumps(measure_memory(Case(options.memory_of[0]), options.memory_of[1])))
        return
    chosen = [name for name in (*CASES, *SCANS) if any(name.startswith(prefix) for prefix in options.kernels)]
    chosen += [name for name in options.kernels if Case(name).scan and name not in SCANS]
    sides = ("theirs",) if options.theirs_only else ("ours", "theirs")
    print(
        f"PyTorch {torch.__version__}, {options.threads} threads, float32, {TOKENS} tokens, {HEADS} heads of {WIDTH}; ours, theirs, ratio"
    )
    titles = "  ".join(f"{title:^25}" for title in ("forward, ms", "forward + backward, ms", "peak resident, MB", "peak allocated, MB"))
    print(f"{'kernel':17}  {titles}   best runs and errors")
    rows = []
    for name in chosen:
        rows.append(measure(Case(name), sides, options.repeat, options.threads, options.forward_only))
        print(show(rows[-1]), flush=True)
    if options.json:
        options.json.write_text(json.dumps([asdict(row) for row in rows], indent=2) + "\n")


if __name__ == "__main__":
    main()
