"""The stage plan: tile sizes, warps and pipeline stages of the kernels, as numbers that anyone can see."""

from __future__ import annotations

from dataclasses import dataclass

from recgen.analysis.coupled_form import CoupledForm
from recgen.analysis.normal_form import NormalForm
from recgen.compilers import COMPILER_FAULTS, CompilerFault
from recgen.tiles import COUPLED_TILES, ChunkTiles, by_value_rows, rows_for

MOST_TOKENS, LEAST_TOKENS = 64, 16
"""Of a chunk."""


@dataclass(frozen=True)
class RecurrentTiles:
    """State entries of one program in each recurrent kernel, and how many tokens ahead the loops load.

    Measured on an H200 with K = V = 128: loading ahead halves the time of a token (2.7 to 1.2 us forward); one warp to 1024 entries needs
    no barrier; the backward takes 2048 because every value block costs partial gradients in memory; the step reads 16 bytes a thread.
    """

    forward: int = 1024
    backward: int = 2048
    step: int = 4096
    stages: int = 3


@dataclass(frozen=True)
class SegmentPlan:
    """When sequences are cut into segments that are scanned at once: where programs are too few for the GPU.

    `fill`: programs for each multiprocessor to aim at; `least`: segments of a sequence below which cutting does not pay; `chunks`: of a
    segment, at least. A correction makes a segment's summary as wide again as the keys,
    so that it pays only on a nearly empty GPU.
    """

    fill: int
    least: int
    chunks: int = 8


@dataclass(frozen=True)
class KernelPlan:
    """What the kernels are built with.

    `chunk`: the tiles of the chunkwise kernels, of which the first row that fits is used; `tuned`: the first of them, from files of
    tuned tiles; `faults`: compilers that they refuse.
    `stretch`: chunks times heads that the PyTorch chunk form works on together, enough for the cores and few enough for their caches.
    `tokens`: of a chunk at most. The digits that the inverse loses grow with the writes that correct each other in it, in float32 about
    1e-8 for each at 7 keys; so the micro-steps of a chunk are no more than the tokens of one without: 64.
    `phased`: the chunkwise kernels are printed from the steps of the chunk form, which take sequences whole.
    """

    recurrent: RecurrentTiles
    chunk: tuple[ChunkTiles, ...]
    segments: SegmentPlan
    faults: tuple[CompilerFault, ...] = COMPILER_FAULTS
    tuned: tuple[ChunkTiles, ...] = ()
    stretch: int = 32
    tokens: int = MOST_TOKENS
    phased: bool = False


@dataclass(frozen=True)
class TokenPlan:
    """What the kernels of a token form are built with."""

    recurrent: RecurrentTiles


@dataclass(frozen=True)
class ScanTiles:
    """The tiles of a scan's kernels: entries (tokens times those of the widest state) in each.

    `block`: of the axis that programs share, at most; `forward_lanes`, `backward_lanes`: lanes of a warp along it, at most; `warp`: entries
    of one token that make a warp; `tokens`: of a tile at most; `stages`: one more than the tiles that are loaded ahead. Measured on an
    H200 with Mamba-1, 16 numbers a channel.
    """

    forward: int = 2048
    block: int = 32
    forward_lanes: int = 32
    backward: int = 1024
    backward_lanes: int = 8
    warp: int = 2048
    tokens: int = 16
    stages: int = 3


@dataclass(frozen=True)
class ScanPlan(TokenPlan):
    """What the kernels of a scan are built with, besides those of its token form; `segments`: chunks are of 64 tokens."""

    tiles: ScanTiles
    segments: SegmentPlan


@dataclass(frozen=True)
class CoupledPlan(TokenPlan):
    """What the forms of coupled states are built with.

    `chunk`, `faults`, `stretch`: as in `KernelPlan`. `tokens`: of a chunk at most. What a correction finds goes through the state that it
    is written into and through those that this one feeds, so that the inverse loses digits with fewer tokens: a delta rule with momentum
    and without forgetting has an error of 1e-6 token by token in float32, and 1.7e-6 and 3.5e-6 in chunks of 32 and 64.
    """

    chunk: tuple[ChunkTiles, ...]
    faults: tuple[CompilerFault, ...] = COMPILER_FAULTS
    stretch: int = 32
    tokens: int = MOST_TOKENS


def make_plan(form: NormalForm, tuned: tuple[ChunkTiles, ...] = ()) -> KernelPlan:
    """The plan of a form; `tuned`: rows of tiles that go before those of the table."""
    segments = SegmentPlan(fill=3 if form.feedback else 8, least=4)
    if form.by_value:
        return KernelPlan(RecurrentTiles(), by_value_rows(any(r.across for r in form.reads)), segments, tokens=_tokens(form), phased=True)
    rows = tuned + rows_for(form.decay.kind, form.feedback, form.whole_values, bool(form.columns))
    return KernelPlan(RecurrentTiles(), rows, segments, tuned=tuned, tokens=_tokens(form))


def _tokens(form: NormalForm) -> int:
    """The most tokens of a chunk, a power of 2."""
    return _tokens_for(len({s.slot for s in form.streams if s.correct is not None}))


def _tokens_for(steps: int) -> int:
    """The most tokens of a chunk where a token has so many writes that correct each other, a power of 2."""
    tokens = MOST_TOKENS
    while tokens * steps > MOST_TOKENS and tokens > LEAST_TOKENS:
        tokens //= 2
    return tokens


def make_token_plan() -> TokenPlan:
    """The plan of a token form: as many entries a program as the recurrent kernels of a normal form have."""
    return TokenPlan(RecurrentTiles())


def make_coupled_plan(form: CoupledForm) -> CoupledPlan:
    """The plan of a coupled form: the recurrent kernels of its token form, and chunkwise kernels."""
    corrections = sum(bool(s.corrections) for s in form.streams)
    return CoupledPlan(RecurrentTiles(), COUPLED_TILES, tokens=_tokens_for(2 * corrections))


def make_scan_plan(functions: int) -> ScanPlan:
    """The plan of a scan that computes so many exponentials and the like for every entry of a state.

    With more than one a thread of the backward holds half as much, or it runs out of registers. Programs are smaller token by token too.
    """
    tiles = ScanTiles() if functions < 2 else ScanTiles(backward=512)
    return ScanPlan(RecurrentTiles(forward=512, backward=512), tiles, SegmentPlan(fill=8, least=4, chunks=4))
