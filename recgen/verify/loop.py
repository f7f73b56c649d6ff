"""The loop's results for a sample: the reference in float64, and with fewer digits the measure of how well a result is conditioned."""

from __future__ import annotations

import math
from dataclasses import replace

import torch

from recgen.lang.recurrence import Recurrence
from recgen.verify.forms import Results, gradients_of, leaves_of, state_names
from recgen.verify.inputs import Sample
from recgen.verify.reference import Run, evaluate
from recgen.verify.report import error

Tensor = torch.Tensor
_MARGIN = 8.0
"""How many times the loop's own loss of digits in float32 a form may lose where that is more than the tolerance."""
_HALF_MARGIN = 1.0
"""The same of what a rounding of its inputs to half precision costs the loop, which of well-conditioned results is within the tolerance."""
_HALF_BYTES = 2


def results(sample: Sample, run: Run) -> Results:
    """Values and gradients of a loop that has been run over the sample."""
    found = [*run.outputs] if sample.d_outputs is not None else []
    cotangents = [*(sample.d_outputs or ())]
    if sample.d_states is not None:
        found += run.states
        cotangents += sample.d_states
    cotangents = [d.to(x.dtype) for d, x in zip(cotangents, found, strict=True)]
    return Results(run.outputs, run.states, gradients_of(found, cotangents, leaves_of(sample.arguments, sample.initial)))


def named(recurrence: Recurrence, found: Results) -> dict[str, Tensor]:
    """Outputs and final states by name, gradients by "d NAME"."""
    values = zip((*recurrence.outputs, *state_names("final", len(found.states))), (*found.outputs, *found.states), strict=True)
    return {**dict(values), **{f"d {name}": x for name, x in found.gradients.items()}}


class Conditioning:
    """What the recurrence as written itself loses of a sample's results, worked out when first asked.

    The gradient of a normalised read-out through its length is nearly nothing, and is found as a difference of larger numbers; of a read
    that is squashed only small values are seen, which are differences too. No form has more digits than the loop in float32, or, since
    forms multiply in the inputs' precision, than the exact loop with inputs in half precision moved by a rounding.
    """

    def __init__(self, recurrence: Recurrence, sample: Sample, wanted: Results, gates: frozenset[str], floor: float) -> None:
        self.recurrence, self.sample, self.wanted, self.gates, self.floor = recurrence, sample, wanted, gates, floor
        self._errors: dict[str, tuple[float, float]] | None = None

    def excuses(self, tensor: str, errors: tuple[float, float], dtype: torch.dtype) -> bool:
        """Whether the loop loses about as much of this result, in the computing precision of `dtype`: the same one in every call."""
        half = dtype.itemsize == _HALF_BYTES
        if self._errors is None:
            self._errors = self._lost(dtype if half else torch.float32)
        scale = _HALF_MARGIN if half else _MARGIN
        if dtype == torch.float64:
            scale *= torch.finfo(torch.float64).eps / torch.finfo(torch.float32).eps
        return all(e <= scale * loop < math.inf for e, loop in zip(errors, self._errors[tensor], strict=True))

    def _lost(self, dtype: torch.dtype) -> dict[str, tuple[float, float]]:
        """The loop's errors in float32, or in float64 with its inputs moved by roundings to half precision."""
        half = dtype.itemsize == _HALF_BYTES
        place = torch.float64 if half else dtype
        draw = torch.Generator().manual_seed(self.sample.case.seed)

        def leaf(x: Tensor, moved: bool) -> Tensor:
            rounding = torch.finfo(dtype).eps * (torch.rand(x.shape, dtype=x.dtype, generator=draw) - 0.5) if moved else 0.0
            return (x.detach() * (1 + rounding)).to(place).requires_grad_()

        sample, case = self.sample, self.sample.case
        arguments = {name: leaf(x, half and name not in self.gates) for name, x in sample.arguments.items()}
        initial = None if sample.initial is None else tuple(leaf(x, False) for x in sample.initial)
        run = evaluate(self.recurrence, arguments, dict(case.flags), sample.sizes, initial, case.boundaries)
        wanted = named(self.recurrence, self.wanted)
        found = named(self.recurrence, results(replace(sample, arguments=arguments, initial=initial), run))
        return {name: error(x, wanted[name], self.floor if name.startswith("d ") else 0.0) for name, x in found.items()}
