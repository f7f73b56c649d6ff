"""The recurrence in float64, one token at a time, straight from its typed expressions. Shares nothing with the analyzer or the printers."""

from __future__ import annotations

from itertools import pairwise

import torch
import torch.nn.functional as F

from recgen.lang.recurrence import Recurrence, StateInfo
from recgen.lang.terms import SCALAR, Apply, Argument, AxisSize, Constant, Eye, OptionValue, State, Term, walk

Tensor = torch.Tensor

FUNCTIONS = {
    **{op: getattr(torch, op) for op in ("exp", "log", "log1p", "expm1", "sqrt", "rsqrt", "sigmoid", "relu", "tanh", "sin", "cos")},
    "abs": torch.abs,
    "sign": torch.sign,
    "softplus": lambda x: torch.logaddexp(x, torch.zeros_like(x)),
    "logsigmoid": F.logsigmoid,
    "silu": F.silu,
    "neg": torch.neg,
    "add": torch.add,
    "sub": torch.sub,
    "mul": torch.mul,
    "div": torch.div,
    "pow": torch.pow,
    "matmul": torch.matmul,
    "transpose": lambda x: x.mT,
    "min": lambda a, b: torch.where(a <= b, a, b),  # ties go to the first, in the gradient too
    "max": lambda a, b: torch.where(a >= b, a, b),
    "where<": lambda a, b, x, y: torch.where(a < b, x, y),
    "where<=": lambda a, b, x, y: torch.where(a <= b, x, y),
    "sum": lambda x: x.sum((-2, -1), keepdim=True),
    "l2norm": lambda x: x * torch.rsqrt((x * x).sum((-2, -1), keepdim=True) + 1e-6),
    "rmsnorm": lambda x: x * torch.rsqrt((x * x).mean((-2, -1), keepdim=True) + 1e-6),
}


def in_order(states: tuple[StateInfo, ...]) -> tuple[StateInfo, ...]:
    """The states with those first that others read at the same token."""
    order: list[StateInfo] = []
    while left := [s for s in states if s not in order]:
        names = {s.name for s in left}
        read = {s.name: {t.name for e in (*s.micro, s.equation) for t in walk(e) if isinstance(t, State) and t.lag == 0} for s in left}
        order.append(next(s for s in left if not read[s.name] & (names - {s.name})))
    return tuple(order)


class Loop:
    """Evaluates one recurrence: every value is [B, HV, rows, columns]."""

    def __init__(self, recurrence: Recurrence, sizes: dict[str, int], options: dict[str, float | bool]) -> None:
        self.recurrence, self.sizes, self.options = recurrence, sizes, options

    def value(self, term: Term, inputs: dict[str, Tensor], states: dict[tuple[str, int, int | None], Tensor]) -> Tensor:
        match term:
            case Constant(value):
                return torch.tensor(value, dtype=torch.float64).reshape(1, 1)
            case AxisSize(axis):
                return torch.tensor(float(self.sizes[axis]), dtype=torch.float64).reshape(1, 1)
            case OptionValue(name):
                return torch.tensor(float(self.options[name]), dtype=torch.float64).reshape(1, 1)
            case Argument(name):
                return inputs[name]
            case State(name, lag=lag, micro=micro):
                return states[name, lag, micro]
            case Eye((axis, _)):
                return torch.eye(self.sizes[axis], dtype=torch.float64)
            case Apply("select", (then, otherwise), _, option):
                return self.value(then if self.options[option] else otherwise, inputs, states)
            case Apply(op, args):
                values = [self.value(a, inputs, states) for a in args]
                return FUNCTIONS[op](*values)
        raise AssertionError(term)

    def run(self, arguments: dict[str, Tensor | None], initial: tuple[Tensor, ...] | None, bounds: list[int] | None) -> tuple[Tensor, ...]:
        """Outputs [B, T, HV, *axes], then the final states as declared; `bounds` are the sequences of a packed batch."""
        if bounds is None:
            return self._sequence(arguments, initial)
        parts = []
        for n, (start, stop) in enumerate(pairwise(bounds)):
            is_input = {a.name: a.role == "input" for a in self.recurrence.arguments}
            piece = {k: x[:, start:stop] if x is not None and is_input[k] else x for k, x in arguments.items()}
            parts.append(self._sequence(piece, None if initial is None else tuple(x[n : n + 1] for x in initial)))
        count = len(self.recurrence.outputs)
        return tuple(torch.cat(x, 1 if i < count else 0) for i, x in enumerate(zip(*parts, strict=True)))

    def _sequence(self, arguments: dict[str, Tensor | None], initial: tuple[Tensor, ...] | None) -> tuple[Tensor, ...]:
        infos = {a.name: a for a in self.recurrence.arguments}
        present = {k: x for k, x in arguments.items() if x is not None}
        heads = max(x.shape[0 if infos[k].role == "param" else 2] for k, x in present.items())
        batch, tokens = next(x.shape[:2] for k, x in present.items() if infos[k].role == "input")
        infos_of_states = self.recurrence.states
        before = {}
        for i, info in enumerate(infos_of_states):
            shape = (batch, heads, *(self.sizes[a] for a in info.axes))
            state = torch.zeros(shape, dtype=torch.float64) if initial is None else initial[i]
            state = state.detach() if info in self.recurrence.scales else state
            before[info.name] = state.view(*state.shape, *(1,) * (2 - len(info.axes)))
        outputs: dict[str, list[Tensor]] = {name: [] for name in self.recurrence.outputs}
        for t in range(tokens):
            token = {}
            for k, x in present.items():
                x = x[None] if infos[k].role == "param" else x[:, t].repeat_interleave(heads // x.shape[2], 1)
                token[k] = x[..., None] if x.dim() == 3 else x[..., None, None]
            states: dict[tuple[str, int, int | None], Tensor] = {(name, 1, None): state for name, state in before.items()}
            for info in in_order(infos_of_states):
                for i, equation in enumerate(info.micro):
                    states[info.name, 0, i] = self.value(equation, token, states) + 0 * before[info.name]
                after = self.value(info.equation, token, states) + 0 * before[info.name]
                states[info.name, 0, None] = after.detach() if info in self.recurrence.scales else after
            for name in outputs:
                term = self.recurrence.definition(name)
                y = self.value(term, token, states).expand(batch, heads, -1, -1)
                outputs[name].append(y.flatten(2) if term.shape != SCALAR else y[..., 0, 0])
            before = {info.name: states[info.name, 0, None] for info in infos_of_states}
        finals = (before[info.name].reshape(batch, heads, *(self.sizes[a] for a in info.axes)) for info in infos_of_states)
        return (*(self._stack(name, ys, batch, heads) for name, ys in outputs.items()), *finals)

    def _stack(self, name: str, ys: list[Tensor], batch: int, heads: int) -> Tensor:
        if ys:
            return torch.stack(ys, 1)
        shape = self.recurrence.definition(name).shape
        axes = [self.sizes[a] for a in shape if a != "1"]
        return torch.zeros(batch, 0, heads, *axes, dtype=torch.float64)
