"""Seconds from an empty kernel cache to the end of the first forward and backward on a GPU: one JSON line and one process per spec.

    TRITON_PTXAS_PATH=/usr/local/cuda/bin/ptxas python benchmarks/gpu_cold_start.py [SPEC...] [--state]

B1 T8192 H32, K = V = 128, bfloat16. `import`: torch, triton and the module; `ready`: from there to inputs on the GPU; `total` is of forward
and backward. `--state`: with an initial state, and a loss that goes through the final one too. `warm`: the second forward and backward.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time

from recgen.resources import resource

SPECS = sorted(path.stem for path in resource("specs").glob("*.rec"))


def measure(spec: str, with_state: bool) -> dict[str, object]:
    """One row, in a process that has done nothing before."""
    start = time.perf_counter()
    import importlib

    import torch
    import triton  # noqa: F401

    module = importlib.import_module(f"recgen.kernels.{spec}")
    imported = time.perf_counter()
    from recgen import compile as compile_spec
    from recgen.tuning.inputs import Shape, draw_inputs

    form = compile_spec(resource("specs") / f"{spec}.rec").normal_form
    compiled = time.perf_counter()
    drawn, state = draw_inputs(form, Shape(1, 8192, 32, 32, 128, 128), torch.bfloat16, "cuda")
    x = {name: v.requires_grad_() for name, v in drawn.items()}
    s = state.requires_grad_() if with_state else None
    o = torch.randn_like(next(v for v in x.values() if v.dim() == 4))  # the libraries' own start-up
    torch.cuda.synchronize()
    ready = time.perf_counter()

    def forward() -> list[torch.Tensor]:
        *outputs, final = getattr(module, f"chunk_{spec}")(**x, initial_state=s, output_final_state=with_state)
        return [*outputs, final] if with_state else outputs

    row: dict[str, object] = {"spec": spec, "state": with_state, "import": imported - start, "ready": ready - compiled}
    leaves = [*x.values(), *([] if s is None else [s])]
    for first in (True, False):
        begin = time.perf_counter()
        results = forward()
        torch.cuda.synchronize()
        middle = time.perf_counter()
        cotangents = [torch.randn_like(r) for r in results]
        torch.cuda.synchronize()
        again = time.perf_counter()
        torch.autograd.grad(results, leaves, cotangents, allow_unused=True)
        torch.cuda.synchronize()
        end = time.perf_counter()
        total = middle - begin + end - again
        row |= {"forward": middle - begin, "backward": end - again, "total": total} if first else {"warm": total}
    return {k: round(v, 3) if isinstance(v, float) else v for k, v in row.items()} | {"cores": os.cpu_count(), "gpu": gpu(o)}


def gpu(like: object) -> str:
    """The device's name."""
    import torch

    assert isinstance(like, torch.Tensor)
    return torch.cuda.get_device_name(like.device)


def main() -> None:
    """Prints the rows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("specs", nargs="*", default=SPECS, metavar="SPEC")
    parser.add_argument("--state", action="store_true", help="with an initial state, and a loss through the final state")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    for spec in options.specs:
        if options.here:
            print(json.dumps(measure(spec, options.state)), flush=True)
            continue
        with tempfile.TemporaryDirectory() as folder:
            command = [sys.executable, __file__, spec, "--here", *(["--state"] if options.state else [])]
            done = subprocess.run(command, env={**os.environ, "TRITON_CACHE_DIR": folder}, capture_output=True, text=True, check=False)
        failure = json.dumps({"spec": spec, "failed": done.stderr[-2000:]})
        print(done.stdout.strip() if done.returncode == 0 else failure, flush=True)


if __name__ == "__main__":
    main()
