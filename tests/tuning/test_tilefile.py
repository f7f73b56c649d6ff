"""Files of tiles: what is written is read again, and folds into a build."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from recgen.build import build
from recgen.codegen.emit import spec_digest
from recgen.resources import resource
from recgen.tiles import Validation
from recgen.tuning.tilefile import TileFile, TileFileError, read_tiles
from tests.tuning.helpers import TILES, compiled

SPEC = resource("specs") / "gated_delta_rule.rec"
ROW = replace(TILES, shared=90_000, scan=64, validated=(Validation("sm_90", "ptxas 13.0", 4e-3),))
TUNED = TileFile("gated_delta_rule", spec_digest(compiled().recurrence.source.text), (("gpu", "Test GPU"),), (ROW,), ({"chunk": 64},))


def test_round_trip(tmp_path: Path) -> None:
    TUNED.write(tmp_path / "a.json")
    assert read_tiles(tmp_path / "a.json") == TUNED


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda d: d.update(format="tiles 9"), "its format is 'tiles 9'"),
        (lambda d: d.pop("digest"), "'digest' is missing"),
        (lambda d: d["rows"][0].pop("chunk"), "a row lacks or has too many of: chunk"),
        (lambda d: d["rows"][0].update(color=1), "a row lacks or has too many of: color"),
        (lambda d: d["rows"][0].update(chunk="64"), "chunk is '64', which is no int"),
        (lambda d: d["rows"][0].update(half=1), "half is 1, which is no bool"),
        (lambda d: d["rows"][0].update(chunk=48), "powers of two"),
        (lambda d: d["rows"][0].update(scan=8), "at least 16"),
        (lambda d: d["rows"][0].update(decay="some"), "decay is 'some'"),
        (lambda d: d["rows"][0].update(generation=""), "a generation is named"),
        (lambda d: d["rows"][0].update(validated=3), "not iterable"),
    ],
)
def test_other_files_are_refused(tmp_path: Path, change, words: str) -> None:
    data = json.loads(json.dumps(TUNED.to_json()))
    change(data)
    path = tmp_path / "a.json"
    path.write_text(json.dumps(data))
    with pytest.raises(TileFileError, match=f"a.json: not a file of tiles: .*{words}"):
        read_tiles(path)


@pytest.mark.parametrize("text", ["", "[]", "3", '{"format": "recgen tiles 1"}'])
def test_what_is_no_such_file_at_all(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(TileFileError, match="not a file of tiles"):
        read_tiles(tmp_path / "a.json")


def test_a_build_with_tiles_says_so_and_is_checked_with_them(tmp_path: Path) -> None:
    (plain,) = build([SPEC], tmp_path / "plain")
    (tuned,) = build([SPEC], tmp_path, tiles=(TUNED,))
    assert tuned.path is not None
    text = tuned.path.read_text(encoding="utf-8")
    assert tuned.digest != plain.digest
    assert f"digest {tuned.digest}, with 1 tuned row of tiles" in text
    assert "recgen build --tiles FILE" in text
    first = text.index("_CHUNK_TILES = (")
    assert text[first:].splitlines()[1:5] == [
        "    # compared on sm_90, ptxas 13.0: 4.0e-03",
        "    _ChunkTiles(",
        '        True, 128, "sm_90", 90000, chunk=64, scan=64, gradients=32, stages=2,',
        "        prepare_warps=4, scan_warps=4, gradient_warps=8,",
    ]
    assert [o.status for o in build([SPEC], tmp_path, check=True, tiles=(TUNED,))] == ["unchanged"]
    assert [o.status for o in build([SPEC], tmp_path, check=True)] == ["differs"]


def test_other_tiles_give_another_digest(tmp_path: Path) -> None:
    other = replace(TUNED, rows=(replace(ROW, scan=32),))
    digests = {outcome.digest for tiles in (TUNED, other) for outcome in build([SPEC], tmp_path, tiles=(tiles,))}
    assert len(digests) == 2


def test_tiles_of_something_else_are_refused_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(TileFileError, match=r"tuned for gated_delta_rule are for none of these specs.*run `recgen tune` again"):
        list(build([resource("specs") / "delta_rule.rec"], tmp_path, tiles=(TUNED,)))
    assert list(tmp_path.iterdir()) == []
