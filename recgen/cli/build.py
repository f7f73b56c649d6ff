"""`recgen build`: from specs to modules."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from recgen.cli.group import Findings, Misuse
from recgen.cli.output import echo_json, format_option, progress
from recgen.cli.specs import print_diagnostics, require_readable

if TYPE_CHECKING:
    from recgen.build import Outcome


@click.command()
@click.argument("files", metavar="[FILE]...", nargs=-1, type=click.Path(path_type=Path))
@click.option(
    "-o",
    "--output",
    "folder",
    metavar="DIR",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("generated"),
    show_default=True,
    help="Where the modules go.",
)
@click.option("--check", is_flag=True, help="Write nothing; exit with status 1 when a module is missing, differs or has no spec.")
@click.option("--tiles", metavar="FILE", multiple=True, type=click.Path(path_type=Path), help="Tiles that `recgen tune` has written.")
@format_option
def build(files: tuple[Path, ...], folder: Path, check: bool, tiles: tuple[Path, ...], format_: str) -> None:
    """Compile specs to modules that need only torch and triton.

    FILE is a spec; without any, every .rec file of the folder specs is built.
    """
    specs = files or _default_files()
    require_readable((*specs, *tiles))
    from recgen.build import FINDINGS, stale

    outcomes = _build(specs, folder, check, tiles)
    if check and not files:
        outcomes.extend(stale(folder, outcomes))
    if format_ == "json":
        echo_json({"ok": not any(o.status in FINDINGS for o in outcomes), "modules": [_json(o) for o in outcomes]})
    else:
        for outcome in outcomes:
            _print(outcome)
    failed = [outcome for outcome in outcomes if outcome.status in FINDINGS]
    if failed:
        verdict = "not up to date with their specs; run `recgen build`" if check else "not built"
        raise Findings(f"{len(failed)} of {len(outcomes)} {verdict}")


def _default_files() -> tuple[Path, ...]:
    """The specs of the current folder's `specs`."""
    files = tuple(sorted(Path("specs").glob("*.rec")))
    if not files:
        raise Misuse("name the specs to build: there are no .rec files in ./specs")
    return files


def _build(files: tuple[Path, ...], folder: Path, check: bool, tiles: tuple[Path, ...]) -> list[Outcome]:
    """The outcomes, behind a progress bar."""
    from recgen.build import NameClashError, build
    from recgen.tuning.tilefile import TileFileError, read_tiles

    outcomes = []
    with progress() as bar:
        task = bar.add_task("build", total=len(files))
        try:
            for outcome in build(files, folder, check, tuple(read_tiles(path) for path in tiles)):
                outcomes.append(outcome)
                bar.update(task, advance=1, description=f"build {outcome.spec}")
        except (NameClashError, TileFileError) as error:
            raise Misuse(str(error)) from None
        except OSError as error:
            raise Misuse(f"{error.filename or folder}: cannot be written: {error.strerror}") from None
    return outcomes


def _print(outcome: Outcome) -> None:
    """One line on standard output; diagnostics on standard error."""
    print_diagnostics(outcome.diagnostics, error=True)
    click.echo(f"{outcome.status:9}  {outcome.path or outcome.spec}")


def _json(outcome: Outcome) -> dict[str, object]:
    return {
        "spec": outcome.spec,
        "path": str(outcome.path) if outcome.path else None,
        "status": outcome.status,
        "digest": outcome.digest,
        "diagnostics": [diagnostic.to_json() for diagnostic in outcome.diagnostics],
    }
