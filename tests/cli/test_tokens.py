"""The commands on recurrences that are compiled token by token."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

SPEC = Path(__file__).parents[1] / "specs" / "recurrent" / "slstm.rec"
COUPLED = """\
language 1

recurrence coupled
    input x : [D]
    state a : [D]
    state b : [D]

    a[t] = tanh(b[t-1]) + x
    b[t] = a[t] * b[t-1]
    y    = a[t]
"""


def test_check_build_and_explain(recgen, folder):
    assert recgen("check", SPEC).exit_code == 0
    built = recgen("build", SPEC, "-o", "out")
    assert (built.exit_code, built.stdout.split()[0]) == (0, "written")
    assert recgen("build", SPEC, "-o", "out", "--check").exit_code == 0
    explained = recgen("explain", SPEC, "--stage", "plan", "--format", "json")
    assert json.loads(explained.stdout)["plan"]["forms"][0] == {"form": "fused_recurrent", "gpu": "Triton", "elsewhere": "PyTorch"}


def test_there_is_nothing_to_tune(recgen, monkeypatch):
    monkeypatch.setattr(sys.modules["recgen.cli.tune"], "_machine", object)
    result = recgen("tune", SPEC)
    assert result.exit_code == 2
    assert "has no chunkwise kernels, and only those have tiles to tune" in result.stderr


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("value_strengths", "its chunkwise kernels are printed from the steps of its chunk form, and have no tiles to tune"),
        ("momentum_delta", "its chunkwise kernels are printed from the steps of its chunk form, and have no tiles to tune"),
        ("gated_rnn", "the tiles of a scan follow from its sizes, and there are none to tune"),
    ],
)
def test_what_has_no_tiles_to_tune(recgen, monkeypatch, name, why):
    monkeypatch.setattr(sys.modules["recgen.cli.tune"], "_machine", object)
    result = recgen("tune", SPEC.parents[1] / f"{name}.rec")
    assert result.exit_code == 2
    assert why in result.stderr


def test_a_refusal_names_the_plan(recgen, folder):
    (folder / "a.rec").write_text(COUPLED)
    result = recgen("check", "a.rec")
    assert result.exit_code == 1
    assert "help: `plan recurrent` compiles it to step and recurrent forms with gradients" in result.stdout
    (folder / "a.rec").write_text(COUPLED.replace("    state b : [D]\n", "    state b : [D]\n    plan recurrent\n"))
    assert recgen("check", "a.rec").exit_code == 0
