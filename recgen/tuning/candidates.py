"""What is tried: tiles in rounds, each around the best so far, as far as a program's state and buffers can fit."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from recgen.tiles import ChunkTiles

CHUNKS: Final = (16, 32, 64)
COLUMNS: Final = (16, 32, 64, 128)
WARPS: Final = (2, 4, 8)
STAGES: Final = (1, 2, 3)
PREPARE_WARPS: Final = (2, 4)
_MOST_HELD: Final = 128
"""Entries of the state that a thread holds at most: half of its registers."""
_FINALISTS: Final = 3


@dataclass(frozen=True)
class Limits:
    """What candidates have to fit: the largest value size and chunk that occur, and a GPU's shared memory and threads in a warp."""

    values: int
    tokens: int
    shared: int
    warp: int


def scans(base: ChunkTiles, limits: Limits) -> Iterator[ChunkTiles]:
    """Columns, warps and stages of the scans."""
    for columns, warps, stages in itertools.product(COLUMNS, WARPS, STAGES):
        yield from _fitting(replace(base, scan=columns, scan_warps=warps, stages=stages), limits)


def chunks(best: Sequence[ChunkTiles], limits: Limits) -> Iterator[ChunkTiles]:
    """Other chunks, and warps that prepare them, for the best scans."""
    for tiles, chunk, warps in itertools.product(best[:_FINALISTS], CHUNKS, PREPARE_WARPS):
        yield from _fitting(replace(tiles, chunk=chunk, prepare_warps=warps), limits)


def gradients(base: ChunkTiles, limits: Limits) -> Iterator[ChunkTiles]:
    """Columns and warps of the gradients."""
    for columns, warps in itertools.product(COLUMNS, WARPS):
        yield from _fitting(replace(base, gradients=columns, gradient_warps=warps), limits)


def _fitting(tiles: ChunkTiles, limits: Limits) -> Iterator[ChunkTiles]:
    """The candidate, unless it cannot fit or does what a smaller one does too."""
    if fits(tiles, limits):
        yield tiles


def fits(tiles: ChunkTiles, limits: Limits) -> bool:
    """Whether it is worth compiling.

    The compiler has the last word on shared memory: this leaves out what cannot fit whatever it does.
    """
    widest = max(16, 1 << (limits.values - 1).bit_length())
    if max(tiles.scan, tiles.gradients) > widest or (tiles.chunk > 16 and tiles.chunk >= 2 * limits.tokens):
        return False
    held = tiles.keys * tiles.scan / (tiles.scan_warps * limits.warp)
    size = 2 if tiles.half else 4
    loaded = (tiles.chunk * (2 * tiles.keys + tiles.scan) + tiles.chunk * tiles.chunk) * size
    return held <= _MOST_HELD and loaded * max(1, tiles.stages - 1) <= limits.shared
