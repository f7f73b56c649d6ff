"""A chunk of the scan class for the templates: the forward in three parts, the backward in one."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace

from recgen.analysis.scan_form import ScanForm
from recgen.codegen.expressions import RESERVED, axis_line, local
from recgen.codegen.scan_phases import phases, renamed, shared
from recgen.codegen.scan_printer import ScanPrinter, States
from recgen.codegen.scan_text import shape_text
from recgen.codegen.torch_programs import operand_text, operations
from recgen.derive.program import Assign, Scope, Value, assigned, mentioned
from recgen.derive.scan import ScanPrograms, argument_values, scan_programs

TOGETHER = 32768
"""Entries of the state that one call works on: measured on CPUs of two cores."""

TILE = 98304
"""Entries of the states of all tokens of a tile: few enough for a core's cache, enough to outweigh the calls."""

PANEL = 131072
"""The same of the widest input, of the tokens whose vectors are computed in one call."""


@dataclass(frozen=True)
class ScanContext:
    """Lines for `templates/torch/scan_chunk.py.j2` and `scan.py.j2`.

    `first`, the states at the start, are parameters of both bodies, `parameters` all that the backward adds to the arguments. The forward
    is in three parts: `before` the tiles, one of the `tiles`, `after` them; `parts` are the names of what a tile has of the values that are
    `cut`, and `kept` all its states, and that before it.
    `turned_params`: matrices that the bodies read by their other axis first; `later` and `spread`: what they use.
    """

    first: tuple[str, ...]
    parameters: tuple[str, ...]
    before: tuple[str, ...]
    parts: tuple[str, ...]
    cut: tuple[str, ...]
    tiles: tuple[str, ...]
    kept: tuple[str, ...]
    advance: tuple[str, ...]
    after: tuple[str, ...]
    results: tuple[str, ...]
    final: tuple[str, ...]
    backward: tuple[str, ...]
    gradients: tuple[str, ...]
    d_first: tuple[str, ...]
    turned_params: tuple[str, ...]
    later: bool
    spread: bool
    together: int
    tile: int
    panel: int
    operations: frozenset[str]


def build_scan_context(form: ScanForm) -> ScanContext:
    """The printed programs."""
    recurrence = form.recurrence
    arguments = argument_values(form, local)
    reserved = RESERVED | {o.name for o in recurrence.options} | set(form.axes)
    programs = scan_programs(form, arguments, reserved)
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
    names = _Names(programs, reserved)
    forward = _Forward(programs, names, frozenset(local(a.name) for a in recurrence.arguments if a.needed_if))
    used = operations(programs.forward.statements) | operations(programs.backward.statements)
    return ScanContext(
        first=first,
        parameters=(*first, *asked, *(v.name for v in programs.last)),
        before=(*sizes, *forward.before),
        parts=tuple(forward.views.values()),
        cut=tuple(forward.views),
        tiles=forward.tiles,
        kept=tuple(f"{names.states[v.name].whole}{'.mT' * turn}" for v, turn in zip(programs.scanned, across, strict=True)),
        advance=tuple("{0}[0].copy_({0}[-1])".format(names.states[v.name].tokens) for v in programs.scanned),
        after=forward.after,
        results=forward.results,
        final=tuple(f"{names.memory[v.name]}[0]{'.mT' * turn}" for v, turn in zip(programs.scanned, across, strict=True)),
        backward=(*sizes, *_turned_states(programs.last, across), *_backward(programs, names)),
        gradients=tuple(gradient(v) for v in arguments),
        d_first=tuple(f"{gradient(v)}{'.mT' * turn}" for v, turn in zip(programs.first, across, strict=True)),
        turned_params=tuple(a.name for a in recurrence.arguments if a.role == "param" and local(a.name) in turned),
        later="later" in used,
        spread="spread" in used,
        together=TOGETHER,
        tile=TILE,
        panel=PANEL,
        operations=frozenset(used),
    )


