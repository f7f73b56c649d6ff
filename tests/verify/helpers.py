"""Compiled specs, and modules with a planted bug."""

from __future__ import annotations

import ast
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from recgen.codegen.emit import emit
from recgen.derive.chunk_ir import ChunkForm
from recgen.pipeline import Compiled, compile_text

ROOT = Path(__file__).resolve().parents[2]
SPECS = sorted([*ROOT.glob("specs/*.rec"), *ROOT.glob("tests/specs/*.rec")])


@cache
def compiled(name: str) -> Compiled:
    path = ROOT / f"{name}.rec"
    return compile_text(path.read_text(encoding="utf-8"), str(path))


def with_text(c: Compiled, text: str, tag: str) -> Compiled:
    """The same compilation with another module; operators have names of their own, so that both can live in one process."""
    namespace = f"recgen_{c.module.name}_"
    assert namespace in text
    return replace(c, module=replace(c.module, text=text.replace(namespace, f"{namespace}{tag}_")))


def with_chunk_form(c: Compiled, chunk: ChunkForm, tag: str) -> Compiled:
    """The module that a wrong derivation would have given."""
    return with_text(replace(c, chunk_form=chunk), emit(c.normal_form, c.operands, chunk, c.plan).text, tag)


def arguments_of(line: str) -> tuple[list[Any], dict[str, Any]]:
    """The arguments of the call in a line that reproduces a failure."""
    code = line.removeprefix('python -c "').removesuffix('"')
    call = next(n for n in ast.walk(ast.parse(code)) if isinstance(n, ast.Call) and ast.unparse(n.func) == "reproduce")
    return [ast.literal_eval(a) for a in call.args], {k.arg: ast.literal_eval(k.value) for k in call.keywords}
