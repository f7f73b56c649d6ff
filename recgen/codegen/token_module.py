"""Emits the module of a token form: step and recurrent forms."""

from __future__ import annotations

from dataclasses import replace

from recgen.analysis.scan_form import ScanForm
from recgen.analysis.token_form import TokenForm
from recgen.codegen.emit import GeneratedModule, header, helpers_of, rendered, spec_digest
from recgen.codegen.expressions import RESERVED, local
from recgen.codegen.module_context import build_module_context
from recgen.codegen.own_names import with_emitted_names
from recgen.codegen.scan_context import build_scan_context
from recgen.codegen.scan_kernels import scan_kernels
from recgen.codegen.token_gradient import gradient_text
from recgen.codegen.token_kernels import TokenKernels, token_kernels
from recgen.codegen.token_printer import token_text
from recgen.derive.token_program import token_program
from recgen.plan import RecurrentTiles, ScanPlan, TokenPlan


def emit_token(form: TokenForm, plan: TokenPlan) -> GeneratedModule:
    """The module's text; raises an internal error if it does not parse."""
    renamed = with_emitted_names(form)
    contexts, operations, lines = token_contexts(renamed, plan.recurrent)
    return _rendered(form, {**contexts, "h": helpers_of(operations, lines, False)})


def emit_scan(form: ScanForm, plan: ScanPlan) -> GeneratedModule:
    """The text of a scan's module: that of its token form, and tiles of tokens; raises an internal error if it does not parse."""
    renamed = replace(form, token=with_emitted_names(form.token))
    chunks = build_scan_context(renamed)
    contexts, operations, lines = token_contexts(renamed.token, plan.recurrent)
    kernels = contexts["triton"]
    assert isinstance(kernels, TokenKernels)
    contexts |= {"plan": plan, "scan": chunks, "scan_kernels": scan_kernels(renamed, plan, kernels.functions)}
    return _rendered(form.token, {**contexts, "h": helpers_of(operations | chunks.operations, lines, False)})


def _rendered(form: TokenForm, contexts: dict[str, object]) -> GeneratedModule:
    """The module that the templates make of these contexts and of what is said of the form."""
    r = form.recurrence
    digest = spec_digest(r.source.text)
    states = ", ".join(f"{s.name} [{', '.join(s.axes)}]" for s in form.states)
    module = build_module_context(form, header(r, digest, f"class: {form.kind}, states {states}"), digest, "")
    return rendered(r.name, digest, {**contexts, "m": module})


def token_contexts(form: TokenForm, tiles: RecurrentTiles) -> tuple[dict[str, object], frozenset[str], tuple[str, ...]]:
    """What prints steps and the recurrent form, the operations of their gradients, and lines that may call helpers."""
    r = form.recurrence
    token = token_text(r, {name: local(name) for name in (*(a.name for a in r.arguments), *(d.name for d in r.definitions))})
    axes = frozenset(axis for a in r.arguments for axis in a.axes)
    program = token_program(form, RESERVED | axes | {o.name for o in r.options})
    gradient = gradient_text(program, r)
    contexts = {"one": token, "gradient": gradient, "triton": token_kernels(form, program, tiles)}
    return contexts, gradient.operations, (*token.lines, *gradient.lines)
