"""The loop's results for a sample: the reference in float64, and in float32 the measure of how well a gradient is conditioned."""

from __future__ import annotations

import torch

from recgen.lang.recurrence import Recurrence
from recgen.verify.forms import Results, gradients_of, leaves_of
from recgen.verify.inputs import Sample
from recgen.verify.reference import Run, evaluate
from recgen.verify.report import error

Tensor = torch.Tensor
_MARGIN = 8.0
"""How many times the loop's own loss of digits a form may lose where that is more than the tolerance."""


def results(sample: Sample, run: Run) -> Results:
    """Values and gradients of a loop that has been run over the sample."""
    found = [*run.outputs] if sample.d_outputs is not None else []
    cotangents = [*(sample.d_outputs or ())]
    if sample.d_states is not None:
        found += run.states
        cotangents += sample.d_states
    cotangents = [d.to(x.dtype) for d, x in zip(cotangents, found, strict=True)]
    return Results(run.outputs, run.states, gradients_of(found, cotangents, leaves_of(sample.arguments, sample.initial)))


class Conditioning:
    """What the loop itself loses in float32, worked out when first asked.

    The gradient of a normalised read-out through its length is nearly nothing, and is found as a difference of larger numbers: no form
    has more digits of it than the recurrence as written has.
    """

    def __init__(self, recurrence: Recurrence, sample: Sample, wanted: Results, floor: float) -> None:
        self.recurrence, self.sample, self.wanted, self.floor = recurrence, sample, wanted, floor
        self._errors: dict[str, tuple[float, float]] | None = None

    def excuses(self, gradient: str, errors: tuple[float, float], dtype: torch.dtype) -> bool:
        """Whether the loop loses about as much of this gradient, in the computing precision of `dtype`."""
        if self._errors is None:
            self._errors = self._lost()
        scale = _MARGIN * torch.finfo(torch.float64).eps / torch.finfo(torch.float32).eps if dtype == torch.float64 else _MARGIN
        return all(e <= scale * loop for e, loop in zip(errors, self._errors[gradient], strict=True))

    def _lost(self) -> dict[str, tuple[float, float]]:
        sample = self.sample
        single = Sample(
            sample.case,
            sample.sizes,
            {name: x.detach().float().requires_grad_() for name, x in sample.arguments.items()},
            None if sample.initial is None else tuple(x.detach().float().requires_grad_() for x in sample.initial),
            sample.d_outputs,
            sample.d_states,
            sample.redrawn,
        )
        case = sample.case
        run = evaluate(self.recurrence, single.arguments, dict(case.flags), sample.sizes, single.initial, case.boundaries)
        found = results(single, run).gradients
        return {name: error(x, self.wanted.gradients[name], self.floor) for name, x in found.items()}
