"""The kernels compile for GPUs, without one: in a process of its own, since the interpreter is on in this one."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SPILLED = {"_chunk_prepare_kernel": 2048, "_chunk_scan_kernel": 4096, "_chunk_reverse_kernel": 4096, "_chunk_gradients_kernel": 20480}
"""Bytes that a thread spills at most, where more than 1024 are known: tiles of float32, and the gradients of a chunk, all held at once."""


@pytest.mark.parametrize(
    ("spec", "target", "dtype"),
    [
        ("kda", "cuda 90 32", "bfloat16"),
        ("gated_delta_rule", "cuda 80 32", "float32"),
        ("forget_after_correct", "cuda 90 32", "bfloat16"),
        ("mamba2", "cuda 120 32", "bfloat16"),
        ("mamba2", "hip gfx942 64", "float32"),
        ("linear_attention", "cuda 90 32", "float64"),
        ("gated_delta_rule", "hip gfx942 64", "bfloat16"),
    ],
)
def test_kernels_compile(spec: str, target: str, dtype: str, tmp_path: Path):
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"} | {"TRITON_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-m", "tests.triton.ahead_of_time", spec, *target.split(), dtype]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    report = json.loads(done.stdout.splitlines()[-1])
    assert {"_recurrent_forward_kernel", "_recurrent_backward_kernel", "_step_kernel"} <= set(report)
    for name, found in report.items():
        assert found["shared"] <= found["allowed"], f"{name} takes {found['shared']} bytes of shared memory of {found['allowed']}"
        assert found.get("stack", 0) <= SPILLED.get(name, 1024), f"{name} spills {found['stack']} bytes"
