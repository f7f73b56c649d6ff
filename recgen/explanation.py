"""What the compiler found and derived, as text, LaTeX or JSON: what `recgen explain` prints."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from recgen.explaining.document import Stage, as_latex, as_text

if TYPE_CHECKING:
    from recgen.pipeline import AnyCompiled

STAGES: Final = ("parse", "check", "analyze", "derive", "plan", "emit")
"""The stages, in order."""

FORMATS: Final = ("text", "latex", "json")


def explain(compiled: AnyCompiled, stage: str | None = None, format: str = "text") -> str:
    """Explains one stage, or all.

    Args:
        compiled: every stage's result.
        stage: one of `STAGES`; all of them if None.
        format: "text"; "latex" for a fragment of a document with amsmath; "json" for one object with a key for every stage. Under the
            stages: parse (name, text, counts), check (arguments, options, definitions, intervals, outputs, states), analyze (class, decay,
            key_axis, value_axis, declared_value_first, normal_form, operands, streams, reads, outputs, recognised, not_needed), derive
            (steps by phase, each with names, symbol, meaning, text, latex; proof), plan (forms, chunk_sizes, kernels, saved, recomputed,
            costs), emit (file, lines, digest, functions, operators, manifest). Of a recurrence that is compiled token by token: analyze
            (class, kind, equations, outputs, reasons, split), derive (adjoint, operations), plan (forms, kernels, saved). Of a scan:
            analyze (class, kind, scan_form, decays, writes, outputs, reasons, axes), derive (steps, proof), plan (forms, kernels, saved,
            costs). Of matrix states that are compiled together: analyze (class, kind, states, decays, key_axis, value_axis,
            declared_value_first, coupled_form, operands, outputs, recognised), derive as above, plan (forms, chunk_sizes, kernels, saved,
            recomputed, costs). Keys are sorted.

    Raises:
        ValueError: for a stage or a format that does not exist.
    """
    if stage is not None and stage not in STAGES:
        raise ValueError(f"stage must be one of {', '.join(STAGES)}; got {stage!r}")
    if format not in FORMATS:
        raise ValueError(f"format must be one of {', '.join(FORMATS)}; got {format!r}")
    stages = tuple(_stage(compiled, name) for name in STAGES if stage in (None, name))
    if format == "json":
        return json.dumps({s.name: s.data for s in stages}, indent=2, sort_keys=True, ensure_ascii=False) + "\n"
    return as_text(stages) if format == "text" else as_latex(stages)


def _stage(compiled: AnyCompiled, name: str) -> Stage:
    from recgen.explaining import analysis, coupled, derivation, emission, front, plan, scans, tokens
    from recgen.pipeline import CoupledCompiled, ScanCompiled, TokenCompiled

    match name:
        case "parse":
            return front.explain_parse(compiled.recurrence)
        case "check":
            return front.explain_check(compiled.recurrence)
        case "emit":
            return emission.explain_emit(compiled.module)
    if isinstance(compiled, ScanCompiled):
        return scans.explain_scan(name, compiled.scan_form, compiled.proof, compiled.plan, compiled.module)
    if isinstance(compiled, CoupledCompiled):
        if name == "analyze":
            return coupled.explain_coupled_analyze(compiled.coupled_form, compiled.operands)
        if name == "derive":
            return derivation.explain_derive(compiled.chunk_form, compiled.operands, compiled.proof)
        return coupled.explain_coupled_plan(compiled.coupled_form, compiled.chunk_form, compiled.plan, compiled.module)
    if isinstance(compiled, TokenCompiled):
        return tokens.explain_tokens(name, compiled.token_form, compiled.plan, compiled.module)
    if name == "analyze":
        return analysis.explain_analyze(compiled.normal_form, compiled.operands)
    if name == "derive":
        return derivation.explain_derive(compiled.chunk_form, compiled.operands, compiled.proof)
    return plan.explain_plan(compiled.normal_form, compiled.chunk_form, compiled.plan, compiled.module)
