"""The spec's own expressions as PyTorch functions: operands, read-outs, their gradients, and one token as written."""

from __future__ import annotations

import re
from dataclasses import dataclass

from recgen.analysis.coupled_form import CoupledForm
from recgen.analysis.normal_form import NormalForm
from recgen.codegen.chunk_layout import in_chunks
from recgen.codegen.declared_form import always_there, size_text
from recgen.codegen.torch_printer import column_slice
from recgen.codegen.torch_programs import operand_text, operations, program_lines
from recgen.derive.gradient import differentiate
from recgen.derive.operands import NamedOperands
from recgen.derive.program import Branch, Program, Statement, Value, complete, lower, mentioned
from recgen.derive.reads import ReadSet, ReadValues, read_set
from recgen.lang.recurrence import ArgumentInfo, Recurrence
from recgen.lang.terms import Argument, AxisSize, Term, walk

ProductForm = NormalForm | CoupledForm

RESERVED = frozenset({"torch", "F", "math", "sizes", "before", "after", "read", "room", "whole", "tile", "at", "keep"})
"""What emitted functions with the user's names call their own things, besides `after_1`, `maximum`, and `read` and a tag."""


@dataclass(frozen=True)
class Expressions:
    """Printed bodies (lines) and results of the expression functions; see `templates/torch/expressions.py.j2`."""

    operands: tuple[str, ...]
    operand_results: tuple[str, ...]
    operands_gradient: tuple[str, ...]
    operand_cotangents: tuple[str, ...]
    operand_gradients: tuple[str, ...]
    readout: tuple[str, ...]
    read_names: tuple[str, ...]
    readout_results: tuple[str, ...]
    readout_gradient: tuple[str, ...]
    output_cotangents: tuple[str, ...]
    readout_gradients: tuple[str, ...]
    rereads: bool
    operations: frozenset[str]


def argument_value(info: ArgumentInfo) -> Value:
    """An argument as a value of a program."""
    return Value(local(info.name), info.axes[0] if info.axes else "", info.grouped, info.role == "input")


def local(name: str) -> str:
    """A user's name where the emitted function has its own names too: no two names, and none of its own, become the same."""
    base = name.rstrip("_")
    return f"{name}_" if base in RESERVED or re.fullmatch(r"after_\d+|maximum|read\w+", base) else name


def argument_inputs(recurrence: Recurrence) -> tuple[tuple[Term, Value], ...]:
    """Every argument's term and value."""
    return tuple((Argument(a.name, a.role, (a.axes[0], "1") if a.axes else ("1", "1")), argument_value(a)) for a in recurrence.arguments)


def build_expressions(form: ProductForm, operands: NamedOperands) -> Expressions:
    """Prints operands and read-outs and their adjoints."""
    recurrence = form.recurrence
    inputs = argument_inputs(recurrence)
    arguments = tuple(v for _, v in inputs)
    names = {d.value: d.name for d in recurrence.definitions}
    reserved = RESERVED | {o.name for o in recurrence.options}
    program = complete(lower(operands.terms, inputs, names, reserved | {o.name for o in operands.operands}), operands.terms)
    sizes = {o.name: o.size for o in operands.operands}
    printed = in_chunks(program, sizes, given(recurrence))
    differentiable = Program(program.inputs, program.statements, tuple(r for r in program.results if r[0] not in operands.signs))
    backward, cotangents = differentiate(differentiable, arguments, reserved)
    reads = read_set(form, operands, "read")
    outputs = tuple((o.name, o.value) for o in form.outputs)
    readout = complete(lower(outputs, (*inputs, *reads.inputs), names, reserved), outputs)
    readout_backward, output_cotangents = differentiate(readout, (*reads.differentiable, *arguments), reserved)
    received = _parameters(output_cotangents, [name for name, _ in outputs])
    taken = {v.name for _, v in reads.inputs}
    return Expressions(
        operands=(*axis_lines(recurrence, [t for _, t in operands.terms]), *program_lines(printed.statements, given(recurrence))),
        operand_results=printed.results,
        operands_gradient=(*_squeezed(cotangents, sizes), *_body(backward, form, operands.terms)),
        operand_cotangents=_parameters(cotangents, [name for name, _ in operands.terms if name not in operands.signs]),
        operand_gradients=_results(backward, arguments),
        readout=(*_columns_apart(reads), *_body(readout, form, outputs)),
        read_names=(*(r.values.name for r in reads.reads), *((reads.maximum.name,) if reads.maximum else ())),
        readout_results=tuple(operand_text(readout.result(name)) for name, _ in outputs),
        readout_gradient=(
            *(_columns_apart(reads) if mentioned(readout_backward.statements) & taken else ()),
            *_body(readout_backward, form, outputs),
        ),
        output_cotangents=received,
        readout_gradients=(
            *(_gradient_of(r, readout_backward, form, received[0]) for r in reads.reads),
            *_results(readout_backward, arguments),
        ),
        rereads=not mentioned(readout_backward.statements).isdisjoint(taken),
        operations=frozenset().union(*(operations(p.statements) for p in (program, backward, readout, readout_backward))),
    )


