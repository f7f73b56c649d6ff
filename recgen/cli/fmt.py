"""`recgen fmt`: the canonical text of a spec."""

from __future__ import annotations

from pathlib import Path

import click

from recgen.cli.group import Findings
from recgen.cli.specs import STDIN, files_argument, print_diagnostics, read_source, require_readable


@click.command()
@files_argument
@click.option("--check", is_flag=True, help="Write nothing; name the files that are not canonical and exit with status 1.")
def fmt(files: tuple[Path, ...], check: bool) -> None:
    """Rewrite specs in canonical form; comments are kept.

    With - as FILE, reads standard input and writes standard output. A spec that cannot be parsed is left as it is.
    """
    require_readable(files)
    outcomes = [_format(path, check) for path in files]
    if None in outcomes:
        raise Findings("a spec with errors was left as it is")
    if check and any(outcomes):
        raise Findings(f"{outcomes.count(True)} of {len(files)} not canonical; run `recgen fmt` to rewrite")


def _format(path: Path, check: bool) -> bool | None:
    """Whether the text changed (or would); None when it cannot be parsed."""
    from recgen.files import write_text
    from recgen.lang import SpecErrors, format_spec

    try:
        source = read_source(path)
        text = format_spec(source)
    except SpecErrors as errors:
        print_diagnostics(errors.diagnostics, error=True)
        return None
    changed = text != source.text
    if path == STDIN and not check:
        click.echo(text, nl=False)
    elif changed and not check:
        write_text(path, text)
    if changed and (check or path != STDIN):
        click.echo(f"{'not canonical' if check else 'formatted'}: {source.name}", err=True)
    return changed
