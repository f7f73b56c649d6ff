"""The pipeline as a whole: what a spec brings out of it."""

from __future__ import annotations

import pytest

from recgen.pipeline import compile_text

SPEC = """language 1

recurrence growing
    input q : [K]
    input k : [K]
    input v : [V]
    input a : []{domain}
    state S : [K, V]

    S[t] = a * S[t-1] + k @ v^T
    o    = S[t]^T @ q
"""


def test_a_decay_that_may_grow_is_a_warning() -> None:
    (warning,) = compile_text(SPEC.format(domain=""), "growing.rec").warnings
    assert warning.render() == (
        "growing.rec:10:12: warning[W502]: the decay cannot be proved to lie in [0, 1]: the state may grow without bound\n"
        "        S[t] = a * S[t-1] + k @ v^T\n"
        "               ^\n"
        "help: declare the domain of what it is made of: `log_decay`, `decay` or `in(0, 1)`"
    )


def test_a_decay_of_either_sign_is_a_warning() -> None:
    (warning,) = compile_text(SPEC.format(domain=" in(-1, 1)")).warnings
    assert warning.code == "W502"
    assert "it may be negative" in warning.message


def test_a_proved_decay_is_none() -> None:
    assert compile_text(SPEC.format(domain=" decay")).warnings == ()


@pytest.mark.parametrize(
    ("domain", "decay"),
    [
        (" log_decay", "a^0.5"),
        (" in(-4, 0)", "a^0.5"),
        (" in(-1, 1)", "a^0.5"),
        (" in(-1, 0.5)", "sqrt(a)"),
        (" in(-1, 0.5)", "exp(log(a))"),
        (" in(-3, 0.5)", "a^1.5"),
    ],
)
def test_roots_and_logarithms_of_what_may_be_negative_are_a_warning(domain: str, decay: str) -> None:
    (warning,) = compile_text(SPEC.format(domain=domain).replace("a * S", f"{decay} * S")).warnings
    assert warning.code == "W502"


@pytest.mark.parametrize("decay", ["a^0.5", "sqrt(a)", "exp(log(a))", "a^1.5"])
def test_roots_and_logarithms_of_a_decay_are_decays(decay: str) -> None:
    assert compile_text(SPEC.format(domain=" decay").replace("a * S", f"{decay} * S")).warnings == ()
