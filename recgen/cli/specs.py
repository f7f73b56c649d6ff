"""The specs that a command is given: arguments, reading, compiling, and printing what is wrong with them."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from recgen.cli.group import Findings, Misuse
from recgen.cli.output import echo_json

if TYPE_CHECKING:
    from recgen.lang import Diagnostic, Source
    from recgen.pipeline import AnyCompiled

STDIN: Final = Path("-")
"""Names standard input instead of a file."""

files_argument: Callable[[Callable[..., Any]], Callable[..., Any]] = click.argument(
    "files", metavar="FILE...", nargs=-1, required=True, type=click.Path(path_type=Path)
)
file_argument: Callable[[Callable[..., Any]], Callable[..., Any]] = click.argument("file", metavar="FILE", type=click.Path(path_type=Path))


def require_readable(paths: Iterable[Path]) -> None:
    """End the command with status 2, naming every path that is no readable file, before anything is done."""
    problems = [f"{path}: {problem}" for path in paths if path != STDIN and (problem := _problem(path))]
    if problems:
        raise Misuse("\n       ".join(problems))


def read_source(path: Path) -> Source:
    """The spec in this file, or on standard input for `-`. Raises `SpecErrors` when a file is not UTF-8 text."""
    from recgen.lang import Source
    from recgen.lang import read_source as read_file

    if path != STDIN:
        return read_file(path)
    try:
        return Source("<stdin>", sys.stdin.buffer.read().decode("utf-8-sig"))
    except UnicodeDecodeError:
        raise Findings("standard input is not UTF-8 text") from None


def compile_file(path: Path, format_: str = "text") -> AnyCompiled:
    """Every stage over one file; warnings are printed, errors end the command with status 1 after they were printed as text or as JSON."""
    require_readable([path])
    from recgen.lang import SpecErrors
    from recgen.pipeline import compile_text

    try:
        source = read_source(path)
        compiled = compile_text(source.text, source.name)
    except SpecErrors as errors:
        if format_ == "json":
            echo_json({"ok": False, "diagnostics": [diagnostic.to_json() for diagnostic in errors.diagnostics]})
        else:
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


def _problem(path: Path) -> str | None:
    """Why this cannot be read as a file; None if it can."""
    try:
        path.stat()
    except FileNotFoundError:
        return f"no such file{_neighbour(path)}"
    except OSError as error:
        return f"cannot be read: {error.strerror}"
    if path.is_dir():
        return "is a directory; name the .rec files in it"
    return None if os.access(path, os.R_OK) else "cannot be read: permission denied"


def _neighbour(path: Path) -> str:
    """A hint when the folder holds a spec of nearly this name."""
    close = get_close_matches(path.stem, [entry.stem for entry in path.parent.glob("*.rec")], n=1)
    return f"; did you mean {path.parent / close[0]}.rec?" if close else ""


def _colored(diagnostic: Diagnostic) -> str:
    """The rendered text with its severity in colour; click drops the colour when this is no terminal."""
    mark = f"{diagnostic.severity}[{diagnostic.code}]"
    color = "red" if diagnostic.severity == "error" else "yellow"
    return diagnostic.render().replace(mark, click.style(mark, fg=color, bold=True), 1)
