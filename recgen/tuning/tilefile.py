"""Tuned tiles as a file that can be shipped: rows with what they were compared on, the machine, and everything that was tried."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, get_args

from recgen.files import write_text
from recgen.tiles import ChunkTiles, Decay, Validation

FORMAT: Final = "recgen tiles 1"


class TileFileError(ValueError):
    """A file that holds no tiles, or those of something else; the message names it."""


@dataclass(frozen=True)
class TileFile:
    """`digest`: of the spec's text and the compiler's revision, as the module says it without tuned tiles."""

    recurrence: str
    digest: str
    machine: tuple[tuple[str, str], ...]
    rows: tuple[ChunkTiles, ...]
    tried: tuple[dict[str, Any], ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Plain data; what `read_tiles` takes."""
        return {
            "format": FORMAT,
            "recurrence": self.recurrence,
            "digest": self.digest,
            "machine": dict(self.machine),
            "rows": [dataclasses.asdict(row) for row in self.rows],
            "tried": list(self.tried),
        }

    def write(self, path: Path) -> None:
        """As JSON."""
        write_text(path, json.dumps(self.to_json(), indent=2) + "\n")


def read_tiles(path: Path) -> TileFile:
    """Reads a file that `write` has written.

    Raises:
        TileFileError: when it is something else.
        OSError: when it cannot be read.
    """
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(found, dict):
            raise ValueError(f"an object is expected, not {type(found).__name__}")
        if found["format"] != FORMAT:
            raise ValueError(f"its format is {found['format']!r} instead of {FORMAT!r}")
        rows = tuple(row_of(fields) for fields in found["rows"])
        return TileFile(found["recurrence"], found["digest"], tuple(found["machine"].items()), rows, tuple(found["tried"]))
    except KeyError as error:
        raise TileFileError(f"{path}: not a file of tiles: {error} is missing") from None
    except (ValueError, TypeError, AttributeError) as error:
        raise TileFileError(f"{path}: not a file of tiles: {error}") from None


def row_of(fields: dict[str, Any]) -> ChunkTiles:
    """One row from plain data; a ValueError unless every field is there, of its type, and no other."""
    expected = {f.name: f.type for f in dataclasses.fields(ChunkTiles)}
    if odd := expected.keys() ^ fields.keys():
        raise ValueError(f"a row lacks or has too many of: {', '.join(sorted(odd))}")
    validated = tuple(Validation(str(v["generation"]), str(v["compiler"]), float(v["error"])) for v in fields["validated"])
    row = ChunkTiles(**{**fields, "validated": validated})
    kinds = {"int": int, "bool": bool, "str": str}
    for name, kind in expected.items():
        if str(kind) in kinds and type(fields[name]) is not kinds[str(kind)]:
            raise ValueError(f"{name} is {fields[name]!r}, which is no {kind}")
    if row.decay not in get_args(Decay):
        raise ValueError(f"decay is {row.decay!r}")
    sizes = (row.chunk, row.scan, row.gradients, row.prepare_warps, row.scan_warps, row.gradient_warps)
    if any(n < 1 or n & (n - 1) for n in sizes) or row.chunk < 16 or min(row.scan, row.gradients) < 16:
        raise ValueError(f"chunk, columns and warps are powers of two, and the first two at least 16; a row has {sizes}")
    if row.stages < 1 or row.keys < 1 or row.shared < 1 or not row.generation:
        raise ValueError("stages, keys and shared memory are positive, and a generation is named")
    return row


def matching(files: tuple[TileFile, ...], digest: str) -> tuple[ChunkTiles, ...]:
    """The rows made for the spec with this digest, in the order of the files."""
    return tuple(row for file in files if file.digest == digest for row in file.rows)
