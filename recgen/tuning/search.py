"""The search: rounds of candidates, each around the best so far; what comes out is right, equal in every run, and fast, in this order."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from recgen.codegen.emit import spec_digest
from recgen.pipeline import Compiled
from recgen.tiles import ChunkTiles, Validation
from recgen.tuning import candidates
from recgen.tuning.candidates import Limits
from recgen.tuning.inputs import Shape
from recgen.tuning.isolation import Job
from recgen.tuning.measurement import Measurement, ranked
from recgen.tuning.tilefile import TileFile

Measure = Callable[[Job], Iterable[Measurement]]
Progress = Callable[[int, int, str], None]

HALF: Final = ("bfloat16", "float16")
_CONFIRMED: Final = 5
"""How many of the fastest are tried on more inputs before the table's own row is kept."""


@dataclass(frozen=True)
class Machine:
    """What is tuned for. `compiler`: what assembles the kernels; `shared`: bytes that a program may have; `warp`: threads."""

    gpu: str
    generation: str
    compiler: str
    shared: int
    warp: int
    versions: tuple[tuple[str, str], ...] = ()

    @property
    def facts(self) -> tuple[tuple[str, str], ...]:
        """For the file."""
        return (("gpu", self.gpu), ("generation", self.generation), ("compiler", self.compiler), *self.versions)


class NothingRightError(Exception):
    """No candidate gave right numbers; the message says what became of them."""


@dataclass
class _Search:
    """One kind of inputs: what was measured so far, by candidate."""

    job: Job
    limits: Limits
    measure: Measure
    tell: Progress
    deadline: float
    found: dict[ChunkTiles, Measurement] = field(default_factory=dict)

    def run(self, base: ChunkTiles) -> Measurement:
        """The best row."""
        self._round("the table's row", [base])
        self._round("scans", candidates.scans(base, self.limits))
        self._round("chunks", candidates.chunks([m.tiles for m in ranked(self._all())] or [base], self.limits))
        self._round("gradients", candidates.gradients(self._best(base), self.limits))
        return self._confirmed(base)

    def _all(self) -> list[Measurement]:
        return list(self.found.values())

    def _best(self, base: ChunkTiles) -> ChunkTiles:
        return next((m.tiles for m in ranked(self._all())), base)

    def _round(self, name: str, tiles: Iterable[ChunkTiles]) -> None:
        """Measures what is new, unless time is up."""
        new = tuple(t for t in dict.fromkeys(tiles) if t not in self.found)
        if self.found and time.monotonic() > self.deadline:
            return
        for i, m in enumerate(self.measure(replace(self.job, candidates=new)) if new else ()):
            self.tell(i + 1, len(new), f"{self.job.dtype}, {name}")
            self.found[m.tiles] = m
            if time.monotonic() > self.deadline:
                return

    def _confirmed(self, base: ChunkTiles) -> Measurement:
        """The fastest that is right on more inputs too; after a few, the table's own row."""
        right = ranked(self._all())
        for best in [*right[:_CONFIRMED], *(m for m in right[_CONFIRMED:] if m.tiles == base)]:
            (again,) = self.measure(replace(self.job, candidates=(best.tiles,), thorough=True))
            if again.outcome == "ok":
                return replace(best, error=max(best.error, again.error), shared=max(best.shared, again.shared))
            self.found[best.tiles] = again
        outcomes = sorted({f"{m.outcome}: {m.detail}" for m in self._all()})
        raise NothingRightError(f"{self.job.dtype}: no tiles gave right results here; {'; '.join(outcomes[:3])}")


def tune(
    compiled: Compiled,
    shapes: Sequence[Shape],
    dtypes: Sequence[str],
    machine: Machine,
    measure: Measure,
    progress: Progress,
    seconds: float = float("inf"),
) -> TileFile:
    """Rows of tiles for this spec and machine, one for each kind of inputs and size of keys.

    Args:
        compiled: every stage's result, without tuned tiles.
        shapes: what is timed.
        dtypes: "bfloat16" or "float16", which share their tiles, and "float32".
        machine: what is tuned for.
        measure: measures the candidates of a job, in order.
        progress: called with what is done, the total, and what is tried.
        seconds: after this time the best so far is taken.

    Raises:
        NothingRightError: when no candidate gave right numbers.
    """
    deadline = time.monotonic() + seconds
    rows: list[ChunkTiles] = []
    tried: list[dict[str, object]] = []
    for dtype, keys, group in _groups(shapes, dtypes):
        base = starting_row(compiled, dtype, keys, machine)
        limits = Limits(max(s.values for s in group), max(s.tokens for s in group), machine.shared, machine.warp)
        job = Job(compiled.recurrence.source.text, compiled.recurrence.source.name, group, dtype, ())
        search = _Search(job, limits, measure, progress, deadline)
        best = search.run(base)
        seen = Validation(machine.generation, machine.compiler, float(f"{best.error:.1e}"))
        rows.append(replace(best.tiles, shared=max(best.shared, 1), validated=(seen,)))
        tried += [{"dtype": dtype, "keys": keys, **m.to_json()} for m in search.found.values()]
    digest = spec_digest(compiled.recurrence.source.text)
    return TileFile(compiled.recurrence.name, digest, machine.facts, tuple(rows), tuple(tried))


def _groups(shapes: Sequence[Shape], dtypes: Sequence[str]) -> Iterator[tuple[str, int, tuple[Shape, ...]]]:
    """Shapes that share a row: of one kind of inputs, and with keys in one block."""
    for dtype in dtypes:
        for keys in sorted({key_block(s) for s in shapes}):
            yield dtype, keys, tuple(dict.fromkeys(s for s in shapes if key_block(s) == keys))


def key_block(shape: Shape) -> int:
    """The size of the keys, rounded up as the kernels do."""
    return max(16, 1 << (shape.keys - 1).bit_length())


def starting_row(compiled: Compiled, dtype: str, keys: int, machine: Machine) -> ChunkTiles:
    """What the table has for this machine, as a row for these keys alone; the smallest tiles where it has none."""
    half = dtype in HALF
    rows = [t for t in compiled.plan.chunk if t.half == half and keys <= t.keys and t.shared <= machine.shared]
    fitting = [t for t in rows if t.generation in ("", machine.generation)]
    smallest = replace(compiled.plan.chunk[0], half=half, chunk=16, scan=16, gradients=16, stages=1)
    return replace((fitting or [smallest])[0], keys=keys, generation=machine.generation, shared=1, validated=())
