"""The cache of emitted modules."""

import inspect
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from recgen import cache

TEXT = '"""A module."""\n\n\ndef double(x):\n    return 2 * x\n'


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    chosen = tmp_path / "cache"
    monkeypatch.setenv(cache.ENVIRONMENT_VARIABLE, str(chosen))
    before = set(sys.modules)
    yield chosen
    for name in set(sys.modules) - before:
        if name.startswith("recgen_cache_"):
            del sys.modules[name]


def test_platform_folder_without_the_variable(monkeypatch):
    monkeypatch.delenv(cache.ENVIRONMENT_VARIABLE)
    assert cache.directory().name == "recgen"


def test_source_is_available(folder):
    module = cache.load("twice", TEXT)
    assert module.double(4) == 8
    assert inspect.getsource(module.double) == "def double(x):\n    return 2 * x\n"
    assert module.__file__ == str(folder / f"{module.__name__.removeprefix('recgen_cache_')}.py")


def test_same_text_is_the_same_module_and_other_text_another():
    first, again, other = cache.load("twice", TEXT), cache.load("twice", TEXT), cache.load("twice", TEXT + "# more\n")
    assert first is again
    assert other is not first
    assert len(cache.entries()) == 2


def test_concurrent_loads_agree():
    with ThreadPoolExecutor(8) as pool:
        modules = set(pool.map(lambda _: cache.load("twice", TEXT), range(32)))
    assert len(modules) == 1


def test_edited_file_is_refused(folder):
    cache.load("twice", TEXT)
    (entry,) = cache.entries()
    entry.path.write_text(TEXT.replace("2 *", "3 *"))
    with pytest.raises(cache.CacheError, match="recgen cache clear"):
        cache.load("twice", TEXT)


def test_a_folder_that_cannot_be_written_is_named_with_its_variable(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    chosen = tmp_path / "file" / "cache"
    monkeypatch.setenv(cache.ENVIRONMENT_VARIABLE, str(chosen))
    with pytest.raises(cache.CacheError) as raised:
        cache.load("twice", TEXT)
    told = f"the cache folder {chosen} cannot be used: Not a directory; set RECGEN_CACHE_DIR to a folder that can be written"
    assert str(raised.value) == told


def test_failing_module_is_not_left_behind():
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            cache.load("broken", "1 / 0\n")
    assert not [name for name in sys.modules if name.startswith("recgen_cache_broken")]


def test_clear_removes_only_modules(folder):
    cache.load("twice", TEXT)
    for name in ("notes.txt", "mine.py"):
        (folder / name).write_text("keep")
    removed = cache.clear()
    assert [entry.name for entry in removed] == ["twice"]
    assert sorted(p.name for p in folder.iterdir() if p.is_file()) == ["mine.py", "notes.txt"]
    assert not list(folder.rglob("*.pyc"))
    assert cache.entries() == ()


def test_absent_folder_is_empty(folder):
    assert cache.entries() == ()
    assert cache.clear() == ()


def test_another_process_reuses_the_file():
    module = cache.load("twice", TEXT)
    code = f"from recgen import cache; print(cache.load('twice', {TEXT!r}).__file__)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert found.strip() == module.__file__
