"""Syntax tree -> recurrence: shapes, `I`, options, outputs, what is needed when."""

from __future__ import annotations

from pathlib import Path

import pytest

from recgen.lang import Diagnostic, SpecErrors, compile_spec, read_source
from recgen.lang.functions import CONTRACT_ARGUMENTS
from recgen.lang.recurrence import Interval
from tests.lang.helpers import checked, codes, compiled, show, source, term

SPECS = Path(__file__).parents[2] / "specs"


@pytest.mark.parametrize("path", sorted(SPECS.glob("*.rec")), ids=lambda p: p.stem)
def test_shipped_specs_are_valid(path: Path) -> None:
    assert compile_spec(read_source(path)).outputs


@pytest.mark.parametrize(
    ("text", "shape", "form"),
    [
        ("a * k", ("K", "1"), "mul(a, k)"),
        ("k * S[t]", ("K", "V"), "mul(k, S0)"),
        ("v^T * S[t-1]", ("K", "V"), "mul(transpose(v), S1)"),
        ("k^T @ q", ("1", "1"), "matmul(transpose(k), q)"),
        ("k @ v^T", ("K", "V"), "matmul(k, transpose(v))"),
        ("b * k @ k^T", ("K", "K"), "matmul(mul(b, k), transpose(k))"),
        ("k @ a", ("K", "1"), "matmul(k, a)"),
        ("a @ b", ("1", "1"), "matmul(a, b)"),
        ("I - b * k @ k^T", ("K", "K"), "sub(IK, matmul(mul(b, k), transpose(k)))"),
        ("(2 * I) @ S[t]", ("K", "V"), "matmul(mul(2, IK), S0)"),
        ("S[t] @ (I + w @ w^T)", ("K", "V"), "matmul(S0, add(IV, matmul(w, transpose(w))))"),
        ("S[t] @ (a * I / 2)", ("K", "V"), "matmul(S0, div(mul(a, IV), 2))"),
        ("exp(g) * (I - k @ k^T)^T @ S[t]", ("K", "V"), "matmul(mul(exp(g), transpose(sub(IK, matmul(k, transpose(k))))), S0)"),
        ("gk * I", ("K", "K"), "mul(gk, IK)"),
        ("I @ k", ("K", "1"), "matmul(IK, k)"),
        ("max(I, k @ k^T)", ("K", "K"), "max(IK, matmul(k, transpose(k)))"),
        ("I if flag else k @ k^T", ("K", "K"), "select<flag>(IK, matmul(k, transpose(k)))"),
        ("q if not flag else k", ("K", "1"), "select<flag>(k, q)"),
        ("where(a > b, k, 0)", ("K", "1"), "where<(b, a, k, 0)"),
        ("where(k >= 0, k, q)", ("K", "1"), "where<=(0, k, k, q)"),
        ("where(k <= 0, 1, 2)", ("K", "1"), "where<=(k, 0, 1, 2)"),
        ("where(a < b, S[t], k)", ("K", "V"), "where<(a, b, S0, k)"),
        ("sum(k * q)", ("1", "1"), "sum(mul(k, q))"),
        ("sum(k^T)", ("1", "1"), "sum(transpose(k))"),
        ("l2norm(k)", ("K", "1"), "l2norm(k)"),
        ("rmsnorm(v^T)", ("1", "V"), "rmsnorm(transpose(v))"),
        ("k^-0.5", ("K", "1"), "pow(k, -0.5)"),
        ("K^-0.5 * x", ("1", "1"), "mul(pow(#K, -0.5), x)"),
        ("-k", ("K", "1"), "neg(k)"),
        ("min(k, inf)", ("K", "1"), "min(k, inf)"),
        ("softplus(S[t])", ("K", "V"), "softplus(S0)"),
    ],
)
def test_terms(text: str, shape: tuple[str, str], form: str) -> None:
    found = term(text)
    assert (found.shape, show(found)) == (shape, form)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("k * v", "E301"), ("k + v", "E301"), ("S[t] + P[t]", "E301"), ("v * S[t]", "E301"), ("I + k", "E301"), ("I + S[t]", "E301"),
        ("k * k^T", "E302"), ("k^T + v", "E302"), ("max(k, v^T)", "E302"),
        ("k @ v", "E303"), ("S[t] @ k", "E303"), ("k^T @ P[t]", "E303"), ("k @ I", "E303"),
        ("a @ S[t]", "E304"), ("a @ k", "E304"), ("S[t] @ a", "E304"), ("a @ I", "E304"),
        ("I", "E305"), ("2 * I^T", "E305"), ("I @ I", "E305"), ("I + 1", "E305"),
        ("l2norm(a)", "E306"), ("sum(S[t])", "E306"), ("rmsnorm(I)", "E306"),
        ("a^k", "E307"), ("2^S[t]", "E307"), ("q if flag else v", "E308"), ("1 if flag else k", "E308"),
    ],
)  # fmt: skip
def test_shape_errors(text: str, code: str) -> None:
    with pytest.raises(SpecErrors) as caught:
        term(text)
    assert [d.code for d in caught.value.diagnostics] == [code]


