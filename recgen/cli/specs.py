"""The specs that a command is given: arguments, reading, compiling, and printing what is wrong with them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from recgen.cli.group import Findings, Misuse
from recgen.files import UnreadableFileError, read_text

if TYPE_CHECKING:
    from recgen.lang.diagnostics import Diagnostic
    from recgen.lang.source import Source
    from recgen.pipeline import Compiled

STDIN: Final = Path("-")
"""Names standard input instead of a file."""

files_argument: Callable[[Callable[..., Any]], Callable[..., Any]] = click.argument(
    "files", metavar="FILE...", nargs=-1, required=True, type=click.Path(path_type=Path)
)
file_argument: Callable[[Callable[..., Any]], Callable[..., Any]] = click.argument("file", metavar="FILE", type=click.Path(path_type=Path))


def read_sources(paths: Iterable[Path]) -> tuple[Source, ...]:
    """The specs in these files; if any cannot be read, the command ends with status 2, naming all of them, before anything is done."""
    sources, unreadable = [], []
    for path in paths:
        try:
            sources.append(_read(path))
        except UnreadableFileError as error:
            unreadable.append(str(error))
    if unreadable:
        raise Misuse("\n       ".join(unreadable))
    return tuple(sources)


def compile_file(path: Path) -> Compiled:
    """Every stage over one file; warnings are printed, errors are printed and end the command with status 1."""
    (source,) = read_sources([path])
    from recgen.lang.diagnostics import SpecErrors
    from recgen.pipeline import compile_text

    try:
        compiled = compile_text(source.text, source.name)
    except SpecErrors as errors:
        print_diagnostics(errors.diagnostics, error=True)
        raise Findings(summary(errors.diagnostics)) from None
    print_diagnostics(compiled.warnings, error=True)
    return compiled


def print_diagnostics(diagnostics: Iterable[Diagnostic], error: bool = False) -> None:
    """Print diagnostics, a blank line after each, on standard output or on standard error."""
    for diagnostic in diagnostics:
        click.echo(f"{_colored(diagnostic)}\n", err=error)


def summary(diagnostics: Iterable[Diagnostic]) -> str:
    """How many errors and warnings there are, in words."""
    severities = [diagnostic.severity for diagnostic in diagnostics]
    counts = [(severities.count(kind), kind) for kind in ("error", "warning")]
    return ", ".join(f"{number} {kind}{'' if number == 1 else 's'}" for number, kind in counts if number) or "no errors"


def _read(path: Path) -> Source:
    """The spec in this file, or on standard input for `-`."""
    from recgen.lang.source import Source

    if path != STDIN:
        return Source(str(path), read_text(path))
    try:
        return Source("<stdin>", sys.stdin.buffer.read().decode("utf-8-sig").replace("\r\n", "\n"))
    except UnicodeDecodeError:
        raise UnreadableFileError("standard input is not UTF-8 text") from None


def _colored(diagnostic: Diagnostic) -> str:
    """The rendered text with its severity in colour; click drops the colour when this is no terminal."""
    mark = f"{diagnostic.severity}[{diagnostic.code}]"
    color = "red" if diagnostic.severity == "error" else "yellow"
    return diagnostic.render().replace(mark, click.style(mark, fg=color, bold=True), 1)
