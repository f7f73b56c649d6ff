"""Source text and the spans that diagnostics point at."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Span:
    """A stretch of the source: 1-based lines and columns, `end_column` exclusive."""

    line: int
    column: int
    end_line: int
    end_column: int

    def to(self, other: Span) -> Span:
        """The stretch from the start of this span to the end of `other`."""
        return Span(self.line, self.column, other.end_line, other.end_column)


@dataclass(frozen=True)
class Source:
    """A spec's text and the name under which messages cite it (a path, or "<text>")."""

    name: str
    text: str

    def line(self, number: int) -> str:
        """Line `number` (1-based) without its newline; empty beyond the end."""
        lines = self.text.split("\n")
        return lines[number - 1] if 0 < number <= len(lines) else ""
