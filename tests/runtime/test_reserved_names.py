"""What generated functions call their own things is reserved, so that no argument of a spec can stand in its place."""

import ast
import builtins
import symtable
from collections.abc import Iterator

import pytest

from recgen.lang import SpecErrors
from recgen.lang.functions import CONTRACT_ARGUMENTS, IMPORTED_BY_GENERATED, argument_reason, recurrence_reason
from recgen.pipeline import Compiled, CoupledCompiled, compile_text
from tests.numerics.helpers import SPECS, compiled

each_spec = pytest.mark.parametrize("path", SPECS, ids=lambda p: p.stem)


@each_spec
def test_public_functions_and_kernel_pointers(path):
    result = compiled(path)
    r = result.recurrence
    theirs = {x.name for x in (*r.arguments, *r.declared, *r.options, *r.definitions)} | set(CONTRACT_ARGUMENTS)
    if isinstance(result, CoupledCompiled) or (isinstance(result, Compiled) and result.plan.phased):
        theirs |= {o.name for o in result.operands.operands}  # kernels that take operands take no arguments beside them
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


@each_spec
def test_a_recurrence_has_the_name_of_nothing_that_its_module_uses(path):
    """What a module imports, and what its functions look up in it or among the builtins of Python."""
    result = compiled(path)
    used = _looked_up(symtable.symtable(result.module.text, path.name, "exec")) | _imported(result.module.text)
    public = {p + result.recurrence.name for p in ("", "chunk_", "fused_recurrent_", "naive_recurrent_", "step_")}
    assert not used & public
    assert {name for name in used if recurrence_reason(name) is None} == set(), "recgen/lang/functions.py"


def test_reserved_imports_are_those_of_some_module():
    assert set().union(*(_imported(compiled(path).module.text) for path in SPECS)) == IMPORTED_BY_GENERATED


@pytest.mark.parametrize("name", ["torch", "F", "math", "range", "float", "dict", "any", "tuple", "len", "isinstance", "_run", "_STATES"])
def test_such_a_recurrence_is_refused(name):
    text = SPECS[0].read_text(encoding="utf-8").replace(f"recurrence {compiled(SPECS[0]).recurrence.name}", f"recurrence {name}")
    with pytest.raises(SpecErrors, match=f"E203.*`{name}`"):
        compile_text(text, "named.rec")


def _imported(text):
    """The names that a module imports."""
    lines = (n for n in ast.walk(ast.parse(text)) if isinstance(n, ast.Import | ast.ImportFrom))
    return {a.asname or a.name for line in lines if getattr(line, "module", "") != "__future__" for a in line.names}


def _looked_up(table):
    """The names that the functions and classes of a module look up in it, or else in Python."""
    found = {s.get_name() for t in _tables(table) if t is not table for s in t.get_symbols() if s.is_referenced() and s.is_global()}
    return {name for name in found if name in table.get_identifiers() or hasattr(builtins, name)}


def _tables(table) -> Iterator[symtable.SymbolTable]:
    yield table
    for inner in table.get_children():
        yield from _tables(inner)
