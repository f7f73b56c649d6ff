"""What became of a candidate, and which candidate is best."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from recgen.tiles import ChunkTiles

SIZES: Final = ("chunk", "prepare_warps", "scan", "scan_warps", "stages", "gradients", "gradient_warps")
"""The fields of a row that are tuned."""
Outcome = Literal["ok", "wrong", "unequal", "failed", "crashed", "late"]
"""Fine; wrong numbers; two runs that differ; refused by the compiler or the GPU; took the process with it; took too long."""


@dataclass(frozen=True)
class Measurement:
    """One candidate.

    `detail`: in words, what was wrong; `error`: the worst (see `recgen.tiles.Validation`); `shared`: bytes of the largest kernel;
    `times`: for each shape, milliseconds of a forward alone and of a forward with its backward. Only what is "ok" was timed.
    """

    tiles: ChunkTiles
    outcome: Outcome
    detail: str = ""
    error: float = math.inf
    shared: int = 0
    times: tuple[tuple[float, float], ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Plain data; JSON has no infinities."""
        error = self.error if math.isfinite(self.error) else None
        fields = {"outcome": self.outcome, "detail": self.detail, "error": error, "shared": self.shared}
        return {name: getattr(self.tiles, name) for name in SIZES} | fields | {"times": [list(pair) for pair in self.times]}


def measurement(tiles: ChunkTiles, fields: dict[str, Any]) -> Measurement:
    """From what a worker reports."""
    times = tuple((float(alone), float(both)) for alone, both in fields.get("times", ()))
    error = fields.get("error")
    known = {name: fields[name] for name in ("outcome", "detail", "shared") if name in fields}
    return Measurement(tiles, error=math.inf if error is None else float(error), times=times, **known)


def cost(found: Measurement, base: Measurement) -> float:
    """How long it takes beside the base: the mean over the shapes, a forward alone and one with its backward counting alike."""
    ratios = [x / y for mine, other in zip(found.times, base.times, strict=True) for x, y in zip(mine, other, strict=True)]
    return sum(ratios) / len(ratios)


def ranked(found: Sequence[Measurement]) -> list[Measurement]:
    """Those that are right, the fastest first; of two equally fast ones the first that was tried."""
    right = [m for m in found if m.outcome == "ok"]
    return sorted(right, key=lambda m: cost(m, right[0]))
