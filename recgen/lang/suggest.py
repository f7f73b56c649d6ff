"""Did-you-mean, and pieces of the source quoted in help lines."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

from recgen.lang.source import Source, Span

_QUOTED = 60
"""Longer pieces of source are not quoted."""


def closest(word: str, known: Iterable[str]) -> str | None:
    """The known word that `word` most likely stands for, if any is near; case alone is always near."""
    names = sorted(set(known))
    for name in names:
        if name.lower() == word.lower():
            return name
    found = get_close_matches(word[:100], names, n=1, cutoff=0.6)
    return found[0] if found else None


def did_you_mean(word: str, known: Iterable[str]) -> str | None:
    """A help line that offers the closest known word, or None."""
    name = closest(word, known)
    return None if name is None else f"did you mean `{name}`?"


def quote(source: Source, span: Span) -> str:
    """The code of a span on one line; "..." if it is long."""
    if span.line == span.end_line:
        text = source.line(span.line)[span.column - 1 : span.end_column - 1]
    else:
        middle = [source.line(n) for n in range(span.line + 1, span.end_line)]
        lines = [source.line(span.line)[span.column - 1 :], *middle, source.line(span.end_line)[: span.end_column - 1]]
        text = " ".join(line.split("#")[0] for line in lines)
    text = " ".join(text.split())
    return text if 0 < len(text) <= _QUOTED else "..."
