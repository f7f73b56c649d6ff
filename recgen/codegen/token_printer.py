"""One token of the recurrence as written: the typed expressions as PyTorch matrices, without any analysis."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from recgen.codegen.declared_form import first_given
from recgen.derive.program import Literal, fold
from recgen.lang.recurrence import Definition, Recurrence, StateInfo
from recgen.lang.terms import (
    ELEMENTWISE,
    SCALAR,
    Apply,
    Argument,
    AxisSize,
    Constant,
    Eye,
    OptionValue,
    Shape,
    State,
    Term,
    walk,
)

StateNames = dict[tuple[str, int, int | None], str]
"""Variables by a state's name, lag and micro-step."""


class TokenPrinter:
    """Prints terms over columns [..., n, 1] and matrices; a term that has a name already is printed as that name."""

    def __init__(
        self,
        rename: dict[str, str],
        states: StateNames,
        axes: dict[str, tuple[str, int]] | None = None,
        number_like: str = "",
    ) -> None:
        self.rename = rename
        self.states = states
        self.axes = axes or {}  # axis -> a variable that has it, and where
        self.number_like = number_like  # a tensor of one number a row and head
        self.names: dict[Term, str] = {}

    def define(self, name: str, value: Term) -> str:
        """A definition's line; from here on its name stands for its value."""
        name = self.rename.get(name, name)
        line = f"{name} = {_bare(self.text(value))}"
        self.names.setdefault(value, name)
        return line

    def text(self, term: Term) -> str:
        """The term as an expression; operations are in brackets."""
        if term in self.names:
            return self.names[term]
        match term:
            case Constant(value):
                return {"inf": "math.inf", "-inf": "-math.inf"}.get(repr(value), repr(value))
            case AxisSize(axis):
                return axis
            case OptionValue(name):
                return name
            case Argument(name):
                return self.rename.get(name, name)
            case State(name, lag, micro=micro):
                return self.states[name, lag, micro]
            case Eye(shape):
                variable, position = self.axes[shape[0]]
                return f"_identity({variable}, {position})"
            case Apply():
                return self._apply(term)
        raise AssertionError(f"no PyTorch form of {term}")

    def _apply(self, term: Apply) -> str:
        if term.op == "matmul" and any(isinstance(a, Eye) for a in term.args):
            return self.text(next((a for a in term.args if not isinstance(a, Eye)), term.args[0]))
        args = [self.text(a) for a in term.args]
        if term.op not in ("select", "transpose", "matmul") and self._is_number(term):
            return fold(term.op, tuple(Literal(text, None) for text in args)).text
        symbols = {"add": "+", "sub": "-", "mul": "*", "div": "/", "pow": "**", "matmul": "@"}
        if term.op in symbols:
            return f"({args[0]} {symbols[term.op]} {args[1]})"
        if term.op == "neg":
            return f"(-{args[0]})"
        if term.op == "transpose":
            return args[0] if self._is_number(term) else f"{args[0]}.mT"
        if term.op == "select":
            return self._chosen(term.option, term.args, args)
        if term.op.startswith("where"):
            return self._where(term, args)
        if term.op in ("min", "max"):
            return self._extremum(term, args)
        return self._function(term, args[0])

    def _function(self, term: Apply, arg: str) -> str:
        axis = -2 if term.args[0].shape[1] == "1" else -1
        if term.op in ("l2norm", "rmsnorm"):
            mean = "mean" if term.op == "rmsnorm" else "sum"
            return f"({arg} * torch.rsqrt(({arg} * {arg}).{mean}({axis}, keepdim=True) + 1e-6))"
        if term.op == "sum":
            return f"{arg}.sum({axis}, keepdim=True)"
        assert term.op in ELEMENTWISE, term.op
        functions = {"logsigmoid": "F.logsigmoid", "softplus": "_softplus", "silu": "F.silu"}
        return f"{functions.get(term.op, 'torch.' + term.op)}({arg})"

    def _extremum(self, term: Apply, args: list[str]) -> str:
        numbers = [self._is_number(a) for a in term.args]
        if any(numbers):
            tensor, number = (args[1], args[0]) if numbers[0] else (args[0], args[1])
            return f"{tensor}.clamp({'max' if term.op == 'min' else 'min'}={number})"
        return f"torch.{'minimum' if term.op == 'min' else 'maximum'}({args[0]}, {args[1]})"

    def _chosen(self, test: str, sides: tuple[Term, ...], texts: list[str]) -> str:
        """One of two sides, a tensor whichever it is if one of them is one."""
        numbers = [self._is_number(a) for a in sides]
        if any(numbers) and not all(numbers):
            texts = [f"torch.full_like({self.number_like}, {x})" if n else x for x, n in zip(texts, numbers, strict=True)]
        return f"({texts[0]} if {test} else {texts[1]})"

    def _where(self, term: Apply, args: list[str]) -> str:
        """A choice by comparison; a choice between two numbers keeps the precision of what is compared."""
        numbers = [self._is_number(a) for a in term.args]
        if numbers[0] and numbers[1]:
            return self._chosen(f"{args[0]} {term.op[5:]} {args[1]}", term.args[2:], args[2:])
        compared = args[1] if numbers[0] else args[0]
        then = f"torch.full_like({compared}, {args[2]})" if numbers[2] and numbers[3] else args[2]
        return f"torch.where({args[0]} {term.op[5:]} {args[1]}, {then}, {args[3]})"

    @staticmethod
    def _is_number(term: Term) -> bool:
        return not any(isinstance(x, Argument | State) for x in walk(term))


