"""The Python interface: a path or a text in, a module out."""

import inspect
import sys
from pathlib import Path

import pytest

import recgen
from recgen.lang import SpecErrors
from recgen.selftest import SPEC


@pytest.fixture(autouse=True)
def cache_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("RECGEN_CACHE_DIR", str(tmp_path / "cache"))
    before = set(sys.modules)
    yield tmp_path / "cache"
    for name in set(sys.modules) - before:
        if name.startswith("recgen_cache_"):
            del sys.modules[name]


def test_public_names():
    assert set(recgen.__all__) <= set(dir(recgen))


def test_text_and_path_give_the_same_module(tmp_path, cache_folder):
    path = tmp_path / "spec.rec"
    text = SPEC.replace("recgen_selftest", "loaded_twice")
    path.write_text(text)
    module = recgen.load(text)
    assert recgen.load(path) is module
    assert recgen.load(str(path)) is module
    assert Path(module.__file__).parent == cache_folder
    assert "def chunk_loaded_twice" in inspect.getsource(module.chunk_loaded_twice)


def test_missing_file_is_named():
    with pytest.raises(FileNotFoundError, match=r"nothing\.rec"):
        recgen.load("nothing.rec")


def test_wrong_spec_raises_its_diagnostics():
    with pytest.raises(SpecErrors, match=r"<text>:6:5: error\[E105\]: unknown keyword `inptu`"):
        recgen.load(SPEC.replace("input q", "inptu q"))


@pytest.mark.parametrize("format_", ["text", "latex", "json"])
def test_explain(format_):
    assert recgen.explain(SPEC, format=format_).strip()
    assert callable(recgen.explain), "no module of this name may replace the function"


def test_compile_gives_every_stage():
    compiled = recgen.compile(SPEC)
    assert compiled.recurrence.name == compiled.module.name == "recgen_selftest"
    assert compiled.module.text.startswith('"""')
