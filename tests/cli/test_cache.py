"""`recgen cache`."""

import json

import pytest

from recgen import cache


@pytest.fixture
def filled(folder):
    path = cache.directory() / f"gla_{'0' * 16}.py"
    path.parent.mkdir()
    path.write_text("x = 1\n")
    return path


def test_empty(recgen):
    result = recgen("cache", "ls")
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr.startswith("0 modules, 0 bytes, in ")
    assert recgen("cache", "clear").stdout.startswith("removed 0 modules")


def test_list(recgen, filled):
    result = recgen("cache", "ls")
    assert filled.name in result.stdout
    assert result.stderr.startswith("1 module, 6 bytes, in ")
    report = json.loads(recgen("cache", "ls", "--format", "json").stdout)
    assert report["directory"] == str(filled.parent)
    (module,) = report["modules"]
    assert (module["name"], module["path"], module["size"]) == ("gla", str(filled), 6)


@pytest.mark.parametrize("arguments", [[], ["--format", "json"]])
def test_clear(recgen, filled, arguments):
    result = recgen("cache", "clear", *arguments)
    assert result.exit_code == 0
    assert not filled.exists()
    if arguments:
        assert json.loads(result.stdout)["removed"] == [str(filled)]
