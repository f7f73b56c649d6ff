"""What a form takes and gives, as declared: arguments that are always there, options, states, axes of outputs."""

from __future__ import annotations

from dataclasses import dataclass

from recgen.analysis.coupled_form import CoupledForm
from recgen.analysis.normal_form import NormalForm
from recgen.analysis.token_form import TokenForm
from recgen.lang.recurrence import ArgumentInfo, OptionInfo, Recurrence

Form = NormalForm | CoupledForm | TokenForm


@dataclass(frozen=True)
class DeclaredState:
    """A state as declared; `turned`: a matrix that was declared [value axis, key axis]."""

    name: str
    axes: tuple[str, ...]
    turned: bool


def states_of(form: Form) -> tuple[DeclaredState, ...]:
    """The states of a form, in declaration order."""
    if isinstance(form, NormalForm):
        return tuple(DeclaredState(s.name, s.axes, form.transposed and s == form.state) for s in form.recurrence.states)
    token = form.token if isinstance(form, CoupledForm) else form
    return tuple(DeclaredState(s.name, s.axes, s.turned) for s in token.states)


def has_matrix(form: Form) -> bool:
    """Whether a state is a matrix."""
    return any(len(s.axes) == 2 for s in states_of(form))


def numbers_of(r: Recurrence) -> tuple[OptionInfo, ...]:
    """The numeric options."""
    return tuple(o for o in r.options if not isinstance(o.default, bool))


def flags_of(r: Recurrence) -> tuple[OptionInfo, ...]:
    """The boolean options."""
    return tuple(o for o in r.options if isinstance(o.default, bool))


def micro_sizes(r: Recurrence) -> dict[str, int]:
    """The sizes of the axes that count micro-steps."""
    consts = dict(r.consts)
    return {p.info.axes[0]: consts[p.info.axes[0]] for p in r.packed}


def output_axes(form: Form) -> tuple[tuple[str, ...], ...]:
    """The axes of every output."""
    return tuple(tuple(a for a in o.value.shape if a != "1") for o in form.outputs)


def always_there(arguments: tuple[ArgumentInfo, ...]) -> tuple[int, ...]:
    """The inputs that no option leaves out; all of them where each is left out by some."""
    inputs = [(i, a) for i, a in enumerate(arguments) if a.role == "input"]
    return tuple(i for i, a in inputs if not a.needed_if) or tuple(i for i, _ in inputs)
