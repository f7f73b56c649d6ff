"""The record of compiled kernels is of the kernels as they are, and what it records is within bounds; scripts/test.sh compiles."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.triton.launches import SHARED, bare
from tests.triton.matrix import FILE, TRITONS, class_of, load, representatives, specs, worse

ROOT = Path(__file__).parents[2]
SPILLED = {
    "recurrent_backward_kernel": 2048,
    "chunk_prepare_kernel": 4096,
    "chunk_scan_kernel": 12288,
    "chunk_reverse_kernel": 4096,
    "chunk_gradients_kernel": 16384,
}
"""Bytes that a thread spills at most, where more than 1024 are known: float64, tiles of float32, and the gradients of a chunk."""
SPILLED_AT = {
    "recurrent_backward_kernel float64 128": 6144,  # several corrections a token
    "chunk_reverse_kernel float32 128": 6144,  # three states
    "chunk_prepare_kernel float32 128": 6144,  # several streams beside a correction
    "chunk_prepare_kernel float32 256": 8704,
    "chunk_prepare_kernel bfloat16 256": 6144,
    "chunk_prepare_kernel bfloat16 512": 11264,
}
"""'KERNEL DTYPE KEYS' -> a ceiling of its own."""
FAULTS: dict[str, str] = {}
"""'KERNEL TARGET TRITON' -> a fault of that compiler that is known, in its words."""


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own, since the interpreter is on in this one."""
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    command = [sys.executable, "-m", "tests.triton.matrix", *arguments]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300, check=False)


def test_the_record_is_of_these_kernels():
    done = run("--check")
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_record_of_other_kernels_is_noticed(tmp_path: Path):
    record = load()
    digest, row = next(iter(record.items()))
    changed = {k: x for k, x in record.items() if k != digest} | {"0" * 16: row}
    (tmp_path / "matrix.json").write_text(json.dumps(changed), encoding="utf-8")
    done = run("--check", "--file", str(tmp_path / "matrix.json"))
    assert done.returncode == 1
    assert f"not in the record: {row['is']}, sm_90, triton {TRITONS[0]}\n" in done.stdout
    assert f"in the record, but no kernel any more: {row['is']}, sm_90 {TRITONS[0]}\n" in done.stdout
    assert "bash scripts/matrix.sh" in done.stdout


def test_what_is_recorded_is_within_bounds():
    for row in load().values():
        _, kernel, dtype, keys, _ = str(row["is"]).split()
        most = SPILLED_AT.get(f"{kernel} {dtype} {keys}", SPILLED.get(kernel, 1024))
        for key, result in row.items():
            target = key.split()[0]
            if target == "is" or (isinstance(result, str) and FAULTS.get(f"{kernel} {key}", "?") in result):
                continue
            assert isinstance(result, list), f"{row['is']} {key}: {result}"
            shared, _, spilled = result
            assert shared <= SHARED[target], f"{row['is']} {key} takes {shared} bytes of shared memory"
            assert spilled <= most, f"{row['is']} {key} spills {spilled} bytes"


def test_every_class_has_one_representative():
    assert class_of("kda") == ("vector", ("decayed",))
    assert class_of("linear_attention") == ("none", ("",))
    assert class_of("retnet") == class_of("mamba2") != class_of("gated_delta_rule")
    assert sorted(map(class_of, representatives())) == sorted({class_of(spec) for spec in specs()})


@pytest.mark.parametrize(
    ("result", "recorded", "wrong"),
    [
        ([100, 32, 0], [100, 40, 0], False),
        ([101, 32, 0], [100, 32, 0], True),
        ([100, 32, 64], [100, 32, 0], False),
        ([100, 32, 65], [100, 32, 0], True),
        ("ValueError: no", [100, 32, 0], True),
        ("ValueError: no", "ValueError: no", False),
        ([100, 32, 0], "ValueError: no", True),
        ([100, 32, 0], None, True),
    ],
)
def test_worse(result: list[int] | str, recorded: list[int] | str | None, wrong: bool):
    assert bool(worse(result, recorded)) == wrong


def test_comments_and_layout_are_no_part_of_a_kernel():
    one = 'def f(x):\n    """Says."""\n    y = (x +\n         1)  # why\n    if y:\n        y = 2\n    return y\n'
    two = 'def f(x):\n    """Says\n    more.\n    """\n    y = (x + 1)\n\n    if y:\n        y = 2\n    return y\n'
    assert bare(one) == bare(two)
    assert bare(one) != bare(two.replace("1", "3"))
    assert bare(one) != bare(two.replace("    return", "        return"))


def test_the_record_is_sorted():
    lines = FILE.read_text(encoding="utf-8").splitlines()[1:-1]
    names = [json.loads("{" + line.rstrip(",") + "}") for line in lines]
    keys = [(row["is"], digest) for entry in names for digest, row in entry.items()]
    assert keys == sorted(keys)
