"""`recgen check`: errors and warnings."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from recgen.cli.group import Findings
from recgen.cli.output import echo_json, format_option
from recgen.cli.specs import files_argument, print_diagnostics, read_source, require_readable, summary

if TYPE_CHECKING:
    from recgen.lang import Diagnostic


@click.command()
@files_argument
@format_option
def check(files: tuple[Path, ...], format_: str) -> None:
    """Print the errors and warnings of specs.

    Every stage runs and nothing is written: what passes here can be built.

    FILE is a spec, or - for standard input. Warnings leave the exit status at 0; errors make it 1.
    """
    require_readable(files)
    found = [diagnostic for path in files for diagnostic in _diagnose(path)]
    failed = any(diagnostic.severity == "error" for diagnostic in found)
    if format_ == "json":
        echo_json({"ok": not failed, "diagnostics": [diagnostic.to_json() for diagnostic in found]})
    else:
        print_diagnostics(found)
        click.echo(f"{len(files)} spec{'' if len(files) == 1 else 's'}: {summary(found)}", err=True)
    if failed:
        raise click.exceptions.Exit(Findings.exit_code)


def _diagnose(path: Path) -> tuple[Diagnostic, ...]:
    from recgen.lang import SpecErrors
    from recgen.pipeline import compile_text

    try:
        source = read_source(path)
        return compile_text(source.text, source.name).warnings
    except SpecErrors as errors:
        return errors.diagnostics
