"""Prints the programs of a chunk of the scan class as PyTorch: values [tokens, rows, HV, *axes], in the memory of those they replace."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from recgen.codegen.scan_text import dot_text, matrix_vector, product_text, shape_text, spread_text, sum_text
from recgen.codegen.torch_programs import INDENT, assignment, operand_text
from recgen.derive.program import Assign, Branch, Literal, Operand, Statement, Value, mentioned
from recgen.derive.scan import last_reads

_UNARY = ("exp", "log", "log1p", "expm1", "sqrt", "rsqrt", "sigmoid", "tanh", "sin", "cos", "abs", "neg")
_INTO = ("add", "sub", "mul", "div")
_CALLS = {
    **{op: f"torch.{op}({{0}}, out={{room}})" for op in _UNARY},
    **{op: f"torch.{op}({{0}}, {{1}}, out={{room}})" for op in _INTO},
    "softplus": "torch.logaddexp({0}, {0}.new_zeros(()), out={room})",
    "silu": "torch.ops.aten.silu.out({0}, out={room})",
}
"""Operations into memory that is there."""
_IN_PLACE = {
    **{op: f"{{0}}.{op}_()" for op in _UNARY},
    **{op: f"{{0}}.{op}_({{1}})" for op in _INTO},
    "softplus": "torch.logaddexp({0}, {0}.new_zeros(()), out={0})",
    "silu": "F.silu({0}, inplace=True)",
}
_ALIASES = ("heads", "sum_heads", "tokens", "spread", "copy")
"""Operations whose result may lie in the memory of the operand."""


@dataclass(frozen=True)
class States:
    """Names of the states before some tokens and after each: of all, of those after a token, and of them one by one."""

    whole: str
    after: str
    tokens: str


class ScanPrinter:
    """Prints statements; what has axes lies in numbered rooms of the chunk's memory, and what nobody reads again gives its room away.

    `like`: a tensor that is always there; `states`: where each scanned value's states are; `collected`: where values of a tile go
    that are read after all tiles.
    """

    def __init__(self, like: str, rooms: Iterator[int], states: dict[str, States], collected: dict[str, str] | None = None) -> None:
        self.like, self.rooms, self.states, self.collected = like, rooms, states, collected or {}
        self.last: dict[str, int] = {}
        self.room: dict[str, int] = {}
        self.chosen: dict[str, list[int]] = {}
        self.free: dict[int, str] = {}
        self.owned: dict[int, str] = {}
        self.ahead: dict[str, str] = {}
        self.nothing: set[str] = set()

    def lines(self, statements: tuple[Statement, ...], kept: frozenset[str]) -> tuple[str, ...]:
        """One line or more for every statement; the values that are `kept` are read after them."""
        self.last = _ends(statements, kept)
        self.ahead = self._writes_ahead(statements)
        self.nothing = _nothing(statements)
        found: list[str] = []
        for i, s in enumerate(statements):
            if isinstance(s, Assign):
                found += self._assign(s, i)
                self._leave(s, i)
                continue
            found += self._sides(s, kept)
        return tuple(found)

    def _sides(self, branch: Branch, kept: frozenset[str]) -> list[str]:
        """A choice: what it is made of stays where it is. Only one side runs, so that both take the same rooms."""
        found: list[str] = []
        owned, held = dict(self.free), set()
        for head, body in ((f"if {branch.option}:", branch.then), ("else:", branch.otherwise)):
            side = ScanPrinter(self.like, self.rooms, self.states, self.collected)
            side.free, side.owned = dict(owned), dict(owned)
            found += [head, *(INDENT + line for line in side.lines(body, frozenset(v.name for v in branch.targets) | kept) or ("pass",))]
            owned |= side.owned
            held |= side.owned.keys() - side.free.keys()
            shared = mentioned(tuple(s for s in body if isinstance(s, Branch) or s.op in _ALIASES))
            for target in branch.targets:
                if target.name not in shared:  # else another result may lie in the same room
                    self.chosen.setdefault(target.name, []).extend(side.held(target.name))
        self.free = {room: axis for room, axis in owned.items() if room not in held}
        self.owned |= owned
        return found

    def held(self, name: str) -> list[int]:
        """The rooms that a value may lie in."""
        return [*self.chosen.get(name, ()), *((self.room[name],) if name in self.room else ())]

    def unread(self, statements: tuple[Statement, ...], kept: frozenset[str]) -> dict[int, str]:
        """The rooms that these statements, printed here, leave to others, if of their values only the kept are read after them."""
        ends = _ends(statements, kept)
        found = dict(self.free)
        for target in (t for s in statements for t in (s.targets if isinstance(s, Branch) else (s.target,))):
            if ends.get(target.name, 0) < len(statements):
                found |= dict.fromkeys(self.held(target.name), target.axis)
        return found

    def _writes_ahead(self, statements: tuple[Statement, ...]) -> dict[str, str]:
        """Writes that only their scan reads are made where the states will stand."""
        made = {s.target.name for s in statements if isinstance(s, Assign) and _whole(s)}
        found = {}
        for i, s in enumerate(statements):
            if isinstance(s, Assign) and s.op == "scan" and isinstance(s.args[1], Value):
                name = s.args[1].name
                if name in made and self.last[name] == i:
                    found[name] = self.states[s.target.name].after
        return found

    def _assign(self, s: Assign, at: int) -> list[str]:
        name, place = s.target.name, self._place(s)
        if s.op == "scan":
            write, states = operand_text(s.args[1]), self.states[name]
            moved = [] if write in self.ahead else [f"{states.after}.copy_({write})"]
            found = [*moved, f"_scan({self._tokens(s.args[0])}, {states.tokens})", f"{name} = {states.after}"]
        elif s.op == "scan_gradient":
            found = self._scan_gradient(s, at)
        elif s.op == "dot" and _entries(s.target) and matrix_vector(s):
            found = [f"{name} = {place or self._new_room(s.target)}", product_text(s)]
        elif s.op in _CALLS and place:
            found = [f"{name} = {_CALLS[s.op].format(*(operand_text(a) for a in s.args), room=place)}"]
        else:
            found, place = [f"{name} = {self._text(s, at)}"], ""
        return found if place or name not in self.collected else [*found, f"{self.collected[name]}.copy_({name})"]

    def _scan_gradient(self, s: Assign, at: int) -> list[str]:
        """The scan from the last token to the first, in the memory of the gradients that it adds up if they end here."""
        gradient, decay, last = s.args
        given, decays = self._tokens(gradient), self._tokens(decay)
        memory = operand_text(gradient) if self._inherits(s, 0, at) else self._new_room(s.target)
        return [f"{s.target.name} = {memory}", f"_scan_gradient({given}, {decays}, {operand_text(last)}, {self._tokens(s.target)})"]

    def _tokens(self, operand: Operand) -> str:
        """A value token by token: its room keeps them."""
        if isinstance(operand, Value) and operand.name in self.room:
            return f"room.tokens({self._place_of(operand)})"
        return f"{operand_text(operand)}.unbind()"

    def _place(self, s: Assign) -> str:
        """Where a value has to stand in the end, if it can be made there at once."""
        name = s.target.name
        if not _whole(s) or name in self.nothing:
            return ""
        return self.ahead[name] if name in self.ahead else self.collected.get(name, "")

    def _text(self, s: Assign, at: int) -> str:
        names = [operand_text(a) for a in s.args]
        if s.op == "before":
            return f"{self.states[names[0]].whole}[:-1]"
        if s.op in _SCANS:
            return _SCANS[s.op].format(*names)
        if s.op in ("spread", "sum", "dot"):
            assert isinstance(s.args[0], Value)
            return {"spread": spread_text, "sum": sum_text, "dot": dot_text}[s.op](s)
        if s.op == "copy" and isinstance(s.args[0], Literal):
            return f"{self.like}.new_full((), {names[0]}).expand({shape_text(s.target)})"
        if s.op in ("heads", "sum_heads"):
            helper, count = ("_per_value_head", "heads") if s.op == "heads" else ("_per_key_head", "key_heads")
            return f"{helper}({names[0]}, sizes.{count}, {-1 - len(s.target.axes)})"
        return self._in_place(s, names, at) or self._in_room(s, names) or assignment(s)

    def _in_place(self, s: Assign, names: list[str], at: int) -> str:
        """The operation in the memory of an operand that ends here; "" where there is none."""
        if s.op in _IN_PLACE and self._inherits(s, 0, at):
            return _IN_PLACE[s.op].format(*names)
        if s.op in ("add", "mul") and self._inherits(s, 1, at):
            return _IN_PLACE[s.op].format(*reversed(names))
        return ""

    def _inherits(self, s: Assign, index: int, at: int) -> bool:
        """Whether an operand has a room, ends here, and leaves the room to the result."""
        source = s.args[index]
        if not isinstance(source, Value) or source.name not in self.room or source.axis != s.target.axis or self.last[source.name] != at:
            return False
        self.room[s.target.name] = self.room.pop(source.name)
        return True

    def _in_room(self, s: Assign, names: list[str]) -> str:
        """The operation into a room; "" where that is not possible or does not pay."""
        fits = s.op in _CALLS and _whole(s) and s.target.name not in self.nothing
        return _CALLS[s.op].format(*names, room=self._new_room(s.target)) if fits else ""

    def _new_room(self, target: Value) -> str:
        free = [room for room, axis in self.free.items() if axis == target.axis]
        room = self.room[target.name] = free[-1] if free else next(self.rooms)
        self.free.pop(room, None)
        self.owned[room] = target.axis
        return f"room({self._place_of(target)})"

    def _place_of(self, value: Value) -> str:
        """The number of a value's room, and its shape."""
        return f"{self.room[value.name]}, *sizes.lead, sizes.heads, {', '.join(value.axes)}"

    def _leave(self, s: Assign, at: int) -> None:
        """Rooms of operands that end here are free; but another name of the same memory keeps them."""
        for operand in s.args:
            if isinstance(operand, Value) and self.held(operand.name) and self.last[operand.name] == at:
                rooms = self.held(operand.name)
                self.room.pop(operand.name, None)
                self.chosen.pop(operand.name, None)
                if s.op not in _ALIASES:
                    self.free |= dict.fromkeys(rooms, operand.axis)


