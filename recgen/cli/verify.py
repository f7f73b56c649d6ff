"""`recgen verify`: every form and every gradient against the recurrence in float64."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from recgen.cli.group import Findings, Misuse
from recgen.cli.output import console, echo_json, format_option, progress
from recgen.cli.specs import compile_file, file_argument

if TYPE_CHECKING:
    from recgen.verify import Report


_WIDTH: Final = 130
"""The table has this width where the terminal is narrower, or where there is none: cells are not cut."""


@click.command()
@file_argument
@click.option("--device", type=click.Choice(["cpu", "cuda"]), default="cpu", show_default=True)
@format_option
def verify(file: Path, device: str, format_: str) -> None:
    """Check every form and gradient against a loop in float64.

    The loop is the recurrence as written, token by token. The first failing input is shown as one line that reproduces it.
    FILE is a spec, or - for standard input.
    """
    _require(device)
    compiled = compile_file(file, format_)
    from recgen.verify import verify as verify_compiled

    with progress() as bar:
        task = bar.add_task(f"verify {compiled.module.name}", total=None)

        def advance(done: int, total: int, label: str) -> None:
            bar.update(task, completed=done, total=total, description=label)

        report = verify_compiled(compiled, device, advance)
    if format_ == "json":
        echo_json(report.to_json())
    else:
        _print(report)
    if not report.ok:
        raise Findings(f"{file}: some results differ from the reference")


def _require(device: str) -> None:
    """End with status 2 when there is no such device."""
    import torch

    if device == "cuda" and not torch.cuda.is_available():
        raise Misuse("--device cuda: torch sees no GPU here; `recgen doctor` says more")


def _print(report: Report) -> None:
    """The rows as one table, a column for each of their fields; then the notes and how to run the first failing input again."""
    from rich.table import Table

    names = [field.name for field in dataclasses.fields(report.rows[0])] if report.rows else []
    table = Table(*names, box=None, pad_edge=False)
    for row in report.rows:
        table.add_row(*(_cell(getattr(row, name)) for name in names))
    output = console()
    output.width = max(output.width, _WIDTH)
    output.print(table)
    for note in report.notes:
        click.echo(note)
    if report.failure:
        click.echo(f"the first failing input again: {report.failure}")


def _cell(value: object) -> str:
    if isinstance(value, bool):
        return "ok" if value else "[red]FAIL[/red]"
    return f"{value:.1e}" if isinstance(value, float) else str(value)
