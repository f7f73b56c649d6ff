"""The two stages as functions that return their result or raise `SpecErrors`, whatever the text."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from recgen.lang import syntax
from recgen.lang.checker import CheckResult, check_spec
from recgen.lang.diagnostics import Diagnostic, Reporter, SpecErrors, internal_error
from recgen.lang.parser import parse_text
from recgen.lang.recurrence import Recurrence
from recgen.lang.source import Source, Span

_Result = TypeVar("_Result")


def read_source(path: str | Path) -> Source:
    """The source of a file; `SpecErrors` if it is not UTF-8 text, OSError if it cannot be read."""
    data = Path(path).read_bytes()
    try:
        return Source(str(path), data.decode("utf-8-sig"))
    except UnicodeDecodeError as problem:
        reporter = Reporter(Source(str(path), data.decode("utf-8", errors="replace")))
        line = data.count(b"\n", 0, problem.start) + 1
        column = len(data[data.rfind(b"\n", 0, problem.start) + 1 : problem.start].decode("utf-8", errors="replace")) + 1
        reason = f"byte 0x{data[problem.start]:02X} is not UTF-8"
        reporter.report("E001", Span(line, column, line, column + 1), help="a spec is UTF-8 text", reason=reason)
        raise SpecErrors(reporter.sorted()) from None


def parse(source: Source) -> syntax.Spec:
    """Stage 1: the syntax tree of a spec. Raises `SpecErrors`."""
    reporter = Reporter(source)
    spec = _guarded(source, lambda: parse_text(source, reporter))
    reporter.raise_errors()
    assert spec is not None
    return spec


def check(spec: syntax.Spec) -> CheckResult:
    """Stage 2: the checked recurrence and its warnings. Raises `SpecErrors`."""
    reporter = Reporter(spec.source)
    recurrence = _guarded(spec.source, lambda: check_spec(spec, reporter))
    reporter.raise_errors()
    assert recurrence is not None
    return CheckResult(recurrence, reporter.sorted())


def compile_spec(source: Source, warn: Callable[[Diagnostic], None] | None = None) -> Recurrence:
    """Both stages. Raises `SpecErrors`; hands each warning to `warn`."""
    result = check(parse(source))
    if warn is not None:
        for warning in result.warnings:
            warn(warning)
    return result.recurrence


def diagnose(source: Source) -> tuple[Diagnostic, ...]:
    """Every error and warning of a spec, in the order of the text; empty if all is well."""
    try:
        return check(parse(source)).warnings
    except SpecErrors as problem:
        return problem.diagnostics


def _guarded(source: Source, stage: Callable[[], _Result]) -> _Result:
    """Run a stage; a failure that is no diagnostic is the compiler's own, and is said to be."""
    try:
        return stage()
    except SpecErrors:
        raise
    except Exception as problem:
        raise internal_error(source, problem) from problem
