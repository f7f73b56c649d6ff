"""What the compiler says about a spec: code, message, place, second place, and what to write instead."""

from __future__ import annotations

from dataclasses import dataclass

from recgen.lang.codes import CODES
from recgen.lang.source import Source, Span

_WINDOW = 140
"""Longer source lines are shown as a window around the caret."""


@dataclass(frozen=True)
class Label:
    """A second place that a diagnostic points at, and what is there."""

    span: Span
    text: str


@dataclass(frozen=True)
class Diagnostic:
    """One error or warning.

    `secondary` is the place that disagrees with `span`; `help` says what to write instead.
    """

    code: str
    severity: str
    message: str
    span: Span
    source: Source
    secondary: Label | None = None
    help: str | None = None

    def render(self) -> str:
        """The text for a terminal: a header, the source line with carets, the second place, the help line."""
        lines = [f"{self._place(self.span)}: {self.severity}[{self.code}]: {self.message}", *_excerpt(self.source, self.span)]
        if self.secondary is not None:
            lines.append(f"{self._place(self.secondary.span)}: note: {self.secondary.text}")
            lines.extend(_excerpt(self.source, self.secondary.span))
        if self.help is not None:
            lines.append(f"help: {self.help}")
        return "\n".join(lines)

    def to_json(self) -> dict[str, object]:
        """The same for machines: plain dicts, strings and numbers."""
        secondary = None if self.secondary is None else {**_span_json(self.secondary.span), "text": self.secondary.text}
        return {
            "code": self.code,
            "severity": self.severity,
            "message": self.message,
            "file": self.source.name,
            **_span_json(self.span),
            "secondary": secondary,
            "help": self.help,
        }

    def _place(self, span: Span) -> str:
        return f"{self.source.name}:{span.line}:{span.column}"


class SpecErrors(Exception):
    """A spec is wrong: every diagnostic found, warnings too, in the order of the text."""

    def __init__(self, diagnostics: tuple[Diagnostic, ...]) -> None:
        self.diagnostics = diagnostics
        super().__init__("\n\n".join(d.render() for d in diagnostics))


class Abandon(Exception):
    """Ends the work on one line or definition after its error was reported; never leaves this package."""


class Reporter:
    """Collects the diagnostics of one run over one source."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.found: list[Diagnostic] = []

    def report(self, code: str, span: Span, *, secondary: Label | None = None, help: str | None = None, **values: object) -> None:
        """Add a diagnostic; `values` fill the message of its code."""
        if any(d.code == code and d.span == span for d in self.found):
            return  # of a line that stands for several, the first tells
        entry = CODES[code]
        self.found.append(Diagnostic(code, entry.severity, entry.message.format(**values), span, self.source, secondary, help))

    def abandon(self, code: str, span: Span, *, secondary: Label | None = None, help: str | None = None, **values: object) -> Abandon:
        """Report, and make the exception that gives up the line or definition at hand; the caller raises it."""
        self.report(code, span, secondary=secondary, help=help, **values)
        return Abandon()

    def sorted(self) -> tuple[Diagnostic, ...]:
        """Everything reported, in the order of the text."""
        return tuple(sorted(self.found, key=lambda d: (d.span.line, d.span.column, d.code)))

    def failed(self) -> bool:
        """Whether an error was reported; warnings are none."""
        return any(d.severity == "error" for d in self.found)

    def raise_errors(self) -> None:
        """Raise `SpecErrors` if there is an error (warnings alone do not stop)."""
        if self.failed():
            raise SpecErrors(self.sorted())


def internal_error(source: Source, cause: Exception) -> SpecErrors:
    """An unforeseen failure as a diagnostic that takes the blame."""
    reporter = Reporter(source)
    reason = f"{type(cause).__name__}: {str(cause)[:200]}"
    reporter.report("E999", Span(1, 1, 1, 1), help="please report this spec and this message to the authors of recgen", reason=reason)
    return SpecErrors(reporter.sorted())


def _span_json(span: Span) -> dict[str, int]:
    return {"line": span.line, "column": span.column, "end_line": span.end_line, "end_column": span.end_column}


def _excerpt(source: Source, span: Span) -> list[str]:
    """The source line and the carets below it; a span over several lines is marked to the end of its first line."""
    text = source.line(span.line).rstrip("\r")
    start = span.column - 1
    end = span.end_column - 1 if span.end_line == span.line else len(text)
    if len(text) > _WINDOW:
        first = max(0, min(start, len(text)) - _WINDOW // 2)
        text = text[first : first + _WINDOW]
        start, end = start - first, min(end - first, len(text))
    # Tabs are kept in the padding, so that the caret stands right at any tab width.
    padding = "".join("\t" if c == "\t" else " " for c in text[:start].ljust(start))
    shown = "".join(c if c.isprintable() or c == "\t" else "\N{REPLACEMENT CHARACTER}" for c in text)
    return [f"    {shown}".rstrip(), f"    {padding}{'^' * max(1, end - start)}"]
