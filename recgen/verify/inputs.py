"""Test inputs from the declared domains.

Vectors along which a correction writes or reads have unit norm: random ones of any length grow to 1e80 within 200 tokens. A sample that
still grows beyond `LIMIT` in the loop is drawn again, with everything that has no declared domain half as large.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from recgen.analysis.coupled_form import CoupledForm
from recgen.analysis.normal_form import NormalForm
from recgen.analysis.scan_form import ScanForm
from recgen.analysis.token_form import TokenForm
from recgen.derive.meaning import multiplier
from recgen.lang.recurrence import INFINITY, ArgumentInfo, Recurrence
from recgen.lang.terms import Argument, Term, reads_state, walk
from recgen.verify.cases import Case
from recgen.verify.reference import Run, Sizes, Token, evaluate

Tensor = torch.Tensor
VerifiedForm = NormalForm | CoupledForm | ScanForm | TokenForm
LIMIT = 1e3
"""No value of a sample's loop is larger."""
_DRAWS = 12
_AXES = ((7, 5, 3, 2), (20, 9, 4, 3))


@dataclass(frozen=True)
class Roles:
    """What an argument does in the normal form, as far as it matters for drawing it.

    `unit`: vectors along which corrections write or read; `strength`: what a correction's strength is made of, scalars and vectors over the
    values; `gate`: what the decay is made of; `reset`: for inputs that can make the decay 0 (of coupled states that of one, and of one side
    where both decay), the value that does.
    """

    unit: frozenset[str]
    strength: frozenset[str]
    gate: frozenset[str]
    reset: tuple[tuple[str, float], ...]


def roles(form: VerifiedForm) -> Roles:
    """The roles of a spec's arguments; in a token form only what is declared a decay is known to be one."""
    if isinstance(form, TokenForm):
        declared = frozenset(a.name for a in form.recurrence.arguments if a.domain in ("log_decay", "decay"))
        return Roles(frozenset(), frozenset(), declared, ())
    directions, strengths = _corrections(form)
    vectors = {a.name for a in form.recurrence.arguments if a.axes}
    by_channel = {a.name for a in form.recurrence.arguments if isinstance(form, NormalForm) and a.axes == (form.value_axis,)}
    unit = _names(directions) & vectors
    strength = _names(strengths) - (vectors - by_channel)
    decays = multipliers(form)
    gate = _names(decays)
    candidates = [(a.name, value) for a in form.recurrence.arguments if a.name in gate and a.role == "input" for value in (-INFINITY, 0.0)]
    which = all if isinstance(form, ScanForm) else any  # the states of a scan are reset together
    reset = tuple((name, value) for name, value in candidates if which(_resets(form.recurrence, decays, name, value)))
    return Roles(frozenset(unit - gate), frozenset(strength), frozenset(gate), reset)


def _corrections(form: NormalForm | CoupledForm | ScanForm) -> tuple[tuple[Term, ...], tuple[Term | None, ...]]:
    """The terms along which corrections write and read, and those that say how strongly."""
    if isinstance(form, ScanForm):
        return (), ()
    if isinstance(form, NormalForm):
        corrections = [s for s in form.streams if s.correct is not None]
        return tuple(t for s in corrections for t in (s.write, s.correct) if t is not None), tuple(s.strength for s in corrections)
    coupled = [s for s in form.streams if s.corrections]
    directions = tuple(t for s in coupled for t in (s.write, *(c.correct for c in s.corrections)))
    return directions, (*directions, *(z for s in coupled for z in s.into), *(f.weight for f in form.feeds))


def _names(terms: object) -> set[str]:
    assert hasattr(terms, "__iter__")
    return {x.name for term in terms if term is not None for x in walk(term) if isinstance(x, Argument)}


def multipliers(form: NormalForm | CoupledForm | ScanForm) -> tuple[Term, ...]:
    """What the states are multiplied by, but for multipliers that read a state themselves."""
    if isinstance(form, ScanForm):
        return tuple(s.decay for s in form.states if not reads_state(s.decay))
    decays = form.decays if isinstance(form, CoupledForm) else (form.decay, form.value_decay)
    return tuple(multiplier(d.log) if d.signed is None else d.signed for d in decays if d.log is not None)


