"""A machine that is not there, and candidates measured by a formula."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache

from recgen.pipeline import Compiled, compile_text
from recgen.resources import resource
from recgen.tiles import ChunkTiles
from recgen.tuning.isolation import Job
from recgen.tuning.measurement import Measurement
from recgen.tuning.search import Machine

HOPPER = Machine("Test GPU", "sm_90", "ptxas 13.0", 227 * 1024, 32, (("triton", "3.6.0"),))
TILES = ChunkTiles("scalar", True, True, 128, 64, 32, 32, 2, "sm_90", 1)


@cache
def compiled(name: str = "gated_delta_rule") -> Compiled:
    return compile_text((resource("specs") / f"{name}.rec").read_text(encoding="utf-8"), f"{name}.rec")


def right(tiles: ChunkTiles, time: float) -> Measurement:
    return Measurement(tiles, "ok", error=3e-3, shared=90_000, times=((time, 3 * time),))


class Bench:
    """Measures by a function, and keeps what it was asked for."""

    def __init__(self, measure: Callable[[ChunkTiles, Job], Measurement]) -> None:
        self.measure = measure
        self.jobs: list[Job] = []

    def __call__(self, job: Job) -> Iterator[Measurement]:
        self.jobs.append(job)
        return (self.measure(tiles, job) for tiles in job.candidates)

    @property
    def tried(self) -> list[ChunkTiles]:
        return [tiles for job in self.jobs if not job.thorough for tiles in job.candidates]


def by_formula(tiles: ChunkTiles, job: Job) -> Measurement:
    """Fastest at 32 tokens a chunk, 64 columns by 8 warps in 3 stages for the scans, 16 columns by 4 warps for the gradients."""
    wanted = {"chunk": 32, "scan": 64, "scan_warps": 8, "stages": 3, "gradients": 16, "gradient_warps": 4}
    return right(tiles, 1.0 + 0.1 * sum(getattr(tiles, name) != value for name, value in wanted.items()))
