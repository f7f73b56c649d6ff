"""Recurrences that are no numbers themselves, or grow whatever is drawn: said so, and never a fault of the compiler."""

from __future__ import annotations

import pytest
import torch

from recgen.build import build
from recgen.pipeline import AnyCompiled, compile_text
from recgen.verify import reproduce
from recgen.verify.adjoint import check_adjoint
from recgen.verify.cases import Case
from recgen.verify.inputs import GrowthError, NotFiniteError, draw, roles
from recgen.verify.reference import _most
from recgen.verify.runner import form_of

TEXT = """language 1

recurrence odd
    input q : [K]
    input k : [K]
    input v : [V]
    state S : [K, V]

    S[t] = {step}
    o    = S[t]^T @ q
"""
UNREAL = "S[t-1] + log(k) @ v^T"


def odd(step: str) -> AnyCompiled:
    return compile_text(TEXT.format(step=step), "odd.rec")


@pytest.mark.parametrize("form", ["chunk 16", "recurrent", "chunk 64, to the bit"])
def test_a_recurrence_that_is_no_number_is_told_as_such(form: str) -> None:
    report = reproduce(odd(UNREAL), form, "float32", tokens=20)
    assert not report.ok
    assert [(row.form, row.tensor) for row in report.rows] == [("recurrence", "the recurrence itself is not finite")]
    assert any(note.startswith("the recurrence as written is no number there") for note in report.notes)
    assert report.failure is not None and repr(form) in report.failure


def test_a_maximum_does_not_pass_over_nan() -> None:
    nan = float("nan")
    assert _most([1.0, 2.0]) == 2.0
    assert all(x != x for x in (_most([1.0, nan]), _most([nan, 1.0])))


def test_drawing_tells_growth_from_no_number() -> None:
    for step, error in ((UNREAL, NotFiniteError), ("2 * S[t-1] + k @ v^T", GrowthError)):
        form = form_of(odd(step))
        with pytest.raises(error):
            draw(form, roles(form), Case(60), torch.float64)


def test_the_build_warns_of_it(tmp_path) -> None:
    path = tmp_path / "odd.rec"
    path.write_text(TEXT.format(step=UNREAL), encoding="utf-8")
    (outcome,) = build([path], tmp_path)
    assert outcome.status == "written"
    (warning,) = outcome.diagnostics
    assert warning.render() == (
        f"{path}:7:11: warning[W503]: the gradients were not compared: the recurrence is not finite on numbers that its domains allow\n"
        "        state S : [K, V]\n"
        "              ^\n"
        "help: declare the domains of what it divides by, or takes a root or logarithm of: `positive`, `negative`, `in(0, 1)`"
    )


@pytest.mark.parametrize("step", ["1000000 * S[t-1] + k @ v^T", "S[t-1] + 1000000 * k @ v^T", "S[t-1] + S[t-1] + k @ v^T"])
def test_gradients_are_compared_however_much_a_token_grows(step: str) -> None:
    assert check_adjoint(odd(step)) == ()


def test_growth_is_a_note() -> None:
    report = reproduce(odd("2 * S[t-1] + k @ v^T"), "chunk 16", "float64", tokens=60)
    assert report.ok and not report.rows
    assert any("were not compared because the loop grows beyond 1000" in note for note in report.notes)
