"""The language: text -> syntax tree -> checked recurrence, with diagnostics that say what to write instead."""

from recgen.lang.api import check, compile_spec, diagnose, parse, read_source
from recgen.lang.checker import CheckResult
from recgen.lang.diagnostics import Diagnostic, Label, SpecErrors
from recgen.lang.domains import interval
from recgen.lang.formatter import format_spec
from recgen.lang.recurrence import Recurrence
from recgen.lang.source import Source, Span

__all__ = [
    "CheckResult", "Diagnostic", "Label", "Recurrence", "Source", "Span", "SpecErrors",
    "check", "compile_spec", "diagnose", "format_spec", "interval", "parse", "read_source",
]  # fmt: skip
