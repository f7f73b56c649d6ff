"""`recgen doctor`."""

import json

import pytest

from recgen import environment
from recgen.environment import Check, judge_ptxas

BANNER = "ptxas: NVIDIA (R) Ptx optimizing assembler\nCuda compilation tools, release {0}, V{1}\nBuild cuda_{0}\n"


@pytest.mark.parametrize("version", ["12.8.93", "12.9.86"])
def test_ptxas_of_a_faulty_release_is_named_with_its_cure(version):
    check = judge_ptxas("/x/ptxas", BANNER.format(version[:4], version))
    assert check.status == "warning"
    assert check.found == f"{version} (/x/ptxas)"
    for words in ("sm_90", "wrong gradients", "without any message", "TRITON_PTXAS_PATH", "13.0"):
        assert words in check.advice


@pytest.mark.parametrize(("version", "generation"), [("13.0.88", ""), ("13.0.88", "sm_90"), ("12.8.93", "sm_100")])
def test_other_ptxas_and_other_gpus_are_fine(version, generation):
    assert judge_ptxas("ptxas", BANNER.format(version[:4], version), generation).status == "ok"


def test_ptxas_without_a_version_is_a_warning():
    assert judge_ptxas("ptxas", "hello").status == "warning"


@pytest.mark.parametrize(("checks", "status"), [(["ok", "warning"], 0), (["ok", "failure"], 1)])
def test_exit_status(recgen, monkeypatch, checks, status):
    monkeypatch.setattr(environment, "examine", lambda: iter([Check(f"check-{s}", s, "found", "do this " * 30) for s in checks]))
    text, machine = recgen("doctor"), recgen("doctor", "--format", "json")
    assert text.exit_code == machine.exit_code == status
    report = json.loads(machine.stdout)
    assert report["ok"] is (status == 0)
    assert [c["status"] for c in report["checks"]] == checks
    assert "do this" in text.stdout
    assert ("check-failure: see above" in text.stderr) is bool(status)


def test_a_check_that_breaks_is_a_finding(monkeypatch):
    def broken() -> Check:
        raise OSError("no such tool")

    monkeypatch.setattr(environment, "_CHECKS", (("tool", broken),))
    monkeypatch.setattr(environment, "_self_test", lambda: Check("self-test", "ok", ""))
    found = {check.name: check for check in environment.examine()}
    assert found["tool"].status == "failure"
    assert "OSError: no such tool" in found["tool"].found


def test_this_machine(recgen):
    result = recgen("doctor", "--format", "json")
    report = json.loads(result.stdout)
    assert result.exit_code == 0, report
    names = [check["name"] for check in report["checks"]]
    assert names[:5] == ["python", "torch", "triton", "interpreter", "ptxas"]
    assert names[-1] == "self-test"
