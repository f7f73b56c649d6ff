"""`recgen doctor`: is this machine fit to build and run."""

from __future__ import annotations

import dataclasses
from typing import Final

import click

from recgen.cli.group import Findings
from recgen.cli.output import console, echo_json, format_option

_MARKS: Final = {"ok": ("ok", "green"), "warning": ("warn", "yellow"), "failure": ("FAIL", "red")}


@click.command()
@format_option
def doctor(format_: str) -> None:
    """Report versions, GPUs and bad compilers; run a self-test.

    A warning leaves the exit status at 0; a failure makes it 1.
    """
    from recgen.environment import Check, examine

    target = console()
    checks: list[Check] = []
    for check in examine():
        checks.append(check)
        if format_ == "text":
            mark, color = _MARKS[check.status]
            click.echo(f"{click.style(f'{mark:4}', fg=color)}  {check.name:12}  {check.found}")
            for line in _wrapped(check.advice, target.width - 20):
                click.echo(f"{'':20}{line}")
    failed = [check.name for check in checks if check.status == "failure"]
    if format_ == "json":
        echo_json({"ok": not failed, "checks": [dataclasses.asdict(check) for check in checks]})
    if failed:
        raise Findings(f"{', '.join(failed)}: see above")


def _wrapped(text: str, width: int) -> list[str]:
    import textwrap

    return textwrap.wrap(text, max(width, 40))
