"""What the command-line tests share: a way to run recgen in a folder of its own, and a stand-in for the compiler."""

import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
from click.testing import CliRunner, Result

from recgen.cli import main
from recgen.lang.diagnostics import Reporter, SpecErrors
from recgen.lang.source import Source, Span

Recgen = Callable[..., Result]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, empty, with a cache beside it."""
    current = tmp_path / "here"
    current.mkdir()
    monkeypatch.chdir(current)
    monkeypatch.setenv("RECGEN_CACHE_DIR", str(tmp_path / "cache"))
    return current


@pytest.fixture
def recgen(folder: Path) -> Recgen:
    """Runs a command line in the folder; standard output and standard error are kept apart."""

    def run(*arguments: str, stdin: str | bytes | None = None) -> Result:
        return CliRunner().invoke(main, list(map(str, arguments)), input=stdin)

    return run


def _compile(text: str, name: str, tuned: tuple[object, ...] = ()) -> SimpleNamespace:
    """A compiler of one-line specs: `NAME`, `NAME warn` or `NAME wrong`; `crash` fails as a bug would."""
    recurrence, *words = text.split()
    source = Source(name, text)
    if recurrence == "crash":
        raise ZeroDivisionError("a bug")
    reporter = Reporter(source)
    if "wrong" in words:
        reporter.report("E002", Span(1, 1, 1, 5))
        raise SpecErrors(reporter.sorted())
    if "warn" in words:
        reporter.report("W501", Span(1, 1, 1, 5), name=recurrence)
    module = SimpleNamespace(name=recurrence, text=f"# {text}\n", digest="0" * 16, manifest={})
    return SimpleNamespace(module=module, warnings=reporter.sorted())


@pytest.fixture
def toy_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replaces the compiler by one of one-line specs, so that a command's own behaviour is tested alone."""
    stand_in = ModuleType("recgen.pipeline")
    stand_in.compile_text = _compile
    monkeypatch.setitem(sys.modules, "recgen.pipeline", stand_in)
    unchecked = ModuleType("recgen.verify.adjoint")
    unchecked.check_adjoint = lambda compiled: ()
    monkeypatch.setitem(sys.modules, "recgen.verify.adjoint", unchecked)
    monkeypatch.delitem(sys.modules, "recgen.build", raising=False)
    yield
    sys.modules.pop("recgen.build", None)
