"""Seconds from an empty kernel cache to the end of the first forward and backward on a GPU: one JSON line and one process per spec.

    TRITON_PTXAS_PATH=/usr/local/cuda/bin/ptxas python benchmarks/gpu_cold_start.py [SPEC...] [--state]

B1 T8192 H32, K = V = 128, bfloat16. `total` is `forward` and `backward`; `warm` is both once more; `process`: all of it, imports and the
start of CUDA included. `--state`: with an initial state, and a loss that goes through the final one too.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

from recgen.resources import resource

SPECS = sorted(path.stem for path in resource("specs").glob("*.rec"))
TOKENS, HEADS, SIZE = 8192, 32, 128
DECAYS = ("g", "A")
"""Arguments that are never positive, and stay in float32 beside half-precision inputs."""


def value(info: Any) -> torch.Tensor:
    """An argument: vectors of unit norm, decays near 1, other scalars in (0, 1)."""
    lead = (1, TOKENS, HEADS) if info.per_token else (HEADS,)
    x = torch.randn(*lead, *(SIZE for _ in info.axes), device="cuda")
    if info.name in DECAYS:
        return -torch.exp(x - 3)
    x = F.normalize(x, dim=-1) if info.axes else torch.sigmoid(x)
    return x.bfloat16() if info.per_token else x


def seconds(run: Callable[[], Any]) -> tuple[float, Any]:
    """How long a call takes until the GPU is done, and its result."""
    torch.cuda.synchronize()
    start = time.perf_counter()
    result = run()
    torch.cuda.synchronize()
    return round(time.perf_counter() - start, 3), result


def measure(spec: str, with_state: bool) -> dict[str, object]:
    """One row, in a process that has compiled nothing before."""
    module = importlib.import_module(f"recgen.kernels.{spec}")
    x = {info.name: value(info).requires_grad_() for info in module._ARGUMENTS if not info.needed_if}
    state = torch.randn(1, HEADS, SIZE, SIZE, device="cuda", requires_grad=True) if with_state else None
    leaves = [*x.values(), *([] if state is None else [state])]
    row: dict[str, object] = {"spec": spec, "state": with_state, "gpu": torch.cuda.get_device_name(), "cores": os.cpu_count()}

    def forward() -> list[torch.Tensor]:
        *outputs, final = getattr(module, f"chunk_{spec}")(**x, initial_state=state, output_final_state=with_state)
        return [*outputs, final] if with_state else outputs

    for first in (True, False):
        before, results = seconds(forward)
        cotangents = [torch.randn_like(r) for r in results]
        after, _ = seconds(lambda found=results, given=cotangents: torch.autograd.grad(found, leaves, given, allow_unused=True))
        total = round(before + after, 3)
        row |= {"forward": before, "backward": after, "total": total} if first else {"warm": total}
    return row


def separate(spec: str, with_state: bool) -> dict[str, object]:
    """The row from a process of its own, with an empty cache."""
    command = [sys.executable, __file__, spec, "--here", *(["--state"] if with_state else [])]
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        done = subprocess.run(command, env={**os.environ, "TRITON_CACHE_DIR": folder}, capture_output=True, text=True, check=False)
        process = round(time.perf_counter() - start, 3)
    if done.returncode:
        return {"spec": spec, "failed": done.stderr[-2000:]}
    return {**json.loads(done.stdout.splitlines()[-1]), "process": process}


def main() -> None:
    """Prints the rows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("specs", nargs="*", default=SPECS, metavar="SPEC")
    parser.add_argument("--state", action="store_true", help="with an initial state, and a loss through the final state")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    for spec in options.specs:
        row = (measure if options.here else separate)(spec, options.state)
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
