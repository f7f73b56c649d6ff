"""`recgen check`: errors and warnings."""

from __future__ import annotations

from pathlib import Path

import click

from recgen.cli.group import Findings
from recgen.cli.output import echo_json, format_option
from recgen.cli.specs import files_argument, print_diagnostics, read_sources, summary


@click.command()
@files_argument
@format_option
def check(files: tuple[Path, ...], format_: str) -> None:
    """Print the errors and warnings of specs.

    FILE is a spec, or - for standard input. Warnings leave the exit status at 0; errors make it 1.
    """
    sources = read_sources(files)
    from recgen.lang import diagnose

    found = [diagnostic for source in sources for diagnostic in diagnose(source)]
    failed = any(diagnostic.severity == "error" for diagnostic in found)
    if format_ == "json":
        echo_json({"ok": not failed, "diagnostics": [diagnostic.to_json() for diagnostic in found]})
    else:
        print_diagnostics(found)
        click.echo(f"{len(sources)} spec{'' if len(sources) == 1 else 's'}: {summary(found)}", err=True)
    if failed:
        raise click.exceptions.Exit(Findings.exit_code)