def _nothing(statements: tuple[Statement, ...]) -> set[str]:
    """Gradients that are a plain 0, without a room, where an option leaves an argument out: those made as zeros, and their sums."""
    found: set[str] = set()
    for s in statements:
        if isinstance(s, Branch):
            inside = _nothing((*s.then, *s.otherwise))
            found |= {t.name for t in s.targets if t.name in inside}
        elif s.op == "zeros" or (s.op == "add" and all(isinstance(a, Value) and a.name in found for a in s.args)):
            found.add(s.target.name)
    return found


def _ends(statements: tuple[Statement, ...], kept: frozenset[str]) -> dict[str, int]:
    """The index of the last statement that reads each value, or what may lie in its memory."""
    found = last_reads(statements, kept)
    for s in reversed(statements):
        read, made = (mentioned((s,)), s.targets) if isinstance(s, Branch) else (mentioned((s,)) if s.op in _ALIASES else (), (s.target,))
        for name in read:
            found[name] = max(found[name], *(found.get(v.name, 0) for v in made), 0)
    return found


def _whole(s: Assign) -> bool:
    """Whether an operation makes every entry of vectors or matrices of every token and head, and can make them anywhere."""
    return _entries(s.target) and isinstance(s.args[0], Value) and (s.op in _CALLS or (s.op == "dot" and matrix_vector(s)))


def _entries(target: Value) -> bool:
    """Whether a value has vectors or matrices of its own for every token and head."""
    return target.per_token and not target.grouped and target.axis != ""


_SCANS = {
    "scan_first": "{0}[0] * {1}[0]",
    "later": "_later({0})",
    "at_first": "{0}[0].clone()",
}
