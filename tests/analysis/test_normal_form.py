"""What the analyzer recognises from structure alone."""

import pytest

from tests.analysis.helpers import VALUE_FIRST, analyzed, shown

READ = "o = S[t]^T @ q"


def streams(form):
    return [(*(shown(form, t) for t in (s.write, s.value, s.strength, s.correct)), s.decayed) for s in form.streams]


def test_plain_write():
    form = analyzed("S[t] = S[t-1] + k @ v^T", READ)
    assert (form.decay.kind, streams(form), form.feedback) == ("none", [("k", "v", None, None, False)], False)


@pytest.mark.parametrize(
    ("decay", "kind", "log"),
    [("exp(g)", "scalar", "g"), ("exp(f)", "vector", "f"), ("b", "scalar", "log(b)"), ("sigmoid(a)", "scalar", "logsigmoid(a)"),
     ("b * exp(g)", "scalar", "log(b) + g"), ("0.5", "scalar", "log(0.5)"), ("exp(g) * exp(f)", "vector", "g + f")],
)  # fmt: skip
def test_decay(decay, kind, log):
    form = analyzed(f"S[t] = {decay} * S[t-1] + k @ v^T", READ)
    assert (form.decay.kind, shown(form, form.decay.log)) == (kind, log)


def test_correction_of_the_decayed_state():
    form = analyzed("S[t] = exp(g) * (I - b * k @ k^T) @ S[t-1] + b * k @ v^T", READ)
    assert streams(form) == [("k", "b * v", "-b", "k", True)]
    assert "the correction reads the decayed state: inclusive sums" in form.notes


def test_correction_of_the_state_before_its_decay():
    form = analyzed("S[t] = exp(g) * S[t-1] + b * k @ (v - S[t-1]^T @ k)^T", READ)
    assert streams(form) == [("k", "b * v", "-b", "k", False)]
    assert "the correction reads the state before its decay: exclusive sums" in form.notes


def test_correction_of_the_decayed_state_by_channel():
    form = analyzed("D = exp(f) * S[t-1]", "S[t] = D + b * k @ (v - D^T @ k)^T", READ)
    assert streams(form) == [("k", "b * v", "-b", "k", True)]


def test_correcting_before_forgetting_by_channel():
    form = analyzed("S[t] = exp(f) * (S[t-1] - b * k @ (S[t-1]^T @ k)^T) + k @ v^T", READ)
    assert streams(form) == [("k", "v", None, None, False), ("exp(f) * k", None, "-b", "k", False)]


def test_the_same_rule_however_it_is_written():
    forms = [
        analyzed("S[t] = exp(g) * (I - b * k @ k^T) @ S[t-1] + b * k @ v^T", READ),
        analyzed("S[t] = exp(g) * S[t-1] + b * k @ (v - exp(g) * S[t-1]^T @ k)^T", READ),
        analyzed("D = exp(g) * S[t-1]", "S[t] = D + k @ (b * (v - D^T @ k))^T", READ),
    ]
    assert streams(forms[0]) == streams(forms[1]) == streams(forms[2])


def test_writes_along_one_direction_are_one_stream():
    form = analyzed("S[t] = S[t-1] + k @ v^T + b * k @ u^T", READ)
    assert streams(form) == [("k", "v + b * u", None, None, False)]


@pytest.mark.parametrize(
    ("write", "direction"),
    [("k / e", "k / e"), ("k / (1 + b * q)", "k / (1 + b * q)"), ("(q / sum(e)) / e", "q / sum(e) / e"),
     ("k * ((I + e @ e^T) @ q)", "k * (q + e^T @ q * e)"), ("(I * e) @ k", "e * k"), ("(I / e) @ k", "1 / e * k")],
)  # fmt: skip
def test_directions_of_several_vectors(write, direction):
    ((found, *_),) = streams(analyzed(f"S[t] = S[t-1] + ({write}) @ v^T", READ))
    assert found == direction


def test_a_matrix_without_the_state_is_scaled_from_either_side():
    first, second = (analyzed(f"S[t] = S[t-1] + {write}", READ) for write in ("e * (k @ v^T)", "(k @ v^T) * e"))
    assert streams(first) == streams(second) == [("e * k", "v", None, None, False)]


