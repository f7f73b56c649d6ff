"""The chunkwise kernels on a GPU against the same module's float64 form: one JSON line per spec, shape and dtype.

    TRITON_PTXAS_PATH=/usr/local/cuda/bin/ptxas python benchmarks/gpu_accuracy.py [SPEC...] [--peer] > lines.jsonl
    python benchmarks/gpu_accuracy.py --table lines.jsonl

The figure of a tensor is the larger of its relative RMS error and a quarter of its largest error over its largest entry. `same`: a second
forward gave the same bits. Specs run beside each other, in processes of their own, since most of the time is compilation.

With --peer (fla-core 0.6.0 and einops must be importable) a row also has the errors of flash-linear-attention on the same inputs against
the same reference, or what it said when it refused. Where it does not know grouped heads, queries and keys are repeated and their gradients
summed in float32. Its autotuners choose among a few of their configurations.
"""

from __future__ import annotations

import argparse
import importlib
import json
import math
import multiprocessing
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Any

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
SPECS = ("linear_attention", "retnet", "simple_gla", "mamba2", "delta_rule", "gated_delta_rule", "gla", "kda")
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"

Tensors = dict[str, torch.Tensor]
Row = dict[str, Any]


def inputs(spec: str, shape: tuple[int, ...]) -> Tensors:
    """Float64 inputs, keys and queries of unit norm."""
    batch, tokens, key_heads, heads, keys, values = shape

    def normal(*size: int) -> torch.Tensor:
        return torch.randn(*size, dtype=torch.float64, device=DEVICE)

    q, k = (F.normalize(normal(batch, tokens, key_heads, keys), dim=-1) for _ in range(2))
    v, g = normal(batch, tokens, heads, values), F.logsigmoid(normal(batch, tokens, heads) + 3)
    beta, gate = torch.sigmoid(normal(batch, tokens, heads)), F.logsigmoid(normal(heads) + 3)
    if spec == "mamba2":
        params = {"A": -normal(heads).abs() - 0.1, "B": k, "C": q, "D": normal(heads), "dt_bias": normal(heads)}
        return {"x": v, "dt": normal(batch, tokens, heads), **params}
    if spec in ("gla", "kda"):
        g = F.logsigmoid(normal(batch, tokens, heads, keys) + 3)
    gates = {"retnet": {"g": gate}, "delta_rule": {"beta": beta}, "linear_attention": {}}
    extra = {**gates, "gated_delta_rule": {"g": g, "beta": beta}, "kda": {"g": g, "beta": beta}}
    return {"q": q, "k": k, "v": v, **extra.get(spec, {"g": g})}


def error(x: torch.Tensor, reference: torch.Tensor) -> float:
    """See the module's docstring."""
    x, reference = x.detach(), reference.detach()
    difference = x.double() - reference
    rms = difference.pow(2).mean().sqrt() / reference.pow(2).mean().sqrt().clamp(min=1e-30)
    return float(max(rms, difference.abs().max() / reference.abs().max().clamp(min=1e-30) / 4))


# --- the peer ---------------------------------------------------------------------------------------------------------------------------

PEER: dict[str, tuple[str, str, dict[str, Any]]] = {
    "linear_attention": ("linear_attn", "chunk_linear_attn", {"normalize": False}),
    "retnet": ("simple_gla", "chunk_simple_gla", {}),  # as its chunk_retention does, which fixes the decays
    "simple_gla": ("simple_gla", "chunk_simple_gla", {}),
    "delta_rule": ("delta_rule", "chunk_delta_rule", {}),
    "gated_delta_rule": ("gated_delta_rule", "chunk_gated_delta_rule", {}),
    "gla": ("gla", "chunk_gla", {}),
    "kda": ("kda", "chunk_kda", {}),
}
"""By spec: the package of `fla.ops`, its function, and arguments that choose the same recurrence."""
GROUPED = ("gated_delta_rule", "kda")
"""Where the peer knows grouped heads."""


