"""What a form takes and gives, as declared: arguments that are always there, options, states, axes of outputs."""

from __future__ import annotations

from collections.abc import Callable, Iterable
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
    """The inputs that no option leaves out: the language asks for one."""
    return tuple(i for i, a in enumerate(arguments) if a.role == "input" and not a.needed_if)


def typed_like(arguments: tuple[ArgumentInfo, ...], axis: str) -> int:
    """The input whose dtype an output takes: of those that are always there the first over the same axis, for a scalar the first of all."""
    always = always_there(arguments)
    return next((i for i in always if axis in arguments[i].axes), always[0])


def first_given(owners: Iterable[tuple[str, str, bool]]) -> str:
    """The size of an axis: of the first owner that is always there, else of the first that is given, 1 where none is.

    `owners`: of each its variable, the size as text, and whether an option leaves it out.
    """
    found = tuple(owners)
    always = [size for _, size, optional in found if not optional]
    given = (f"{size} if {name} is not None else " for name, size, _ in found)
    return always[0] if always else f"{''.join(given)}1"


def size_text(arguments: tuple[ArgumentInfo, ...], axis: str, name: Callable[[str], str] = str) -> str:
    """The size of an axis, read off the arguments; `name`: the variable of one."""
    owners = ((name(a.name), a) for a in arguments if axis in a.axes)
    return first_given((v, f"{v}.shape[{a.axes.index(axis) - len(a.axes)}]", bool(a.needed_if)) for v, a in owners)