def test_writes_along_two_directions_are_two_streams():
    form = analyzed("S[t] = exp(f) * S[t-1] + k @ v^T + e @ u^T", READ)
    assert streams(form) == [("k", "v", None, None, False), ("e", "u", None, None, False)]


def test_two_corrections_along_one_direction_are_one():
    form = analyzed("S[t] = S[t-1] + k @ (v - S[t-1]^T @ k - b * S[t-1]^T @ e)^T", READ)
    ((write, value, strength, correct, decayed),) = streams(form)
    assert (write, value, strength, decayed) == ("k", "v", None, False)
    assert correct == "-1 * k - b * e"


def test_a_state_declared_value_first_is_read_from_the_other_side():
    form = analyzed("S[t] = exp(g) * S[t-1] @ (I - b * k @ k^T) + b * v @ k^T", "o = S[t] @ q", declarations=VALUE_FIRST)
    assert (form.transposed, form.key_axis, form.value_axis) == (True, "K", "V")
    assert streams(form) == [("k", "b * v", "-b", "k", True)]


def test_orientation_without_correction_follows_the_reads():
    form = analyzed("S[t] = S[t-1] + v @ k^T", "o = S[t] @ q", declarations=VALUE_FIRST)
    assert (form.transposed, form.key_axis) == (True, "K")
    other = analyzed("S[t] = S[t-1] + k @ v^T", "o = S[t] @ u")
    assert (other.transposed, other.key_axis, streams(other)) == (True, "V", [("v", "k", None, None, False)])


def test_orientation_by_decay():
    form = analyzed("S[t] = S[t-1] * exp(h)^T + k @ v^T", "o = S[t] @ u")
    assert (form.transposed, form.key_axis, shown(form, form.decay.log)) == (True, "V", "h")


def test_a_correction_on_the_value_side_turns_the_state():
    form = analyzed("S[t] = S[t-1] + b * (k - S[t-1] @ v) @ v^T", "o = S[t] @ u")
    assert (form.key_axis, streams(form)) == ("V", [("v", "b * k", "-b", "v", False)])


def test_reads_before_and_after_the_write():
    form = analyzed("S[t] = S[t-1] + k @ v^T", "o = a * S[t]^T @ q + S[t-1]^T @ q")
    assert [(shown(form, r.query), r.lag) for r in form.reads] == [("a * q", 0), ("q", 1)]
    assert shown(form, form.outputs[0].value) == "r₁ + r₂"


@pytest.mark.parametrize("read", ["u^T @ (S[t]^T @ q)", "(S[t]^T @ q)^T @ u", "q^T @ S[t] @ u", "sum(u * (S[t]^T @ q))"])
def test_a_number_is_read_over_the_key_axis(read):
    form = analyzed("S[t] = S[t-1] + k @ v^T", f"o = {read}")
    assert (form.key_axis, [shown(form, r.query) for r in form.reads]) == ("K", ["q"])


def test_a_read_over_the_value_axis_is_a_read_across():
    form = analyzed("S[t] = S[t-1] + b * k @ (v - S[t-1]^T @ k)^T", "o = S[t]^T @ q + v", "p = S[t-1] @ u", "output o, p")
    assert (form.key_axis, [(shown(form, r.query), r.lag, r.across) for r in form.reads]) == ("K", [("q", 0, False), ("u", 1, True)])
    assert form.read_axes == ("V", "K")
    assert form.whole_values
    assert "a read sums over the value axis V and runs over K: read across" in form.notes


def test_a_correction_on_the_value_side_is_read_across():
    form = analyzed("S[t] = S[t-1] * exp(h)^T + b * (k - S[t-1] @ v) @ v^T", "o = S[t]^T @ q")
    assert (form.key_axis, form.transposed, form.decay.kind, [r.across for r in form.reads]) == ("V", True, "vector", [True])


def test_without_correction_and_decay_the_first_read_decides():
    form = analyzed("S[t] = S[t-1] + v @ k^T", "o = S[t]^T @ u", "p = S[t] @ q", "output o, p", declarations=VALUE_FIRST)
    assert (form.key_axis, form.transposed, [r.across for r in form.reads]) == ("V", False, [False, True])


def test_equal_reads_are_one():
    form = analyzed("S[t] = S[t-1] + k @ v^T", "r = S[t]^T @ q", "o = silu(u) * r + rmsnorm(r)")
    assert len(form.reads) == 1