def peer_function(spec: str, configurations: int) -> Callable[..., Any] | None:
    """The peer's function under the spec's argument names, or None."""
    if spec not in PEER:
        return None
    package, name, fixed = PEER[spec]
    function = getattr(importlib.import_module(f"fla.ops.{package}"), name)
    limit_autotuning(configurations)

    def call(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, g: torch.Tensor | None = None, **rest: Any) -> Any:
        if spec not in GROUPED:
            q, k = (x.float().repeat_interleave(v.shape[2] // x.shape[2], 2).to(x.dtype) for x in (q, k))
        gate = {} if g is None else {"g_gamma" if spec == "retnet" else "g": g}
        return function(q=q, k=k, v=v, **gate, **rest, **fixed)

    return call


def limit_autotuning(configurations: int) -> None:
    """Leaves every autotuner of the peer that many configurations, spread over its list."""
    import gc

    from triton.runtime.autotuner import Autotuner

    for tuner in gc.get_objects():
        if issubclass(type(tuner), Autotuner) and tuner.base_fn.__module__.startswith("fla."):
            tuner.configs = tuner.configs[:: max(1, len(tuner.configs) // configurations)][:configurations]


# --- one row ----------------------------------------------------------------------------------------------------------------------------


class Sample:
    """The inputs of a row and the gradients that come in, the same for everyone who is measured."""

    def __init__(self, spec: str, shape: tuple[int, ...], bounds: tuple[int, ...] | None, dtype: torch.dtype) -> None:
        self.packed = None if bounds is None else torch.tensor(bounds, device=DEVICE)
        self.low = {name: x.float() if name in WIDE else x.to(dtype) for name, x in inputs(spec, shape).items()}
        rows = shape[0] if bounds is None else len(bounds) - 1
        axes = (shape[5], shape[4]) if spec == "mamba2" else (shape[4], shape[5])
        self.state = torch.randn(rows, shape[3], *axes, device=DEVICE)
        v = self.low["x" if spec == "mamba2" else "v"]
        self.d_o, self.d_state = torch.randn_like(v, dtype=torch.float64), torch.randn_like(self.state, dtype=torch.float64)

    def leaves(self, wide: bool) -> Tensors:
        """Fresh inputs that require gradients."""
        every = {**self.low, "initial_state": self.state}
        return {name: (x.double() if wide else x.clone()).requires_grad_() for name, x in every.items()}

    def forward(self, function: Callable[..., Any], leaves: Tensors) -> tuple[torch.Tensor, torch.Tensor]:
        """The outputs and the final states."""
        result: tuple[torch.Tensor, torch.Tensor] = function(**leaves, output_final_state=True, cu_seqlens=self.packed)
        return result

    def gradients(self, o: torch.Tensor, state: torch.Tensor, leaves: Tensors) -> Tensors:
        """The gradient of every input that has one."""
        loss = (o.double() * self.d_o).sum() + (state.double() * self.d_state).sum()
        found: Sequence[torch.Tensor | None] = torch.autograd.grad(loss, list(leaves.values()), allow_unused=True)
        return {f"d_{name}": x for name, x in zip(leaves, found, strict=True) if x is not None}


def figures(found: Tensors, reference: Tensors) -> dict[str, float]:
    """The error of every tensor, infinite where it is no number."""
    errors = {name: error(x, reference[name]) for name, x in found.items()}
    return {name: math.inf if math.isnan(x) else float(f"{x:.1e}") for name, x in errors.items()}


def peer_errors(function: Callable[..., Any], sample: Sample, reference: Tensors) -> Row:
    """The peer's errors, and what it said if it refused the forward or the backward."""
    leaves, found = sample.leaves(wide=False), {}
    try:
        o, state = sample.forward(function, leaves)
        found = {"o": o, "state": state}
        found = {**found, **sample.gradients(o, state, leaves)}
    except Exception as refusal:  # whatever it is, it is the row's result
        message = next(iter(str(refusal).splitlines()), "")
        return {"peer_errors": figures(found, reference), "peer": f"refused: {type(refusal).__name__}: {message}"}
    return {"peer_errors": figures(found, reference)}


def compare(spec: str, module: ModuleType, sample: Sample, peer: Callable[..., Any] | None) -> Row:
    """What a row holds beside its shape."""
    function = getattr(module, f"chunk_{spec}")
    results: list[Tensors] = []
    for wide in (True, False):
        leaves = sample.leaves(wide)
        o, state = sample.forward(function, leaves)
        results.append({"o": o, "state": state, **sample.gradients(o, state, leaves)})
    again = sample.forward(function, leaves)
    same = torch.equal(again[0], o) and torch.equal(again[1], state)
    row: Row = {"same": same, "errors": figures(results[1], results[0])}
    return row if peer is None else {**row, **peer_errors(peer, sample, results[0])}


def rows(spec: str, configurations: int) -> None:
    """Prints the rows of one spec; with the peer if its autotuners may have configurations."""
    torch.manual_seed(0)
    module = importlib.import_module(f"recgen.kernels.{spec}")
    peer = peer_function(spec, configurations) if configurations else None
    for shape, bounds, dtypes in SHAPES:
        for dtype in dtypes:
            start = time.perf_counter()
            found = compare(spec, module, Sample(spec, shape, bounds, dtype), peer)
            about = {"spec": spec, "shape": shape, "bounds": bounds, "dtype": str(dtype).removeprefix("torch.")}
            print(json.dumps({**about, **found, "seconds": round(time.perf_counter() - start, 1)}) + "\n", end="", flush=True)


# --- the table --------------------------------------------------------------------------------------------------------------------------

GROUPS = {
    "output, state": ("o", "state"),
    "vector gradients": ("d_q", "d_k", "d_v", "d_x", "d_B", "d_C", "d_initial_state"),
    "gate, strength and param gradients": ("d_g", "d_beta", "d_A", "d_D", "d_dt", "d_dt_bias"),
}


def cells(lines: list[Row], names: tuple[str, ...]) -> tuple[str, str]:
    """The worst figure of ours and of the peer over these rows; the peer's with the rows that it has, if not all."""
    worst = []
    for key in ("errors", "peer_errors"):
        found = [[line.get(key, {})[name] for name in names if name in line.get(key, {})] for line in lines]
        having = [figures for figures in found if figures]
        part = "" if len(having) == len(lines) else f" ({len(having)} of {len(lines)})"
        worst.append(f"{max(map(max, having)):.1e}{part}" if having else "")
    return worst[0], worst[1]


def table(lines: Iterable[Row]) -> str:
    """Markdown: for every spec and dtype the worst figures over the shapes, the peer's beside ours; then what the peer refused."""
    every = list(lines)
    head = ["spec", "dtype", *(title for group in GROUPS for title in (group, "peer"))]
    text = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for spec in SPECS:
        for dtype in dict.fromkeys(line["dtype"] for line in every if line["spec"] == spec):
            mine = [line for line in every if (line["spec"], line["dtype"]) == (spec, dtype)]
            figures = [cell for names in GROUPS.values() for cell in cells(mine, names)]
            text.append(f"| {spec} | {dtype} | {' | '.join(figures)} |")
    refused = dict.fromkeys(f"- {line['spec']}, {line['dtype']}: peer {line['peer']}" for line in every if "peer" in line)
    unequal = [f"- {line['spec']}, {line['dtype']}, {line['shape']}: two forwards differed" for line in every if not line["same"]]
    return "\n".join([*text, "", *refused, *unequal]).rstrip() + "\n"


def main() -> None:
    """Prints the rows or the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("specs", nargs="*", metavar="SPEC", help=f"of {', '.join(SPECS)}; all of them if none is named")
    parser.add_argument("--peer", action="store_true", help="also flash-linear-attention's errors")
    parser.add_argument("--configurations", type=int, default=2, help="of every autotuner of the peer")
    parser.add_argument("--jobs", type=int, default=len(SPECS), help="processes")
    parser.add_argument("--table", type=Path, metavar="FILE", help="turns the lines of an earlier run into a table")
    options = parser.parse_args()
    if unknown := sorted(set(options.specs) - set(SPECS)):
        parser.error(f"expected specs among {', '.join(SPECS)}, got {', '.join(unknown)}")
    if options.table is not None:
        print(table(json.loads(line) for line in options.table.read_text().splitlines() if line.startswith("{")), end="")
        return
    with ProcessPoolExecutor(options.jobs, multiprocessing.get_context("spawn")) as pool:
        for done in [pool.submit(rows, spec, options.configurations if options.peer else 0) for spec in options.specs or SPECS]:
            done.result()


if __name__ == "__main__":
    main()
