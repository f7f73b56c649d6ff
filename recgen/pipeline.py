"""The compiler: parse -> check -> analyze -> derive -> plan -> emit."""

from __future__ import annotations

from dataclasses import dataclass

from recgen.analysis.algebra import Refusal
from recgen.analysis.analyzer import analyze
from recgen.analysis.normal_form import NormalForm
from recgen.analysis.recurrent import token_form
from recgen.analysis.token_form import Reason, TokenForm
from recgen.codegen.emit import GeneratedModule, emit
from recgen.codegen.token_module import emit_token
from recgen.derive.chunk_ir import ChunkForm
from recgen.derive.chunkwise import derive
from recgen.derive.operands import OperandSet, name_operands
from recgen.derive.proof import Proof, prove
from recgen.lang import Diagnostic, Recurrence, Source, SpecErrors, check, parse
from recgen.lang.diagnostics import Reporter
from recgen.plan import KernelPlan, TokenPlan, make_plan, make_token_plan
from recgen.tiles import ChunkTiles

TOKEN_BY_TOKEN = "`plan recurrent` compiles it to step and recurrent forms with gradients, which take one token after another"
"""What a refused spec may say instead."""


@dataclass(frozen=True)
class Compiled:
    """Every stage's result for one spec."""

    recurrence: Recurrence
    normal_form: NormalForm
    operands: OperandSet
    chunk_form: ChunkForm
    proof: Proof
    plan: KernelPlan
    module: GeneratedModule
    warnings: tuple[Diagnostic, ...]


@dataclass(frozen=True)
class TokenCompiled:
    """Every stage's result for a spec that is compiled token by token: it has no chunk form, so nothing is derived and proved for one."""

    recurrence: Recurrence
    token_form: TokenForm
    plan: TokenPlan
    module: GeneratedModule
    warnings: tuple[Diagnostic, ...]


AnyCompiled = Compiled | TokenCompiled


def compile_text(text: str, name: str = "<text>", tuned: tuple[ChunkTiles, ...] = ()) -> AnyCompiled:
    """Every stage over one spec.

    Args:
        text: the spec.
        name: what messages call it, usually its path.
        tuned: rows of tiles for this spec that go before those of the table.

    Raises:
        SpecErrors: the spec is wrong, or is no recurrence of a class that this revision compiles; `.diagnostics` say why.
        ProofFailed: an internal failure: the derived form does not equal the recurrence.
    """
    source = Source(name, text)
    checked = check(parse(source))
    recurrence = checked.recurrence
    reporter = Reporter(source)
    reporter.found += checked.warnings
    if recurrence.plan == "recurrent":
        return _compile_tokens(recurrence, reporter)
    form = _analyzed(recurrence, reporter)
    operands = name_operands(form)
    chunk_form = derive(form, operands)
    proof = prove(form, operands, chunk_form)
    plan = make_plan(form, tuned)
    module = emit(form, operands, chunk_form, plan)
    return Compiled(recurrence, form, operands, chunk_form, proof, plan, module, reporter.sorted())


def _compile_tokens(recurrence: Recurrence, reporter: Reporter) -> TokenCompiled:
    """The stages of a recurrence that is compiled as it stands, one token after another."""
    try:
        form = token_form(recurrence, _reasons(recurrence))
    except Refusal as refusal:
        reporter.report("E503", refusal.span or recurrence.states[0].span, reason=refusal.reason)
        raise SpecErrors(reporter.sorted()) from refusal
    plan = make_token_plan()
    return TokenCompiled(recurrence, form, plan, emit_token(form, plan), reporter.sorted())


def _reasons(recurrence: Recurrence) -> tuple[Reason, ...]:
    """Why it is no normal form, if it is none."""
    try:
        analyze(recurrence)
    except Refusal as refusal:
        return (Reason(refusal.reason, refusal.span),)
    return ()


def _analyzed(recurrence: Recurrence, reporter: Reporter) -> NormalForm:
    """The normal form; a refusal and a decay that may grow the state are reported in the user's text."""
    whole = recurrence.states[0].span
    try:
        form = analyze(recurrence)
    except Refusal as refusal:
        advice = None if recurrence.plan or recurrence.stabilize else TOKEN_BY_TOKEN
        reporter.report("E501", refusal.span or whole, help=advice, reason=refusal.reason)
        raise SpecErrors(reporter.sorted()) from refusal
    if not form.decay.bounded or form.decay.signed is not None:
        what = "it may be negative" if form.decay.bounded else "the state may grow without bound"
        help = "declare the domain of what it is made of: `log_decay`, `decay` or `in(0, 1)`"
        span = recurrence.states[0].equation.span or whole
        reporter.report("W502", (form.decay.log and form.decay.log.span) or span, help=help, found=what)
    return form
