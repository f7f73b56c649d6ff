"""Nodes of the chunk form of coupled states: links with a border for the chunk's start, and states side by side.

A matrix of links is [C + 1, C + 1]: entry [i, j] is what a state holds after token i of what came into one after token j, and row and
column 0 stand for the chunk's start. So what comes from the incoming states is an ordinary link. States side by side are stacked over the
keys.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from recgen.derive.chunk_nodes import Node


@dataclass(frozen=True)
class Kept:
    """What a state holds of itself: exp(G_i - G_j) for j <= i of its own decay, `tag` the state's; else 0.

    `kind` of the decay: "scalar", or "none" for 1 in its place.
    """

    tag: str
    kind: str


@dataclass(frozen=True)
class Cut:
    """Part of a matrix of links.

    `rows`: "after" every token, "before" it, or at the chunk's "end"; `columns`: from the "tokens", from the "start", or "all". What the
    tokens give to the end is a column [C, 1].
    """

    matrix: Node
    rows: str
    columns: str


@dataclass(frozen=True)
class Bordered:
    """The inverse of `Cut`: a matrix of links with these entries, and 0 elsewhere."""

    matrix: Node
    rows: str
    columns: str


@dataclass(frozen=True)
class Gathered:
    """The sum of matrices of links, of which the links forwards count: entries [i, j] with j <= i."""

    parts: tuple[Node, ...]


@dataclass(frozen=True)
class Empty:
    """Zeros in the shape of `matrix`."""

    matrix: Node


@dataclass(frozen=True)
class Joined:
    """Rows [C, K] of every state side by side, None for zeros."""

    parts: tuple[Node | None, ...]


@dataclass(frozen=True)
class Block:
    """The rows [C, K] of one of `count` states out of rows side by side."""

    matrix: Node
    index: int
    count: int


@dataclass(frozen=True)
class Square:
    """A small matrix of numbers, a row and a column for every state, None for 0."""

    entries: tuple[tuple[Node | None, ...], ...]


@dataclass(frozen=True)
class Entry:
    """One number of a small matrix, [1, 1]."""

    matrix: Node
    row: int
    column: int


@dataclass(frozen=True)
class Mixed:
    """States side by side, each of them a sum of multiples of all by a row of `square` (by a column where `turned`)."""

    square: Node
    state: Node
    turned: bool


@dataclass(frozen=True)
class Pairings:
    """For every state's gradient (row) and every state (column), the sum of their products entry by entry: a small matrix."""

    gradient: Node
    state: Node
    count: int


@dataclass(frozen=True)
class ColumnSum:
    """The sum of every column of [C, C], as a column [C, 1]."""

    matrix: Node


@dataclass(frozen=True)
class Crossing:
    """Of links with a border, for every token t the sum of those from j < t to i >= t, [C, 1]."""

    matrix: Node