def test_lines_in_any_order_and_definitions_inlined() -> None:
    equations = ("o = S[t]^T @ y", "y = 2 * z", "S[t] = S[t-1] + z @ v^T", "z = -q")
    found = compiled(*equations, "state S : [K, V]", "input v : [V]", "input q : [K]")
    assert [d.name for d in found.definitions] == ["z", "y", "o"]
    assert show(found.definition("o")) == "matmul(transpose(S0), mul(2, neg(q)))"
    assert show(found.states[0].equation) == "add(S1, matmul(neg(q), transpose(v)))"
    assert found.outputs == ("o",)


def test_declared_outputs_keep_their_order_and_may_be_read() -> None:
    found = compiled("input k : [K]", "state s : [K]", "s[t] = s[t-1] + k", "n = sum(s[t])", "o = s[t] / n", "output n, o")
    assert found.outputs == ("n", "o")


def test_arguments_options_consts_and_directives() -> None:
    found = compiled(
        "input k : [K] grouped", "input g : [] log_decay floor(-5)", "input b : [] in(-1, 1)", "param p : [K] positive", "const n = 3",
        "option scale = n / K^0.5", "option eps = 1e-6", "state s : [K]", "plan recurrent", "stabilize log",
        "s[t] = exp(g) * s[t-1] + b * k * p", "o = scale * s[t] + eps",
    )  # fmt: skip
    assert [(a.name, a.role, a.axes, a.grouped, a.domain) for a in found.arguments] == [
        ("k", "input", ("K",), True, ""),
        ("g", "input", (), False, "log_decay"),
        ("b", "input", (), False, "in"),
        ("p", "param", ("K",), False, "positive"),
    ]
    assert [a.interval for a in found.arguments[1:]] == [Interval(-5, 0), Interval(-1, 1), Interval(0)]
    assert [o.name for o in found.options] == ["scale", "eps"]
    scale = found.options[0].default
    assert not isinstance(scale, bool)
    assert show(scale) == "div(3, pow(#K, 0.5))"
    assert (found.consts, found.plan, found.stabilize) == ((("n", 3),), "recurrent", True)


def test_arguments_read_only_under_options() -> None:
    found = compiled(
        "input k : [K]", "input d : [K]", "input e : [K]", "input f : [K]", "input h : [K]", "option use_d = false", "option use_e = true",
        "state s : [K]",
        "kd = k + d if use_d else k",
        "s[t] = s[t-1] + kd + (k if use_e else e)",
        "o = s[t] + (f if use_d else f * k) + ((h if use_e else k) if use_d else k) + (k if use_d else e)",
    )  # fmt: skip
    assert {a.name: a.needed_if for a in found.arguments} == {
        "k": (),
        "d": (("use_d", True),),
        "e": (("use_d", False), ("use_e", False)),
        "f": (),
        "h": (("use_d", True),),
    }


def test_square_state_is_only_a_warning() -> None:
    result = checked("input k : [K]", "state S : [K, K]", "S[t] = S[t-1] @ (I - k @ k^T)", "o = S[t] @ k")
    assert [w.code for w in result.warnings] == ["W501"]
    assert result.recurrence.states[0].axes == ("K", "K")


def test_identity_takes_the_size_of_its_state() -> None:
    found = compiled("input k : [K]", "state S : [K, K]", "S[t] = 2 * I", "o = S[t-1] @ k")
    assert show(found.states[0].equation) == "mul(2, IK)"


def test_vector_and_scalar_states() -> None:
    found = compiled("input g : [] log_decay", "state n : []", "n[t] = exp(g) * n[t-1] + 1", "o = n[t]")
    assert found.states[0].equation.shape == ("1", "1")


@pytest.mark.parametrize("name", ["t", "T", "I", "true", "inf", "exp", "where", "lambda", *CONTRACT_ARGUMENTS])
def test_reserved_names(name: str) -> None:
    assert "E203" in codes(f"input {name} : [K]")


def test_scale_and_B_are_free() -> None:
    assert compiled("input B : [K]", "option scale = 1", "state s : [K]", "s[t] = s[t-1] + scale * B", "o = s[t]").outputs == ("o",)


def test_an_error_in_a_definition_is_reported_once() -> None:
    lines = ("input k : [K]", "input v : [V]", "state s : [K]", "x = k + v", "y = 2 * x", "s[t] = s[t-1] + y", "o = s[t] + y")
    assert codes(*lines) == ["E301"]


def test_warnings_are_handed_over() -> None:
    heard: list[Diagnostic] = []
    compile_spec(source("input k : [K]", "state S : [K, K]", "S[t] = S[t-1] + k @ k^T", "o = S[t] @ k"), heard.append)
    assert [d.code for d in heard] == ["W501"]
