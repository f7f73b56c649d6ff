"""Emits the module of a coupled form: the steps and the recurrent form of its equations, and the chunk form of all states together."""

from __future__ import annotations

from recgen.analysis.coupled_form import CoupledForm
from recgen.codegen.chunk_context import build_chunk_context
from recgen.codegen.chunk_states import stacked_states_text
from recgen.codegen.emit import GeneratedModule, fields, header, helpers_of, listing, rendered, spec_digest
from recgen.codegen.expressions import build_expressions
from recgen.codegen.module_context import build_module_context
from recgen.codegen.own_names import with_emitted_names
from recgen.codegen.phase_context import phase_context
from recgen.codegen.token_module import token_contexts
from recgen.derive.chunk_ir import ChunkForm
from recgen.derive.coupled_operands import CoupledOperands
from recgen.plan import CoupledPlan


def emit_coupled(form: CoupledForm, operands: CoupledOperands, chunk: ChunkForm, plan: CoupledPlan) -> GeneratedModule:
    """The module's text; raises an internal error if it does not parse."""
    r = form.recurrence
    digest = spec_digest(r.source.text)
    head = header(r, digest, f"coupled form: {coupled_form_line(form)}")
    module = build_module_context(form, head, digest, listing(operands), plan.tokens)
    form = with_emitted_names(form)
    expressions = build_expressions(form, operands)
    contexts, operations, lines = token_contexts(form.token, plan.recurrent)
    products = any("_product_to_chunks(" in text for text in expressions.operand_results)
    contexts |= {
        "m": module,
        "h": helpers_of(operations | expressions.operations, lines, products),
        "plan": plan,
        "c": build_chunk_context(stacked_states_text(form), operands, chunk, expressions.rereads),
        "e": fields(expressions),
        "chunk": phase_context(form, operands, chunk, plan),
    }
    return rendered(r.name, digest, contexts)


def coupled_form_line(form: CoupledForm) -> str:
    """The coupled form in one line."""
    lines = []
    for a, name in enumerate(form.names):
        own = {"none": f"{name}[t-1]", "scalar": f"exp(g{a + 1}) {name}[t-1]", "nothing": ""}[form.decays[a].kind]
        fed = [f"f{i + 1} {form.names[f.source]}[t{'-1' * f.lag}]" for i, f in enumerate(form.feeds) if f.target == a]
        writes = [f"w{i + 1} @ E{i + 1}^T" for i, s in enumerate(form.streams) if s.into[a] is not None]
        lines.append(f"{name}[t] = {' + '.join([*[own] * bool(own), *fed, *writes])}")
    return "; ".join(lines)
