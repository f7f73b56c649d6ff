"""The tiles of the chunkwise kernels by class of recurrence, inputs, size of the keys and GPU, and what each row was compared on."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, Literal

Decay = Literal["none", "scalar", "vector"]

DECAYS: Final[tuple[Decay, ...]] = ("none", "scalar", "vector")

_KIB_227, _KIB_163, _KIB_99, _KIB_64 = 227 * 1024, 163 * 1024, 99 * 1024, 64 * 1024


@dataclass(frozen=True)
class Validation:
    """A comparison of the kernels with the float64 form.

    `generation`: of the GPU, such as "sm_90" or "gfx942"; `compiler`: what assembled the kernels, such as "ptxas 13.0"; `error`: the
    worst over outputs, states and gradients, of each the larger of the relative RMS error and a quarter of the largest error over the
    largest entry.
    """

    generation: str
    compiler: str
    error: float

    def __str__(self) -> str:
        return f"{self.generation}, {self.compiler}: {self.error:.1e}"


@dataclass(frozen=True)
class ChunkTiles:
    """One row: for which recurrences, inputs and GPUs, and the tiles.

    `decay`, `corrects`: the recurrence's class; `half`: inputs in half precision, else float32; `keys`: their largest size;
    `generation`: of the GPU, "" for any; `shared`: bytes of shared memory that no program exceeds. `chunk`: tokens per chunk at most;
    `scan`, `gradients`: value columns of a program; `stages` of the scans' pipeline; warps of a program in each kernel.
    """

    decay: Decay
    corrects: bool
    half: bool
    keys: int
    chunk: int
    scan: int
    gradients: int
    stages: int
    generation: str = ""
    shared: int = _KIB_99
    prepare_warps: int = 4
    scan_warps: int = 4
    gradient_warps: int = 8
    validated: tuple[Validation, ...] = ()

    @property
    def note(self) -> str:
        """What the row was compared on, in words."""
        return "; ".join(f"compared on {v}" for v in self.validated) or "not compared yet"


_SEEN: Final[dict[tuple[Decay, bool, bool, int], tuple[Validation, ...]]] = {
    ("none", False, True, 128): (Validation("sm_90", "ptxas 13.0", 2.9e-3),),
    ("none", False, True, 256): (Validation("sm_90", "ptxas 13.0", 2.9e-3),),
    ("none", False, False, 128): (Validation("sm_90", "ptxas 13.0", 4.2e-7),),
    ("none", True, True, 128): (Validation("sm_90", "ptxas 13.0", 5.6e-3),),
    ("none", True, True, 256): (Validation("sm_90", "ptxas 13.0", 3.6e-3),),
    ("none", True, False, 128): (Validation("sm_90", "ptxas 13.0", 6.8e-7),),
    ("scalar", False, True, 128): (Validation("sm_90", "ptxas 13.0", 9.1e-3),),
    ("scalar", False, True, 256): (Validation("sm_90", "ptxas 13.0", 1.4e-2),),
    ("scalar", False, False, 128): (Validation("sm_90", "ptxas 13.0", 4.8e-7),),
    ("scalar", True, True, 128): (Validation("sm_90", "ptxas 13.0", 4.1e-3),),
    ("scalar", True, True, 256): (Validation("sm_90", "ptxas 13.0", 4.9e-3),),
    ("scalar", True, False, 128): (Validation("sm_90", "ptxas 13.0", 4.2e-7),),
    ("vector", False, True, 128): (Validation("sm_90", "ptxas 13.0", 2.8e-3),),
    ("vector", False, True, 256): (Validation("sm_90", "ptxas 13.0", 2.8e-3),),
    ("vector", False, False, 128): (Validation("sm_90", "ptxas 13.0", 4.0e-7),),
    ("vector", True, True, 128): (Validation("sm_90", "ptxas 13.0", 3.8e-3),),
    ("vector", True, True, 256): (Validation("sm_90", "ptxas 13.0", 3.3e-3),),
    ("vector", True, False, 128): (Validation("sm_90", "ptxas 13.0", 4.1e-7),),
}
"""What the first row for a class, inputs and keys was compared on: benchmarks/h200.md, the worst over the specs of the class."""


def _rows(decay: Decay, corrects: bool) -> tuple[ChunkTiles, ...]:
    """The rows of a class: first for AMD, whose compiler takes a third of the shared memory, then by how much a GPU has."""
    seen = {(half, keys): found for (d, c, half, keys), found in _SEEN.items() if (d, c) == (decay, corrects)}

    def row(generation: str, shared: int, half: bool, keys: int, *sizes: int) -> ChunkTiles:
        chunk, scan, gradients, stages = sizes
        validated = () if generation else seen.pop((half, keys), ())  # what an H200 takes: the first row for any GPU
        tiles = ChunkTiles(decay, corrects, half, keys, chunk, scan, gradients, stages, generation, shared, validated=validated)
        warps = 2 if half and keys <= 128 else 8 if keys > 256 else tiles.prepare_warps
        return replace(tiles, prepare_warps=warps)

    large = ((True, 128, 64, 32, 32, 2), (True, 256, 32, 32, 16, 1), (False, 128, 32, 32, 16, 1), (False, 256, 16, 16, 16, 1))
    small = ((True, 128, 32, 32, 16, 1), (True, 256, 16, 16, 16, 1), (False, 128, 16, 16, 16, 1))
    if decay == "vector":  # rows that carry their own decay take more memory
        large = ((True, 128, 32, 32, 32, 2), (True, 256, 16, 32, 16, 1), *large[2:])
        small = ((True, 128, 16, 32, 16, 1), *small[1:])
    huge = ((True, 512, 16, 16, 16, 1), (False, 512, 16, 16, 16, 1))
    places = (
        ("gfx942", _KIB_64, large),
        ("", _KIB_163, large[2:3]),
        ("", _KIB_99, (*large[:2], huge[0], small[2], large[3])),
        ("", _KIB_163, huge[1:]),
        ("", _KIB_64, small),
    )
    return tuple(row(generation, shared, *sizes) for generation, shared, tiles in places for sizes in tiles)


CHUNK_TILES: Final = tuple(row for decay in DECAYS for corrects in (False, True) for row in _rows(decay, corrects))
"""Rows for one generation stand before those for any; the rows for the least shared memory stand last."""


def rows_for(decay: str, corrects: bool, whole: bool = False, columns: bool = False) -> tuple[ChunkTiles, ...]:
    """The rows of a class of recurrences, in the order in which they are tried.

    `whole`: a program holds the whole value axis, whose size then counts as the keys' does, with more warps, fewer tokens, and without
    loading ahead. `columns`: the state has further columns, whose products are sums of whole tiles in registers, with fewer tokens too.
    """
    rows = tuple(t for t in CHUNK_TILES if t.decay == decay and t.corrects == corrects)
    rows = tuple(map(_with_columns, rows)) if columns else rows
    return _whole_rows(rows, decay, corrects) if whole else rows


def _with_columns(row: ChunkTiles) -> ChunkTiles:
    """Half the tokens: for 128 keys on sm_90 the scans then spill a fourth; on gfx942 the gradients three times as much. Not timed."""
    return replace(row, chunk=row.chunk if row.generation == "gfx942" else max(16, row.chunk // 2), validated=())


def _whole_rows(rows: tuple[ChunkTiles, ...], decay: str, corrects: bool) -> tuple[ChunkTiles, ...]:
    """Rows for programs that hold states whole, by what such kernels took when they were compiled."""
    heavy = decay == "vector" or corrects
    held = [("gfx942", True, 128, _KIB_64), ("gfx942", False, 64, _KIB_64)]
    held += [("", True, 64, _KIB_64), ("", True, 128, _KIB_163 if heavy else _KIB_99)]
    held += [("", True, 256, _KIB_227)] * (decay != "vector")  # with a decay by channel the states are kept in float32
    held += [("", False, 32, _KIB_64), ("", False, 64, _KIB_99), ("", False, 128, _KIB_227)]
    found = []
    for generation, half, keys, shared in held:
        like = next(t for t in rows if t.generation == generation and t.half == half and t.keys >= keys)
        chunk = max(16, like.chunk // 2)
        found.append(replace(like, keys=keys, shared=shared, chunk=chunk, stages=1, scan_warps=8, validated=()))
    return tuple(found)


def _phase_row(generation: str, shared: int, half: bool, keys: int, chunk: int) -> ChunkTiles:
    return ChunkTiles("scalar", True, half, keys, chunk, 16, 16, 1, generation, shared)


COUPLED_TILES: Final = (
    _phase_row("gfx942", _KIB_64, True, 128, 16),
    _phase_row("gfx942", _KIB_64, False, 128, 16),
    _phase_row("", _KIB_64, True, 128, 32),
    _phase_row("", _KIB_64, False, 128, 16),
)
"""The rows of coupled states. A program of the scans holds all states, so that it takes few value columns of each."""


def by_value_rows(whole: bool) -> tuple[ChunkTiles, ...]:
    """The rows of systems that differ by value channel, which are solved token by token: few tokens; `whole`: as in `rows_for`."""
    places = [("gfx942", _KIB_64, True, 128), ("gfx942", _KIB_64, False, 64 if whole else 128)]
    if not whole:
        return tuple(_phase_row(*place, 16) for place in (*places, ("", _KIB_64, True, 128), ("", _KIB_64, False, 128)))
    places += [("", _KIB_64, True, 64), ("", _KIB_163, True, 128), ("", _KIB_64, False, 64), ("", _KIB_163, False, 128)]
    return tuple(replace(_phase_row(*place, 16), scan_warps=8) for place in places)
