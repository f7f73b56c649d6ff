"""Every spec with its options, samples of its arguments, its forms with their gradients, and the two error metrics.

The reference is always `naive_recurrent_<name>` in float64 with autograd.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from types import ModuleType

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import recgen
from recgen.lang.recurrence import ArgumentInfo, StateInfo
from recgen.lang.terms import Argument, reads_state, walk
from recgen.pipeline import Compiled, CoupledCompiled, ScanCompiled, compile_text
from recgen.resources import resource

SPECS = (*sorted(resource("specs").glob("*.rec")), *sorted((Path(__file__).parents[1] / "specs").glob("*.rec")))

# Arguments that mean a log decay, or a number in [0, 1], only under some options: the spec declares no domain for them.
LOG_DECAYS = {(name, "g"): "use_gate_in_kernel" for name in ("gated_delta_rule", "kda")}
PROPORTIONS = {(name, "beta"): "use_beta_sigmoid_in_kernel" for name in ("gated_delta_rule", "kda")}

SHORT = {("rwkv7", "a"): 0.5}
"""The length of a vector that reads a correction apart from where it is written: at length 1 the state would grow without a decay."""

ALL = "all states"
FORMS: tuple[tuple[str, int | None], ...] = (("chunk_", 16), ("chunk_", 32), ("chunk_", 64), ("fused_recurrent_", None), ("", None))
BOTH = (("chunk_", 16), ("fused_recurrent_", None))


@cache
def compiled(path: Path) -> Compiled | CoupledCompiled | ScanCompiled:
    return compile_text(path.read_text(encoding="utf-8"), path.name)


@cache
def loaded(path: Path) -> ModuleType:
    return recgen.load(path)


@dataclass(frozen=True)
class Case:
    """A spec and a value for each of its boolean options."""

    path: Path
    flags: tuple[tuple[str, bool], ...]

    @property
    def name(self) -> str:
        return self.compiled.recurrence.name

    @property
    def compiled(self) -> Compiled | CoupledCompiled | ScanCompiled:
        return compiled(self.path)

    @property
    def module(self) -> ModuleType:
        return loaded(self.path)

    @cached_property
    def arguments(self) -> tuple[ArgumentInfo, ...]:
        """The arguments that these options need, as they are passed."""
        chosen = dict(self.flags)
        return tuple(a for a in self.compiled.recurrence.declared if not a.needed_if or any(chosen[o] == v for o, v in a.needed_if))

    @property
    def states(self) -> tuple[StateInfo, ...]:
        return self.compiled.recurrence.states

    @property
    def state_axes(self) -> tuple[str, ...]:
        """The axes of the state; of several states together, one axis of all their entries."""
        return self.states[0].axes if len(self.states) == 1 else (ALL,)

    def apart(self, state: Tensor | None, sizes: Mapping[str, int] | None = None) -> tuple[Tensor | None, ...]:
        """The states, views of their entries side by side; None for each where there are none."""
        if state is None or len(self.states) == 1:
            return (state,) * len(self.states)
        return apart(state, [s.axes for s in self.states], sizes or sizes_of(self))

    def together(self, states: Sequence[Tensor]) -> Tensor:
        """The inverse of `apart`."""
        return states[0] if len(self.states) == 1 else together(states)

    @property
    def turned(self) -> bool:
        """Whether the operators have a matrix state by its second axis first."""
        return len(self.states) == 1 and self.module._STATES[0].turned

    @property
    def axes(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(x for a in self.arguments for x in a.axes))

    def emitted(self, form: str):
        """A form of the module as it is."""
        return getattr(self.module, form + self.name)

    def given(self, state: Tensor | None) -> Tensor | tuple[Tensor | None, ...] | None:
        """A state as the module takes it: several as a tuple."""
        return state if state is None or len(self.states) == 1 else self.apart(state)

    def function(self, form: str):
        """A form of the module; several states are one tensor to the tests, with the entries of all of them side by side."""
        found = self.emitted(form)
        if len(self.states) == 1:
            return found
        axes = [s.axes for s in self.states]
        return functools.partial(_as_one, found, axes, [(a.name, a.axes) for a in self.arguments])

    def is_log_decay(self, a: ArgumentInfo) -> bool:
        option = LOG_DECAYS.get((self.name, a.name))
        return a.domain == "log_decay" or (option is not None and not dict(self.flags)[option])

    @property
    def gates(self) -> tuple[str, ...]:
        """Inputs that are log decays."""
        return tuple(a.name for a in self.arguments if a.role == "input" and self.is_log_decay(a))

    @property
    def forgets_all(self) -> bool:
        """Whether nothing of the state before a reset is seen: no read before the decay, no correction by what was there."""
        if isinstance(self.compiled, ScanCompiled):
            return not any(reads_state(term, 1) for term in self.compiled.scan_form.terms)
        if isinstance(self.compiled, CoupledCompiled):
            coupled = self.compiled.coupled_form
            links = (*coupled.reads, *coupled.feeds, *(c for s in coupled.streams for c in s.corrections))
            return not any(x.lag for x in links)
        form = self.compiled.normal_form
        return not any(r.lag for r in form.reads) and all(s.correct is None or s.decayed for s in form.streams)

    @property
    def feedback(self) -> set[str]:
        """The arguments that decide how a correction feeds back."""
        if isinstance(self.compiled, ScanCompiled):
            return set()
        if isinstance(self.compiled, CoupledCompiled):
            coupled = [s for s in self.compiled.coupled_form.streams if s.corrections]
            parts = [part for s in coupled for part in (s.write, *(c.correct for c in s.corrections))]
        else:
            streams = [s for s in self.compiled.normal_form.streams if s.correct is not None]
            parts = [part for s in streams for part in (s.write, s.correct, s.strength) if part is not None]
        terms = [x for part in parts for x in walk(part)]
        whole = {name: p.info.name for p in self.compiled.recurrence.packed for name in p.members}
        return {whole.get(x.name, x.name) for x in terms if isinstance(x, Argument)}

    def __str__(self) -> str:
        return "-".join((self.name, *(f"{o}={v}" for o, v in self.flags if v != self.defaults[o])))

    @property
    def defaults(self) -> dict[str, bool]:
        return {o.name: o.default for o in self.compiled.recurrence.options if isinstance(o.default, bool)}


def apart(state: Tensor, axes: Sequence[tuple[str, ...]], sizes: Mapping[str, int]) -> tuple[Tensor, ...]:
    """States of these axes, views of their entries side by side in the last axis."""
    shapes = [[sizes[x] for x in a] for a in axes]
    parts = state.split([math.prod(shape) for shape in shapes], -1)
    return tuple(x.unflatten(-1, shape) if shape else x.squeeze(-1) for x, shape in zip(parts, shapes, strict=True))


def together(states: Sequence[Tensor]) -> Tensor:
    """The entries of several states [N, HV, *axes] side by side."""
    return torch.cat([x.flatten(2) if x.dim() > 2 else x.unsqueeze(-1) for x in states], -1)


def _as_one(form, axes: list[tuple[str, ...]], arguments: list[tuple[str, tuple[str, ...]]], **given):
    """Calls a form of several states with one tensor for all, and gives back one."""
    sizes: dict[str, int] = {}
    for name, own in arguments:
        x = given.get(name)
        if isinstance(x, Tensor) and x.dim() > len(own):
            sizes |= {axis: x.shape[n - len(own)] for n, axis in enumerate(own)}
    for name in ("initial_state", "state"):
        if given.get(name) is not None:
            given[name] = apart(given[name], axes, sizes)
    results = form(**given)
    if "state" in given or results[-1] is None:
        return results
    return (*results[:-1], together(results[-1]))


def _cases(path: Path) -> list[Case]:
    """A spec with every value of its boolean options, the default first."""
    defaults = {o.name: o.default for o in compiled(path).recurrence.options if isinstance(o.default, bool)}
    values = itertools.product(*((default, not default) for default in defaults.values()))
    return [Case(path, tuple(zip(defaults, chosen, strict=True))) for chosen in values]


ALL_CASES = [case for path in SPECS for case in _cases(path)]
DEFAULTS = [case for case in ALL_CASES if dict(case.flags) == case.defaults]
CASES = [case for case in ALL_CASES if case in DEFAULTS or all(v != case.defaults[o] for o, v in case.flags)]
"""The defaults, and every option turned over."""
GATED = [case for case in CASES if case.gates]

each_default = pytest.mark.parametrize("case", DEFAULTS, ids=str)
each_single = pytest.mark.parametrize("case", [case for case in DEFAULTS if len(case.states) == 1], ids=str)
each_matrix = pytest.mark.parametrize("case", [case for case in DEFAULTS if len(case.state_axes) == 2], ids=str)
each_case = pytest.mark.parametrize("case", CASES, ids=str)
each_combination = pytest.mark.parametrize("case", ALL_CASES, ids=str)
each_gated = pytest.mark.parametrize("case", GATED, ids=str)
each_form = pytest.mark.parametrize("form", BOTH, ids=["chunk", "recurrent"])


def case_of(name: str, **flags: bool) -> Case:
    """A shipped spec with these options."""
    return next(c for c in ALL_CASES if c.name == name and dict(c.flags) == {**c.defaults, **flags})


# --- samples ---------------------------------------------------------------------------------------------------------------------


@dataclass
class Sample:
    """Arguments by name, the initial state or None, and the boundaries of packed sequences or None."""

    inputs: dict[str, Tensor]
    state: Tensor | None
    bounds: Tensor | None = None

    def to(self, dtype: torch.dtype) -> Sample:
        """The same numbers, rounded to a dtype (the state at least float32)."""
        state_dtype = torch.float64 if dtype == torch.float64 else torch.float32
        state = None if self.state is None else self.state.detach().to(state_dtype)
        return Sample({k: x.detach().to(dtype) for k, x in self.inputs.items()}, state, self.bounds)

    def tokens(self, case: Case, cut: slice, state: Tensor | None, row: int | None = None) -> Sample:
        """Some tokens of every row or of one, after a state."""
        rows = slice(None) if row is None else slice(row, row + 1)
        per_token = {a.name for a in case.arguments if a.role == "input"}
        return Sample({k: x[rows, cut] if k in per_token else x for k, x in self.inputs.items()}, state)


def sizes_of(case: Case) -> dict[str, int]:
    """Sizes that all differ, but for those that the spec says; of several states also the number of entries of all."""
    return with_all(case, {axis: 5 + 2 * i for i, axis in enumerate(sorted(case.axes))} | dict(case.compiled.recurrence.consts))


def with_all(case: Case, sizes: dict[str, int]) -> dict[str, int]:
    """Sizes with the number of entries of all states."""
    return {**sizes, ALL: sum(math.prod(sizes[x] for x in s.axes) for s in case.states)}


def draw(
    case: Case, tokens: int, *, batch: int = 2, heads: tuple[int, int] = (1, 2), sizes: dict[str, int] | None = None, seed: int = 0,
    state: bool = True, bounds: Sequence[int] | None = None,
) -> Sample:  # fmt: skip
    """A float64 sample: vectors of unit norm (a correcting stream would grow with others), gates from weak to strong."""
    generator = torch.Generator().manual_seed(seed)
    sizes = with_all(case, {**sizes_of(case), **(sizes or {}), **dict(case.compiled.recurrence.consts)})
    inputs = {}
    for a in case.arguments:
        count = heads[0] if a.grouped else heads[1]
        shape = (*((batch, tokens, count) if a.role == "input" else (heads[1],)), *(sizes[x] for x in a.axes))
        inputs[a.name] = _values(case, a, torch.randn(shape, generator=generator, dtype=torch.float64))
    rows = batch if bounds is None else len(bounds) - 1
    shape = (rows, heads[1], *(sizes[x] for x in case.state_axes))
    initial = torch.randn(shape, generator=generator, dtype=torch.float64) if state else None
    return Sample(inputs, initial, None if bounds is None else torch.tensor(bounds))


def _values(case: Case, a: ArgumentInfo, x: Tensor) -> Tensor:
    """Normal numbers brought into the argument's domain."""
    low, high = a.interval.low, a.interval.high
    option = PROPORTIONS.get((case.name, a.name))
    if case.is_log_decay(a):
        return -F.softplus(x) * (0.1 if a.role == "param" else 1)
    if option is not None and not dict(case.flags)[option]:
        low, high = 0, 1
    if math.isfinite(low) and math.isfinite(high):
        return low + (high - low) * torch.sigmoid(x)
    if math.isfinite(low) or math.isfinite(high):
        return low + 0.1 + F.softplus(x) if math.isfinite(low) else high - 0.1 - F.softplus(x)
    return F.normalize(x, dim=-1) * SHORT.get((case.name, a.name), 1) if a.axes else x


