"""The recurrence in float64, one token at a time, straight from its typed expressions. Shares nothing with the analyzer or the printers."""

from __future__ import annotations

from itertools import pairwise

import torch
import torch.nn.functional as F

from recgen.lang.recurrence import Recurrence
from recgen.lang.terms import SCALAR, Apply, Argument, AxisSize, Constant, Eye, OptionValue, State, Term

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


class Loop:
    """Evaluates one recurrence: every value is [B, HV, rows, columns]."""

    def __init__(self, recurrence: Recurrence, sizes: dict[str, int], options: dict[str, float | bool]) -> None:
        self.recurrence, self.sizes, self.options = recurrence, sizes, options

    def value(self, term: Term, inputs: dict[str, Tensor], states: dict[tuple[int, int | None], Tensor]) -> Tensor:
        match term:
            case Constant(value):
                return torch.tensor(value, dtype=torch.float64).reshape(1, 1)
            case AxisSize(axis):
                return torch.tensor(float(self.sizes[axis]), dtype=torch.float64).reshape(1, 1)
            case OptionValue(name):
                return torch.tensor(float(self.options[name]), dtype=torch.float64).reshape(1, 1)
            case Argument(name):
                return inputs[name]
            case State(lag=lag, micro=micro):
                return states[lag, micro]
            case Eye((axis, _)):
                return torch.eye(self.sizes[axis], dtype=torch.float64)
            case Apply("select", (then, otherwise), _, option):
                return self.value(then if self.options[option] else otherwise, inputs, states)
            case Apply(op, args):
                values = [self.value(a, inputs, states) for a in args]
                return FUNCTIONS[op](*values)
        raise AssertionError(term)

    def run(self, arguments: dict[str, Tensor | None], initial: Tensor | None, bounds: list[int] | None) -> tuple[Tensor, ...]:
        """Outputs [B, T, HV, *axes], then the final state as declared; `bounds` are the sequences of a packed batch."""
        if bounds is None:
            return self._sequence(arguments, initial)
        parts = []
        for n, (start, stop) in enumerate(pairwise(bounds)):
            is_input = {a.name: a.role == "input" for a in self.recurrence.arguments}
            piece = {k: x[:, start:stop] if x is not None and is_input[k] else x for k, x in arguments.items()}
            parts.append(self._sequence(piece, None if initial is None else initial[n : n + 1]))
        *outputs, finals = zip(*parts, strict=True)
        return (*(torch.cat(o, 1) for o in outputs), torch.cat(finals, 0))

    def _sequence(self, arguments: dict[str, Tensor | None], initial: Tensor | None) -> tuple[Tensor, ...]:
        infos = {a.name: a for a in self.recurrence.arguments}
        present = {k: x for k, x in arguments.items() if x is not None}
        heads = max(x.shape[0 if infos[k].role == "param" else 2] for k, x in present.items())
        batch, tokens = next(x.shape[:2] for k, x in present.items() if infos[k].role == "input")
        state_info = self.recurrence.states[0]
        rows, columns = (self.sizes[a] for a in state_info.axes)
        state = torch.zeros(batch, heads, rows, columns, dtype=torch.float64) if initial is None else initial
        outputs: dict[str, list[Tensor]] = {name: [] for name in self.recurrence.outputs}
        for t in range(tokens):
            token = {}
            for k, x in present.items():
                x = x[None] if infos[k].role == "param" else x[:, t].repeat_interleave(heads // x.shape[2], 1)
                token[k] = x[..., None] if x.dim() == 3 else x[..., None, None]
            states: dict[tuple[int, int | None], Tensor] = {(1, None): state}
            for i, equation in enumerate(state_info.micro):
                states[0, i] = self.value(equation, token, states) + 0 * state
            states[0, None] = self.value(state_info.equation, token, states) + 0 * state
            for name in outputs:
                term = self.recurrence.definition(name)
                y = self.value(term, token, states).expand(batch, heads, -1, -1)
                outputs[name].append(y.flatten(2) if term.shape != SCALAR else y[..., 0, 0])
            state = states[0, None]
        return (*(self._stack(name, ys, batch, heads) for name, ys in outputs.items()), state)

    def _stack(self, name: str, ys: list[Tensor], batch: int, heads: int) -> Tensor:
        if ys:
            return torch.stack(ys, 1)
        shape = self.recurrence.definition(name).shape
        axes = [self.sizes[a] for a in shape if a != "1"]
        return torch.zeros(batch, 0, heads, *axes, dtype=torch.float64)
