"""The pages that the compiler writes are up to date, and what they say of recurrences is held."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest

from recgen.lang import SpecErrors, format_spec, read_source
from recgen.pipeline import compile_text
from recgen.verify.adjoint import check_adjoint

ROOT = Path(__file__).resolve().parents[2]


def _script():
    spec = importlib.util.spec_from_file_location("pages", ROOT / "scripts" / "pages.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


pages = _script()
STRANGERS = sorted(pages.STRANGERS.glob("*.rec"))


@pytest.mark.parametrize("page", pages.PAGES, ids=lambda p: p.name)
def test_page_is_up_to_date(page):
    assert page.read_text(encoding="utf-8") == pages.PAGES[page](), "python scripts/pages.py"


@pytest.mark.parametrize("path", STRANGERS, ids=lambda p: p.stem)
def test_stranger(path):
    """It ends in diagnostics or in a module whose gradients are those of the recurrence; so it does with the plan that a refusal offers."""
    text = path.read_text(encoding="utf-8")
    try:
        check_adjoint(compile_text(text, path.name))
    except SpecErrors as errors:
        if pages.offers_plan(errors.diagnostics):
            check_adjoint(compile_text(pages.planned(text), path.name))


@pytest.mark.parametrize("path", STRANGERS, ids=lambda p: p.stem)
def test_stranger_is_canonical(path):
    assert format_spec(read_source(path)) == path.read_text(encoding="utf-8")


def test_every_stranger_has_its_first_attempt():
    assert [path.stem for path in STRANGERS] == sorted(json.loads(pages.FIRST.read_text(encoding="utf-8")))
