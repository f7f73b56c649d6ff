"""Emits a module: contexts into templates, the text parsed before anyone sees it."""

from __future__ import annotations

import hashlib
import inspect
import re
import textwrap
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from recgen.analysis.normal_form import NormalForm
from recgen.codegen.chunk_context import build_chunk_context
from recgen.codegen.chunk_kernel_context import chunk_kernel_context
from recgen.codegen.chunk_states import states_text
from recgen.codegen.expressions import Expressions, build_expressions, local
from recgen.codegen.module_context import build_module_context
from recgen.codegen.module_docs import docstring
from recgen.codegen.own_names import with_emitted_names
from recgen.codegen.phase_context import by_value_context
from recgen.codegen.token_printer import token_text
from recgen.codegen.torch_programs import HELPERS
from recgen.codegen.triton_context import triton_context
from recgen.derive.chunk_ir import ChunkForm
from recgen.derive.operands import NamedOperands, OperandSet
from recgen.lang.recurrence import Recurrence
from recgen.plan import KernelPlan
from recgen.resources import resource
from recgen.tiles import ChunkTiles
from recgen.version import COMPILER_REVISION

if TYPE_CHECKING:
    from jinja2 import Environment


WIDTH = 136
"""Columns of the emitted text, without the quotes that close a docstring."""


@dataclass(frozen=True)
class GeneratedModule:
    """An emitted module: its text, the digest of spec and compiler revision, and what is in it."""

    name: str
    text: str
    digest: str
    manifest: tuple[tuple[str, str], ...]


def spec_digest(spec_text: str, tuned: tuple[ChunkTiles, ...] = ()) -> str:
    """Of the spec, the compiler's revision and tuned tiles if there are any: the same give the same module."""
    tiles = f"\0{tuned}" if tuned else ""
    return hashlib.sha256(f"{COMPILER_REVISION}\0{spec_text}{tiles}".encode()).hexdigest()


@lru_cache(maxsize=1)
def environment() -> Environment:
    """The templates, with undefined names an error."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    return Environment(
        loader=FileSystemLoader(resource("templates")),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )


def emit(form: NormalForm, operands: OperandSet, chunk: ChunkForm, plan: KernelPlan) -> GeneratedModule:
    """The module's text; raises an internal error if it does not parse."""
    digest = spec_digest(form.recurrence.source.text, plan.tuned)
    head = header(form.recurrence, digest, f"normal form: {normal_form_line(form)}", len(plan.tuned))
    module = build_module_context(form, head, digest, listing(operands), plan.tokens)
    form = with_emitted_names(form)
    r = form.recurrence
    expressions = build_expressions(form, operands)
    context = build_chunk_context(states_text(form, operands), operands, chunk, expressions.rereads)
    token = token_text(r, {name: local(name) for name in (*(a.name for a in r.arguments), *(d.name for d in r.definitions))})
    recurrent_kernels = triton_context(form, operands, plan.recurrent)
    helpers = helpers_of(expressions.operations, token.lines, any("_product_to_chunks(" in text for text in expressions.operand_results))
    contexts = {
        "m": module,
        "plan": plan,
        "c": context,
        "h": helpers,
        "e": fields(expressions),
        "one": token,
        "triton": recurrent_kernels,
        "chunk": by_value_context(form, operands, chunk, plan)
        if plan.phased
        else chunk_kernel_context(form, operands, plan, recurrent_kernels.functions),
    }
    return rendered(r.name, digest, contexts)


def rendered(name: str, digest: str, contexts: dict[str, object]) -> GeneratedModule:
    """The module that the templates make of these contexts."""
    text = environment().get_template("module.py.j2").render(contexts)
    text = _tidy(text if "math." in text else text.replace("\nimport math\n", "\n", 1))
    compile(text, f"{name}.py", "exec")
    manifest = (("spec", name), ("digest", digest), ("language", "1"), ("compiler", COMPILER_REVISION))
    return GeneratedModule(name, text, digest, manifest)


def listing(operands: NamedOperands) -> str:
    """The operands with their symbols, on as many lines of a docstring as they need."""
    text = ", ".join(f"{o.name} ({o.symbol})" for o in operands.operands) + "."
    return textwrap.fill(text, WIDTH, initial_indent=" " * 65, subsequent_indent=" " * 8).lstrip() + "\n    " * (len(text) + 65 > WIDTH)


def helpers_of(operations: frozenset[str], token: tuple[str, ...], products: bool) -> dict[str, bool]:
    """Which helper functions the module needs."""
    used = operations | ({"softplus"} if any("_softplus(" in line for line in token) else set())
    found = {name: any(HELPERS.get(op) == name for op in used) for name in dict.fromkeys(HELPERS.values())}
    return {**found, "identity": any("_identity(" in line for line in token), "product_to_chunks": products}


def fields(record: Expressions) -> dict[str, object]:
    """A record by the names of its fields."""
    return asdict(record)


def header(recurrence: Recurrence, digest: str, form: str, tuned: int = 0) -> tuple[str, ...]:
    """What the module says of itself: how it came about, its form in one line, the spec."""
    tiles = f"with {tuned} tuned row{'s' * (tuned != 1)} of tiles" if tuned else ""
    spec = inspect.cleandoc(recurrence.source.text).rstrip().split("\n")
    return (
        f"Do not edit: change the spec and run `recgen build{' --tiles FILE' if tiles else ''}`.",
        "",
        f"language 1, compiler revision {COMPILER_REVISION}, digest {digest}{', ' if tiles else ''}{tiles}",
        form,
        "",
        *(docstring(f"    {line}".rstrip()) for line in spec),
    )


def normal_form_line(form: NormalForm) -> str:
    """The normal form in one line."""
    decay = {"none": "", "scalar": "exp(g) ", "vector": "diag(exp(g)) "}[form.decay.kind]
    of_values = " diag(exp(u))" * (form.value_decay.kind != "none")
    writes = []
    for i, s in enumerate(form.streams):
        n = "" if len(form.streams) == 1 else str(i + 1)
        before = f"{decay}S[t-1]{of_values}" if s.decayed else "S[t-1]"
        before = before if s.slot == form.streams[0].slot else f"S[t, {s.slot - 1}]"
        found = before if s.correct is not None else ""
        strength = f"c{n} {'* ' * s.strong_by_channel}" * (s.strength is not None)
        correction = f"{strength}({found})^T a{n}" if found else ""
        parts = [f"X{n}"] * (s.value is not None) + [correction] * bool(correction)
        writes.append(f"w{n} @ ({' + '.join(parts)})^T")
    last = len(form.state.micro)
    states = [("t-1" if r.lag else "t" if r.slot == last else f"t, {r.slot}", r.across) for r in form.reads]
    reads = sorted({f"S[{at}]{'' if across else '^T'} q" for at, across in states})
    return f"S[t] = {decay}S[t-1]{of_values} + {' + '.join(writes)}; reads {', '.join(reads)}"


def _tidy(text: str) -> str:
    """At most two blank lines, none at the end, no trailing spaces."""
    text = re.sub(r"[ \t]+\n", "\n", text)
    return re.sub(r"\n{4,}", "\n\n\n", text).rstrip() + "\n"
