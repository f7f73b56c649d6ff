"""One token of the recurrence as written: the typed expressions as PyTorch matrices, without any analysis."""

from __future__ import annotations

from recgen.lang.recurrence import Recurrence
from recgen.lang.terms import (
    ELEMENTWISE,
    Apply,
    Argument,
    AxisSize,
    Constant,
    Eye,
    OptionValue,
    State,
    Term,
    reads_state,
    walk,
)


class TokenPrinter:
    """Prints terms over columns [..., n, 1] and matrices; a term that has a name already is printed as that name."""

    def __init__(self, rename: dict[str, str], states: dict[tuple[str, int], str], state_axes: tuple[str, ...] = ()) -> None:
        self.rename = rename
        self.states = states
        self.state_axes = state_axes
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
            case State(name, lag):
                return self.states[name, lag]
            case Apply():
                return self._apply(term)
        raise AssertionError(f"no PyTorch form of {term}")

    def _apply(self, term: Apply) -> str:
        if any(isinstance(a, Eye) for a in term.args):
            return self._with_identity(term)
        args = [self.text(a) for a in term.args]
        symbols = {"add": "+", "sub": "-", "mul": "*", "div": "/", "pow": "**", "matmul": "@"}
        if term.op in symbols:
            return f"({args[0]} {symbols[term.op]} {args[1]})"
        if term.op == "neg":
            return f"(-{args[0]})"
        if term.op == "transpose":
            return f"{args[0]}.mT"
        if term.op == "select":
            return f"({args[0]} if {term.option} else {args[1]})"
        if term.op.startswith("where"):
            return f"torch.where({self._tensor(term.args[0])} {term.op[5:]} {args[1]}, {args[2]}, {args[3]})"
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
        if self._is_number(term.args[0]):
            return f"{functions.get(term.op, 'torch.' + term.op)}(torch.tensor({arg}))"
        return f"{functions.get(term.op, 'torch.' + term.op)}({arg})"

    def _extremum(self, term: Apply, args: list[str]) -> str:
        numbers = [self._is_number(a) for a in term.args]
        if all(numbers):
            return f"{term.op}({args[0]}, {args[1]})"
        if any(numbers):
            tensor, number = (args[1], args[0]) if numbers[0] else (args[0], args[1])
            return f"{tensor}.clamp({'max' if term.op == 'min' else 'min'}={number})"
        return f"torch.{'minimum' if term.op == 'min' else 'maximum'}({args[0]}, {args[1]})"

    def _tensor(self, term: Term) -> str:
        return f"torch.tensor({self.text(term)})" if self._is_number(term) else self.text(term)

    @staticmethod
    def _is_number(term: Term) -> bool:
        return not any(isinstance(x, Argument | State) for x in walk(term))

    def _with_identity(self, term: Apply) -> str:
        """`I - M`, `I @ M`, `c * I`: an identity over one of the state's axes."""
        left, right = term.args
        if term.op == "matmul":
            return self.text(right if isinstance(left, Eye) else left)
        eye = f"_identity(before, {-2 if term.shape[0] == self.state_axes[0] else -1})"
        symbols = {"add": "+", "sub": "-", "mul": "*", "div": "/"}
        first, second = (eye, self.text(right)) if isinstance(left, Eye) else (self.text(left), eye)
        return f"({first} {symbols[term.op]} {second})"


def token_lines(recurrence: Recurrence, rename: dict[str, str]) -> tuple[tuple[str, ...], str]:
    """The body and the results of the function that does one token: definitions, the state's equation, outputs."""
    state = recurrence.states[0]
    printer = TokenPrinter(rename, {(state.name, 1): "before", (state.name, 0): "after"}, state.axes)
    for argument in recurrence.arguments:
        shape = (argument.axes[0], "1") if argument.axes else ("1", "1")
        printer.names[Argument(argument.name, argument.role, shape)] = rename.get(argument.name, argument.name)
    first = [d for d in recurrence.definitions if not reads_state(d.value, 0)]
    second = [d for d in recurrence.definitions if reads_state(d.value, 0)]
    lines = [printer.define(d.name, d.value) for d in first]
    lines.append(f"after = {_bare(printer.text(state.equation))}  # {state.name}[t]")
    lines += [printer.define(d.name, d.value) for d in second]
    return tuple(lines), f"({', '.join(rename.get(o, o) for o in recurrence.outputs)}, after)"


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
