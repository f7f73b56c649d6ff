"""The top-level folders are found from a checkout; scripts/smoke.py does the same for the installed wheel."""

from pathlib import Path

import pytest

from recgen import resources

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("kind", resources.KINDS)
def test_checkout_folders(kind):
    assert resources.resource(kind) == ROOT / kind


def test_unknown_kind_is_named():
    with pytest.raises(ValueError, match="specs, templates, generated; got 'docs'"):
        resources.resource("docs")


def test_packaged_folder_comes_first(tmp_path, monkeypatch):
    package = tmp_path / "recgen"
    for folder in (package / "_data" / "specs", tmp_path / "specs", tmp_path / "templates"):
        folder.mkdir(parents=True)
    monkeypatch.setattr(resources, "__file__", str(package / "resources.py"))
    assert resources.resource("specs") == package / "_data" / "specs"
    assert resources.resource("templates") == tmp_path / "templates"
    with pytest.raises(FileNotFoundError, match="generated folder is missing"):
        resources.resource("generated")
