"""What verifying a spec gives: errors measured two ways, gathered per form and tensor."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import torch


@dataclass(frozen=True)
class Row:
    """The worst of `cases` comparisons of one tensor of one form with the reference.

    `relative_rms`: rms of the difference over rms of the reference; `max_error`: largest difference over the largest reference value; both
    must stay within `tolerance` (0 for properties that hold to the bit).
    """

    form: str
    check: str
    dtype: str
    tensor: str
    cases: int
    relative_rms: float
    max_error: float
    tolerance: float
    ok: bool


@dataclass(frozen=True)
class Report:
    """All rows; `failure`: one line that runs the first failing input again, and `notes` on what was drawn or left out."""

    recurrence: str
    device: str
    rows: tuple[Row, ...]
    notes: tuple[str, ...]
    failure: str | None

    @property
    def ok(self) -> bool:
        """Whether every row is."""
        return all(row.ok for row in self.rows)

    def __str__(self) -> str:
        lines = [
            f"{'ok  ' if r.ok else 'FAIL'} {r.form}, {r.check}, {r.dtype}: {r.tensor}  rms {r.relative_rms:.1e}  max {r.max_error:.1e}  "
            f"tolerance {r.tolerance:.0e}"
            for r in self.rows
        ]
        return "\n".join([*lines, *self.notes])

    def to_json(self) -> dict[str, Any]:
        """The report as plain data."""
        rows = [{k: _plain(v) for k, v in dataclasses.asdict(row).items()} for row in self.rows]
        return {
            "recurrence": self.recurrence,
            "device": self.device,
            "ok": self.ok,
            "rows": rows,
            "notes": list(self.notes),
            "failure": self.failure,
        }


def _plain(value: object) -> object:
    """JSON has no infinities."""
    return str(value) if isinstance(value, float) and value in (float("inf"), float("-inf")) else value


def error(found: torch.Tensor, wanted: torch.Tensor, floor: float = 0.0) -> tuple[float, float]:
    """Relative RMS and relative maximum of the difference; infinite for another shape, and for a value that is no number.

    Args:
        found: a result.
        wanted: the reference.
        floor: the least that a difference is measured against. A gradient that has decayed below the resolution of the computing precision,
            beside the gradients that it comes from, has no digits left in any form that forms differences of them.
    """
    if found.shape != wanted.shape:
        return float("inf"), float("inf")
    if not wanted.numel():
        return 0.0, 0.0
    x, y = found.detach().double().cpu(), wanted.detach().double().cpu()
    if not bool(x.isfinite().all()):
        return float("inf"), float("inf")
    difference = x - y
    if not bool(difference.any()):
        return 0.0, 0.0
    typical, largest = max(float(y.square().mean().sqrt()), floor), max(float(y.abs().max()), floor)
    if largest == 0.0:
        return float("inf"), float("inf")
    return float(difference.square().mean().sqrt()) / typical, float(difference.abs().max()) / largest


class Tally:
    """Gathers comparisons into rows, and remembers the first that failed."""

    def __init__(self) -> None:
        self._rows: dict[tuple[str, str, str, str], Row] = {}
        self.failure: str | None = None

    def add(self, form: str, check: str, dtype: str, tensor: str, errors: tuple[float, float], tolerance: float, repro: str) -> None:
        """Counts one comparison; `repro` is the line that runs it again."""
        ok = errors[0] <= tolerance and errors[1] <= tolerance
        if not ok and self.failure is None:
            self.failure = repro
        key = (form, check, dtype, tensor)
        row = self._rows.get(key, Row(*key, 0, 0.0, 0.0, tolerance, True))
        worst = (max(row.relative_rms, errors[0]), max(row.max_error, errors[1]))
        self._rows[key] = Row(*key, row.cases + 1, *worst, tolerance, row.ok and ok)

    @property
    def rows(self) -> tuple[Row, ...]:
        """All rows, in the order in which they were first met."""
        return tuple(self._rows.values())