def operator_inputs(case: Case, sample: Sample) -> tuple[Tensor | None, ...]:
    """A sample's tensors in the order of an operator's arguments, leaves; those with a value for each micro-step as one for each."""
    passed = tuple(sample.inputs.get(a.name) for a in case.compiled.recurrence.declared)
    found = case.module._unpacked(passed) if case.compiled.recurrence.packed else passed
    return tuple(None if x is None else x.detach().requires_grad_(x.requires_grad) for x in found)


def set_gates(case: Case, sample: Sample, make) -> None:
    """Replace every log decay by `make(old)`."""
    for name in case.gates:
        sample.inputs[name] = make(sample.inputs[name])


# --- forms and gradients ---------------------------------------------------------------------------------------------------------


def call(case: Case, form: tuple[str, int | None], sample: Sample, **more) -> tuple[Tensor, ...]:
    """Outputs and the final state of a form."""
    prefix, chunk = form
    if chunk is not None:
        more["chunk_size"] = chunk
    more = {"initial_state": sample.state, "output_final_state": True, "cu_seqlens": sample.bounds, **more}
    return case.function(prefix)(**sample.inputs, **dict(case.flags), **more)


def names(case: Case) -> tuple[str, ...]:
    return (*case.compiled.recurrence.outputs, "final state")


