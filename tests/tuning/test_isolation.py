"""Workers that crash, hang, talk or never start."""

from __future__ import annotations

import sys
from dataclasses import replace

import pytest

from recgen.tuning.inputs import Shape
from recgen.tuning.isolation import Job, WorkerError, measured
from tests.tuning.helpers import TILES

CANDIDATES = tuple(replace(TILES, scan=n) for n in (16, 32, 64))
JOB = Job("text", "name", (Shape(1, 64, 1, 1, 16, 16),), "bfloat16", CANDIDATES)

WORKER = """
import json, os, sys, time
job = json.load(sys.stdin)
assert job["shapes"] == [[1, 64, 1, 1, 16, 16]] and job["dtype"] == "bfloat16" and not job["thorough"]
def tell(**result):
    print("recgen-tune " + json.dumps(result), flush=True)
tell(ready=True)
for row in job["candidates"]:
    n = row["scan"]
    {body}
    tell(outcome="ok", detail="", error=0.001, shared=n, times=[[1.0, 2.0]])
"""


def run(body: str, seconds: float = 30.0) -> list[tuple[int, str, str]]:
    command = [sys.executable, "-c", WORKER.replace("{body}", body)]
    return [(m.tiles.scan, m.outcome, m.detail) for m in measured(JOB, seconds, command)]


def test_every_candidate_in_order_and_talk_is_ignored() -> None:
    found = list(measured(JOB, 30.0, [sys.executable, "-c", WORKER.replace("{body}", "print('a kernel says', n)")]))
    assert [(m.tiles, m.outcome, m.error, m.shared, m.times) for m in found] == [
        (tiles, "ok", 0.001, tiles.scan, ((1.0, 2.0),)) for tiles in CANDIDATES
    ]


def test_a_crash_costs_one_candidate() -> None:
    found = run("if n == 32: sys.stderr.write('first\\nillegal memory access\\n'); sys.stderr.flush(); os._exit(3)")
    assert found == [(16, "ok", ""), (32, "crashed", "illegal memory access"), (64, "ok", "")]


def test_a_reported_crash_starts_another_worker() -> None:
    body = "if n == 16: tell(outcome='crashed', detail='gone'); time.sleep(60)"
    assert run(body) == [(16, "crashed", "gone"), (32, "ok", ""), (64, "ok", "")]


def test_what_takes_too_long_is_ended() -> None:
    assert run("if n == 64: time.sleep(60)", seconds=5.0) == [(16, "ok", ""), (32, "ok", ""), (64, "late", "took more than 5 s")]


def test_a_worker_that_does_not_start_is_no_candidate_s_fault() -> None:
    with pytest.raises(WorkerError, match="no GPU here"):
        list(measured(JOB, 30.0, [sys.executable, "-c", "raise SystemExit('no GPU here')"]))