def _resets(recurrence: Recurrence, multipliers: tuple[Term, ...], name: str, value: float) -> list[bool]:
    """Which multipliers this value of one argument makes 0, with options as they are by default; [False] where it is not legal."""
    info = recurrence.argument(name)
    if not info.interval.low <= value <= info.interval.high or not multipliers:
        return [False]
    sizes = Sizes(1, 1, 1, tuple((axis, 1) for a in recurrence.arguments for axis in a.axes))
    ordinary = {a.name: torch.full((1, 1, 1, 1), _ordinary(a), dtype=torch.float64) for a in recurrence.arguments}
    token = Token(recurrence, {**ordinary, name: torch.full((1, 1, 1, 1), value, dtype=torch.float64)}, {}, sizes, {})
    return [float(token.value(term)) == 0.0 for term in multipliers]


def _ordinary(info: ArgumentInfo) -> float:
    low, high = max(info.interval.low, -2.0), min(info.interval.high, 2.0)
    return 0.5 * (low + high) + 0.1 * (high - low)


@dataclass(frozen=True)
class Sample:
    """Tensors of one case, in float64 with the precision of `dtype`, and the case's gradients of outputs and final states."""

    case: Case
    sizes: Sizes
    arguments: dict[str, Tensor]
    initial: tuple[Tensor, ...] | None
    d_outputs: tuple[Tensor, ...] | None
    d_states: tuple[Tensor, ...] | None
    redrawn: int


class GrowthError(ValueError):
    """A recurrence that grows too much to be compared, whatever is drawn."""


class NotFiniteError(ValueError):
    """A recurrence that is not a number itself, whatever is drawn from its domains."""


def draw(form: VerifiedForm, parts: Roles, case: Case, dtype: torch.dtype, limit: float = LIMIT) -> tuple[Sample, Run]:
    """A sample of the case and its reference loop, with gradients recorded; drawn again where the loop grows beyond the limit.

    Args:
        form: of the spec.
        parts: the roles of its arguments.
        case: what to draw.
        dtype: values are rounded to what it can hold.
        limit: no value of the loop is larger.

    Raises:
        GrowthError: every sample grew.
        NotFiniteError: the loop of the last sample, of the smallest numbers, is not finite.
    """
    for attempt in range(_DRAWS):
        sample = _Drawing(form, parts, case, dtype, attempt).sample()
        initial = sample.initial
        run = evaluate(form.recurrence, sample.arguments, dict(case.flags), sample.sizes, initial, case.boundaries)
        if run.largest < limit:
            return sample, run
    if math.isnan(run.largest):
        raise NotFiniteError(f"the recurrence itself is not finite: {case.arguments()}")
    raise GrowthError(f"{form.recurrence.name}: every sample of this case grows beyond {limit:g}: {case.arguments()}")