def test_a_decay_of_params_alone_is_constant():
    declarations = "    input q : [K]\n    input k : [K]\n    input v : [V]\n    param d : [] log_decay\n    state S : [K, V]\n"
    form = analyzed("S[t] = exp(d) * S[t-1] + k @ v^T", READ, declarations=declarations)
    assert form.decay.constant
    assert "one decay for the whole state, constant in time" in form.notes


def by_value(form):
    """Both decays, and the streams."""
    return form.decay.kind, shown(form, form.value_decay.log), streams(form)


def test_a_decay_of_the_value_side_beside_a_correction():
    form = analyzed("D = exp(f) * S[t-1] * exp(h)^T", "S[t] = D + b * k @ (v - D^T @ k)^T", READ)
    assert by_value(form) == ("vector", "h", [("k", "b * v", "-b", "k", True)])
    assert form.by_value
    assert form.notes[:2] == ("one decay per key channel", "one decay per value channel")


@pytest.mark.parametrize(
    "lines",
    [
        ("S[t] = exp(g) * (I - b * k @ k^T) @ S[t-1] * exp(h)^T + b * k @ v^T",),
        ("D = exp(g) * S[t-1] * exp(h)^T", "S[t] = D + b * k @ (v - D^T @ k)^T"),
        ("S[t] = exp(g) * S[t-1] * exp(h)^T + b * k @ (v - exp(h) * (exp(g) * S[t-1]^T @ k))^T",),
    ],
)
def test_a_number_joins_the_decay_of_the_value_side(lines):
    assert by_value(analyzed(*lines, READ)) == ("none", "g + h", [("k", "b * v", "-b", "k", True)])


def test_a_correction_on_the_value_side_beside_a_decay_of_the_keys_is_turned():
    form = analyzed("S[t] = exp(f) * (S[t-1] @ (I - b * v @ v^T)) + k @ v^T", READ)
    assert (form.key_axis, form.transposed, [r.across for r in form.reads]) == ("V", True, [True])
    assert by_value(form) == ("none", "f", [("v", "k", "-b", "v", True)])


def test_a_correction_before_the_value_side_decays():
    form = analyzed("S[t] = exp(f) * S[t-1] * exp(h)^T - b * k @ (S[t-1]^T @ k)^T + k @ v^T", READ)
    assert by_value(form) == ("vector", "h", [("k", "v", "-b", "k", False)])
    half = analyzed("S[t] = exp(f) * S[t-1] * exp(h)^T - b * k @ ((exp(f) * S[t-1])^T @ k)^T + k @ v^T", READ)
    assert by_value(half) == ("vector", "h", [("k", "v", "-b", "exp(f) * k", False)])


def test_a_strength_for_every_value_channel():
    form = analyzed("S[t] = exp(g) * S[t-1] + k @ (b * u * (v - exp(g) * S[t-1]^T @ k))^T", READ)
    assert by_value(form) == ("scalar", None, [("k", "b * (u * v)", "-b * u", "k", True)])
    assert form.by_value and form.streams[0].strong_by_channel


def test_two_corrections_along_one_direction_with_one_strength_by_channel():
    form = analyzed("S[t] = S[t-1] + k @ (u * (v - S[t-1]^T @ k - b * S[t-1]^T @ e))^T", READ)
    ((write, value, strength, correct, _),) = streams(form)
    assert (write, value, strength, correct) == ("k", "u * v", "u", "-1 * k - b * e")


def test_a_strength_by_channel_and_a_decay_of_its_side():
    form = analyzed("D = S[t-1] * exp(h)^T", "S[t] = D + k @ (u * (v - D^T @ k))^T", READ)
    assert by_value(form) == ("none", "h", [("k", "u * v", "-u", "k", True)])


def test_a_decay_of_the_value_side_of_either_sign():
    form = analyzed("D = S[t-1] * u^T", "S[t] = D + k @ (v - D^T @ k)^T", READ)
    assert shown(form, form.value_decay.signed) == "u"
    assert not form.value_decay.bounded


def test_without_a_correction_both_sides_do_not_decay():
    assert not analyzed("S[t] = S[t-1] * exp(h)^T + k @ v^T", "o = S[t]^T @ q").by_value
