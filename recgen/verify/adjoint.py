"""The adjoint at build time: gradients of the emitted module against automatic differentiation of the recurrence, in float64."""

from __future__ import annotations

from recgen.derive.proof import ProofFailed
from recgen.pipeline import AnyCompiled, Compiled
from recgen.verify.cases import flag_combinations
from recgen.verify.inputs import GrowthError
from recgen.verify.report import Report
from recgen.verify.runner import reproduce


def check_adjoint(compiled: AnyCompiled) -> None:
    """Compares every gradient on two whole chunks and a rest, with the options as they default and with all of them turned over.

    Raises:
        ProofFailed: an internal failure: the emitted adjoint is not that of the recurrence.
    """
    combinations = flag_combinations(compiled.recurrence)
    for flags in dict.fromkeys((combinations[0], combinations[-1])):
        report = _checked(compiled, flags)
        if not report.ok:
            raise ProofFailed(f"the adjoint of {compiled.recurrence.name} differs from the recurrence's gradient: {report.failure}")


def _checked(compiled: AnyCompiled, flags: tuple[tuple[str, bool], ...], tokens: int = 35) -> Report:
    """The comparison, over fewer tokens where a recurrence grows beyond what can be compared."""
    try:
        return reproduce(
            compiled,
            "chunk 16" if isinstance(compiled, Compiled) else "recurrent",
            "float64",
            tokens=tokens,
            key_heads=1,
            heads=2,
            flags=flags,
        )
    except GrowthError:
        if tokens == 1:
            raise
        return _checked(compiled, flags, tokens // 2)