class _Drawing:
    """Draws one sample; `attempt` counts the earlier ones that grew."""

    def __init__(self, form: VerifiedForm, parts: Roles, case: Case, dtype: torch.dtype, attempt: int) -> None:
        self.form, self.case, self.dtype, self.attempt = form, case, dtype, attempt
        self.roles = parts
        self.scale = 0.5**attempt
        self.generator = torch.Generator().manual_seed(7919 * case.seed + attempt)
        names = dict.fromkeys(axis for a in form.recurrence.arguments for axis in a.axes)
        names |= dict.fromkeys(axis for s in form.recurrence.states for axis in s.axes)
        numbers = _AXES[case.small]
        axes = tuple((name, numbers[i % len(numbers)]) for i, name in enumerate(names))
        self.sizes = Sizes(1 if case.packed else 2, case.tokens, case.heads, axes)

    def sample(self) -> Sample:
        """The tensors."""
        recurrence = self.form.recurrence
        flags = dict(self.case.flags)
        needed = [a for a in recurrence.arguments if not a.needed_if or any(flags[o] == v for o, v in a.needed_if)]
        arguments = {a.name: self._keep(self._argument(a)) for a in needed}
        boundaries = self.case.boundaries
        rows = self.sizes.batch if boundaries is None else len(boundaries) - 1
        shapes = [(rows, self.sizes.heads, *(self.sizes.axis(x) for x in s.axes)) for s in recurrence.states]
        initial = tuple(self._keep(0.5 * self._normal(*shape), torch.float32) for shape in shapes) if self.case.initial else None
        d_outputs = tuple(self._rounded(self._normal(*shape), self.dtype) for shape in self._output_shapes(recurrence))
        d_states = tuple(self._rounded(self._normal(*shape), torch.float32) for shape in shapes)
        return Sample(
            self.case,
            self.sizes,
            arguments,
            initial,
            d_outputs if "outputs" in self.case.loss else None,
            d_states if "state" in self.case.loss else None,
            self.attempt,
        )

    def _output_shapes(self, recurrence: Recurrence) -> list[tuple[int, ...]]:
        found = []
        for name in recurrence.outputs:
            axes = [self.sizes.axis(a) for a in recurrence.definition(name).shape if a != "1"]
            found.append((self.sizes.batch, self.sizes.tokens, self.sizes.heads, *axes))
        return found

    def _normal(self, *shape: int) -> Tensor:
        return torch.randn(*shape, generator=self.generator, dtype=torch.float64)

    def _uniform(self, *shape: int) -> Tensor:
        return torch.rand(*shape, generator=self.generator, dtype=torch.float64)

    def _rounded(self, x: Tensor, dtype: torch.dtype) -> Tensor:
        return x if self.dtype == torch.float64 else x.to(dtype).double()

    def _keep(self, x: Tensor, dtype: torch.dtype | None = None) -> Tensor:
        """Rounded to what the forms will be given, with its gradient recorded."""
        return self._rounded(x, dtype or self.dtype).requires_grad_()

    def _argument(self, info: ArgumentInfo) -> Tensor:
        heads = self.case.key_heads if info.grouped else self.case.heads
        lead = (self.sizes.batch, self.sizes.tokens, heads) if info.role == "input" else (self.case.heads,)
        shape = (*lead, *(self.sizes.axis(a) for a in info.axes))
        low, high = info.interval.low, info.interval.high
        x = self._unbounded(info, shape) if (low, high) == (-INFINITY, INFINITY) else self._bounded(low, high, info, shape)
        if self.case.gates == "resets" and info.name in dict(self.roles.reset):
            hard = (self._uniform(*lead, *(1 for _ in info.axes)) < 0.06).expand(shape)
            x = torch.where(hard, dict(self.roles.reset)[info.name], x)
        return x

    def _unbounded(self, info: ArgumentInfo, shape: tuple[int, ...]) -> Tensor:
        """No declared domain: the role decides."""
        x = self._normal(*shape)
        if info.name in self.roles.unit:
            return self.scale * torch.nn.functional.normalize(x, dim=-1)
        if info.name in self.roles.strength:
            return self.scale * self._uniform(*shape)
        if info.name in self.roles.gate and info.role == "input":
            return x + self._few(shape, 30.0)
        return self.scale * (0.5 * x if info.role == "param" else x)

    def _bounded(self, low: float, high: float, info: ArgumentInfo, shape: tuple[int, ...]) -> Tensor:
        """Inside a declared domain: weak and strong values, the ends where they are finite."""
        x = self._normal(*shape)
        if math.isfinite(low) and math.isfinite(high):
            inside = low + (high - low) * torch.sigmoid(1.5 * x)
            ends = torch.where(self._uniform(*shape) < 0.5, low, high)
            return torch.where(self._uniform(*shape) < 0.05, ends, inside) if self.case.gates != "mild" else inside
        distance = torch.exp(1.2 * x - 1.5)
        if info.name in self.roles.gate and info.role == "input":
            distance = distance + self._few(shape, 100.0).abs()
        return high - distance if math.isfinite(high) else low + distance

    def _few(self, shape: tuple[int, ...], size: float) -> Tensor:
        """Zeros with a few large numbers among them, unless the gates are mild."""
        if self.case.gates == "mild":
            return torch.zeros(shape, dtype=torch.float64)
        return torch.where(self._uniform(*shape) < 0.06, size * self._normal(*shape), 0.0)
