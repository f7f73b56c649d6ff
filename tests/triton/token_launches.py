"""Compiles the kernels of recurrences that are compiled token by token, for a GPU that need not be there.

`python -m tests.triton.token_launches SPEC DTYPE SIZE TARGET` prints, for every kernel, its bytes of shared memory, and on NVIDIA's GPUs
registers and bytes of spilled memory of a thread.
"""

from __future__ import annotations

import importlib.util
import json
import sys
import tempfile
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest import mock

import torch
import triton
from triton.runtime.jit import JITFunction

from recgen.pipeline import ScanCompiled, TokenCompiled, compile_text
from tests.triton.compiling import cuda_usage
from tests.triton.launches import TARGETS, Launch, specialised

ROOT = Path(__file__).parents[2]
FOLDERS = (ROOT / "tests/specs/recurrent", ROOT / "tests/specs/scans", ROOT / "tests/specs", ROOT / "specs")
HEADS, KEY_HEADS, TOKENS = 4, 2, 16


@cache
def specs() -> dict[str, TokenCompiled]:
    """Every stage's result for every spec whose kernels take one token after another."""
    paths = sorted((path for folder in FOLDERS for path in folder.glob("*.rec")), key=lambda path: path.stem)
    found = {path.stem: compile_text(path.read_text(encoding="utf-8"), path.stem) for path in paths}
    return {name: result for name, result in found.items() if isinstance(result, TokenCompiled)}


def compiled(spec: str) -> TokenCompiled:
    """Every stage's result for one of these specs."""
    return specs()[spec]


def module(name: str, text: str) -> ModuleType:
    """The text as a module."""
    path = Path(tempfile.mkdtemp(prefix="recgen-token-")) / f"{name}_kernels.py"
    path.write_text(text, encoding="utf-8")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = loaded
    spec.loader.exec_module(loaded)
    return loaded


def launches(spec: str, dtype: torch.dtype, size: int) -> list[Launch]:
    """The forward, the backward and the step, and of a scan both in tiles, whole and in segments.

    With every option on, on tensors without data; every axis has this size.
    """
    found = compiled(spec)
    functions, recurrence = module(spec, found.module.text), found.recurrence
    numbers = [o.name for o in recurrence.options if not isinstance(o.default, bool)]
    options = [*(0.5 for _ in numbers), *(True for o in recurrence.options if isinstance(o.default, bool))]
    arguments = []
    for a in recurrence.arguments:
        lead = [1, TOKENS, KEY_HEADS if a.grouped else HEADS] if a.role == "input" else [HEADS]
        arguments.append(torch.empty(*lead, *(size for _ in a.axes), dtype=dtype, device="meta"))
    token = [x[:, 0] if a.role == "input" else x for a, x in zip(recurrence.arguments, arguments, strict=True)]
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    states = [torch.empty(2, HEADS, *(size for _ in s.axes), dtype=wide, device="meta") for s in recurrence.states]
    bounds, slots = (torch.empty(n, dtype=torch.int32, device="meta") for n in (3, 1))
    calls: list[tuple[Any, tuple[Any, ...], dict[str, Any]]] = []

    def run(kernel: Any, *given: Any, grid: Any, warmup: bool, **chosen: int) -> None:
        calls.append((kernel, given, chosen))

    with mock.patch.object(JITFunction, "run", run):
        *results, saved = functions._triton_recurrent_forward(*arguments, *options, *states, bounds, True)
        functions._triton_recurrent_backward(*arguments, *options, *states, bounds, saved, *results)
        functions._triton_step(*token, *options, *states, slots)
        if isinstance(found, ScanCompiled):
            for segments in (1, 2):
                functions._triton_scan_span = lambda *_, segments=segments: (segments, 64)
                *results, saved = functions._triton_scan_forward(*arguments, *options, *states, bounds, True)
                functions._triton_scan_backward(*arguments, *options, *states, bounds, saved, *results)
    return [specialised(*call) for call in calls]


def main(spec: str, dtype: str, size: str, target: str) -> None:
    """Compiles them."""
    figures = {}
    for launch in launches(spec, getattr(torch, dtype), int(size)):
        result = triton.compile(launch.source, target=TARGETS[target], options=launch.options)
        summary = "_of_summaries" * any(p.name == "SUMMARY" and launch.source.constants.get((p.num,), False) for p in launch.kernel.params)
        usage = cuda_usage(result.asm["cubin"]) if "cubin" in result.asm else []
        figures[launch.name.strip("_") + summary] = [result.metadata.shared, *usage]
    print(json.dumps(figures))


if __name__ == "__main__":
    main(*sys.argv[1:])
