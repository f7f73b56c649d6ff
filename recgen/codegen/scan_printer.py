"""Prints the programs of a chunk of the scan class as PyTorch: values [tokens, rows, HV, *axes], in the memory of those they replace."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

from recgen.analysis.scan_form import ScanForm
from recgen.codegen.expressions import RESERVED, local
from recgen.codegen.torch_printer import INDENT, assignment, operand_text, operations
from recgen.derive.program import Assign, Literal, Program, Statement, Value
from recgen.derive.scan import argument_values, last_reads, scan_programs

TOGETHER = 32768
"""Entries of the state that one call works on: measured on CPUs of two cores."""


@dataclass(frozen=True)
class ScanContext:
    """Lines for `templates/torch/scan.py.j2`.

    `first`, the states at the chunk's start, are parameters of both bodies, `parameters` all that the backward adds to the arguments;
    `together`: how many entries of the state are scanned together; `later` and `spread`: what they use.
    """

    first: tuple[str, ...]
    parameters: tuple[str, ...]
    forward: tuple[str, ...]
    results: tuple[str, ...]
    final: tuple[str, ...]
    backward: tuple[str, ...]
    gradients: tuple[str, ...]
    d_first: tuple[str, ...]
    later: bool
    spread: bool
    together: int
    operations: frozenset[str]


def build_scan_context(form: ScanForm) -> ScanContext:
    """The printed programs."""
    recurrence = form.recurrence
    arguments = argument_values(form, local)
    programs = scan_programs(form, arguments, RESERVED | {o.name for o in recurrence.options} | set(form.axes))
    turned = tuple(v.name for v, a in zip(arguments, recurrence.arguments, strict=True) if v.axes != a.axes)
    turning = tuple(f"{name} = {name}.mT.contiguous()" for name in turned)
    across = tuple(v.axes != (s.axes[::-1] if s.turned else s.axes) for v, s in zip(programs.first, form.token.states, strict=True))
    sizes = (*_size_lines(form), *turning, *_turned_states(programs.first, across))
    gradients = dict(programs.backward.results)
    cotangents = dict(programs.cotangents)

    def gradient(value: Value) -> str:
        found = gradients.get(value.name)
        text = "None" if found is None else operand_text(found)
        return f"{text}.mT" if value.name in turned and found is not None else text

    first = tuple(v.name for v in programs.first)
    asked = (cotangents[name].name if name in cotangents else f"_d_{name}" for name in recurrence.outputs)
    used = operations(programs.forward.statements) | operations(programs.backward.statements)
    return ScanContext(
        first=first,
        parameters=(*first, *asked, *(v.name for v in programs.last)),
        forward=(*sizes, *_lines(programs.forward)),
        results=tuple(operand_text(x) for _, x in programs.forward.results),
        final=tuple(f"{v.name}[-1]{'.mT' * turn}" for v, turn in zip(programs.scanned, across, strict=True)),
        backward=(*sizes, *_turned_states(programs.last, across), *_lines(programs.backward)),
        gradients=tuple(gradient(v) for v in arguments),
        d_first=tuple(f"{gradient(v)}{'.mT' * turn}" for v, turn in zip(programs.first, across, strict=True)),
        later="later" in used,
        spread="spread" in used,
        together=TOGETHER,
        operations=frozenset(used),
    )


def _turned_states(values: tuple[Value, ...], across: tuple[bool, ...]) -> tuple[str, ...]:
    """States that callers have by their other axis first."""
    return tuple(f"{v.name} = {v.name}.mT.contiguous()" for v, turn in zip(values, across, strict=True) if turn)


def _size_lines(form: ScanForm) -> tuple[str, ...]:
    """The size of every axis, read off an argument that is always there if one has it."""
    owners = sorted(form.recurrence.arguments, key=lambda a: bool(a.needed_if))
    lines = []
    for axis in form.axes:
        owner = next(a for a in owners if axis in a.axes)
        lines.append(f"{axis} = {local(owner.name)}.shape[{owner.axes.index(axis) - len(owner.axes)}]")
    return tuple(lines)


def _lines(program: Program) -> tuple[str, ...]:
    results = frozenset(x.name for _, x in program.results if isinstance(x, Value))
    return _ScanPrinter(itertools.count()).lines(program.statements, results)


_IN_PLACE = {"exp": "exp_()", "neg": "neg_()", "sigmoid": "sigmoid_()", "tanh": "tanh_()", "expm1": "expm1_()"}
_INTO = ("add", "sub", "mul", "div")
_ALIASES = ("heads", "sum_heads", "tokens", "copy")


class _ScanPrinter:
    """Prints statements; matrices lie in numbered rooms of the chunk's memory, and what nobody reads again gives its room away."""

    def __init__(self, rooms: Iterator[int]) -> None:
        self.rooms = rooms
        self.last: dict[str, int] = {}
        self.room: dict[str, int] = {}
        self.free: dict[str, list[int]] = {}

    def lines(self, statements: tuple[Statement, ...], kept: frozenset[str]) -> tuple[str, ...]:
        """One line or more for every statement; the values that are `kept` are read after them."""
        self.last = last_reads(statements, kept)
        found: list[str] = []
        for i, s in enumerate(statements):
            if isinstance(s, Assign):
                found += self._assign(s, i)
                self._leave(s, i)
                continue
            # What a choice makes has rooms of its own, and what it is made of stays where it is.
            targets = frozenset(v.name for v in s.targets)
            sides = (_ScanPrinter(self.rooms).lines(body, targets) for body in (s.then, s.otherwise))
            for head, body in zip((f"if {s.option}:", "else:"), sides, strict=True):
                found += [head, *(INDENT + line for line in body or ("pass",))]
        return tuple(found)

    def _assign(self, s: Assign, at: int) -> list[str]:
        if s.op == "scan":
            decay, write, first = (operand_text(a) for a in s.args)
            states = f"room({next(self.rooms)}, sizes.tokens + 1, *sizes.lead[1:], sizes.heads, {', '.join(s.target.axes)})"
            return [f"{s.target.name}_all = _scan({decay}, {write}, {first}, {states})", f"{s.target.name} = {s.target.name}_all[1:]"]
        return [f"{s.target.name} = {self._text(s, at)}"]

    def _text(self, s: Assign, at: int) -> str:
        names = [operand_text(a) for a in s.args]
        if s.op == "scan_gradient":
            return f"_scan_gradient({', '.join(names)}, {names[0] if self._inherits(s, 0, at) else self._new_room(s.target)})"
        if s.op in _SCANS:
            return _SCANS[s.op].format(*names)
        if s.op in ("spread", "sum", "dot"):
            assert isinstance(s.args[0], Value)
            return {"spread": _spread, "sum": _sum, "dot": _dot}[s.op](s)
        if s.op == "copy" and isinstance(s.args[0], Literal):
            return f"torch.full_like({names[1]}, {names[0]})"
        if s.op in ("heads", "sum_heads"):
            helper, count = ("_per_value_head", "heads") if s.op == "heads" else ("_per_key_head", "key_heads")
            return f"{helper}({names[0]}, sizes.{count}, {-1 - len(s.target.axes)})"
        return self._in_place(s, names, at) or self._in_room(s, names) or assignment(s)

    def _in_place(self, s: Assign, names: list[str], at: int) -> str:
        """The operation in the memory of an operand that ends here; "" where there is none."""
        if s.op in _IN_PLACE and self._inherits(s, 0, at):
            return f"{names[0]}.{_IN_PLACE[s.op]}"
        if s.op in _INTO and self._inherits(s, 0, at):
            return f"{names[0]}.{s.op}_({names[1]})"
        if s.op in ("add", "mul") and self._inherits(s, 1, at):
            return f"{names[1]}.{s.op}_({names[0]})"
        return ""

    def _inherits(self, s: Assign, index: int, at: int) -> bool:
        """Whether an operand has a room, ends here, and leaves the room to the result."""
        source = s.args[index]
        if not isinstance(source, Value) or source.name not in self.room or source.axis != s.target.axis or self.last[source.name] != at:
            return False
        self.room[s.target.name] = self.room.pop(source.name)
        return True

    def _in_room(self, s: Assign, names: list[str]) -> str:
        """The operation on matrices into a room; "" for other values."""
        whole = s.target.per_token and not s.target.grouped and len(s.target.axes) > 1
        if s.op not in _INTO or not whole or not isinstance(s.args[0], Value):
            return ""
        return f"torch.{s.op}({names[0]}, {names[1]}, out={self._new_room(s.target)})"

    def _new_room(self, target: Value) -> str:
        free = self.free.setdefault(target.axis, [])
        self.room[target.name] = free.pop() if free else next(self.rooms)
        return f"room({self.room[target.name]}, *sizes.lead, sizes.heads, {', '.join(target.axes)})"

    def _leave(self, s: Assign, at: int) -> None:
        """Rooms of operands that end here are free; but another name of the same memory keeps them."""
        for operand in s.args:
            if isinstance(operand, Value) and operand.name in self.room and self.last[operand.name] == at:
                room = self.room.pop(operand.name)
                if s.op not in _ALIASES:
                    self.free.setdefault(operand.axis, []).append(room)


