"""Arguments of the Triton kernels: how each is loaded, what its gradient is written to, and how the host finds the sizes."""

from __future__ import annotations

from dataclasses import dataclass

from recgen.analysis.normal_form import NormalForm
from recgen.analysis.refusal import Refusal
from recgen.codegen.declared_form import always_there, size_text, typed_like
from recgen.codegen.triton_printer import Axis
from recgen.derive.program import Value
from recgen.lang.recurrence import ArgumentInfo, Recurrence
from recgen.lang.terms import SCALAR, Argument, Shape, Term


def kernel_axes(form: NormalForm) -> dict[str, Axis]:
    """The names of every axis in a kernel. A square state's axis is its key axis: one program then holds all of the value axis."""
    names = dict.fromkeys(axis for a in form.recurrence.arguments for axis in a.axes)
    axes = {axis: Axis(f"size_{axis}", f"block_{axis}", f"off_{axis}", f"mask_{axis}") for axis in names}
    axes[form.value_axis] = Axis("V", "BV", "o_v", "m_v")
    axes[form.key_axis] = Axis("K", "BK", "o_k", "m_k")
    return axes


@dataclass(frozen=True)
class KernelArgument:
    """One input or param in a kernel: `info` as declared, `value` as the programs know it; `sliced`: a value block holds a slice of it."""

    info: ArgumentInfo
    value: Value
    axis: Axis | None
    sliced: bool

    @property
    def term(self) -> Term:
        """The term that stands for it."""
        return Argument(self.info.name, self.info.role, argument_shape(self.info))

    @property
    def optional(self) -> bool:
        """Whether it may be None."""
        return bool(self.info.needed_if)

    @property
    def per_token(self) -> bool:
        """Whether it is an input."""
        return self.info.role == "input"

    @property
    def head(self) -> str:
        """The kernel's name of the head that it is read at."""
        return "i_g" if self.info.grouped else "i_h"

    @property
    def entries(self) -> str:
        """How many numbers it has per token and head, in the kernel; "" for one."""
        return f" * {self.axis.size}" if self.axis else ""

    def guarded(self, line: str) -> tuple[str, ...]:
        """The line, under a test whether the argument is there where it may not be."""
        return (f"if p_{self.info.name} is not None:", f"    {line}") if self.optional else (line,)

    def advance(self, step: bool) -> tuple[str, ...]:
        """Moves the pointer to this program's sequence and head; the tensors of a step have no token axis."""
        name = self.info.name
        if not self.per_token:
            return self.guarded(f"p_{name} += {self.head} * s_{name}[0]")
        sequence, head = ("i_n", 1) if step else ("i_b", 2)
        return self.guarded(f"p_{name} += {sequence} * s_{name}[0] + {self.head} * s_{name}[{head}]")

    def load(self, step: bool) -> tuple[str, ...]:
        """Loads it, wide, zeros in the padding: a param once, an input at token `at`."""
        name = self.info.name
        at = f" + at * s_{name}[1]" if self.per_token and not step else ""
        index = 1 if not self.per_token else 2 if step else 3
        offsets = f" + {self.axis.offsets} * s_{name}[{index}]" if self.axis else ""
        mask = f", mask={self.axis.mask}, other=0.0" if self.axis else ""
        return self.guarded(f"b_{self.value.name} = tl.load(p_{name}{at}{offsets}{mask}).to(ACC)")

    def gradient_row(self, row: str) -> str:
        """Where its gradient of one token and value head starts: partial sums have the value block as their first axis."""
        blocked = row if self.sliced else f"(i_v * total + {row})"
        return f"({blocked} * HV + i_h){self.entries}"


def kernel_arguments(form: NormalForm, reserved: frozenset[str]) -> tuple[KernelArgument, ...]:
    """The arguments in order; raises Refusal for an argument that is a matrix per token."""
    axes = kernel_axes(form)
    found = []
    taken = set(reserved)
    for info in form.recurrence.arguments:
        if len(info.axes) > 1:
            raise Refusal(f"`{info.name}` is a matrix per token; the Triton kernels take scalars and vectors", info.span)
        name = info.name if info.name not in taken else f"{info.name}_in"
        while name in taken:
            name += "_"
        taken.add(name)
        axis = info.axes[0] if info.axes else ""
        value = Value(name, axis, info.grouped, info.role == "input")
        sliced = axis == form.value_axis != form.key_axis
        found.append(KernelArgument(info, value, axes[axis] if axis else None, sliced))
    return tuple(found)


def argument_shape(info: ArgumentInfo) -> Shape:
    """The shape of its term: a scalar or a column."""
    return (info.axes[0], "1") if info.axes else SCALAR


# ----------------------------------------------------------------- host side


def size_lines(recurrence: Recurrence, step: bool) -> tuple[str, ...]:
    """The host's lines that read every size off the arguments; inputs of a step have no token axis."""
    always = [a for a in recurrence.arguments if not a.needed_if]
    inputs = [a for a in always if a.role == "input"]
    heads = next((a for a in always if not a.grouped), always[0])
    grouped = next((a for a in inputs if a.grouped), heads)
    lines = [f"_B = {inputs[0].name}.shape[0]"] if step else [f"_B, _T = {inputs[0].name}.shape[:2]"]
    lines.append(f"_H, _HV = {_heads_text(grouped, step)}, {_heads_text(heads, step)}")
    axes = dict.fromkeys(axis for a in recurrence.arguments for axis in a.axes)
    return (*lines, *(f"_size_{axis} = {size_text(recurrence.arguments, axis)}" for axis in axes))


def _heads_text(info: ArgumentInfo, step: bool) -> str:
    return f"{info.name}.shape[{0 if info.role == 'param' else 1 if step else 2}]"


def wide_source(recurrence: Recurrence) -> str:
    """The input whose dtype decides how wide the kernels accumulate: the first one that is always there."""
    return recurrence.arguments[always_there(recurrence.arguments)[0]].name


def dtype_source(recurrence: Recurrence, axis: str) -> str:
    """The input whose dtype an output takes."""
    return recurrence.arguments[typed_like(recurrence.arguments, axis)].name
