"""Check: lines in an order in which each reads only earlier ones. Lines may be written in any order; circles within t are errors."""

from __future__ import annotations

from recgen.lang import syntax
from recgen.lang.diagnostics import Label, Reporter
from recgen.lang.scope import Scope
from recgen.lang.traverse import walk

Key = tuple[str, str]
"""("definition", name), ("state", name), or ("micro", "S[t, 0]") for a micro-step before the last: an equation."""


def equations(scope: Scope) -> dict[Key, syntax.Equation]:
    """Every equation by what it defines, in the order of the text."""
    found: dict[Key, syntax.Equation] = {("definition", n): e for n, e in scope.definitions.items()}
    found.update({("state", n): e for n, e in scope.states.items()})
    found.update({micro_key(n, i): e for n, steps in scope.micro.items() for i, e in steps.items()})
    return dict(sorted(found.items(), key=lambda item: (item[1].span.line, item[1].span.column)))


def micro_key(state: str, index: int) -> Key:
    """The key of a micro-step before the last."""
    return "micro", f"{state}[t, {index}]"


def in_order(scope: Scope, reporter: Reporter) -> tuple[Key, ...]:
    """The equations in dependency order; those in or behind a circle are left out, the circles reported."""
    lines = equations(scope)
    reads = {key: [k for k in _reads(e.value) if k in lines] for key, e in lines.items()}
    done: dict[Key, None] = {}
    waiting = {key: len(set(below)) for key, below in reads.items()}
    readers: dict[Key, list[Key]] = {key: [] for key in lines}
    for key, below in reads.items():
        for other in dict.fromkeys(below):
            readers[other].append(key)
    ready = [key for key in lines if waiting[key] == 0]
    while ready:
        key = ready.pop(0)
        done[key] = None
        for reader in readers[key]:
            waiting[reader] -= 1
            if waiting[reader] == 0:
                ready.append(reader)
    _report_circles({key: [k for k in reads[key] if k not in done] for key in lines if key not in done}, lines, reporter)
    return tuple(done)


def _reads(expr: syntax.Expr) -> list[Key]:
    """What an expression reads at t, in the order of the text."""
    found: list[Key] = []
    for node in walk(expr):
        if isinstance(node, syntax.Name):
            found.append(("definition", node.name))
        elif isinstance(node, syntax.StateRef) and node.lag == 0:
            found.append(("state", node.name) if node.micro is None else micro_key(node.name, node.micro.value))
    return found


def _report_circles(stuck: dict[Key, list[Key]], lines: dict[Key, syntax.Equation], reporter: Reporter) -> None:
    """Follow first reads from every stuck line; each walk ends in a circle, and each circle is reported once."""
    visited: set[Key] = set()
    for start in stuck:
        path: list[Key] = []
        key = start
        while key not in visited:
            visited.add(key)
            path.append(key)
            key = stuck[key][0]
        if key in path:
            _report_circle(path[path.index(key) :], lines, reporter)


def _report_circle(circle: list[Key], lines: dict[Key, syntax.Equation], reporter: Reporter) -> None:
    first = min(range(len(circle)), key=lambda i: lines[circle[i]].span.line)
    circle = circle[first:] + circle[:first]
    names = [_shown(key) for key in circle]
    path = " reads ".join(f"{name} (line {lines[key].span.line})" for name, key in zip(names, circle, strict=True))
    states = [key[1] for key in circle if key[0] == "state"]
    advice = f"read `{states[0]}[t-1]` on one of these lines" if states else "define one of them without the others"
    if any(key[0] == "micro" for key in circle):
        advice = "a micro-step reads the one before, as in `S[t, j] = ... S[t, j-1] ...`"
    label = Label(lines[circle[1]].span, f"{names[1]} reads {names[2 % len(names)]} here") if len(circle) > 1 else None
    reporter.report("E401", lines[circle[0]].span, secondary=label, help=advice, path=f"{path} reads {names[0]}")


def _shown(key: Key) -> str:
    return f"`{key[1]}[t]`" if key[0] == "state" else f"`{key[1]}`"
