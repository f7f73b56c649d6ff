"""The adjoint of one token as a PyTorch function over columns [B, HV, n, 1], matrices [B, HV, n, m] and numbers [B, HV, 1, 1]."""

from __future__ import annotations

from dataclasses import dataclass

from recgen.codegen.declared_form import first_given
from recgen.codegen.torch_programs import INDENT, assignment, operand_text, operations
from recgen.derive.program import Assign, Literal, Operand, Statement, Value
from recgen.derive.token_program import TokenProgram, shape_of
from recgen.lang.recurrence import Recurrence


@dataclass(frozen=True)
class GradientText:
    """Parameters, body and results of the function; `operations` are those that its lines use."""

    parameters: tuple[str, ...]
    lines: tuple[str, ...]
    results: tuple[str, ...]
    operations: frozenset[str]


def gradient_text(program: TokenProgram, recurrence: Recurrence) -> GradientText:
    """Prints the adjoint."""
    optional = {v.name for a, v in zip(recurrence.arguments, program.arguments, strict=True) if a.needed_if}
    known = dict(program.cotangents)
    incoming = [known[role].name if role in known else f"_d_{role}" for role, _ in program.forward.results]
    numeric = [f"{o.name}: float" for o in recurrence.options if not isinstance(o.default, bool)]
    boolean = [f"{o.name}: bool" for o in recurrence.options if isinstance(o.default, bool)]
    found = dict(program.adjoint.results)
    inputs = (*program.arguments, *program.before)
    owners = _owners((*program.before, *(v for v in program.arguments if v.name not in optional), *program.arguments))
    body = _lines(program.adjoint.statements, owners, program.before[0].name)
    used = _axes(program.adjoint.statements, frozenset(owners))
    return GradientText(
        parameters=(
            *(f"{v.name}: torch.Tensor{' | None' if v.name in optional else ''}" for v in program.arguments),
            *numeric,
            *boolean,
            *(f"{v.name}: torch.Tensor" for v in program.before),
            *(f"{name}: torch.Tensor" for name in incoming),
        ),
        lines=(*(f"{axis} = {_size(axis, (*program.before, *program.arguments), optional)}" for axis in owners if axis in used), *body),
        results=tuple(operand_text(found[v.name]) if v.name in found else "None" for v in inputs),
        operations=frozenset(operations(program.adjoint.statements)),
    )


def _size(axis: str, inputs: tuple[Value, ...], optional: set[str]) -> str:
    owners = ((v.name, shape_of(v).index(axis)) for v in inputs if axis in shape_of(v))
    return first_given((name, f"{name}.shape[{position - 2}]", name in optional) for name, position in owners)


Owners = dict[str, tuple[str, int]]


def _owners(values: tuple[Value, ...]) -> Owners:
    """For every axis a tensor whose shape has it, and where."""
    owners: Owners = {}
    for value in values:
        for axis, position in zip(shape_of(value), (-2, -1), strict=True):
            if axis != "1":
                owners.setdefault(axis, (value.name, position))
    return owners


def _lines(statements: tuple[Statement, ...], owners: Owners, state: str, indent: str = "") -> tuple[str, ...]:
    """One line for every statement, branches as if/else; `state` is one of the states before the token."""
    lines: list[str] = []
    for s in statements:
        if isinstance(s, Assign):
            lines.append(f"{indent}{s.target.name} = {_assigned(s, owners, state)}")
            continue
        lines += [f"{indent}if {s.option}:", *_lines(s.then, owners, state, indent + INDENT)]
        lines += [f"{indent}else:", *_lines(s.otherwise, owners, state, indent + INDENT)]
    return tuple(lines)


def _assigned(s: Assign, owners: Owners, state: str) -> str:
    """The right-hand side; what moves between shapes is of this printer, the rest as in any program."""
    names = [operand_text(x) for x in s.args]
    rows, columns = shape_of(s.target)
    if s.op == "copy" and isinstance(s.args[0], Literal):
        return f"{state}.new_full((*{state}.shape[:-2], 1, 1), {names[0]})"
    if s.op == "spread":
        return f"{names[0]}.expand(*{names[0]}.shape[:-2], {rows}, {columns})"
    if s.op == "turn":
        return f"{names[0]}.mT"
    if s.op == "product":
        return f"{names[0]} @ {names[1]}"
    if s.op == "eye":
        variable, position = owners[rows]
        return f"_identity({variable}, {position})"
    if s.op == "sum":
        return f"{names[0]}.sum({_summed(s.args[0], s.target)}, keepdim=True)"
    return assignment(s)


def _summed(source: Operand, target: Value) -> str:
    """The dimensions that the target lacks."""
    assert isinstance(source, Value)
    lost = [str(i) for i, a, b in zip((-2, -1), shape_of(source), shape_of(target), strict=True) if a != b]
    return lost[0] if len(lost) == 1 else f"({', '.join(lost)})"


def _axes(statements: tuple[Statement, ...], known: frozenset[str]) -> set[str]:
    """The axes whose sizes the lines mention."""
    found: set[str] = set()
    for s in statements:
        if isinstance(s, Assign):
            found |= {x for x in shape_of(s.target) if x != "1"} if s.op == "spread" else set()
            texts = " ".join(x.text for x in s.args if isinstance(x, Literal))
            found |= {axis for axis in known if axis in "".join(c if c.isalnum() or c == "_" else " " for c in texts).split()}
        else:
            found |= _axes(s.then, known) | _axes(s.otherwise, known)
    return found
