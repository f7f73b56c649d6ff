"""Splits the forward program of the scan class into what many tokens share and what runs tile after tile.

The values of a scan's matrices fill a core's cache after few tokens, vectors and numbers after many. So what has no axis too many is
computed for many tokens in one call: before the tiles what the scans need, after them the rest.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from recgen.derive.program import Assign, Branch, Operand, Program, Statement, Value, assigned

PHASES = ("before", "tiles", "after")
_MOVED = ("heads", "tokens", "spread", "dot")
"""Operations that a choice loses nothing by leaving to what comes before it: elementwise ones run in the memory of what it makes."""


@dataclass(frozen=True)
class Phases:
    """The statements of each phase, branches apart into those of the phases.

    `cut` are the names that a tile takes its tokens of, `collected` the values of the tiles that are read after them, in program order.
    """

    before: tuple[Statement, ...]
    tiles: tuple[Statement, ...]
    after: tuple[Statement, ...]
    cut: frozenset[str]
    collected: tuple[Value, ...]


def phases(program: Program) -> Phases:
    """Every name is computed in one phase, whichever branch it is assigned in."""
    atoms = flat(program.statements)
    of = _phase_of(atoms)
    before, tiles, after = (_of_phase(program.statements, of, phase) for phase in PHASES)
    early = {a.target for a in atoms if of[a.target.name] == "before"} | set(program.inputs)
    read = {x.name for a in atoms if of[a.target.name] == "after" for x in a.args if isinstance(x, Value)}
    read |= {x.name for _, x in program.results if isinstance(x, Value)}
    collected = dict.fromkeys(a.target for a in atoms if of[a.target.name] == "tiles" and a.target.name in read)
    return Phases(before, tiles, after, frozenset(v.name for v in early if v.per_token), tuple(collected))


def flat(statements: tuple[Statement, ...]) -> tuple[Assign, ...]:
    """Every assignment, those of both sides of a branch one after the other."""
    found: list[Assign] = []
    for s in statements:
        found += [s] if isinstance(s, Assign) else [*flat(s.then), *flat(s.otherwise)]
    return tuple(found)


def _phase_of(atoms: tuple[Assign, ...]) -> dict[str, str]:
    """The phase of every name: tiles make what is wide, and what stands between two wide values."""
    wide = {a.target.name for a in atoms if _wide(a)}
    late = set(wide)  # depends on a tile
    for a in atoms:
        if not late.isdisjoint(_names(a)):
            late.add(a.target.name)
    asked = set(wide)  # a tile depends on it
    for a in reversed(atoms):
        if a.target.name in asked:
            asked |= _names(a)
    return {a.target.name: ("tiles" if a.target.name in late else "before") if a.target.name in asked else "after" for a in atoms}


def _wide(a: Assign) -> bool:
    """Whether an assignment scans, or computes with a matrix of every token; views of early values are early, and take no memory."""
    if a.op in ("spread", "tokens"):
        return False
    values = (a.target, *(x for x in a.args if isinstance(x, Value)))
    return a.op in ("scan", "before") or any(v.per_token and len(v.axes) > 1 for v in values)


def _names(a: Assign) -> set[str]:
    return {x.name for x in a.args if isinstance(x, Value)}


def _of_phase(statements: tuple[Statement, ...], of: dict[str, str], phase: str) -> tuple[Statement, ...]:
    found: list[Statement] = []
    for s in statements:
        if isinstance(s, Assign):
            found += [s] if of[s.target.name] == phase else []
            continue
        then, otherwise = _of_phase(s.then, of, phase), _of_phase(s.otherwise, of, phase)
        made = assigned((*then, *otherwise))
        if made:
            found.append(Branch(s.option, then, otherwise, tuple(t for t in s.targets if t.name in made)))
    return tuple(found)


def renamed(statements: tuple[Statement, ...], names: dict[str, str]) -> tuple[Statement, ...]:
    """The statements reading values by other names, or by what is written for them."""

    def operand(x: Operand) -> Operand:
        return replace(x, name=names[x.name]) if isinstance(x, Value) and x.name in names else x

    found: list[Statement] = []
    for s in statements:
        if isinstance(s, Assign):
            found.append(replace(s, args=tuple(operand(x) for x in s.args)))
        else:
            found.append(replace(s, then=renamed(s.then, names), otherwise=renamed(s.otherwise, names)))
    return tuple(found)


def shared(statements: tuple[Statement, ...]) -> tuple[Statement, ...]:
    """Views and contractions that both sides of a choice make alike of what was there before it are made before it."""
    found: list[Statement] = []
    for s in statements:
        if isinstance(s, Assign):
            found.append(s)
            continue
        then, otherwise = shared(s.then), shared(s.otherwise)
        for mine in then:
            twin = _twin(mine, then, otherwise, s.targets)
            if twin is not None:
                found.append(mine)
                then = tuple(x for x in then if x is not mine)
                name = mine.target.name if isinstance(mine, Assign) else ""
                otherwise = renamed(tuple(x for x in otherwise if x is not twin), {twin.target.name: name})
        found.append(replace(s, then=then, otherwise=otherwise))
    return tuple(found)


def _twin(s: Statement, then: tuple[Statement, ...], otherwise: tuple[Statement, ...], targets: tuple[Value, ...]) -> Assign | None:
    """The other side's assignment of the same, where neither is a result of the choice or made of what only one side makes."""
    if not isinstance(s, Assign) or s.op not in _MOVED or s.target in targets or not _names(s).isdisjoint(assigned((*then, *otherwise))):
        return None
    same = (x for x in otherwise if isinstance(x, Assign) and replace(x, target=s.target) == s and x.target not in targets)
    return next((x for x in same if replace(x.target, name=s.target.name) == s.target), None)
