"""`recgen explain`: what the compiler found and derived."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import click

from recgen.cli.specs import compile_file, file_argument

STAGES: Final = ("parse", "check", "analyze", "derive", "plan", "emit")
"""The compiler's stages, in order."""


@click.command()
@file_argument
@click.option("--stage", type=click.Choice(STAGES), help="One stage only; all that have something to say by default.")
@click.option("--format", "format_", type=click.Choice(["text", "latex", "json"]), default="text", show_default=True)
def explain(file: Path, stage: str | None, format_: str) -> None:
    """Print what was recognised, derived and proved.

    That is the class and the refusals with their reasons, the derivation, the proof and the kernels.
    FILE is a spec, or - for standard input.
    """
    compiled = compile_file(file, format_)
    from recgen.explanation import explain as explain_compiled

    click.echo(explain_compiled(compiled, stage, format_).rstrip("\n"))
