"""What commands share on their way out: JSON, consoles and progress."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress

format_option: Callable[[Callable[..., Any]], Callable[..., Any]] = click.option(
    "--format",
    "format_",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="json prints one document on standard output.",
)


def echo_json(value: object) -> None:
    """Print one JSON document; keys keep their order."""
    click.echo(json.dumps(value, indent=2, ensure_ascii=False))


def console(error: bool = False) -> Console:
    """A console on standard output, or on standard error; plain when that is not a terminal."""
    from rich.console import Console

    return Console(stderr=error, highlight=False, soft_wrap=not error)


def progress() -> Progress:
    """A progress bar on standard error, shown on a terminal only and gone when done."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    target = console(error=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    return Progress(*columns, console=target, transient=True, disable=not target.is_terminal)
