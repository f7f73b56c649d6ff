"""The stage plan: tile sizes, warps and pipeline stages of the kernels, as numbers that anyone can see."""

from __future__ import annotations

from dataclasses import dataclass

from recgen.analysis.normal_form import NormalForm


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
class ChunkTiles:
    """Tiles of the chunkwise kernels for one kind of inputs and keys up to `keys`.

    `chunk`: tokens per chunk at most; `scan`, `gradients`: value columns of a program; `stages` of the scans' pipeline. Every entry fits
    into 99 KiB of shared memory as compiled for sm_90; the tests hold that for keys of 128 on sm_80 and sm_120 too.
    """

    half: bool
    keys: int
    chunk: int
    scan: int
    gradients: int
    stages: int


@dataclass(frozen=True)
class SegmentPlan:
    """When sequences are cut into segments that are scanned at once: where programs are too few for the GPU.

    `fill`: programs for each multiprocessor to aim at; `least`: segments of a sequence below which cutting does not pay; `chunks`: of a
    segment, at least. A correction makes a segment's summary as wide again as the keys, so that it pays only on a nearly empty GPU.
    """

    fill: int
    least: int
    chunks: int = 8


@dataclass(frozen=True)
class KernelPlan:
    """What the kernels are built with.

    `stretch`: chunks times heads that the PyTorch chunk form works on together, enough for the cores and few enough for their caches.
    """

    recurrent: RecurrentTiles
    chunk: tuple[ChunkTiles, ...]
    segments: SegmentPlan
    scan_warps: int = 4
    gradient_warps: int = 8
    stretch: int = 32


CHUNK_TILES = (
    ChunkTiles(True, 128, 64, 32, 32, 2),
    ChunkTiles(True, 256, 32, 32, 16, 1),
    ChunkTiles(False, 128, 32, 32, 16, 1),
    ChunkTiles(False, 256, 16, 16, 16, 1),
)
"""Half-precision or float32 inputs, by the size of the keys.

All rows but the last were compared with the float64 form on an H200 (benchmarks/h200.md); the last was only compiled.
"""


def make_plan(form: NormalForm) -> KernelPlan:
    """The plan of a form."""
    return KernelPlan(RecurrentTiles(), CHUNK_TILES, SegmentPlan(fill=3, least=4) if form.feedback else SegmentPlan(fill=8, least=4))
