"""Reads that no gradient goes through, and sizes that only arguments have which an option leaves out."""

import pytest

from recgen.pipeline import compile_text
from recgen.verify import reproduce

HEAD = """language 1
recurrence rare
    input q : [K]
    input k : [K]
    input v : [V]
    input g : [{axis}] log_decay
    state S : [K, V]
"""
PLAIN, BY_VALUE = HEAD.format(axis=""), HEAD.format(axis="V")
WRITE = "    S[t] = exp(g) * S[t-1] + k @ v^T\n"
STOPPED = {
    "one of two reads": PLAIN + WRITE + "    o = where(S[t]^T @ q > 0, S[t-1]^T @ k, v)\n",
    "the only read": PLAIN + WRITE + "    o = sign(S[t]^T @ q) * v\n",
    "a whole output": PLAIN + WRITE + "    o = S[t]^T @ q\n    r = sign(S[t-1]^T @ k)\n    output r, o\n",
    "a read with a normaliser": PLAIN
    + "    state n : [K]\n"
    + WRITE
    + "    n[t] = exp(g) * n[t-1] + k\n    o = where(n[t]^T @ q > 0, S[t-1]^T @ k, v)\n",
    "one of two states": PLAIN
    + "    state M : [K, V]\n    M[t] = exp(g) * M[t-1] + k @ v^T\n    S[t] = 0.5 * S[t-1] + M[t]\n    o = S[t]^T @ q + sign(M[t]^T @ q)\n",
    "by value channel": BY_VALUE + "    S[t] = S[t-1] * exp(g)^T + k @ v^T\n    o = 0.5 * S[t]^T @ q + sign(S[t-1]^T @ k)\n",
}
EITHER = """language 1
recurrence either
    input k : [K]
    input v : [V]
    input g : [] log_decay
    input a : [K]
    input u : [V]
    option on = false
    state S : [K, V]
    S[t] = exp(g) * S[t-1] + (k if on else a) @ (v if on else u)^T
    o    = S[t]^T @ (k if on else a)
"""
ALONE = """language 1
recurrence alone
    input q : [K]
    input k : [K]
    input v : [V]
    input x : [F]
    option on = false
    state S : [K, V]
    S[t] = 0.9 * S[t-1] + (x^T @ x / F if on else 1) * k @ v^T
    o    = S[t]^T @ q
"""
ABSENT = """language 1
recurrence absent
    input k : [K]
    input v : [V]
    input a : [K]
    input u : [V]
    input w : [K]
    option on = false
    state S : [K, V]
    S[t] = sigmoid(k @ v^T if on else a @ u^T) * S[t-1] + 1
    o    = S[t] @ (v if on else u) + w
"""


@pytest.mark.parametrize("form", ["chunk 16", "recurrent", "step"])
@pytest.mark.parametrize("text", STOPPED.values(), ids=STOPPED)
def test_no_gradient_goes_through_a_read(text: str, form: str) -> None:
    report = reproduce(compile_text(text), form, "float64", tokens=20)
    assert report.ok, str(report)


@pytest.mark.parametrize("on", [False, True])
def test_a_scan_sums_no_gradients_of_what_is_left_out_in_its_memory(on: bool) -> None:
    """torch warns of memory that is of another shape than its result."""
    report = reproduce(compile_text(ABSENT), "chunk 16", "float64", tokens=20, flags=(("on", on),))
    assert report.ok, str(report)


@pytest.mark.parametrize("on", [False, True])
@pytest.mark.parametrize(
    ("form", "plan"),
    [("naive", ""), ("chunk 16", ""), ("recurrent", ""), ("chunk 16", "    plan scan\n"), ("recurrent", "    plan recurrent\n")],
)
def test_a_size_that_only_an_argument_has_which_is_left_out(form: str, plan: str, on: bool) -> None:
    report = reproduce(compile_text(ALONE + plan), form, "float64", tokens=20, flags=(("on", on),))
    assert report.ok, str(report)


@pytest.mark.parametrize("on", [False, True])
@pytest.mark.parametrize("plan", ["", "    plan scan\n"])
@pytest.mark.parametrize("form", ["naive", "chunk 16", "recurrent"])
def test_sizes_of_arguments_that_an_option_leaves_out(form: str, plan: str, on: bool) -> None:
    report = reproduce(compile_text(EITHER + plan), form, "float64", tokens=20, flags=(("on", on),))
    assert report.ok, str(report)
