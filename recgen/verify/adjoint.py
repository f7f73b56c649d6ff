"""The adjoint at build time: gradients of the emitted module against automatic differentiation of the recurrence, in float64."""

from __future__ import annotations

import math

from recgen.derive.proof import ProofFailed
from recgen.lang import Diagnostic
from recgen.lang.diagnostics import Reporter
from recgen.pipeline import AnyCompiled, Compiled, CoupledCompiled
from recgen.verify.cases import flag_combinations
from recgen.verify.inputs import LIMIT
from recgen.verify.report import Report
from recgen.verify.runner import reproduce


def check_adjoint(compiled: AnyCompiled) -> tuple[Diagnostic, ...]:
    """Compares every gradient on two whole chunks and a rest, with the options as they default and with all of them turned over.

    Returns a warning where the recurrence itself is not finite on what its domains allow, so that nothing can be compared.

    Raises:
        ProofFailed: an internal failure: the emitted adjoint is not that of the recurrence.
    """
    combinations = flag_combinations(compiled.recurrence)
    reporter = Reporter(compiled.recurrence.source)
    for flags in dict.fromkeys((combinations[0], combinations[-1])):
        report = _checked(compiled, flags)
        if report.ok:
            continue
        if any(row.form != "recurrence" for row in report.rows):
            raise ProofFailed(f"the adjoint of {compiled.recurrence.name} differs from the recurrence's gradient: {report.failure}")
        advice = "declare the domains of what it divides by, or takes a root or logarithm of: `positive`, `negative`, `in(0, 1)`"
        reason = "the recurrence is not finite on numbers that its domains allow"
        reporter.report("W503", compiled.recurrence.states[0].span, help=advice, reason=reason)
        break
    return reporter.sorted()


def _checked(compiled: AnyCompiled, flags: tuple[tuple[str, bool], ...], tokens: int = 35) -> Report:
    """The comparison, over fewer tokens where a recurrence grows beyond what can be compared; over one token however much it grows."""
    form = "chunk 16" if isinstance(compiled, Compiled | CoupledCompiled) else "recurrent"
    limit = LIMIT if tokens > 1 else math.inf
    report = reproduce(compiled, form, "float64", limit=limit, tokens=tokens, key_heads=1, heads=2, flags=flags)
    return report if report.rows or tokens <= 1 else _checked(compiled, flags, tokens // 2)
