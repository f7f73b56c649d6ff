"""A chunk of the scan class as one program: multipliers and writes of all tokens, the scans, the outputs; and its adjoint."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from recgen.analysis.scan_form import ScanForm, ScanState
from recgen.derive.gradient import differentiate, last_gradient
from recgen.derive.program import (
    Assign,
    Literal,
    Operand,
    Program,
    Scope,
    Statement,
    Value,
    lower_term,
    mentioned,
    move,
    needed,
)
from recgen.lang.terms import SCALAR, Argument, Shape, State, Term

TRANSCENDENTAL = ("exp", "expm1", "log", "log1p", "sigmoid", "logsigmoid", "softplus", "silu", "tanh", "sin", "cos", "pow")


@dataclass(frozen=True)
class ScanPrograms:
    """The chunk's programs.

    `forward` gives the outputs by name; `scanned` are the values of the states after every token, and `first` those at the chunk's start,
    in declaration order. `backward` gives the gradient of every argument and of every value of `first` by name, from `cotangents`
    (output, value) and `last`, the gradients of the states after the chunk.
    """

    forward: Program
    scanned: tuple[Value, ...]
    first: tuple[Value, ...]
    backward: Program
    cotangents: tuple[tuple[str, Value], ...]
    last: tuple[Value, ...]


def scan_programs(form: ScanForm, arguments: tuple[Value, ...], reserved: frozenset[str]) -> ScanPrograms:
    """Lowers and differentiates; `arguments` are the values of the recurrence's arguments, `reserved` names are not used."""
    recurrence = form.recurrence
    names = {d.value: d.name for d in recurrence.definitions}
    scope = Scope(names, {*reserved, *(v.name for v in arguments)}, order=form.axes)
    for info, value in zip(recurrence.arguments, arguments, strict=True):
        scope.bind(Argument(info.name, info.role, state_shape(info.axes)), value)
    scanned, first = {}, {}
    for state in form.states:
        first[state.info.name] = Value(scope.fresh(f"{state.info.name}_first"), scope.joined(set(state.info.axes)), False, False)
        scanned[state.info.name] = _scan(state, first[state.info.name], scope)
    results = tuple((name, _output(recurrence.definition(name), scope)) for name in recurrence.outputs)
    carried = tuple(scanned[s.name] for s in recurrence.states)
    starts = tuple(first[s.name] for s in recurrence.states)
    inputs = (*arguments, *starts)
    wanted = {x.name for _, x in results if isinstance(x, Value)} | {v.name for v in carried}
    forward = Program(inputs, needed(tuple(scope.statements), wanted), results)
    last = tuple(last_gradient(v) for v in carried)
    whole = replace(forward, statements=tuple(scope.statements))
    backward, cotangents = differentiate(whole, inputs, reserved | {v.name for v in last})
    return ScanPrograms(forward, carried, starts, contracted(backward), cotangents, last)


def functions_per_entry(programs: ScanPrograms) -> int:
    """How many exponentials and the like the forward computes for every entry of its widest values."""
    statements = straight(programs.forward.statements)
    widest = max(len(s.target.axes) for s in statements)
    return sum(s.op in TRANSCENDENTAL and len(s.target.axes) == widest for s in statements)


def straight(statements: tuple[Statement, ...]) -> list[Assign]:
    """Every statement, of a choice the first side."""
    found: list[Assign] = []
    for s in statements:
        found += [s] if isinstance(s, Assign) else straight(s.then)
    return found


def argument_values(form: ScanForm, rename: Callable[[str], str] = str) -> tuple[Value, ...]:
    """The values of the arguments, matrices by the form's order of axes; `rename` gives their names."""
    return tuple(
        Value(rename(a.name), " ".join(sorted(a.axes, key=form.axes.index)), a.grouped, a.role == "input")
        for a in form.recurrence.arguments
    )


def state_shape(axes: tuple[str, ...]) -> Shape:
    """The shape of what is declared with these axes: a vector is a column."""
    return (axes[0], axes[1]) if len(axes) == 2 else (axes[0], "1") if axes else SCALAR


def _scan(state: ScanState, first: Value, scope: Scope) -> Value:
    """The states after every token, from the multiplier and what is written, both over all axes of the state."""
    kind = Value("", first.axis, False, True)
    parts = []
    for term in (state.decay, state.write):
        operand: Operand = Literal("0.0", 0.0) if term is None else lower_term(term, scope)
        if isinstance(operand, Literal):
            parts.append(scope.assign("copy", (operand, first), kind, "constant"))
        else:
            parts.append(move(operand, kind, scope))
    shape = state_shape(state.info.axes)
    value = scope.assign("scan", (*parts, first), kind, state.info.name)
    scope.bind(State(state.info.name, 0, shape), value)
    scope.bind(State(state.info.name, 1, shape), scope.assign("before", (value, first), kind, f"{state.info.name}_before"))
    return value


def _output(term: Term, scope: Scope) -> Operand:
    """An output, one value per token and value head."""
    operand = lower_term(term, scope)
    axis = scope.joined(set(term.shape) - {"1"})
    return move(operand, Value("", axis, False, True), scope) if isinstance(operand, Value) else operand


def contracted(program: Program) -> Program:
    """Sums of a product with a vector that runs over the summed axis alone become one contraction of matrix and vector."""
    made = {s.target.name: s for s in program.statements if isinstance(s, Assign)}
    statements = tuple(_contracted(s, made) for s in program.statements)
    return replace(program, statements=needed(statements, {x.name for _, x in program.results if isinstance(x, Value)}))


def _contracted(s: Statement, made: dict[str, Assign]) -> Statement:
    if not isinstance(s, Assign) or s.op != "sum" or not isinstance(s.args[0], Value):
        return s
    product = made.get(s.args[0].name)
    if product is None or product.op != "mul" or len(s.args[0].axes) < 2:
        return s
    summed = set(s.args[0].axes) - set(s.target.axes)
    for matrix, spread in (product.args, product.args[::-1]):
        source = made.get(spread.name) if isinstance(spread, Value) else None
        if source is not None and source.op == "spread" and isinstance(source.args[0], Value) and set(source.args[0].axes) == summed:
            return Assign(s.target, "dot", (matrix, source.args[0]))
    return s


def last_reads(statements: tuple[Statement, ...], kept: frozenset[str]) -> dict[str, int]:
    """The index of the last statement that reads each value; one beyond the last for those that are kept."""
    found = {name: i for i, s in enumerate(statements) for name in mentioned((s,))}
    return {**found, **dict.fromkeys(kept, len(statements))}
