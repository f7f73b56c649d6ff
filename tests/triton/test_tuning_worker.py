"""What a tuning worker makes of a candidate, in the interpreter: right, wrong, or not the same twice."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch

from recgen.pipeline import compile_text
from recgen.resources import resource
from recgen.tiles import ChunkTiles
from recgen.tuning.inputs import Shape
from recgen.tuning.worker import Bench, reduced

SHAPE = Shape(1, 20, 1, 2, 8, 8)
TILES = ChunkTiles("scalar", True, False, 16, 16, 16, 16, 1, "", 1)
SEVERAL = {"linear_attention_normalized": ("S", "z"), "mlstm": ("C", "n", "m")}
"""Specs with several states."""
each_of_several = pytest.mark.parametrize("bench", SEVERAL, indirect=True)


@pytest.fixture
def bench(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path) -> Iterator[Bench]:
    """Of one state, or of the spec that a test names."""
    text = (resource("specs") / f"{getattr(request, 'param', 'gated_delta_rule')}.rec").read_text(encoding="utf-8")
    monkeypatch.setenv("RECGEN_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(Bench, "_times", lambda self, x: (1.0, 2.0))
    found = Bench(compile_text(text, "spec.rec"), [SHAPE], torch.float32, True, "cpu")
    table, scan = found.module._CHUNK_TILES, found.module._triton_chunk_forward
    yield found
    found.module._CHUNK_TILES, found.module._triton_chunk_forward = table, scan


def spoil(bench: Bench, change, at: int = 0) -> None:
    """Changes one result of every forward: the output, or a state behind it."""
    forward = bench.module._triton_chunk_forward

    def spoiled(*arguments):
        results = list(forward(*arguments))
        results[at] = change(results[at])
        return tuple(results)

    bench.module._triton_chunk_forward = spoiled


def test_right(bench: Bench) -> None:
    found = bench.measure(TILES)
    assert found["outcome"] == "ok", found
    assert 0 < found["error"] < 1e-5
    assert found["times"] == [(1.0, 2.0)]
    assert bench.module._CHUNK_TILES[0].chunk == 16


@each_of_several
def test_several_states_are_right(bench: Bench) -> None:
    found = bench.measure(TILES)
    assert found["outcome"] == "ok", found
    assert 0 < found["error"] < 1e-5
    assert found["times"] == [(1.0, 2.0)]


@each_of_several
def test_every_state_comes_in_is_compared_and_has_a_gradient(bench: Bench) -> None:
    names = SEVERAL[bench.compiled.recurrence.name]
    for x in (*bench.small, *bench.timed):
        assert tuple(x.states) == names
        assert all(bool(state.any()) for state in x.states.values())
        assert all(f"final {name}" in x.cotangents for name in names)
    for wanted in bench.wanted:
        scales = {s.name for s in bench.compiled.recurrence.scales}
        assert {name for name in names if bool(wanted[f"d initial {name}"].any())} == set(names) - scales


@each_of_several
@pytest.mark.parametrize("number", [1, 2])
def test_wrong_states_are_named(bench: Bench, number: int) -> None:
    spoil(bench, lambda x: 1.01 * x, number)
    found = bench.measure(TILES)
    name = SEVERAL[bench.compiled.recurrence.name][number - 1]
    assert (found["outcome"], found["detail"]) == ("wrong", f"final {name}: 1.0e-02")


@each_of_several
def test_several_states_that_differ_from_run_to_run_are_not_timed(bench: Bench) -> None:
    runs = iter(range(1000))
    spoil(bench, lambda x: x * (1 + 1e-6 * next(runs)), 2)
    found = bench.measure(TILES)
    name = SEVERAL[bench.compiled.recurrence.name][1]
    assert (found["outcome"], found["detail"]) == ("unequal", f"two runs differ: final {name}")


def test_wrong_numbers_are_named(bench: Bench) -> None:
    spoil(bench, lambda o: 1.01 * o)
    found = bench.measure(TILES)
    assert (found["outcome"], found["detail"]) == ("wrong", "o: 1.0e-02")
    assert "times" not in found


def test_no_number_is_wrong(bench: Bench) -> None:
    spoil(bench, lambda o: o * float("nan"))
    assert bench.measure(TILES)["outcome"] == "wrong"


def test_two_runs_that_differ_are_not_timed(bench: Bench) -> None:
    runs = iter(range(1000))
    spoil(bench, lambda o: o * (1 + 1e-6 * next(runs)))
    found = bench.measure(TILES)
    assert (found["outcome"], found["detail"]) == ("unequal", "two runs differ: o")
    assert "times" not in found


def test_what_numbers_are_compared_on() -> None:
    long = Shape(4, 8192, 16, 32, 128, 64)
    small, odd = reduced(long, True)
    assert reduced(long, False) == (small,)
    assert small == replace(long, batch=2, tokens=517)  # the same kernels
    assert odd == Shape(2, 70, 2, 4, 123, 61)
    assert reduced(Shape(1, 5, 1, 1, 3, 2), True)[1] == Shape(1, 5, 1, 1, 1, 1)
