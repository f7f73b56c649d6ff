"""What the nodes of a chunk form become in a kernel that works on tiles: tiles, tiles of several states, matrices of links."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from recgen.derive.chunk_nodes import Node


@dataclass(frozen=True)
class Tile:
    """An expression and the axes of its value.

    `shape`: a letter for each axis, C the tokens, K, V, and "" for a number; `wide`: its products are of float32 numbers whatever the
    inputs' precision; `terms`: what a sum is made of.
    """

    text: str
    shape: str
    wide: bool = False
    terms: tuple[str, ...] = ()

    @property
    def factor(self) -> str:
        """As a factor: in brackets unless it is a name."""
        return self.text if self.text.isidentifier() else f"({self.text})"

    @property
    def over_rows(self) -> str:
        """A column of numbers that scales the rows of a tile; a number as it is."""
        return f"{self.factor}[:, None]" if self.shape else self.factor

    @property
    def over_columns(self) -> str:
        """A column of numbers that scales the columns of a tile."""
        return f"{self.factor}[None, :]"


@dataclass(frozen=True)
class Blocks:
    """A tile for every state, None for zeros."""

    tiles: tuple[Tile | None, ...]


@dataclass(frozen=True)
class Numbers:
    """A number for every two states, None for 0."""

    entries: tuple[tuple[Tile | None, ...], ...]


class Links(Protocol):
    """A matrix of links, of which a kernel holds what it needs: the rows after or before the tokens or at the chunk's end.

    The columns of "tokens" are a tile [C, C], at the end [C]; the column of the chunk's "start" is [C], at the end a number.
    """

    def part(self, rows: str, columns: str) -> Tile | None:
        """These rows and columns; None for zeros."""


@dataclass(frozen=True)
class Rows:
    """All columns of some rows of a matrix of links, each row times its number of `scale`."""

    links: Links
    rows: str
    scale: Tile | None = None

    def columns(self, columns: str) -> Tile | None:
        """The columns of tokens, or of the start."""
        found = self.links.part(self.rows, columns)
        if found is None or self.scale is None:
            return found
        return scaled(self.scale, found)


@dataclass(frozen=True)
class Outer:
    """The product left @ right^T of rows and of states over the values, or of two of states: summed up wherever a part of it is used."""

    name: str
    left: Node
    right: Node


Value = Tile | Blocks | Numbers | Rows | Outer | Links


def dot(left: Tile, right: Tile, turn_left: bool = False, turn_right: bool = False, split: bool = False) -> Tile:
    """left @ right, either transposed first; products of links, and with an inverse, are of float32 numbers.

    `split`: what the right one loses to half precision is multiplied too.
    """
    texts = [f"tl.trans({x.text})" if turned else x.text for x, turned in ((left, turn_left), (right, turn_right))]
    wide = left.wide or right.wide or left.shape == right.shape == "CC"
    shape = left.shape[:: -1 if turn_left else 1][0] + right.shape[:: -1 if turn_right else 1][1]
    return Tile(f"_tl_dot{'_split_right' * split}({', '.join(texts)}, {'tl.float32' if wide else 'DT'}, WIDE)", shape)


def times(left: Tile, right: Tile) -> Tile:
    """left * right, entry by entry, a number with every entry."""
    return Tile(f"{left.factor} * {right.factor}", left.shape or right.shape)


def scaled(column: Tile, tile: Tile) -> Tile:
    """Every row of a tile times its number."""
    return Tile(f"{column.over_rows} * {tile.factor}", tile.shape) if len(tile.shape) > 1 else times(column, tile)


def total(tiles: list[Tile]) -> Tile:
    """The sum of at least one tile."""
    if len(tiles) == 1:
        return tiles[0]
    terms = tuple(term for t in tiles for term in t.terms or (t.text,))
    return Tile(" + ".join(terms), max((t.shape for t in tiles), key=len), terms=terms)


def turned(tile: Tile) -> Tile:
    """The transposed tile."""
    return Tile(f"tl.trans({tile.text})", tile.shape[::-1], tile.wide)
