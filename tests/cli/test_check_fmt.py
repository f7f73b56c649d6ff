"""`recgen check` and `recgen fmt`."""

import json
import re

import pytest

from recgen.resources import resource

SPEC = (resource("specs") / "gated_delta_rule.rec").read_text(encoding="utf-8")
WRONG = SPEC.replace("input q ", "inptu q ")


@pytest.fixture
def spec(folder):
    path = folder / "a.rec"
    path.write_text(SPEC)
    return path


@pytest.fixture
def wrong(folder):
    path = folder / "wrong.rec"
    path.write_text(WRONG)
    return path


def test_check_of_a_good_spec(recgen, spec):
    result = recgen("check", "a.rec")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "", "1 spec: no errors\n")
    assert json.loads(recgen("check", "a.rec", "--format", "json").stdout) == {"ok": True, "diagnostics": []}


def test_check_reports_every_file(recgen, spec, wrong):
    result = recgen("check", "wrong.rec", "a.rec")
    assert result.exit_code == 1
    assert "wrong.rec:6:5: error[E105]: unknown keyword `inptu`" in result.stdout
    assert result.stderr.startswith("2 specs: ")
    report = json.loads(recgen("check", "wrong.rec", "--format", "json").stdout)
    assert report["ok"] is False
    assert report["diagnostics"][0]["file"] == "wrong.rec"
    assert report["diagnostics"][0]["line"] == 6


def test_check_says_what_build_would_say(recgen, folder):
    (folder / "a.rec").write_text(SPEC.replace("S[t-1] +", "tanh(S[t-1]) +"))
    (folder / "b.rec").write_text(SPEC.replace("min(g, 0)", "g"))
    refused, warned = recgen("check", "a.rec"), recgen("check", "b.rec")
    assert refused.exit_code == 1
    assert "a.rec:23:46: error[E501]" in refused.stdout
    assert warned.exit_code == 0
    assert "warning[W502]: the decay cannot be proved to lie in [0, 1]" in warned.stdout


@pytest.mark.parametrize("command", ["check", "build", "explain", "verify"])
def test_errors_as_json(recgen, wrong, command):
    result = recgen(command, "wrong.rec", "--format", "json")
    assert result.exit_code == 1
    report = json.loads(result.stdout)
    (found,) = report["modules"][0]["diagnostics"] if command == "build" else report["diagnostics"]
    assert (report["ok"], found["code"], found["line"]) == (False, "E105", 6)
    assert "error[" not in result.stderr


@pytest.mark.parametrize("command", ["check", "fmt"])
def test_standard_input(recgen, command):
    assert recgen(command, "-", stdin=SPEC).exit_code == 0
    result = recgen(command, "-", stdin=WRONG)
    assert result.exit_code == 1
    assert "<stdin>:6:5" in result.output
    result = recgen(command, "-", stdin=b"\xff")
    assert (result.exit_code, result.stderr) == (1, "Error: standard input is not UTF-8 text\n")


ODD = {"empty": "", "nulls": "\0" * 100, "brackets": "(" * 5000, "repeated": "language 1\n" * 3, "emoji": "\N{PILE OF POO}"}


@pytest.mark.parametrize("text", ODD.values(), ids=ODD)
@pytest.mark.parametrize("command", ["check", "fmt", "build", "explain", "verify"])
def test_odd_files_are_findings(recgen, folder, text, command):
    (folder / "odd.rec").write_text(text)
    result = recgen(command, "odd.rec")
    assert result.exit_code == 1
    assert "error[E" in result.output
    assert "internal" not in result.output


def test_fmt_settles(recgen, spec):
    spec.write_text(re.sub(r"state S +:", "state S:", SPEC))
    result = recgen("fmt", "--check", "a.rec")
    assert result.exit_code == 1
    assert "not canonical: a.rec\n" in result.stderr
    assert spec.read_text() != SPEC
    assert recgen("fmt", "a.rec").stderr == "formatted: a.rec\n"
    assert "# a log decay" in spec.read_text()
    again = recgen("fmt", "--check", "a.rec")
    assert (again.exit_code, again.output) == (0, "")
    assert recgen("fmt", "-", stdin=SPEC).stdout == spec.read_text()


def test_fmt_leaves_a_wrong_spec_alone(recgen, spec, wrong):
    result = recgen("fmt", "wrong.rec", "a.rec")
    assert result.exit_code == 1
    assert "error[E105]" in result.stderr
    assert wrong.read_text() == WRONG


def test_committed_specs_are_canonical(recgen):
    assert recgen("fmt", "--check", *sorted(resource("specs").glob("*.rec"))).exit_code == 0
