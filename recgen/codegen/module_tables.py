"""The tables of a generated module, as literals: arguments, states, outputs, options."""

from __future__ import annotations

from dataclasses import dataclass

from recgen.codegen.declared_form import Form, flags_of, micro_sizes, numbers_of, output_axes, states_of, typed_like
from recgen.codegen.token_printer import TokenPrinter
from recgen.lang.recurrence import ArgumentInfo, OptionInfo, Recurrence
from recgen.lang.terms import Apply, AxisSize, OptionValue, is_number, walk

_DIVIDING = {"div": 1, "pow": 0, "rsqrt": 0}
"""Operations that have no value for some numbers -> which operand decides."""


@dataclass(frozen=True)
class ArgumentRow:
    """A row of the module's argument table."""

    name: str
    axes: str
    grouped: bool
    per_token: bool
    needed_if: str


@dataclass(frozen=True)
class StateRow:
    """A row of the module's state table: `axes` with the key axis first, `turned` where a matrix was declared the other way round."""

    name: str
    axes: str
    turned: bool


@dataclass(frozen=True)
class ModuleTables:
    """Rows and literals; `checked`: the name of the table that calls are held against."""

    arguments: tuple[ArgumentRow, ...]
    parameters: tuple[ArgumentRow, ...]
    packed: tuple[str, ...]
    checked: str
    micro_sizes: str
    output_axes: str
    output_like: str
    states: tuple[StateRow, ...]
    number_names: str
    flag_names: str
    number_defaults: tuple[str, ...]
    divisors: str


def build_tables(form: Form) -> ModuleTables:
    """The tables of a form's module."""
    r = form.recurrence
    return ModuleTables(
        arguments=tuple(_argument_row(a) for a in r.arguments),
        parameters=tuple(_argument_row(a) for a in r.declared),
        packed=tuple(f'"{p.info.name}": {_quoted(p.members)}' for p in r.packed),
        checked="_PARAMETERS" if r.packed else "_ARGUMENTS",
        micro_sizes="{" + ", ".join(f'"{name}": ({size}, "const {name}")' for name, size in micro_sizes(r).items()) + "}",
        output_axes=_row(tuple(_quoted(axes) for axes in output_axes(form))),
        output_like=_row(tuple(str(i) for i in _output_like(form))),
        states=tuple(StateRow(s.name, _quoted(s.axes[::-1] if s.turned else s.axes), s.turned) for s in states_of(form)),
        number_names=_quoted(tuple(o.name for o in numbers_of(r))),
        flag_names=_quoted(tuple(o.name for o in flags_of(r))),
        number_defaults=tuple(_default(o) for o in numbers_of(r)),
        divisors=" or ".join(f"`{name}`" for name in _divisors(r)),
    )


def _row(items: tuple[str, ...]) -> str:
    """A tuple's literal from texts."""
    return "(" + ", ".join(items) + ("," if len(items) == 1 else "") + ")"


def _quoted(names: tuple[str, ...]) -> str:
    """A tuple of strings as a literal."""
    return _row(tuple(f'"{n}"' for n in names))


def _argument_row(a: ArgumentInfo) -> ArgumentRow:
    needed = _row(tuple(f'("{o}", {v})' for o, v in a.needed_if))
    return ArgumentRow(a.name, _quoted(a.axes), a.grouped, a.role == "input", needed)


def _output_like(form: Form) -> tuple[int, ...]:
    """For every output, the argument whose dtype it takes."""
    return tuple(typed_like(form.recurrence.arguments, "".join(axes[:1])) for axes in output_axes(form))


def _divisors(r: Recurrence) -> tuple[str, ...]:
    """The options that alone or among numbers something is divided by, or that are raised to a power."""
    terms = (*(d.value for d in r.definitions), *(step for s in r.states for step in s.steps))
    found = dict.fromkeys(
        x.name
        for term in terms
        for node in walk(term)
        if isinstance(node, Apply) and node.op in _DIVIDING and is_number(node.args[_DIVIDING[node.op]])
        for x in walk(node.args[_DIVIDING[node.op]])
        if isinstance(x, OptionValue)
    )
    return tuple(o.name for o in numbers_of(r) if o.name in found)


def _default(option: OptionInfo) -> str:
    """A numeric option's default as a function of the sizes."""
    assert not isinstance(option.default, bool)
    printer = TokenPrinter({}, {})
    text = printer.text(option.default)
    axes = dict.fromkeys(x.axis for x in walk(option.default) if isinstance(x, AxisSize))
    known = {axis: f'sizes["{axis}"][0]' for axis in axes}
    if not axes:
        return f"lambda _: {text}"
    bindings = ", ".join(f"{axis}={value}" for axis, value in known.items())
    return f"lambda sizes: (lambda {', '.join(axes)}: {text})({bindings})"
