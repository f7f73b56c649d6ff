"""Check: definitions put into one another stay of a size that later stages can walk."""

from __future__ import annotations

from recgen.lang.diagnostics import Reporter
from recgen.lang.source import Span
from recgen.lang.terms import Apply, Term

MAX_OPERATIONS = 5000
MAX_LEVELS = 150


def check_size(term: Term, name: str, span: Span, known: dict[int, tuple[int, int]], reporter: Reporter) -> None:
    """Report and abandon a term with too many operations or levels. `known` keeps (operations, levels) of terms that stay alive."""
    operations, levels = _measure(term, known)
    if operations > MAX_OPERATIONS:
        raise reporter.abandon("E408", span, help="each use of a definition repeats it: use fewer", name=name, limit=MAX_OPERATIONS)
    if levels > MAX_LEVELS:
        raise reporter.abandon("E005", span, help="definitions are put in where they are read: chain fewer of them", limit=MAX_LEVELS)


def _measure(term: Term, known: dict[int, tuple[int, int]]) -> tuple[int, int]:
    if not isinstance(term, Apply):
        return 1, 1
    if id(term) not in known:
        below = [_measure(a, known) for a in term.args]
        known[id(term)] = 1 + sum(b[0] for b in below), 1 + max(b[1] for b in below)
    return known[id(term)]
