import pytest


@pytest.fixture(autouse=True)
def cache_folder(tmp_path_factory, monkeypatch):
    """Modules are written outside the user's cache."""
    monkeypatch.setenv("RECGEN_CACHE_DIR", str(tmp_path_factory.getbasetemp() / "cache"))
