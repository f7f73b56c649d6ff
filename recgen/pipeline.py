"""The compiler: parse -> check -> analyze -> derive -> plan -> emit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NoReturn

from recgen.analysis.coupled import is_system
from recgen.analysis.coupled_form import CoupledForm
from recgen.analysis.normal_form import NormalForm
from recgen.analysis.recurrent import token_form
from recgen.analysis.refusal import Refusal
from recgen.analysis.scan_form import ScanForm, analyze_scan
from recgen.analysis.structure import chunkwise, reasons_against_chunks
from recgen.analysis.token_form import Reason, TokenForm
from recgen.codegen.coupled_module import emit_coupled
from recgen.codegen.emit import GeneratedModule, emit
from recgen.codegen.token_module import emit_scan, emit_token
from recgen.derive.chunk_ir import ChunkForm
from recgen.derive.chunkwise import derive, derive_coupled
from recgen.derive.coupled_operands import CoupledOperands, name_coupled
from recgen.derive.coupled_proof import prove_coupled
from recgen.derive.normal_proof import prove
from recgen.derive.operands import OperandSet, name_operands
from recgen.derive.proof import Proof
from recgen.derive.scan import argument_values, functions_per_entry, scan_programs
from recgen.derive.scan_proof import prove_scan
from recgen.lang import Diagnostic, Recurrence, Source, SpecErrors, check, parse
from recgen.lang.diagnostics import Reporter
from recgen.lang.recurrence import StateInfo
from recgen.lang.terms import Term
from recgen.plan import CoupledPlan, KernelPlan, ScanPlan, TokenPlan, make_coupled_plan, make_plan, make_scan_plan, make_token_plan
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


@dataclass(frozen=True)
class ScanCompiled(TokenCompiled):
    """Every stage's result for a spec of the scan class."""

    plan: ScanPlan
    scan_form: ScanForm
    proof: Proof


@dataclass(frozen=True)
class CoupledCompiled(TokenCompiled):
    """Every stage's result for matrix states that are compiled together."""

    plan: CoupledPlan
    coupled_form: CoupledForm
    operands: CoupledOperands
    chunk_form: ChunkForm
    proof: Proof


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
    if isinstance(form, ScanForm):
        return _compile_scan(form, reporter)
    if isinstance(form, CoupledForm):
        return _compile_coupled(form, reporter)
    operands = name_operands(form)
    chunk_form = derive(form, operands)
    proof = prove(form, operands, chunk_form)
    plan = make_plan(form, tuned)
    module = emit(form, operands, chunk_form, plan)
    return Compiled(recurrence, form, operands, chunk_form, proof, plan, module, reporter.sorted())


def _compile_tokens(recurrence: Recurrence, reporter: Reporter) -> TokenCompiled:
    """The stages of a recurrence that is compiled as it stands, one token after another."""
    try:
        form = token_form(recurrence, reasons_against_chunks(recurrence))
    except Refusal as refusal:
        reporter.report("E503", refusal.span or recurrence.states[0].span, reason=refusal.reason)
        raise SpecErrors(reporter.sorted()) from refusal
    plan = make_token_plan()
    return TokenCompiled(recurrence, form, plan, emit_token(form, plan), reporter.sorted())


def _analyzed(recurrence: Recurrence, reporter: Reporter) -> NormalForm | CoupledForm | ScanForm:
    """The form by products of matrices, else the scan form; refusals and decays that may grow a state are reported in the user's text."""
    reasons = reasons_against_chunks(recurrence)
    if not reasons and recurrence.plan != "scan":
        form = chunkwise(recurrence)
        stabilized = form.stabilizer is not None  # a running maximum keeps what is carried within bounds
        if isinstance(form, CoupledForm):
            decays = tuple(zip(form.decays, form.states, strict=True))
        else:
            decays = ((form.decay, form.state), (form.value_decay, form.state))
        for decay, state in decays:
            grows = not decay.bounded and not stabilized
            if grows or decay.signed is not None:
                what = "it may be negative" if decay.bounded else "the state may grow without bound"
                _warn_of_decay(decay.log, state, what, reporter)
        return form
    try:
        if recurrence.stabilize:
            raise Refusal("`stabilize log` is for matrix states with a chunkwise form", recurrence.states[0].span)
        scan = analyze_scan(recurrence, reasons)
    except Refusal as refusal:
        _refuse(recurrence, reasons, refusal, reporter)
    for scanned in scan.states:
        if not scanned.bounded:
            _warn_of_decay(scanned.decay, scanned.info, "the state may grow without bound", reporter)
    return scan


def _refuse(recurrence: Recurrence, reasons: tuple[Reason, ...], refusal: Refusal, reporter: Reporter) -> NoReturn:
    """Matrix states could have had a form by products: then they are told why they have none, else why they are no scan."""
    single = len(recurrence.states) == 1 and len(recurrence.states[0].axes) == 2
    matrix = recurrence.stabilize or single or is_system(recurrence)
    reason = reasons[0] if reasons and matrix and recurrence.plan != "scan" else Reason(refusal.reason, refusal.span)
    wanted = "scan" if recurrence.plan == "scan" else "chunkwise form"
    advice = TOKEN_BY_TOKEN if _has_token_form(recurrence) else None
    reporter.report("E501", reason.span or recurrence.states[0].span, help=advice, form=wanted, reason=reason.text)
    raise SpecErrors(reporter.sorted()) from refusal


def _has_token_form(recurrence: Recurrence) -> bool:
    """Whether `plan recurrent` compiles it."""
    try:
        token_form(recurrence, ())
    except Refusal:
        return False
    return True


def _warn_of_decay(decay: Term | None, state: StateInfo, what: str, reporter: Reporter) -> None:
    help = "declare the domain of what it is made of: `log_decay`, `decay` or `in(0, 1)`"
    span = (decay and decay.span) or state.equation.span or state.span
    reporter.report("W502", span, help=help, found=what)


def _compile_scan(form: ScanForm, reporter: Reporter) -> ScanCompiled:
    """The stages of a recurrence whose states are scanned."""
    plan = make_scan_plan(functions_per_entry(scan_programs(form, argument_values(form), frozenset())))
    proof = prove_scan(form)
    return ScanCompiled(form.recurrence, form.token, plan, emit_scan(form, plan), reporter.sorted(), form, proof)


def _compile_coupled(form: CoupledForm, reporter: Reporter) -> CoupledCompiled:
    """The stages of matrix states that are compiled together."""
    operands = name_coupled(form)
    chunk_form = derive_coupled(operands)
    proof = prove_coupled(form, operands, chunk_form)
    plan = make_coupled_plan(form)
    module = emit_coupled(form, operands, chunk_form, plan)
    return CoupledCompiled(form.recurrence, form.token, plan, module, reporter.sorted(), form, operands, chunk_form, proof)