@dataclass(frozen=True)
class TokenText:
    """The function that does one token: the states that it takes, its body and what it returns.

    `scale`: the number of the state that is a choice of scale, "" without one.
    """

    befores: tuple[str, ...]
    lines: tuple[str, ...]
    results: str
    scale: str


def token_text(recurrence: Recurrence, rename: dict[str, str]) -> TokenText:
    """Definitions, the states' equations and the outputs, in an order in which each has what it reads."""
    befores, afters = _state_names(recurrence, frozenset(rename.values()))
    states: StateNames = {(s.name, 1, None): befores[s.name] for s in recurrence.states}
    states |= {(s.name, 0, None): afters[s.name] for s in recurrence.states}
    states |= {(s.name, 0, i): f"{afters[s.name]}_{i}" for s in recurrence.states for i in range(len(s.micro))}
    axes = _axis_owners(recurrence, rename, befores)
    one = f"{next(iter(befores.values()))}[..., :1, :1]"
    printer = TokenPrinter(rename, states, axes, one)
    for argument in recurrence.arguments:
        printer.names[Argument(argument.name, argument.role, _shape(argument.axes))] = rename.get(argument.name, argument.name)
    terms = (*(d.value for d in recurrence.definitions), *(step for s in recurrence.states for step in s.steps))
    sizes = dict.fromkeys(x.axis for term in terms for x in walk(term) if isinstance(x, AxisSize))
    owners = [(befores[s.name], s.axes, False) for s in recurrence.states]
    owners += [(rename.get(a.name, a.name), a.axes, bool(a.needed_if)) for a in recurrence.arguments]
    lines = [
        f"{axis} = {first_given((v, f'{v}.shape[{own.index(axis) - 2}]', optional) for v, own, optional in owners if axis in own)}"
        for axis in sizes
    ]
    scales = recurrence.scales
    for item in _in_order(recurrence):
        if isinstance(item, Definition):
            lines.append(printer.define(item.name, item.value))
        else:
            for i, step in enumerate(item.micro):
                lines.append(f"{afters[item.name]}_{i} = {_bare(printer.text(step))}  # {item.name}[t, {i}]")
            text = printer.text(item.equation)
            if item in scales:
                lines.append(f"{afters[item.name]} = {text}.detach()  # {item.name}[t], a choice of scale")
            else:
                lines.append(f"{afters[item.name]} = {_bare(text)}  # {item.name}[t]")
    results = [_for_every_row(rename.get(o, o), recurrence.definition(o), one) for o in recurrence.outputs]
    results += [_for_every_row(afters[s.name], s.equation, befores[s.name]) for s in recurrence.states]
    scale = "".join(str(recurrence.states.index(s)) for s in scales)
    return TokenText(tuple(befores.values()), tuple(lines), f"({', '.join(results)})", scale)


def _for_every_row(name: str, term: Term, like: str) -> str:
    """A result as a tensor with all rows: what neither an input nor a state enters has one row, or is a number."""
    varies = any(isinstance(x, State) or (isinstance(x, Argument) and x.role == "input") for x in walk(term))
    return name if varies else f"torch.zeros_like({like}) + {name}"


def _state_names(recurrence: Recurrence, taken: frozenset[str]) -> tuple[dict[str, str], dict[str, str]]:
    """The variables of every state before and after the token."""
    if len(recurrence.states) == 1:
        name = recurrence.states[0].name
        return {name: "before"}, {name: "after"}
    used = set(taken) | {o.name for o in recurrence.options}
    found: tuple[dict[str, str], dict[str, str]] = ({}, {})
    for names, hint in zip(found, ("before", "after"), strict=True):
        for state in recurrence.states:
            name = f"{state.name}_{hint}"
            while name in used:
                name += "_"
            used.add(name)
            names[state.name] = name
    return found


def _axis_owners(recurrence: Recurrence, rename: dict[str, str], befores: dict[str, str]) -> dict[str, tuple[str, int]]:
    """For every axis a variable whose shape has it, and where: a state, else an argument that is always there."""
    owners: dict[str, tuple[str, int]] = {}
    always = sorted(recurrence.arguments, key=lambda a: bool(a.needed_if))
    for name, axes in (*((befores[s.name], s.axes) for s in recurrence.states), *((rename.get(a.name, a.name), a.axes) for a in always)):
        for position, axis in enumerate(axes):
            owners.setdefault(axis, (name, position - 2))
    return owners


def _shape(axes: tuple[str, ...]) -> Shape:
    return (axes[0], axes[1]) if len(axes) == 2 else (axes[0], "1") if axes else SCALAR


def _in_order(recurrence: Recurrence) -> Iterator[Definition | StateInfo]:
    """Definitions and states, each after the states at t that it reads."""
    done: set[str] = set()
    definitions, states = list(recurrence.definitions), list(recurrence.states)

    def ready(term: Term, own: str = "") -> bool:
        return all(x.name in (*done, own) for x in walk(term) if isinstance(x, State) and x.lag == 0)

    while definitions or states:
        for d in [d for d in definitions if ready(d.value)]:
            definitions.remove(d)
            yield d
        state = next((s for s in states if all(ready(step, s.name) for step in s.steps)), None)
        if state is not None:
            states.remove(state)
            done.add(state.name)
            yield state


def _bare(text: str) -> str:
    """Without brackets around the whole."""
    if not text.startswith("("):
        return text
    depth = 0
    for i, c in enumerate(text):
        depth += (c == "(") - (c == ")")
        if depth == 0:
            return text[1:-1] if i == len(text) - 1 else text
    return text
