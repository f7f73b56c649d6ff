"""Templates are skeletons. On Jinja's own syntax tree: they print, loop over tuples, branch on booleans, include, and call macros.

Arithmetic, comparison, assignment, indexing, tests and filters belong into Python, where they are typed and tested.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
from jinja2 import Environment, nodes

from recgen.resources import resource

TEMPLATES = sorted(path for path in resource("templates").rglob("*") if path.is_file())

STATEMENTS = (
    nodes.Template,
    nodes.Output,
    nodes.TemplateData,
    nodes.For,
    nodes.If,
    nodes.Include,
    nodes.Import,
    nodes.FromImport,
    nodes.Macro,
    nodes.CallBlock,
)
EXPRESSIONS = (nodes.Name, nodes.Getattr, nodes.Const, nodes.Tuple, nodes.Call, nodes.Keyword, nodes.Not, nodes.And, nodes.Or, nodes.Filter)
PATHS = (nodes.Name, nodes.Getattr)
BOOLEANS = (*PATHS, nodes.Not, nodes.And, nodes.Or)
LAYOUT_FILTERS = {"indent"}
"""Filters that move text and decide nothing."""


def macros(tree: nodes.Template) -> set[str]:
    """The names that may be called: macros, imported macros, imported templates, and a macro's caller."""
    names = {"caller"} | {macro.name for macro in tree.find_all(nodes.Macro)} | {item.target for item in tree.find_all(nodes.Import)}
    for item in tree.find_all(nodes.FromImport):
        names |= {name if isinstance(name, str) else name[1] for name in item.names}
    return names


def root(path: nodes.Node) -> str | None:
    """The variable at the front of `a.b.c`; None for anything else."""
    while isinstance(path, nodes.Getattr):
        path = path.node
    return path.name if isinstance(path, nodes.Name) else None


def faults(text: str) -> list[str]:
    """What a template does that it must not, with line numbers."""
    tree = Environment().parse(text)
    callable_names = macros(tree)
    return [f"line {node.lineno}: {reason}" for node in descend(tree) if (reason := fault(node, callable_names))]


def descend(node: nodes.Node) -> Iterator[nodes.Node]:
    yield node
    for child in node.iter_child_nodes():
        yield from descend(child)


def fault(node: nodes.Node, callable_names: set[str]) -> str | None:
    """Why this node is not allowed, or None."""
    if not isinstance(node, (*STATEMENTS, *EXPRESSIONS)):
        return f"{type(node).__name__} is logic"
    match node:
        case nodes.If() if any(not isinstance(part, BOOLEANS) for part in descend(node.test)):
            return "a branch tests a boolean"
        case nodes.For() if not isinstance(node.iter, PATHS) or node.test is not None or node.recursive:
            return "a loop goes over a tuple, all of it"
        case nodes.Call() if root(node.node) not in callable_names:
            return "only macros are called"
        case nodes.Filter() if node.name not in LAYOUT_FILTERS:
            return f"filter {node.name}"
        case nodes.Output() if any(isinstance(part, (nodes.Const, nodes.Tuple, nodes.Not, nodes.And, nodes.Or)) for part in node.nodes):
            return "only variables are printed"
    return None


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.relative_to(resource("templates")).as_posix())
def test_template_is_a_skeleton(path: Path):
    assert faults(path.read_text(encoding="utf-8")) == []


def test_there_are_templates():
    assert TEMPLATES


ALLOWED = """
{% from "a.j2" import load, store as put %}{% import "b.j2" as b %}{% include "c.j2" %}
{% macro row(x) %}{{ x.name }}{% endmacro %}
{% for name, step in kernel.steps %}{{ load(step, mask=true) }}{{ b.put(step.out) | indent(4) }}{{ row(name) }}{% endfor %}
{% if kernel.has_state and not packed %}{{ put(kernel) }}{% elif vector %}x{% else %}y{% endif %}
"""

FORBIDDEN = [
    "{{ a + 1 }}",
    "{{ a ~ b }}",
    "{{ -a }}",
    "{{ a == b }}",
    "{% if a > 1 %}{% endif %}",
    "{% if a is defined %}{% endif %}",
    "{% if f(a) %}{% endif %}",
    "{% set a = 1 %}",
    "{{ a[0] }}",
    "{{ a if b else c }}",
    "{{ a | upper }}",
    "{{ a.method() }}",
    "{{ range(3) }}",
    "{{ 'text' }}",
    "{% for x in (1, 2) %}{% endfor %}",
    "{% for x in f(a) %}{% endfor %}",
    "{% for x in a if x.b %}{% endfor %}",
    "{{ [a, b] }}",
    "{% with a = b %}{% endwith %}",
]


def test_what_a_skeleton_needs_is_allowed():
    assert faults(ALLOWED) == []


@pytest.mark.parametrize("text", FORBIDDEN)
def test_logic_is_found(text: str):
    assert faults(text)