class _Names:
    """Names beside those of the programs: of each scanned state `memory`, for a tile of any size, and `states`, those around its tokens."""

    def __init__(self, programs: ScanPrograms, reserved: frozenset[str]) -> None:
        both = (programs.forward, programs.backward)
        taken = {name for p in both for name in (*assigned(p.statements), *(v.name for v in p.inputs))} | {v.name for v in programs.last}
        self._scope = Scope({}, taken | reserved)
        self.memory = {v.name: self._scope.fresh(f"{v.name}_memory") for v in programs.scanned}
        self.states = {
            v.name: States(*(self._scope.fresh(f"{v.name}_{kind}") for kind in ("states", "after", "tokens"))) for v in programs.scanned
        }

    def tiles(self, name: str) -> str:
        """A name for a value of all tiles."""
        return self._scope.fresh(f"{name}_tiles")

    def tile(self, name: str) -> str:
        """A name for what one tile has of a value."""
        return self._scope.fresh(f"{name}_tile")


class _Forward:
    """The lines of the forward: vectors before, matrices tile by tile, vectors after."""

    def __init__(self, programs: ScanPrograms, names: _Names, optional: frozenset[str]) -> None:
        parts = phases(replace(programs.forward, statements=shared(programs.forward.statements)))
        rooms = itertools.count()
        whole = {v.name: names.tiles(v.name) for v in parts.collected}
        early = (*programs.forward.inputs, *(s.target for s in parts.before if isinstance(s, Assign)))
        sure = tuple(v.name for v in early if v.name in parts.cut & mentioned(parts.tiles) and v.name not in optional)
        self.views = {name: names.tile(name) for name in (*sure, *whole.values())}
        tiles = renamed(parts.tiles, {name: self.views.get(name, f"{name}[at]") for name in parts.cut})
        numbers = {v.name: next(rooms) for v in programs.scanned}
        memory = (f"{names.memory[v.name]} = room({_states_place(v, numbers[v.name], 'tile')})" for v in programs.scanned)
        starts = (f"{names.memory[v.name]}[0] = {f.name}" for v, f in zip(programs.scanned, programs.first, strict=True))
        places = {v.name: next(rooms) for v in parts.collected}
        collected = (f"{whole[v.name]} = room({places[v.name]}, {shape_text(v)})" for v in parts.collected)
        late = mentioned(parts.after) | {x.name for _, x in programs.forward.results if isinstance(x, Value)}
        like = programs.first[0].name
        before = ScanPrinter(like, rooms, {})
        self.before = (*before.lines(parts.before, mentioned(parts.tiles) | late), *memory, *starts, *collected)
        cut = (_states_line(v, names.states[v.name], numbers[v.name]) for v in programs.scanned)
        printer = ScanPrinter(like, rooms, names.states, {name: self.views[text] for name, text in whole.items()})
        self.tiles = (*cut, *printer.lines(tiles, frozenset(whole)))
        self.results = tuple(whole.get(text, text) for text in (operand_text(x) for _, x in programs.forward.results))
        after = ScanPrinter(like, rooms, {})
        after.room = {whole[name]: number for name, number in places.items()}
        after.free = before.unread(parts.before, frozenset(late))
        self.after = after.lines(renamed(parts.after, whole), frozenset(self.results))


def _backward(programs: ScanPrograms, names: _Names) -> tuple[str, ...]:
    """The lines of the backward: all tokens of a chunk at once."""
    rooms = itertools.count()
    results = frozenset(x.name for _, x in programs.backward.results if isinstance(x, Value))
    memory = (_states_line(v, names.states[v.name], next(rooms)) for v in programs.scanned)
    starts = (f"{names.states[v.name].whole}[0] = {f.name}" for v, f in zip(programs.scanned, programs.first, strict=True))
    return (*memory, *starts, *ScanPrinter(programs.first[0].name, rooms, names.states).lines(programs.backward.statements, results))


def _states_line(state: Value, names: States, number: int) -> str:
    """The states before some tokens and after each."""
    return f"{names.whole}, {names.after}, {names.tokens} = room.states({_states_place(state, number, 'sizes.tokens')})"


def _states_place(state: Value, number: int, tokens: str) -> str:
    """The number and the shape of their room."""
    return f"{number}, {tokens} + 1, *sizes.lead[1:], sizes.heads{''.join(f', {a}' for a in state.axes)}"


def _turned_states(values: tuple[Value, ...], across: tuple[bool, ...]) -> tuple[str, ...]:
    """States that callers have by their other axis first."""
    return tuple(f"{v.name} = {v.name}.mT.contiguous()" for v, turn in zip(values, across, strict=True) if turn)


def _size_lines(form: ScanForm) -> tuple[str, ...]:
    """The size of every axis."""
    return tuple(axis_line(form.recurrence, axis) for axis in form.axes)
