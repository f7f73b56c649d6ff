"""Text -> syntax tree: precedence, declarations, line continuation, spans."""

from __future__ import annotations

import pytest

from recgen.lang import Source, SpecErrors, parse, syntax
from tests.lang.helpers import expression, source


def show(expr: syntax.Expr) -> str:
    """The tree with every operation in brackets."""
    match expr:
        case syntax.Number(text=text):
            return text
        case syntax.Name(name=name):
            return name
        case syntax.Identity():
            return "I"
        case syntax.StateRef(name=name, lag=lag):
            return f"{name}[t{'-1' if lag else ''}]"
        case syntax.Negate(operand=operand):
            return f"(-{show(operand)})"
        case syntax.Transpose(operand=operand):
            return f"({show(operand)}^T)"
        case syntax.Binary(op=op, left=left, right=right) | syntax.Compare(op=op, left=left, right=right):
            return f"({show(left)} {op} {show(right)})"
        case syntax.Conditional():
            return f"({show(expr.then)} if {'not ' if expr.negated else ''}{show(expr.test)} else {show(expr.otherwise)})"
        case syntax.Call(function=function, arguments=arguments):
            return f"{function}({', '.join(show(a) for a in arguments)})"
    raise AssertionError(expr)


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        ("-x^2", "(-(x ^ 2))"),
        ("2^-1", "(2 ^ (-1))"),
        ("2^-x^2", "(2 ^ (-(x ^ 2)))"),
        ("x^y^z", "(x ^ (y ^ z))"),
        ("a * b @ c / d", "(((a * b) @ c) / d)"),
        ("beta * k @ k^T", "((beta * k) @ (k^T))"),
        ("a - b - c + d", "(((a - b) - c) + d)"),
        ("a + b * c", "(a + (b * c))"),
        ("-a * b", "((-a) * b)"),
        ("a * -b", "(a * (-b))"),
        ("--a", "(-(-a))"),
        ("kn^T @ S[t-1]", "((kn^T) @ S[t-1])"),
        ("-k^T", "(-(k^T))"),
        ("x^2^T", "(x ^ (2^T))"),
        ("x^T^2", "((x^T) ^ 2)"),
        ("x^T^T", "((x^T)^T)"),
        ("x ^ T", "(x^T)"),
        ("x^Two", "(x ^ Two)"),
        ("a + b if f else c * d", "((a + b) if f else (c * d))"),
        ("a if f else b if h else c", "(a if f else (b if h else c))"),
        ("(a if f else b) + c", "((a if f else b) + c)"),
        ("a if not f else b", "(a if not f else b)"),
        ("a if not not f else b", "(a if f else b)"),
        ("where(a + b < c, x, y)", "where(((a + b) < c), x, y)"),
        ("(I - a) @ S[ t - 1 ]", "((I - a) @ S[t-1])"),
        ("f()", "f()"),
        ("1e-5 + .5 + 2. + inf", "(((1e-5 + .5) + 2.) + inf)"),
    ],
)
def test_precedence(text: str, tree: str) -> None:
    assert show(expression(text)) == tree


def test_declarations() -> None:
    spec = parse(
        source(
            '"What it does, # included."',
            "input q : [K] grouped log_decay floor(-5)  # words in any order",
            "input w : [n, K] in(-inf, 1e3) grouped",
            "param A : []",
            "const n = 2",
            "option f = true",
            "option scale = K^-0.5",
            "state S : [K, V]",
            "output o, p",
            "plan scan",
            "stabilize log",
        )
    )
    q, w, a, const, flag, scale, state, output, plan, stabilize = spec.statements
    assert (spec.language, spec.name.name, spec.doc) == (1, "r", "What it does, # included.")
    assert isinstance(q, syntax.ArgumentDecl)
    assert q.domain is not None
    assert (q.role, q.grouped, q.domain.name, q.domain.bounds, q.domain.floor) == ("input", True, "log_decay", (), -5.0)
    assert isinstance(w, syntax.ArgumentDecl)
    assert w.domain is not None
    assert ([x.name for x in w.axes], w.domain.bounds, w.grouped) == (["n", "K"], (float("-inf"), 1000.0), True)
    assert isinstance(a, syntax.ArgumentDecl)
    assert (a.role, a.axes, a.domain) == ("param", (), None)
    assert isinstance(const, syntax.ConstDecl)
    assert const.value == 2
    assert isinstance(flag, syntax.OptionDecl)
    assert flag.default is True
    assert isinstance(scale, syntax.OptionDecl)
    assert isinstance(scale.default, syntax.Binary)
    assert isinstance(state, syntax.StateDecl)
    assert isinstance(output, syntax.OutputDecl)
    assert [n.name for n in output.names] == ["o", "p"]
    assert isinstance(plan, syntax.Directive)
    assert (plan.keyword, plan.value) == ("plan", "scan")
    assert isinstance(stabilize, syntax.Directive)


def test_micro_steps_parse() -> None:
    first, step = parse(source("S[t, 0] = exp(g) * S[t-1]", "S[t, j] = S[t, j-1] + k[j] for j in 1..n")).statements
    assert isinstance(first, syntax.Equation)
    assert isinstance(first.target, syntax.StateRef)
    assert first.target.micro is not None
    assert (first.target.micro.variable, first.target.micro.value) == (None, 0)
    assert isinstance(step, syntax.Equation)
    assert step.loop is not None
    assert (step.loop.variable, step.loop.first, step.loop.last) == ("j", 1, "n")
    assert isinstance(step.value, syntax.Binary)
    assert isinstance(step.value.left, syntax.StateRef)
    assert step.value.left.micro is not None
    assert (step.value.left.micro.variable, step.value.left.micro.value) == ("j", 1)
    assert isinstance(step.value.right, syntax.Index)


def test_lines_go_on_inside_brackets() -> None:
    (equation,) = parse(source("o = (a  # first", "    + b", "", "    # between", "  )")).statements
    assert isinstance(equation, syntax.Equation)
    assert show(equation.value) == "(a + b)"
    assert equation.span.line == 4
    assert equation.span.end_line == 8


def test_a_forgotten_bracket_does_not_eat_the_next_statement() -> None:
    with pytest.raises(SpecErrors) as caught:
        parse(source("x = (a", "state S : [K, V]", "y = b]"))
    assert [(d.code, d.span.line) for d in caught.value.diagnostics] == [("E008", 4), ("E009", 6)]


def test_keywords_are_names_inside_lines() -> None:
    (equation,) = parse(source("o = input + plan")).statements
    assert isinstance(equation, syntax.Equation)
    assert show(equation.value) == "(input + plan)"


def test_indentation_and_blank_lines_do_not_matter() -> None:
    plain = parse(Source("a", "language 1\nrecurrence r\ninput q : [K]\no = q\n"))
    wide = parse(Source("b", "\n\n\tlanguage   1\r\n\r\n  recurrence r # named\r\n\t\tinput q:[ K ]\n o=q"))
    assert plain == wide


def test_text_over_several_lines_is_joined() -> None:
    assert parse(Source("a", 'language 1\nrecurrence r\n"one"\n"two"\no = q')).doc == "one\ntwo"


def test_spans_are_exact() -> None:
    tree = expression("aa * (b + c) @ S[t-1]")
    assert isinstance(tree, syntax.Binary)
    spans = [(x.column, x.end_column) for x in (tree.span, tree.left.span, tree.op_span, tree.right.span)]
    assert spans == [(9, 30), (9, 21), (22, 23), (24, 30)]
