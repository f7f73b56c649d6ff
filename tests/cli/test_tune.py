"""`recgen tune`: what the command adds to the search, with candidates measured by a formula."""

import json
import subprocess
import sys

import pytest

from recgen.resources import resource
from recgen.tuning import isolation, machine
from tests.tuning.helpers import HOPPER, by_formula

SPEC = resource("specs") / "gated_delta_rule.rec"


@pytest.fixture
def gpu(monkeypatch):
    monkeypatch.setattr(machine, "this_machine", lambda: HOPPER)
    monkeypatch.setattr(isolation, "measured", lambda job, seconds: (by_formula(tiles, job) for tiles in job.candidates))


def test_without_a_gpu_is_misuse(recgen, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    result = recgen("tune", SPEC)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("Error: tuning needs a GPU and triton")
    assert len(result.stderr.splitlines()) == 1


def test_writes_a_file_that_a_build_takes(recgen, gpu, folder):
    result = recgen("tune", SPEC)
    assert result.exit_code == 0, result.stderr
    lines = result.stdout.splitlines()
    assert lines[0].startswith(
        "half precision, keys to 128: chunk 32, scans 64 x 8 warps x 3 stages, gradients 16 x 4 warps; compared on sm_90"
    )
    assert lines[1] == "  forward, forward and backward: 1.000, 3.000 ms; the table's row: 1.600, 4.800 ms"
    assert lines[2] == f"written    gated_delta_rule.tiles.json; recgen build {SPEC} --tiles gated_delta_rule.tiles.json"
    assert recgen("build", SPEC, "-o", "out", "--tiles", "gated_delta_rule.tiles.json").exit_code == 0
    assert "with 1 tuned row of tiles" in (folder / "out" / "gated_delta_rule.py").read_text()
    assert recgen("build", SPEC, "-o", "out", "--tiles", "gated_delta_rule.tiles.json", "--check").exit_code == 0
    assert recgen("build", SPEC, "-o", "out", "--check").exit_code == 1


@pytest.mark.parametrize("name", ["linear_attention_normalized", "mlstm"])
def test_several_states_are_tuned_as_one(recgen, gpu, folder, name):
    spec = resource("specs") / f"{name}.rec"
    assert recgen("tune", spec, "-o", "t.json").exit_code == 0
    row = json.loads((folder / "t.json").read_text())["rows"][0]
    assert (row["chunk"], row["scan"], row["gradients"]) == (32, 64, 16)
    assert recgen("build", spec, "-o", "out", "--tiles", "t.json").exit_code == 0
    assert "with 1 tuned row of tiles" in (folder / "out" / f"{name}.py").read_text()


def test_json_and_other_shapes(recgen, gpu, folder):
    shapes = ("--shape", "2,512,2,4,64,64", "--shape", "1,64,1,1,128,32")
    result = recgen("tune", SPEC, *shapes, "--dtype", "float32", "-o", "t.json", "--format", "json")
    report = json.loads(result.stdout)
    assert report["path"] == "t.json"
    assert [(row["half"], row["keys"]) for row in report["rows"]] == [(False, 64), (False, 128)]
    assert json.loads((folder / "t.json").read_text())["rows"] == report["rows"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--shape", "1,2,3"], "'1,2,3' is not six positive numbers"),
        (["--shape", "1,8,2,3,16,16"], "3 value heads are no multiple of 2 key heads"),
        (["--shape", "1,8,2,0,16,16"], "is not six positive numbers"),
        (["--dtype", "int8"], "'int8' is not one of"),
        (["--dtype", "bfloat16", "--dtype", "float16"], "share their tiles; name one of them"),
    ],
)
def test_wrong_options_are_misuse(recgen, gpu, options, words):
    result = recgen("tune", SPEC, *options)
    assert result.exit_code == 2
    assert words in result.stderr


def test_a_worker_that_does_not_start_is_a_finding(recgen, gpu, monkeypatch):
    command = [sys.executable, "-c", "raise SystemExit('out of memory')"]
    measured = isolation._one_worker
    monkeypatch.setattr(isolation, "measured", lambda job, seconds: measured(job, job.candidates, seconds, command))
    result = recgen("tune", SPEC)
    assert (result.exit_code, result.stderr) == (1, "Error: a worker failed: out of memory\n")


def test_files_of_tiles_that_are_none_are_misuse(recgen, folder):
    (folder / "t.json").write_text("{}")
    result = recgen("build", SPEC, "--tiles", "t.json")
    assert (result.exit_code, result.stderr) == (2, "Error: t.json: not a file of tiles: 'format' is missing\n")
    assert recgen("build", SPEC, "--tiles", "no.json").exit_code == 2


def test_the_worker_needs_a_job():
    done = subprocess.run([sys.executable, "-m", "recgen.tuning.worker"], input="", capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "JSONDecodeError" in done.stderr
