"""The table of tiles: what each class of recurrence carries, and which row a machine gets."""

from __future__ import annotations

from dataclasses import replace
from types import ModuleType

import pytest
import torch

from recgen.analysis.normal_form import NormalForm
from recgen.kernels import delta_rule, gated_delta_rule, linear_attention
from recgen.pipeline import compile_text
from recgen.plan import make_plan
from recgen.resources import resource
from recgen.tiles import CHUNK_TILES, ChunkTiles, Validation, rows_for

HOPPER = ("sm_90", 227 * 1024)
SMALL = ("sm_120", 99 * 1024)
AMD = ("gfx942", 64 * 1024)
LEAST = ("gfx90a", 64 * 1024)


def row(module: ModuleType, **changes: object) -> object:
    """A row that no machine fits, but for the changes."""
    fields = {"half": True, "keys": 128, "generation": "", "shared": 0, "chunk": 64, "scan": 32, "gradients": 32}
    rest = {"stages": 1, "prepare_warps": 4, "scan_warps": 4, "gradient_warps": 8}
    return module._ChunkTiles(**(fields | rest | changes))


def chosen(monkeypatch: pytest.MonkeyPatch, gpu: tuple[str, int], keys: int, dtype: torch.dtype, rows: tuple[object, ...] | None = None):
    module = gated_delta_rule
    monkeypatch.setattr(module, "_gpu", lambda device: gpu)
    if rows is not None:
        monkeypatch.setattr(module, "_CHUNK_TILES", rows)
    sizes = module._Sizes(batch=1, tokens=64, key_heads=1, heads=1, keys=keys, values=64, lead=(1, 64))
    return module._chunk_tiles(sizes, torch.empty(0, dtype=dtype))


@pytest.mark.parametrize(("gpu", "chunk"), [(HOPPER, 64), (SMALL, 64), (AMD, 64), (LEAST, 32)])
def test_the_row_fits_the_shared_memory(monkeypatch: pytest.MonkeyPatch, gpu: tuple[str, int], chunk: int) -> None:
    found = chosen(monkeypatch, gpu, 128, torch.bfloat16)
    assert found.chunk == chunk
    assert found.shared <= gpu[1]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("keys", [1, 128, 129, 256, 257, 512])
def test_the_row_fits_the_keys_and_the_inputs(monkeypatch: pytest.MonkeyPatch, keys: int, dtype: torch.dtype) -> None:
    found = chosen(monkeypatch, HOPPER, keys, dtype)
    assert (found.half, found.keys) == (dtype == torch.bfloat16, next(size for size in (128, 256, 512) if keys <= size))


def test_a_row_for_another_generation_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = tuple(row(gated_delta_rule, generation=name, scan=i) for i, name in enumerate(("sm_80", "sm_90", ""), start=1))
    assert chosen(monkeypatch, HOPPER, 64, torch.float16, rows).scan == 2
    assert chosen(monkeypatch, SMALL, 64, torch.float16, rows).scan == 3


def test_the_first_of_two_rows_that_fit_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = (row(gated_delta_rule, shared=HOPPER[1] + 1, scan=1), row(gated_delta_rule, scan=2), row(gated_delta_rule, scan=3))
    assert chosen(monkeypatch, HOPPER, 64, torch.float16, rows).scan == 2


@pytest.mark.parametrize(("gpu", "keys", "dtype", "largest"), [(HOPPER, 600, torch.float16, 512), (LEAST, 200, torch.float32, 128)])
def test_no_row_names_the_sizes(monkeypatch: pytest.MonkeyPatch, gpu: tuple[str, int], keys: int, dtype: torch.dtype, largest: int) -> None:
    wanted = f"gated_delta_rule: the chunkwise kernels take K up to {largest} for {dtype} on {gpu[0]} with {gpu[1]} bytes of shared memory"
    with pytest.raises(ValueError, match=f"{wanted}, but it is {keys}"):
        chosen(monkeypatch, gpu, keys, dtype)


def test_a_machine_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    class Properties:
        major, minor, shared_memory_per_block_optin = 9, 0, 1234

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: (asked.append(device), Properties)[1])
    delta_rule._gpu.cache_clear()
    try:
        assert [delta_rule._gpu(torch.device("cuda", 1)) for _ in range(2)] == [("sm_90", 1234)] * 2
        assert asked == [torch.device("cuda", 1)]
    finally:
        delta_rule._gpu.cache_clear()


def form(name: str) -> NormalForm:
    return compile_text((resource("specs") / f"{name}.rec").read_text(encoding="utf-8"), name).normal_form


@pytest.mark.parametrize(
    ("module", "decay", "corrects"), [(linear_attention, "none", False), (delta_rule, "none", True), (gated_delta_rule, "scalar", True)]
)
def test_a_module_carries_the_rows_of_its_class(module: ModuleType, decay: str, corrects: bool) -> None:
    name = module.__name__.rpartition(".")[2]
    assert form(name).decay.kind == decay
    fields = module._ChunkTiles._fields
    assert [tuple(t) for t in module._CHUNK_TILES] == [tuple(getattr(t, f) for f in fields) for t in rows_for(decay, corrects)]


def test_every_class_has_rows_and_they_end_with_those_for_any_gpu() -> None:
    classes = {(t.decay, t.corrects) for t in CHUNK_TILES}
    assert classes == {(decay, corrects) for decay in ("none", "scalar", "vector") for corrects in (False, True)}
    for decay, corrects in classes:
        for half in (False, True):
            rows = [t for t in rows_for(decay, corrects) if t.half == half]
            assert rows[-1].generation == ""
            assert min(t.shared for t in rows if t.generation == "") <= 64 * 1024


def test_what_a_row_was_compared_on_in_words() -> None:
    seen = (Validation("sm_90", "ptxas 13.0", 0.0051), Validation("gfx942", "ROCm 7.0", 0.004))
    tiles = ChunkTiles("none", False, True, 128, 64, 32, 32, 2, validated=seen)
    assert tiles.note == "compared on sm_90, ptxas 13.0: 5.1e-03; compared on gfx942, ROCm 7.0: 4.0e-03"
    assert ChunkTiles("none", False, True, 128, 64, 32, 32, 2).note == "not compared yet"


@pytest.mark.parametrize(("half", "gpu", "size"), [(True, 227, 256), (True, 163, 128), (True, 64, 64), (False, 227, 128), (False, 99, 64)])
def test_states_that_a_program_holds_whole_take_more_memory(half: bool, gpu: int, size: int) -> None:
    rows = [t for t in rows_for("scalar", True, whole=True) if t.half == half and t.shared <= gpu * 1024 and not t.generation]
    assert max(t.keys for t in rows) == size
    assert all(t.stages == 1 and not t.validated for t in rows)


@pytest.mark.parametrize(("name", "decay"), [("linear_attention_normalized", "none"), ("mlstm", "scalar")])
def test_further_columns_take_half_as_many_tokens(name: str, decay: str) -> None:
    rows, plain = make_plan(form(name)).chunk, rows_for(decay, False)
    assert [t.chunk for t in rows] == [t.chunk if t.generation == "gfx942" else max(16, t.chunk // 2) for t in plain]
    assert [replace(t, chunk=0, validated=()) for t in rows] == [replace(t, chunk=0, validated=()) for t in plain]
    assert not any(t.validated for t in rows)


def test_a_decay_by_channel_keeps_states_in_float32_and_takes_fewer_values_whole() -> None:
    assert max(t.keys for t in rows_for("vector", False, whole=True) if not t.generation) == 128
