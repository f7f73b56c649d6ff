"""`recgen build`."""

import json

import pytest

pytestmark = pytest.mark.usefixtures("toy_compiler")


def specs(folder, **texts):
    (folder / "specs").mkdir()
    for name, text in texts.items():
        (folder / "specs" / f"{name}.rec").write_text(text)


def test_writes_modules_named_after_the_recurrence(recgen, folder):
    (folder / "file.rec").write_text("gla")
    result = recgen("build", "file.rec", "-o", "out")
    assert (result.exit_code, result.stdout) == (0, "written    out/gla.py\n")
    assert (folder / "out" / "gla.py").read_text() == "# gla\n"
    assert recgen("build", "file.rec", "-o", "out").stdout == "unchanged  out/gla.py\n"


def test_without_files_builds_the_folder_specs(recgen, folder):
    specs(folder, b="b", a="a")
    assert recgen("build").stdout == "written    generated/a.py\nwritten    generated/b.py\n"
    assert recgen("build", "--check").exit_code == 0


def test_without_files_and_without_specs_is_misuse(recgen):
    result = recgen("build")
    assert (result.exit_code, result.stderr) == (2, "Error: name the specs to build: there are no .rec files in ./specs\n")


def test_check_finds_every_kind_of_difference_and_writes_nothing(recgen, folder):
    specs(folder, new="new", edited="edited", same="same")
    (folder / "generated").mkdir()
    for name, text in {"edited": "# mine\n", "same": "# same\n", "orphan": "# orphan\n"}.items():
        (folder / "generated" / f"{name}.py").write_text(text)
    result = recgen("build", "--check", "--format", "json")
    report = json.loads(result.stdout)
    assert result.exit_code == 1
    assert report["ok"] is False
    assert {m["path"]: m["status"] for m in report["modules"]} == {
        "generated/edited.py": "differs",
        "generated/new.py": "missing",
        "generated/same.py": "unchanged",
        "generated/orphan.py": "stale",
    }
    assert result.stderr == "Error: 3 of 4 not up to date with their specs; run `recgen build`\n"
    assert not (folder / "generated" / "new.py").exists()
    assert (folder / "generated" / "edited.py").read_text() == "# mine\n"


def test_a_spec_with_errors_does_not_stop_the_others(recgen, folder):
    specs(folder, a="a wrong", b="b warn")
    result = recgen("build")
    assert result.exit_code == 1
    assert result.stdout == "refused    specs/a.rec\nwritten    generated/b.py\n"
    assert "specs/a.rec:1:1: error[E002]" in result.stderr
    assert "specs/b.rec:1:1: warning[W501]" in result.stderr
    assert result.stderr.endswith("Error: 1 of 2 not built\n")


def test_two_specs_of_one_name_are_misuse(recgen, folder):
    specs(folder, a="same", b="same")
    result = recgen("build")
    assert result.exit_code == 2
    assert result.stderr == "Error: specs/a.rec and specs/b.rec both declare the recurrence same; rename one\n"


def test_unwritable_folder_is_misuse(recgen, folder):
    specs(folder, a="a")
    (folder / "file").write_text("")
    result = recgen("build", "-o", "file/sub")
    assert result.exit_code == 2
    assert "cannot be written" in result.stderr
    assert "Traceback" not in result.stderr


def test_json(recgen, folder):
    specs(folder, b="b warn")
    result = recgen("build", "--format", "json")
    (module,) = json.loads(result.stdout)["modules"]
    assert module["digest"] == "0" * 16
    assert module["spec"] == "specs/b.rec"
    assert [d["code"] for d in module["diagnostics"]] == ["W501"]
    assert result.stderr == ""
