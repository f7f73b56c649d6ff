"""What generated functions call their own things is reserved, so that no argument of a spec can stand in its place."""

import ast

import pytest

from recgen.lang.functions import CONTRACT_ARGUMENTS, argument_reason
from tests.numerics.helpers import SPECS, compiled

each_spec = pytest.mark.parametrize("path", SPECS, ids=lambda p: p.stem)


@each_spec
def test_public_functions_and_kernel_pointers(path):
    result = compiled(path)
    r = result.recurrence
    theirs = {x.name for x in (*r.arguments, *r.declared, *r.options, *r.definitions)} | set(CONTRACT_ARGUMENTS)
    tree = ast.parse(result.module.text)
    found = set()
    for function in (node for node in tree.body if isinstance(node, ast.FunctionDef)):
        if not function.name.startswith("_"):
            found |= _own(function)
        if function.name.endswith("_kernel"):
            found |= {a.arg.removeprefix("p_") for a in function.args.args if a.arg.startswith("p_")}
    unreserved = {n for n in found - theirs if argument_reason(n) is None}
    assert {n for n in unreserved if not n.startswith(("d_", *(f"{x.name}_" for x in r.arguments)))} == set(), "recgen/lang/functions.py"


def _own(function):
    """The names that a function's body uses, without those that a loop binds: by then the arguments are collected."""
    inner = {
        n.id
        for c in ast.walk(function)
        if isinstance(c, ast.comprehension | ast.For)
        for n in ast.walk(c.target)
        if isinstance(n, ast.Name)
    }
    return {n.id for line in function.body for n in ast.walk(line) if isinstance(n, ast.Name)} - inner
