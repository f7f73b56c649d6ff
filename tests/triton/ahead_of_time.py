"""Compiles the kernels of a spec for a GPU that need not be there: `python -m tests.triton.ahead_of_time SPEC TARGET WARP DTYPE`.

The launches of the host functions, made on tensors without data, give the signatures. Prints one JSON object: kernel -> shared memory in
bytes, how much the plan allows it, and registers and bytes spilled by each thread where the compiler's tools tell.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from tests.triton.harness import Case, Inputs, module

KERNELS = (
    "_recurrent_forward_kernel",
    "_recurrent_backward_kernel",
    "_step_kernel",
    "_chunk_prepare_kernel",
    "_chunk_scan_kernel",
    "_chunk_reverse_kernel",
    "_chunk_gradients_kernel",
)
SHARED = {"80": 163 * 1024, "90": 227 * 1024, "120": 99 * 1024, "gfx942": 64 * 1024}
"""Bytes of shared memory that a program may have, by generation."""
SIZES = {"K": 128, "V": 128, "D": 64, "F": 16, "M": 128, "P": 128, "N": 128}
TYPES = {torch.float64: "*fp64", torch.float32: "*fp32", torch.bfloat16: "*bf16", torch.int32: "*i32", torch.int64: "*i64"}


class Recorder:
    """Stands for a kernel: keeps the arguments of its launch."""

    def __init__(self, kernel: Any) -> None:
        self.kernel = kernel
        self.arguments: tuple[Any, ...] = ()
        self.options: dict[str, int] = {}

    def __getitem__(self, grid: tuple[int, ...]) -> Recorder:
        return self

    def __call__(self, *arguments: Any, **options: int) -> None:
        self.arguments, self.options = arguments, options


def launches(spec: str, dtype: torch.dtype) -> dict[str, Recorder]:
    """Every kernel of a spec with the arguments of one launch."""
    functions = module(spec)
    recorders = {name: Recorder(getattr(functions, name)) for name in KERNELS if hasattr(functions, name)}
    for name, recorder in recorders.items():
        setattr(functions, name, recorder)
    inputs = Inputs(Case(spec, SIZES, tokens=16, heads=4, key_heads=2, dtype=dtype))
    is_input = {a.name: a.role == "input" for a in inputs.recurrence.arguments}
    inputs.arguments = {k: None if x is None else x.to("meta") for k, x in inputs.arguments.items()}
    state = inputs.oriented(inputs.initial.to("meta"))
    *outputs, final, saved = functions._triton_recurrent_forward(*inputs.values, state, None, True)
    functions._triton_recurrent_backward(*inputs.values, state, None, saved, *outputs, final)
    tokens = [x[:, 0] if x is not None and is_input[k] else x for k, x in inputs.arguments.items()]
    functions._triton_step(*tokens, *inputs.values[len(tokens) :], state, None)
    if "_chunk_scan_kernel" in recorders and dtype != torch.float64:
        count = len(inputs.arguments)
        arguments, options = tuple(inputs.values[:count]), tuple(inputs.values[count:])
        *outputs, final, saved = functions._triton_chunk_forward(arguments, options, state, None, 64, True)
        functions._triton_chunk_backward(arguments, options, state, None, 64, saved, tuple(outputs), final)
    return {name: r for name, r in recorders.items() if r.arguments}


def source(recorder: Recorder) -> ASTSource:
    """The launch as Triton would specialise it: None and 1 are constants, multiples of 16 are known to be."""
    signature: dict[str, Any] = {}
    constants: dict[tuple[int, ...], Any] = {}
    attributes: dict[tuple[int, ...], list[list[Any]]] = {}

    def typed(path: tuple[int, ...], value: Any, fixed: bool, special: bool, annotation: str) -> Any:
        if isinstance(value, tuple):
            return tuple(typed((*path, i), x, fixed, special, "") for i, x in enumerate(value))
        if fixed or value is None or (special and isinstance(value, int) and value == 1):
            constants[path] = value
            return "constexpr"
        if special and (isinstance(value, torch.Tensor) or value % 16 == 0):
            attributes[path] = [["tt.divisibility", 16]]
        return TYPES[value.dtype] if isinstance(value, torch.Tensor) else annotation or "i32"

    for i, (parameter, value) in enumerate(zip(recorder.kernel.params, recorder.arguments, strict=True)):
        special = not parameter.do_not_specialize
        signature[parameter.name] = typed((i,), value, parameter.is_constexpr, special, parameter.annotation_type)
    return ASTSource(recorder.kernel, signature, constants, attributes)


def registers(cubin: bytes) -> dict[str, int]:
    """What each thread takes, according to the CUDA tools that come with Triton."""
    tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
    if not tool.exists():
        return {}
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        text = subprocess.run([tool, "-res-usage", file.name], capture_output=True, text=True, check=False).stdout
    return {name.lower(): int(value) for name, value in re.findall(r"(REG|STACK|LOCAL):(\d+)", text)}


def main(spec: str, backend: str, architecture: str, warp: str, dtype: str) -> None:
    """Compiles and reports."""
    target = GPUTarget(backend, int(architecture) if architecture.isdigit() else architecture, int(warp))
    if backend == "hip":
        torch.version.hip = "compiled for"  # the host functions ask torch what they run on
    functions, rows = module(spec), []
    functions._gpu = lambda device: (architecture if backend == "hip" else f"sm_{architecture}", SHARED[architecture])
    functions._compiler_fault = lambda device, dtype: ""  # nothing runs here
    functions._build_first = lambda *_: None
    if hasattr(functions, "_chunk_tiles"):
        choose = functions._chunk_tiles
        functions._chunk_tiles = lambda *arguments: (rows.append(choose(*arguments)), rows[-1])[-1]
    report = {}
    for name, recorder in launches(spec, getattr(torch, dtype)).items():
        compiled = triton.compile(source(recorder), target=target, options=recorder.options)
        allowed = rows[-1].shared if name.startswith("_chunk") else SHARED[architecture]
        report[name] = {"warps": recorder.options["num_warps"], "shared": compiled.metadata.shared, "allowed": allowed}
        if "cubin" in compiled.asm:
            report[name] |= registers(compiled.asm["cubin"])
    print(json.dumps(report))


if __name__ == "__main__":
    main(*sys.argv[1:])
