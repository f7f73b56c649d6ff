"""The launches of a module's kernels, recorded on tensors without data and specialised as Triton does, for a GPU that need not be there."""

from __future__ import annotations

import hashlib
import io
import json
import tokenize
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache
from types import ModuleType
from typing import Any
from unittest import mock

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.runtime.jit import JITFunction

from recgen.lang.recurrence import ArgumentInfo
from tests.triton.harness import Case, Inputs, compiled, module, result, segmented

TARGETS = {
    "sm_80": GPUTarget("cuda", 80, 32),
    "sm_90": GPUTarget("cuda", 90, 32),
    "sm_100": GPUTarget("cuda", 100, 32),
    "sm_120": GPUTarget("cuda", 120, 32),
    "gfx942": GPUTarget("hip", "gfx942", 64),
}
TYPES = {
    torch.float64: "*fp64",
    torch.float32: "*fp32",
    torch.bfloat16: "*bf16",
    torch.float16: "*fp16",
    torch.int32: "*i32",
    torch.int64: "*i64",
}
SHARED = {"sm_80": 163 * 1024, "sm_90": 227 * 1024, "sm_100": 227 * 1024, "sm_120": 99 * 1024, "gfx942": 64 * 1024}
"""Bytes of shared memory that a program may have."""
OTHER_AXES = 64
"""The size of an axis that is neither the key nor the value axis."""


@dataclass(frozen=True)
class Point:
    """One call of the host functions of a spec, forward, backward and step.

    `variant`: "plain", with the options' defaults, or "packed", with every boolean option the other way, packed sequences, whole and in
    segments, and state slots.
    """

    spec: str
    dtype: str
    keys: int
    variant: str
    target: str


@dataclass(frozen=True)
class Launch:
    """One kernel with what its launch fixes; a path leads to a parameter, or to an entry of one that is a tuple."""

    kernel: Any
    signature: dict[str, Any]
    constants: dict[tuple[int, ...], Any]
    attributes: dict[tuple[int, ...], list[list[Any]]]
    options: dict[str, int]

    @property
    def name(self) -> str:
        """The kernel's name."""
        return str(self.kernel.__name__)

    @property
    def source(self) -> ASTSource:
        """What Triton compiles."""
        return ASTSource(self.kernel, self.signature, self.constants, self.attributes)

    @property
    def digest(self) -> str:
        """Of all that decides the compiled code but the target and the compiler."""
        constants = sorted((path, str(value)) for path, value in self.constants.items())
        parts = [text(self.kernel), self.signature, constants, sorted(self.attributes.items()), self.options]
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]


@cache
def text(kernel: JITFunction[Any]) -> str:
    """The kernel and the functions and constants of its module that it uses, without comments and docstrings, by name."""
    pieces: dict[str, str] = {}
    found: list[tuple[str, Any]] = [(kernel.__name__, kernel)]
    while found:
        name, value = found.pop()
        if name in pieces:
            continue
        if isinstance(value, JITFunction):
            pieces[name] = bare(value.src)
            namespace = value.fn.__globals__
            found += [(word, namespace[word]) for word in value.fn.__code__.co_names if word in namespace]
        elif isinstance(value, triton.language.constexpr):
            pieces[name] = str(value.value)
    return "\n".join(f"{name}: {pieces[name]}" for name in sorted(pieces))


def bare(source: str) -> str:
    """A function's tokens, one line a statement, without comments and docstrings."""
    lines: list[list[str]] = [[]]
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type in (tokenize.INDENT, tokenize.DEDENT):
            lines[-1].append(tokenize.tok_name[token.type])
        elif token.type == tokenize.NEWLINE:
            lines.append([])
        elif token.type not in (tokenize.COMMENT, tokenize.NL):
            lines[-1].append(token.string)
    return "\n".join(" ".join(line) for line in lines if line and not line[-1].startswith(('"""', "'''")))


class Meta(Inputs):
    """Arguments without data."""

    def __init__(self, case: Case) -> None:
        super().__init__(case)
        self.arguments = {k: None if x is None else x.to("meta") for k, x in self.arguments.items()}
        self.initial = tuple(x.to("meta") for x in self.declared) if self.initial is not None else None

    @property
    def bounds(self) -> torch.Tensor | None:
        """The boundaries of packed sequences."""
        bounds = super().bounds
        return None if bounds is None else bounds.to("meta")

    def token(self) -> list[object]:
        """The arguments of one token."""
        infos: list[ArgumentInfo] = list(self.recurrence.arguments)
        first = [x[:, 0] if x is not None and info.role == "input" else x for info, x in zip(infos, self.arguments.values(), strict=True)]
        return [*first, *self.values[len(first) :]]


