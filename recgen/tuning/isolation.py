"""Runs workers: one after the other, each until it has measured everything or a candidate has brought it down or taken too long."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import IO, Any, Final

from recgen.tiles import ChunkTiles
from recgen.tuning.inputs import Shape
from recgen.tuning.measurement import Measurement, measurement

MARK: Final = "recgen-tune "
"""Begins a line that is a result; anything else is a kernel's or a library's talk."""
_WORKER: Final = (sys.executable, "-m", "recgen.tuning.worker")
_START: Final = 300.0


class WorkerError(Exception):
    """A worker did not get as far as its first candidate; the message is the last that it said."""


@dataclass(frozen=True)
class Job:
    """What is measured: a spec's text and name, shapes, dtype, and candidates; `thorough`: on more inputs."""

    text: str
    name: str
    shapes: tuple[Shape, ...]
    dtype: str
    candidates: tuple[ChunkTiles, ...]
    thorough: bool = False

    def to_json(self, candidates: Sequence[ChunkTiles]) -> str:
        """As a worker reads it, with these candidates."""
        fields = {"text": self.text, "name": self.name, "dtype": self.dtype, "thorough": self.thorough}
        shapes = [dataclasses.astuple(shape) for shape in self.shapes]
        return json.dumps({**fields, "shapes": shapes, "candidates": [dataclasses.asdict(c) for c in candidates]})


def measured(job: Job, seconds: float, command: Sequence[str] = _WORKER) -> Iterator[Measurement]:
    """Every candidate's measurement, in order.

    Args:
        job: what is measured.
        seconds: how long one candidate may take.
        command: what runs a worker.

    Raises:
        WorkerError: when a worker fails before its first candidate.
    """
    rest = job.candidates
    while rest:
        done = 0
        for found in _one_worker(job, rest, seconds, command):
            yield found
            done += 1
        rest = rest[done:]


def _one_worker(job: Job, candidates: Sequence[ChunkTiles], seconds: float, command: Sequence[str]) -> Iterator[Measurement]:
    """What one worker measures, and the candidate that ended it if one did."""
    with tempfile.TemporaryFile("w+") as said:
        worker = subprocess.Popen(list(command), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=said, text=True)
        assert worker.stdin is not None
        assert worker.stdout is not None
        try:
            _send(worker.stdin, job.to_json(candidates))
            if _result(worker, _START) is None:
                raise WorkerError(_last_words(said) or "a worker ended without a word")
            for tiles in candidates:
                result = _result(worker, seconds)
                if result is None:
                    late = worker.returncode == -signal.SIGKILL
                    detail = f"took more than {seconds:g} s" if late else _last_words(said)
                    yield Measurement(tiles, "late" if late else "crashed", detail)
                    return
                yield measurement(tiles, result)
                if result["outcome"] == "crashed":
                    return
        finally:
            worker.kill()
            worker.wait()
            worker.stdout.close()


def _send(stream: IO[str], text: str) -> None:
    """Writes all of it and closes; a worker that is gone already is noticed by its silence."""
    with contextlib.suppress(BrokenPipeError):
        stream.write(text)
        stream.close()


def _result(worker: subprocess.Popen[str], seconds: float) -> dict[str, Any] | None:
    """The next result; None when the worker ended, by itself or because its time was up."""
    assert worker.stdout is not None
    alarm = threading.Timer(seconds, worker.kill)
    alarm.start()
    try:
        for line in worker.stdout:
            if line.startswith(MARK):
                found: dict[str, Any] = json.loads(line.removeprefix(MARK))
                return found
        worker.wait()
        return None
    finally:
        alarm.cancel()


def _last_words(said: IO[str]) -> str:
    """The last line that a worker wrote to standard error."""
    said.seek(0)
    lines = [line.strip() for line in said if line.strip()]
    return lines[-1] if lines else ""
