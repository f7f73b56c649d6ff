"""From specs to modules in a folder: writing them, or checking that the folder is up to date."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from recgen.codegen.emit import spec_digest
from recgen.files import holds, write_text
from recgen.lang import Diagnostic, SpecErrors, read_source
from recgen.pipeline import compile_text
from recgen.tuning.tilefile import TileFile, TileFileError, matching
from recgen.verify.adjoint import check_adjoint

Status = Literal["written", "unchanged", "differs", "missing", "stale", "refused"]

FINDINGS: Final[tuple[Status, ...]] = ("differs", "missing", "stale", "refused")
"""The statuses that make a build fail."""


@dataclass(frozen=True)
class Outcome:
    """What became of one spec, or of one module that no spec gives (`stale`).

    `path` is where the module lies or would lie, and None when the spec was refused; `digest` is the module's; `diagnostics` are the
    spec's errors and warnings.
    """

    spec: str
    path: Path | None
    status: Status
    digest: str = ""
    diagnostics: tuple[Diagnostic, ...] = ()


class NameClashError(Exception):
    """Two specs declare the same recurrence, so that one module would overwrite the other."""


def build(files: Sequence[Path], folder: Path, check: bool = False, tiles: tuple[TileFile, ...] = ()) -> Iterator[Outcome]:
    """Compile specs one after the other and write `<folder>/<name>.py`; a spec with errors does not stop the others.

    Args:
        files: the specs.
        folder: where the modules go; made if need be.
        check: write nothing, only compare.
        tiles: tuned tiles, each for one of the specs.

    Raises:
        NameClashError: before the second module of a name would be written.
        TileFileError: before anything is written, when tiles are for none of the specs.
    """
    _require_used(tiles, files)
    taken: dict[str, str] = {}
    for file in files:
        try:
            source = read_source(file)
            compiled = compile_text(source.text, source.name, matching(tiles, spec_digest(source.text)))
            warnings = (*compiled.warnings, *check_adjoint(compiled))
        except SpecErrors as errors:
            yield Outcome(str(file), None, "refused", diagnostics=errors.diagnostics)
            continue
        module = compiled.module
        if module.name in taken:
            raise NameClashError(f"{taken[module.name]} and {file} both declare the recurrence {module.name}; rename one")
        taken[module.name] = str(file)
        path = folder / f"{module.name}.py"
        yield Outcome(str(file), path, _settle(path, module.text, check), module.digest, warnings)


def _require_used(tiles: Sequence[TileFile], files: Sequence[Path]) -> None:
    """Tuned tiles belong to a spec's text and a revision of the compiler: for any other they were compared with nothing."""
    digests = set()
    for file in files:
        with suppress(SpecErrors):  # reported when its turn comes
            digests.add(spec_digest(read_source(file).text))
    for found in tiles:
        if found.digest not in digests:
            raise TileFileError(
                f"the tiles tuned for {found.recurrence} are for none of these specs, or for one that has changed since, or for another "
                "revision of the compiler; run `recgen tune` again"
            )


def stale(folder: Path, outcomes: Sequence[Outcome]) -> tuple[Outcome, ...]:
    """The modules in the folder that none of these outcomes accounts for."""
    expected = {outcome.path for outcome in outcomes}
    return tuple(Outcome("", path, "stale") for path in sorted(folder.glob("*.py")) if path not in expected)


def _settle(path: Path, text: str, check: bool) -> Status:
    """Write the module if its file does not hold this text yet, or say how it stands."""
    if not path.exists():
        status: Status = "missing"
    elif holds(path, text):
        return "unchanged"
    else:
        status = "differs"
    if check:
        return status
    write_text(path, text)
    return "written"
