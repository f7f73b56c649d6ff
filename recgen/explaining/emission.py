"""The stage emit: the module that is written."""

from __future__ import annotations

import ast

from recgen.codegen.emit import GeneratedModule
from recgen.explaining.document import Items, Paragraph, Stage, Table


def explain_emit(module: GeneratedModule) -> Stage:
    """File, public functions, operators, digest."""
    tree = ast.parse(module.text)
    public = [n for n in tree.body if isinstance(n, ast.FunctionDef) and not n.name.startswith("_")]
    rows = tuple((f.name, (ast.get_docstring(f) or "").split("\n")[0]) for f in public)
    functions = [n for n in tree.body if isinstance(n, ast.FunctionDef)]
    operators = tuple(f.name.removeprefix("_") for f in functions if any("_operator" in ast.dump(d) for d in f.decorator_list))
    lines = module.text.count("\n")
    facts = (f"file {module.name}.py, {lines} lines", f"digest {module.digest}", f"operators: {', '.join(operators)}")
    manifest = ", ".join(f"{key} {value}" for key, value in module.manifest if key != "digest")
    blocks = (Items(facts), Table(("function", "for"), rows), Paragraph(f"Manifest: {manifest}."))
    data = {
        "file": f"{module.name}.py",
        "lines": lines,
        "digest": module.digest,
        "functions": dict(rows),
        "operators": list(operators),
        "manifest": dict(module.manifest),
    }
    return Stage("emit", "the module", blocks, data)