def cotangents(case: Case, sample: Sample, seed: int = 1) -> list[Tensor | None]:
    """Incoming gradients of the outputs and of the final state, in their dtypes."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        results = call(case, ("fused_recurrent_", None), sample)
    return [torch.randn(x.shape, generator=generator, dtype=torch.float64).to(x.dtype) for x in results]


def evaluate(case: Case, form: tuple[str, int | None], sample: Sample, incoming: Sequence[Tensor | None], **more) -> dict[str, Tensor]:
    """Outputs, final state, and the gradient of every argument and of the initial state, by name; none for what nothing reaches."""
    leaves = {k: x.detach().requires_grad_() for k, x in sample.inputs.items()}
    state = None if sample.state is None else sample.state.detach().requires_grad_()
    results = call(case, form, Sample(leaves, state, sample.bounds), **more)
    found = dict(zip(names(case), (x.detach() for x in results), strict=True))
    wanted = {**leaves, **({} if state is None else {"initial state": state})}
    pairs = [(x, d) for x, d in zip(results, incoming, strict=True) if d is not None and x.requires_grad]
    gradients = torch.autograd.grad([x for x, _ in pairs], [*wanted.values()], [d for _, d in pairs], allow_unused=True)
    return found | {f"d {k}": g for k, g in zip(wanted, gradients, strict=True) if g is not None}


def reference(case: Case, sample: Sample, incoming: Sequence[Tensor | None]) -> dict[str, Tensor]:
    """What is right: the recurrence token by token in float64, with autograd."""
    found = evaluate(case, ("naive_recurrent_", None), sample.to(torch.float64), [None if d is None else d.double() for d in incoming])
    assert not (found["final state"].abs() > 1e3).any(), "the sample grows beyond 1e3: draw another"
    return found


# --- errors ----------------------------------------------------------------------------------------------------------------------

TOLERANCES = {
    torch.float64: (1e-10, 1e-9, 1e-9),
    torch.float32: (1e-5, 5e-5, 1e-4),
    torch.bfloat16: (5e-3, 8e-3, 2e-2),
    torch.float16: (5e-3, 8e-3, 2e-2),
}
"""Of outputs and states; of gradients; of gradients of gates and other numbers per head."""


def errors(actual: Tensor, expected: Tensor) -> tuple[float, float]:
    """Relative RMS and max / max; where what is right is 0, or less than the dtype holds, whether something else is there."""
    x, ref = actual.double(), expected.double()
    if not ref.numel():
        return 0.0, 0.0
    size, least = ref.abs().max(), 1e-290 if actual.dtype == torch.float64 else 1e-30
    if size < least:
        wrong = 0.0 if x.abs().max() <= (2 * least if size else 0) else math.inf
        return wrong, wrong
    difference, ref = (x - ref) / size, ref / size  # the square of a tiny number would be 0
    rms = (difference.square().mean().sqrt() / ref.square().mean().sqrt()).item()
    largest = difference.abs().max().item()
    return (math.inf if math.isnan(rms) else rms, math.inf if math.isnan(largest) else largest)


def tolerance(case: Case, name: str, dtype: torch.dtype) -> float:
    outputs, gradients, gates = TOLERANCES[dtype]
    argument = next((a for a in case.arguments if f"d {a.name}" == name), None)
    if not name.startswith("d "):
        return outputs
    scalar = argument is not None and (not argument.axes or argument.role == "param" or case.is_log_decay(argument))
    return gates if scalar else gradients


def assert_close(
    case: Case, actual: Mapping[str, Tensor], expected: Mapping[str, Tensor], dtype: torch.dtype, limit: float | None = None
) -> None:
    """Both metrics of every tensor are within the tolerance of the dtype (or `limit`); the message shows all of them."""
    missing = [k for k in expected if k not in actual and expected[k].any()]
    assert not missing, f"no gradient: {missing}"
    table = {k: (*errors(actual[k], expected[k]), limit or tolerance(case, k, dtype)) for k in expected if k in actual}
    wrong = [k for k, (rms, largest, allowed) in table.items() if not max(rms, largest) <= allowed]
    shown = ", ".join(f"{k} {a:.1e} {b:.1e} {c:.0e}" for k, (a, b, c) in table.items())
    assert not wrong, f"{wrong}; relative RMS, max/max, allowed: {shown}"


def assert_equal(actual: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> None:
    """Equal to the bit."""
    assert actual.keys() == expected.keys()
    different = [k for k in actual if not torch.equal(actual[k], expected[k])]
    assert not different, f"differ: {different}"
