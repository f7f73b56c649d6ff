"""`recgen explain` and `recgen verify`: what the commands add to the stages behind them."""

import dataclasses
import json
import sys
from types import ModuleType

import pytest

from recgen.cache import CacheError

pytestmark = pytest.mark.usefixtures("toy_compiler")


@dataclasses.dataclass(frozen=True)
class Row:
    form: str
    error: float
    ok: bool


@dataclasses.dataclass(frozen=True)
class Report:
    rows: tuple[Row, ...]
    ok: bool
    notes: tuple[str, ...] = ()
    failure: str | None = None

    def to_json(self):
        return {"rows": [dataclasses.asdict(row) for row in self.rows], "ok": self.ok}


def stand_in(monkeypatch, name, function):
    module = ModuleType(f"recgen.{name}")
    setattr(module, function.__name__, function)
    monkeypatch.setitem(sys.modules, module.__name__, module)


@pytest.fixture
def explained(monkeypatch):
    def explain(compiled, stage, format):
        return f"{compiled.module.name} {stage} {format}\n"

    stand_in(monkeypatch, "explanation", explain)


@pytest.fixture
def verified(monkeypatch):
    def verify(compiled, device, progress):
        progress(1, 2, "chunk")
        good = compiled.module.name == "good"
        return Report((Row("chunk", 1.5e-7, good),), good, (), None if good else "run this")

    stand_in(monkeypatch, "verify", verify)


@pytest.mark.parametrize(
    ("arguments", "output"),
    [([], "gla None text\n"), (["--stage", "derive"], "gla derive text\n"), (["--format", "latex"], "gla None latex\n")],
)
def test_explain(recgen, folder, explained, arguments, output):
    (folder / "a.rec").write_text("gla")
    result = recgen("explain", "a.rec", *arguments)
    assert (result.exit_code, result.stdout, result.stderr) == (0, output, "")


def test_explain_of_a_wrong_spec(recgen, folder, explained):
    (folder / "a.rec").write_text("gla wrong")
    result = recgen("explain", "a.rec")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "a.rec:1:1: error[E002]" in result.stderr
    assert result.stderr.endswith("Error: 1 error\n")


def test_unknown_stage_names_the_stages(recgen, folder):
    (folder / "a.rec").write_text("gla")
    result = recgen("explain", "a.rec", "--stage", "link")
    assert result.exit_code == 2
    for stage in ("parse", "check", "analyze", "derive", "plan", "emit"):
        assert stage in result.stderr


def test_warnings_do_not_mix_with_the_result(recgen, folder, explained):
    (folder / "a.rec").write_text("gla warn")
    result = recgen("explain", "a.rec")
    assert (result.exit_code, result.stdout) == (0, "gla None text\n")
    assert "warning[W501]" in result.stderr


@pytest.mark.parametrize(("name", "status", "mark"), [("good", 0, "ok"), ("bad", 1, "FAIL")])
def test_verify(recgen, folder, verified, name, status, mark):
    (folder / "a.rec").write_text(name)
    result = recgen("verify", "a.rec")
    assert result.exit_code == status
    table = [line.split() for line in result.stdout.splitlines()[:2]]
    assert table == [["form", "error", "ok"], ["chunk", "1.5e-07", mark]]
    assert result.stdout.splitlines()[2:] == ([] if status == 0 else ["the first failing input again: run this"])
    machine = recgen("verify", "a.rec", "--format", "json")
    assert machine.exit_code == status
    assert json.loads(machine.stdout) == {"rows": [{"form": "chunk", "error": 1.5e-7, "ok": not status}], "ok": not status}


def test_verify_without_the_device_is_misuse(recgen, folder, verified, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    (folder / "a.rec").write_text("good")
    result = recgen("verify", "a.rec", "--device", "cuda")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "torch sees no GPU" in result.stderr


def test_a_cache_that_cannot_be_written_is_misuse(recgen, folder, monkeypatch):
    def verify(compiled, device, progress):
        raise CacheError("the cache folder cannot be used")

    stand_in(monkeypatch, "verify", verify)
    (folder / "good.rec").write_text("good")
    result = recgen("verify", "good.rec")
    assert (result.exit_code, result.stderr) == (2, "Error: the cache folder cannot be used\n")