_SCANS = {
    "before": "{0}_all[:-1]",
    "scan_first": "{0}[0] * {1}[0]",
    "later": "_later({0})",
    "at_first": "{0}[0].clone()",
}


def _spread(s: Assign) -> str:
    """A view over more axes."""
    (source,) = s.args
    assert isinstance(source, Value)
    text = source.name
    for i, axis in reversed(tuple(enumerate(s.target.axes))):
        if axis not in source.axes:
            text = f"_spread({text}, {i - len(s.target.axes)}, {axis})"
    return text


def _sum(s: Assign) -> str:
    (source,) = s.args
    assert isinstance(source, Value)
    places = tuple(i - len(source.axes) for i, axis in enumerate(source.axes) if axis not in s.target.axes)
    return f"{source.name}.sum({places[0] if len(places) == 1 else places})"


def _dot(s: Assign) -> str:
    """A contraction: of vectors by their sum, of matrix and vector as a product, anything else by letters."""
    left, right = s.args
    assert isinstance(left, Value) and isinstance(right, Value)
    if len(left.axes) == len(right.axes) == 1 and not s.target.axis:
        return f"({left.name} * {right.name}).sum(-1)"
    matrix, vector = (left, right) if len(left.axes) == 2 else (right, left)
    if len(matrix.axes) == 2 and len(vector.axes) == 1 and set(matrix.axes) == {vector.axis, s.target.axis}:
        if vector.axis == matrix.axes[0]:
            return f"({vector.name}.unsqueeze(-2) @ {matrix.name}).squeeze(-2)"
        return f"({matrix.name} @ {vector.name}.unsqueeze(-1)).squeeze(-1)"
    letters = dict(zip(dict.fromkeys((*left.axes, *right.axes)), "abc", strict=False))
    one, other, out = ("".join(letters[a] for a in v.axes) for v in (left, right, s.target))
    return f'torch.einsum("...{one},...{other}->...{out}", {left.name}, {right.name})'
