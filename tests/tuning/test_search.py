"""The search with candidates measured by formulas: right before equal before fast."""

from __future__ import annotations

from dataclasses import replace

import pytest

from recgen.codegen.emit import spec_digest
from recgen.tiles import ChunkTiles, Validation
from recgen.tuning.inputs import Shape
from recgen.tuning.isolation import Job
from recgen.tuning.measurement import Measurement, cost, measurement, ranked
from recgen.tuning.search import Machine, NothingRightError, tune
from recgen.tuning.tilefile import TileFile
from tests.tuning.helpers import HOPPER, TILES, Bench, by_formula, compiled, right

LONG = Shape(1, 8192, 32, 32, 128, 128)


def run(
    bench: Bench,
    shapes: tuple[Shape, ...] = (LONG,),
    dtypes: tuple[str, ...] = ("bfloat16",),
    machine: Machine = HOPPER,
    seconds: float = 1e9,
) -> TileFile:
    return tune(compiled(), shapes, dtypes, machine, bench, lambda *_: None, seconds)


def sizes(tiles: ChunkTiles) -> tuple[int, ...]:
    return (tiles.chunk, tiles.scan, tiles.scan_warps, tiles.stages, tiles.gradients, tiles.gradient_warps)


def test_the_rounds_find_the_best() -> None:
    bench = Bench(by_formula)
    found = run(bench)
    (row,) = found.rows
    assert sizes(row) == (32, 64, 8, 3, 16, 4)
    assert (row.decay, row.corrects, row.half, row.keys, row.generation, row.shared) == ("scalar", True, True, 128, "sm_90", 90_000)
    assert row.validated == (Validation("sm_90", "ptxas 13.0", 3e-3),)
    assert (found.recurrence, found.digest) == ("gated_delta_rule", spec_digest(compiled().recurrence.source.text))
    assert dict(found.machine)["gpu"] == "Test GPU"
    assert len(bench.tried) == len(set(bench.tried)) == len(found.tried) < 80


def test_the_table_s_row_is_tried_first() -> None:
    bench = Bench(by_formula)
    run(bench)
    base = compiled().plan.chunk[0]
    assert sizes(bench.tried[0]) == sizes(base)


@pytest.mark.parametrize("outcome", ["wrong", "unequal", "failed", "crashed", "late"])
def test_the_fastest_is_rejected_unless_it_is_right_and_recorded(outcome: str) -> None:
    def measure(tiles: ChunkTiles, job: Job) -> Measurement:
        found = by_formula(tiles, job)
        if tiles.scan != 64:
            return found
        return Measurement(tiles, outcome, "words", 0.4, times=((0.001, 0.001),))  # type: ignore[arg-type]

    found = run(Bench(measure))
    assert found.rows[0].scan != 64
    recorded = [t for t in found.tried if t["scan"] == 64]
    assert recorded and all((t["outcome"], t["detail"]) == (outcome, "words") for t in recorded)


def test_what_fails_on_more_inputs_is_rejected() -> None:
    def measure(tiles: ChunkTiles, job: Job) -> Measurement:
        return Measurement(tiles, "wrong", "d k: 8.0e+00") if job.thorough and tiles.scan == 64 else by_formula(tiles, job)

    bench = Bench(measure)
    found = run(bench)
    assert any(job.thorough and job.candidates[0].scan == 64 for job in bench.jobs)
    assert sizes(found.rows[0]) == sizes(bench.tried[0])  # after a few, the table's row
    assert any(t["scan"] == 64 and t["outcome"] == "wrong" for t in found.tried)


def test_the_worst_error_of_both_comparisons_is_recorded() -> None:
    found = run(Bench(lambda tiles, job: replace(by_formula(tiles, job), error=7.04e-3 if job.thorough else 1e-3)))
    assert found.rows[0].validated[0].error == 7e-3


def test_nothing_right_says_why() -> None:
    with pytest.raises(NothingRightError, match=r"bfloat16: no tiles gave right results here; wrong: d q: 2\.5e-01"):
        run(Bench(lambda tiles, job: Measurement(tiles, "wrong", "d q: 2.5e-01", 0.25)))


def test_after_the_time_the_best_so_far_is_taken() -> None:
    bench = Bench(by_formula)
    found = run(bench, seconds=0.0)
    assert len(bench.tried) == 1
    assert sizes(found.rows[0]) == sizes(bench.tried[0])


def test_a_row_for_every_kind_of_inputs_and_block_of_keys() -> None:
    bench = Bench(by_formula)
    found = run(bench, (LONG, replace(LONG, keys=100), replace(LONG, keys=64)), ("bfloat16", "float32"))
    assert [(r.half, r.keys) for r in found.rows] == [(True, 64), (True, 128), (False, 64), (False, 128)]
    assert {len(job.shapes) for job in bench.jobs if job.candidates[0].keys == 128} == {2}


def test_the_smallest_tiles_where_the_table_has_none() -> None:
    bench = Bench(by_formula)
    run(bench, machine=replace(HOPPER, shared=1024, generation="sm_75"))
    assert sizes(bench.tried[0])[:2] == (16, 16)


def test_cost_counts_every_shape_alike() -> None:
    base = Measurement(TILES, "ok", times=((1.0, 4.0), (10.0, 40.0)))
    assert cost(base, base) == 1
    assert cost(replace(base, times=((0.5, 2.0), (10.0, 40.0))), base) == cost(replace(base, times=((1.0, 4.0), (5.0, 20.0))), base) == 0.75


def test_ranked_keeps_the_first_of_equals() -> None:
    others = [right(replace(TILES, scan=n), 1.0) for n in (16, 64)]
    slow = right(TILES, 2.0)
    assert ranked([slow, *others]) == [*others, slow]
    fast_and_wrong = Measurement(TILES, "wrong", times=((0.1, 0.1),))
    assert ranked([fast_and_wrong, slow]) == [slow]


def test_measurements_as_plain_data() -> None:
    found = Measurement(TILES, "ok", error=1e-3, shared=5, times=((1.0, 2.0),))
    assert measurement(TILES, found.to_json()) == found
    lost = Measurement(TILES, "crashed", "illegal memory access")
    assert measurement(TILES, lost.to_json()) == lost
    assert lost.to_json()["error"] is None