@contextmanager
def recording(functions: ModuleType, name: str, calls: list[tuple[Any, tuple[Any, ...], dict[str, Any]]]) -> Iterator[None]:
    """Kernels are not run, their launches are kept; the host functions find the target when they ask what they run on."""

    def run(kernel: Any, *arguments: Any, grid: Any, warmup: bool, **options: int) -> None:
        calls.append((kernel, arguments, options))

    hip = TARGETS[name].backend == "hip"
    with ExitStack() as stack:
        stack.enter_context(mock.patch.object(JITFunction, "run", run))
        stack.enter_context(mock.patch.object(torch.version, "hip", "compiled for" if hip else None))
        stack.enter_context(mock.patch.object(functions, "_gpu", return_value=(name, SHARED[name])))
        stack.enter_context(mock.patch.object(functions, "_compiler_fault", return_value=""))
        stack.enter_context(mock.patch.object(functions, "_build_first"))
        yield


def case_of(point: Point) -> Case:
    """The arguments of a point."""
    form = compiled(point.spec)[0]
    axes = {axis for a in form.recurrence.arguments for axis in a.axes} | {form.key_axis, form.value_axis}
    sizes = {axis: point.keys if axis in (form.key_axis, form.value_axis) else OTHER_AXES for axis in axes}
    case = Case(point.spec, sizes, tokens=16, heads=4, key_heads=2, dtype=getattr(torch, point.dtype))
    if point.variant == "plain":
        return case
    flipped = {o.name: not o.default for o in form.recurrence.options if isinstance(o.default, bool)}
    return case.but(options=flipped, bounds=(0, 7, 16))


@cache
def launches(point: Point) -> tuple[Launch, ...]:
    """Every launch of a point, in order; equal ones once."""
    functions, inputs = module(point.spec), Meta(case_of(point))
    calls: list[tuple[Any, tuple[Any, ...], dict[str, Any]]] = []
    states, bounds = inputs.states, inputs.bounds
    count = len(inputs.recurrence.outputs)
    tokens = result(point.spec).plan.tokens
    with recording(functions, point.target, calls):
        *results, saved = functions._triton_recurrent_forward(*inputs.values, *states, bounds, True)
        functions._triton_recurrent_backward(*inputs.values, *states, bounds, saved, *results)
        slots = None if bounds is None else torch.zeros(1, dtype=torch.int32, device="meta")
        functions._triton_step(*inputs.token(), *states, slots)
        if point.dtype == "float64":
            chunks: tuple[int, ...] = ()
        else:
            chunks = (0,) if bounds is None else (0, 1)
        for each in chunks:
            with segmented(functions, each):
                *results, saved = functions._triton_chunk_forward(*inputs.split, states, bounds, tokens, True)
                given = (tuple(results[:count]), tuple(results[count:]))
                functions._triton_chunk_backward(*inputs.split, states, bounds, tokens, saved, *given)
    found = [specialised(*call) for call in calls]
    return tuple({launch.digest: launch for launch in found}.values())


def specialised(kernel: Any, arguments: tuple[Any, ...], options: dict[str, int]) -> Launch:
    """A launch as Triton would specialise it: None and 1 are constants, multiples of 16 are known to be."""
    launch = Launch(kernel, {}, {}, {}, options)

    def typed(path: tuple[int, ...], value: Any, fixed: bool, special: bool, annotation: str) -> Any:
        if isinstance(value, tuple):
            return tuple(typed((*path, i), x, fixed, special, "") for i, x in enumerate(value))
        if fixed or value is None or (special and isinstance(value, int) and value == 1):
            launch.constants[path] = value
            return "constexpr"
        if special and (isinstance(value, torch.Tensor) or value % 16 == 0):
            launch.attributes[path] = [["tt.divisibility", 16]]
        return TYPES[value.dtype] if isinstance(value, torch.Tensor) else annotation or "i32"

    for i, (parameter, value) in enumerate(zip(kernel.params, arguments, strict=True)):
        special = not parameter.do_not_specialize
        launch.signature[parameter.name] = typed((i,), value, parameter.is_constexpr, special, parameter.annotation_type)
    return launch
