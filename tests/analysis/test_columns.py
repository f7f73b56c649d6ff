"""Vector states beside a matrix state, and the running maximum of log weights: found by structure, or refused with the reason."""

import pytest

from tests.analysis.helpers import KEY_FIRST, VALUE_FIRST, analyzed, refusal, shown

BESIDE = KEY_FIRST + "    state z : [K]\n"
SCALED = BESIDE + "    state m : []\n"
READ = "o = S[t]^T @ q / (z[t]^T @ q)"
PLAIN = ("S[t] = exp(g) * S[t-1] + k @ v^T", READ)
MAXIMUM = "m[t] = max(g + m[t-1], a)"
WEIGHED = "S[t] = exp(g + m[t-1] - m[t]) * S[t-1] + exp(a - m[t]) * k @ v^T"
FOLLOWING = "z[t] = exp(g + m[t-1] - m[t]) * z[t-1] + exp(a - m[t]) * k"


def columns(form):
    return [tuple(shown(form, x) for x in s.columns) for s in form.streams]


def test_a_vector_with_the_same_transition_is_one_more_column():
    form = analyzed("z[t] = exp(g) * z[t-1] + b * k", *PLAIN, declarations=BESIDE)
    assert [c.name for c in form.columns] == ["z"]
    assert columns(form) == [("b",)]
    assert "`z` follows `S`: one more column of it" in form.notes


def test_one_query_reads_all_columns_and_numbers_scale_what_it_read():
    form = analyzed("z[t] = exp(g) * z[t-1] + k", PLAIN[0], "o = b * S[t]^T @ q / (2 * q^T @ z[t])", declarations=BESIDE)
    assert [shown(form, r.query) for r in form.reads] == ["q"]
    assert shown(form, form.outputs[0].value) == "b * r / (2 * r^z)"


def test_a_column_is_corrected_as_the_matrix_is():
    corrected = "S[t] = exp(f) * S[t-1] + b * k @ (v - (exp(f) * S[t-1])^T @ k)^T"
    form = analyzed(corrected, "z[t] = exp(f) * z[t-1] + b * k * (a - k^T @ (exp(f) * z[t-1]))", READ, declarations=BESIDE)
    assert columns(form) == [("b * a",)]


def test_a_stream_may_leave_a_column_alone():
    form = analyzed("S[t] = S[t-1] + k @ v^T + e @ u^T", "z[t] = z[t-1] + e", READ, declarations=BESIDE)
    assert columns(form) == [(None,), ("1",)]


def test_the_matrix_may_be_declared_value_first():
    form = analyzed(
        "S[t] = exp(g) * S[t-1] + v @ k^T", "z[t] = exp(g) * z[t-1] + k", "o = S[t] @ q / (z[t]^T @ q)",
        declarations=VALUE_FIRST + "    state z : [K]\n",
    )  # fmt: skip
    assert (form.transposed, columns(form)) == (True, [("1",)])


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        (("z[t] = exp(f) * z[t-1] + k", *PLAIN), "state `z` decays otherwise than `S`, so that it is no further column of it"),
        (("z[t] = exp(g) * z[t-1] + e", *PLAIN), "`z` is written along a direction that `S` is not"),
        (("z[t] = exp(g) * z[t-1] + b * k * (a - k^T @ z[t-1])", *PLAIN), "`z` and `S` are corrected differently along one direction"),
        (
            ("z[t] = exp(g) * z[t-1] + S[t-1] @ v", *PLAIN),
            "`z[t]` reads `S[t-1]`: 2 states depend on one another; one matrix state is compiled",
        ),
        (
            ("z[t] = exp(g) * z[t-1] + k", PLAIN[0], "o = (S[t]^T @ q) * sum(z[t])"),
            "an output reads `z` otherwise than through its product with a vector",
        ),
    ],
)
def test_what_is_no_further_column(lines, reason):
    assert refusal(*lines, declarations=BESIDE) == reason


def test_a_vector_over_the_value_axis_is_none():
    lines = ("S[t] = S[t-1] + k @ v^T", "y[t] = y[t-1] + v", "o = S[t]^T @ q + y[t]")
    assert refusal(*lines, declarations=KEY_FIRST + "    state y : [V]\n") == (
        "state `y` runs over V; a further column of `S` runs over the key axis K"
    )


def test_a_running_maximum_is_taken_out_of_the_equations():
    form = analyzed("stabilize log", MAXIMUM, WEIGHED, FOLLOWING, "o = S[t]^T @ q / max(abs(z[t]^T @ q), exp(-m[t]))", declarations=SCALED)
    assert form.stabilizer is not None
    assert (shown(form, form.decay.log), shown(form, form.stabilizer.weight)) == ("g", "a")
    assert shown(form, form.outputs[0].value) == "r / max(abs(r^z), exp(-1 * mₜ))"


@pytest.mark.parametrize("other", ["exp(g - m[t] + m[t-1])", "exp(-(m[t] - m[t-1] - g))", "exp(m[t-1] - (m[t] - g))"])
def test_sums_may_be_written_in_any_order(other):
    lines = (MAXIMUM, WEIGHED.replace("exp(g + m[t-1] - m[t])", other), FOLLOWING, READ)
    assert analyzed("stabilize log", *lines, declarations=SCALED).stabilizer is not None


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        (("m[t] = max(g, a)", WEIGHED, FOLLOWING, READ), "`stabilize log`: expected m[t] = max(log decay + m[t-1], log weight)"),
        (("m[t] = g + m[t-1]", WEIGHED, FOLLOWING, READ), "`stabilize log`: expected m[t] = max(log decay + m[t-1], log weight)"),
        (
            (MAXIMUM, WEIGHED.replace("a - m[t]", "b - m[t]"), FOLLOWING, READ),
            "`stabilize log`: `m` enters `S` otherwise than in exp(log decay + m[t-1] - m[t]) and exp(log weight - m[t])",
        ),
        (
            (MAXIMUM, WEIGHED.replace("exp(a - m[t]) * k", "k"), FOLLOWING, READ),
            "`stabilize log`: what is written into `S` is not scaled by exp(log weight - m[t])",
        ),
        ((MAXIMUM, WEIGHED, FOLLOWING, READ + " + m[t-1] * v"), "an output reads `m` otherwise than as the number m[t]"),
        (
            (MAXIMUM, WEIGHED, FOLLOWING, READ + " + S[t-1]^T @ q"),
            "with `stabilize log` an output reads the states at t, over their key axis",
        ),
    ],
)
def test_what_is_no_running_maximum(lines, reason):
    assert refusal("stabilize log", *lines, declarations=SCALED) == reason


def test_a_number_that_scales_needs_the_directive():
    reason = "state `m` is a number; one that scales the others needs a line `stabilize log`"
    assert refusal(MAXIMUM, WEIGHED, FOLLOWING, READ, declarations=SCALED) == reason
