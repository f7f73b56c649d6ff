"""What holds for every command: usage errors, files that cannot be read, failures of recgen itself."""

import subprocess
import sys

import pytest

from recgen import __version__


def test_version_and_help(recgen):
    assert recgen("--version").stdout == f"recgen {__version__}\n"
    commands = ["check", "fmt", "explain", "build", "verify", "tune", "doctor", "cache"]
    result = recgen("--help")
    assert result.exit_code == 0
    positions = [result.stdout.index(f"\n  {command} ") for command in commands]
    assert positions == sorted(positions)
    for command in commands:
        assert recgen(command, "--help").exit_code == 0


@pytest.mark.parametrize("arguments", [["chek"], ["check"], ["check", "--format", "xml", "a.rec"], ["explain", "a", "b"], ["cache", "rm"]])
def test_wrong_usage_is_status_2(recgen, arguments):
    result = recgen(*arguments)
    assert result.exit_code == 2
    assert "Usage: " in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize("command", ["check", "fmt", "explain", "build", "verify"])
def test_unreadable_files_are_status_2(recgen, folder, command, toy_compiler):
    (folder / "sub").mkdir()
    for name, message in [
        ("missing.rec", "missing.rec: no such file"),
        ("sub", "sub: is a directory; name the .rec files in it"),
        ("x" * 300, f"{'x' * 300}: cannot be read: File name too long"),
    ]:
        result = recgen(command, name)
        assert (result.exit_code, result.stdout, result.stderr) == (2, "", f"Error: {message}\n")


def test_missing_file_offers_its_neighbour(recgen, folder):
    (folder / "delta_rule.rec").write_text("")
    for wrong in ("delta_rul.rec", "delta_rule"):
        assert recgen("check", wrong).stderr == f"Error: {wrong}: no such file; did you mean delta_rule.rec?\n"


@pytest.mark.parametrize("command", ["check", "fmt", "explain", "build", "verify"])
def test_other_encodings_are_findings(recgen, folder, command, toy_compiler):
    (folder / "latin.rec").write_bytes(b"# caf\xe9\n")
    result = recgen(command, "latin.rec")
    assert result.exit_code == 1
    assert "latin.rec:1:6: error[E001]: this is not a text file: byte 0xE9 is not UTF-8" in result.output


def test_every_unreadable_file_is_named_and_nothing_is_done(recgen, folder, toy_compiler):
    (folder / "a.rec").write_text("a")
    result = recgen("build", "one.rec", "a.rec", "two.rec")
    assert result.exit_code == 2
    assert "one.rec: no such file" in result.stderr
    assert "two.rec: no such file" in result.stderr
    assert not (folder / "generated").exists()


def test_failure_of_recgen_takes_the_blame(recgen, folder, toy_compiler):
    (folder / "a.rec").write_text("crash")
    result = recgen("build", "a.rec")
    assert result.exit_code == 70
    assert result.stderr.startswith("recgen failed: ZeroDivisionError: a bug\n  This is a fault in recgen at ")
    assert "not in your spec" in result.stderr
    assert "Please report it" in result.stderr
    assert "Traceback" not in result.stderr


def test_debug_shows_the_traceback(recgen, folder, toy_compiler):
    (folder / "a.rec").write_text("crash")
    result = recgen("--debug", "build", "a.rec")
    assert isinstance(result.exception, ZeroDivisionError)


def test_module_is_runnable():
    result = subprocess.run([sys.executable, "-m", "recgen", "--version"], capture_output=True, text=True, check=True)
    assert result.stdout == f"recgen {__version__}\n"
