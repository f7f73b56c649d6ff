"""What is tried."""

from __future__ import annotations

from dataclasses import replace

from recgen.tuning.candidates import Limits, chunks, fits, gradients, scans
from tests.tuning.helpers import TILES

LIMITS = Limits(values=128, tokens=8192, shared=227 * 1024, warp=32)


def test_scans_vary_three_sizes() -> None:
    found = list(scans(TILES, LIMITS))
    assert {t.scan for t in found} == {16, 32, 64, 128}
    assert {t.scan_warps for t in found} == {2, 4, 8}
    assert {t.stages for t in found} == {1, 2, 3}
    assert {(t.chunk, t.gradients, t.gradient_warps) for t in found} == {(64, 32, 8)}
    assert len(set(found)) == len(found) == 33


def test_a_state_that_no_thread_can_hold_is_left_out() -> None:
    assert not fits(replace(TILES, scan=128, scan_warps=2), LIMITS)
    assert fits(replace(TILES, scan=128, scan_warps=4), LIMITS)
    assert fits(replace(TILES, scan=128, scan_warps=2), replace(LIMITS, warp=64))
    assert not fits(replace(TILES, keys=256, scan=64, scan_warps=2), LIMITS)


def test_buffers_fit_the_shared_memory() -> None:
    small = replace(LIMITS, shared=64 * 1024)
    assert fits(replace(TILES, stages=2), small)
    assert not fits(replace(TILES, stages=3), small)
    assert not fits(replace(TILES, half=False, stages=2), small)


def test_no_more_columns_than_there_are_values_and_no_longer_chunks_than_sequences() -> None:
    narrow = replace(LIMITS, values=24)
    assert {t.gradients for t in gradients(replace(TILES, scan=16), narrow)} == {16, 32}
    assert {t.chunk for t in chunks([replace(TILES, scan=16)], replace(LIMITS, tokens=20))} == {16, 32}


def test_chunks_for_the_best_three() -> None:
    best = [replace(TILES, scan_warps=n) for n in (1, 2, 4, 8)]
    found = list(chunks(best, LIMITS))
    assert [(t.scan_warps, t.chunk, t.prepare_warps) for t in found] == [(w, c, p) for w in (1, 2, 4) for c in (16, 32, 64) for p in (2, 4)]