def _columns_apart(reads: ReadSet) -> tuple[str, ...]:
    """What was read, with further columns behind the values, as a vector and numbers; the running maximum without its last axis."""
    lines = []
    for r in reads.reads:
        count = len(r.columns)
        if count:
            name = r.values.name
            numbers = (f"{name}[..., {i - count}]" for i in range(count))
            targets = ", ".join((name, *(c.name for c in r.columns)))
            lines.append(f"{targets} = {', '.join((f'{name}[..., {column_slice(None, count)}]', *numbers))}")
    return (*lines, *((f"{reads.maximum.name} = {reads.maximum.name}.squeeze(-1)",) if reads.maximum else ()))


def _gradient_of(read: ReadValues, backward: Program, form: ProductForm, like: str) -> str:
    """The gradient of a read, with that of the further columns behind the values; zeros where no gradient goes through a part."""
    (values,), columns = _read_gradients(backward, (read.values,), form), _results(backward, read.columns)
    zero = f"{like}.new_zeros(()).expand(*sizes.lead, sizes.heads"
    parts = [f"{zero}, {_size(read.values, form)})" if values == "None" else values]
    parts += [f"{zero}).unsqueeze(-1)" if c == "None" else f"{c}.unsqueeze(-1)" for c in columns]
    return f"torch.cat(({', '.join(parts)}), -1)" if columns else parts[0]


def _size(read: Value, form: ProductForm) -> str:
    return "sizes.values" if read.axis == form.value_axis else "sizes.keys"


def _parameters(cotangents: tuple[tuple[str, Value], ...], roles: list[str]) -> tuple[str, ...]:
    """Cotangent parameters in the order of the roles; a constant's goes unused."""
    known = {role: value.name for role, value in cotangents}
    return tuple(known.get(role, f"_d_{role}") for role in roles)


def _squeezed(cotangents: tuple[tuple[str, Value], ...], sizes: dict[str, str]) -> tuple[str, ...]:
    return tuple(f"{value.name} = {value.name}.squeeze(-1)" for role, value in cotangents if sizes[role] == "1")


def _results(program: Program, wanted: tuple[Value, ...]) -> tuple[str, ...]:
    found = dict(program.results)
    texts = []
    for v in wanted:
        gradient = found.get(v.name)
        texts.append("None" if gradient is None else operand_text(gradient))
    return tuple(texts)


def _read_gradients(program: Program, reads: tuple[Value, ...], form: ProductForm) -> tuple[str, ...]:
    """The gradients of the reads with all their entries: that of a sum is one number for all of them."""
    found, repeated = dict(program.results), _repeated(program.statements)
    texts = []
    for text, read in zip(_results(program, reads), reads, strict=True):
        gradient = found.get(read.name)
        whole = not isinstance(gradient, Value) or gradient.name not in repeated
        texts.append(text if whole else f"{text}.expand(*{text}.shape[:-1], {_size(read, form)})")
    return tuple(texts)


def _repeated(statements: tuple[Statement, ...]) -> set[str]:
    """The vectors that are printed with one entry for all: spread numbers, and what is made of nothing else."""
    names: set[str] = set()
    for s in statements:
        if isinstance(s, Branch):
            inside = _repeated((*s.then, *s.otherwise))
            names |= {t.name for t in s.targets if t.name in inside}
        elif s.target.axis and (s.op == "spread" or all(not isinstance(a, Value) or a.name in names for a in s.args)):
            names.add(s.target.name)
    return names


def _body(program: Program, form: ProductForm, roles: tuple[tuple[str, Term], ...]) -> tuple[str, ...]:
    return (*axis_lines(form.recurrence, [t for _, t in roles]), *program_lines(program.statements, given(form.recurrence)))


def given(recurrence: Recurrence) -> str:
    """The variable of an input that is always there."""
    return local(recurrence.arguments[always_there(recurrence.arguments)[0]].name)


def axis_line(recurrence: Recurrence, axis: str) -> str:
    """`K = k.shape[-1]`."""
    return f"{axis} = {size_text(recurrence.arguments, axis, local)}"


def axis_lines(recurrence: Recurrence, terms: list[Term]) -> tuple[str, ...]:
    """A line for every axis size that the terms mention."""
    axes = dict.fromkeys(x.axis for t in terms for x in walk(t) if isinstance(x, AxisSize))
    return tuple(axis_line(recurrence, axis) for axis in axes)
