"""The reference: the recurrence as the checked syntax tree states it, one token at a time, in float64.

It shares nothing with the analyzer, the derivation or the printers. Every value is a tensor [B, HV, rows, columns] (a scalar has one row
and one column); autograd of this loop is the reference for every gradient.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch

from recgen.lang.recurrence import ArgumentInfo, Recurrence
from recgen.lang.terms import Apply, Argument, AxisSize, Constant, Eye, OptionValue, State, Term

Tensor = torch.Tensor
EPSILON = 1e-6
"""What l2norm and rmsnorm add under the root."""


@dataclass(frozen=True)
class Sizes:
    """Sizes of one call: rows, tokens, value heads, and the size of every axis by name."""

    batch: int
    tokens: int
    heads: int
    axes: tuple[tuple[str, int], ...]

    def axis(self, name: str) -> int:
        """The size of an axis; "1" is 1."""
        return 1 if name == "1" else dict(self.axes)[name]


@dataclass(frozen=True)
class Run:
    """What the loop gives: outputs [B, T, HV, *axes], final states [N, HV, *axes] as declared, the largest value (NaN if one is)."""

    outputs: tuple[Tensor, ...]
    states: tuple[Tensor, ...]
    largest: float


def evaluate(
    recurrence: Recurrence,
    arguments: dict[str, Tensor],
    options: dict[str, float | bool],
    sizes: Sizes,
    initial: tuple[Tensor, ...] | None = None,
    boundaries: tuple[int, ...] | None = None,
) -> Run:
    """The whole recurrence, in the dtype of its arguments (float64 for a reference); packed sequences are run each alone.

    Args:
        recurrence: the checked spec.
        arguments: inputs [B, T, H or HV, *axes] and params [HV, *axes]; those that the options do not need are left out.
        options: values that differ from the defaults.
        sizes: of this call.
        initial: a state [N, HV, *axes] for each declared state, zeros if None.
        boundaries: first tokens of packed sequences and the end (batch 1), or None.
    """
    spans = [(0, sizes.tokens)] if boundaries is None else list(itertools.pairwise(boundaries))
    runs = []
    for i, (first, last) in enumerate(spans):
        start = None if initial is None else initial if boundaries is None else tuple(s[i : i + 1] for s in initial)
        runs.append(_sequence(recurrence, arguments, options, sizes, start, first, last))
    outputs = tuple(torch.cat([r.outputs[i] for r in runs], 1) for i in range(len(recurrence.outputs)))
    states = tuple(torch.cat([r.states[i] for r in runs]) for i in range(len(recurrence.states)))
    return Run(outputs, states, _most(r.largest for r in runs))


def _sequence(
    recurrence: Recurrence,
    arguments: dict[str, Tensor],
    options: dict[str, float | bool],
    sizes: Sizes,
    initial: tuple[Tensor, ...] | None,
    first: int,
    last: int,
) -> Run:
    """One sequence, tokens first..last."""
    states: dict[str, Tensor] = {}
    dtype = next(iter(arguments.values())).dtype
    for i, info in enumerate(recurrence.states):
        shape = [sizes.axis(a) for a in info.axes]
        state = torch.zeros(sizes.batch, sizes.heads, *shape, dtype=dtype) if initial is None else initial[i]
        state = state.detach() if info in recurrence.scales else state
        states[info.name] = _matrix(state, len(info.axes))
    largest = _most(map(_largest, states.values()))
    rows: list[list[Tensor]] = []
    for t in range(first, last):
        columns = {a.name: _column(a, arguments[a.name], t, sizes.heads) for a in recurrence.arguments if a.name in arguments}
        token = Token(recurrence, columns, options, sizes, states)
        rows.append([token.value(recurrence.definition(name)) for name in recurrence.outputs])
        states = {info.name: token.after(info.name) for info in recurrence.states}
        largest = _most((largest, *(_largest(x) for x in (*rows[-1], *states.values()))))
    outputs = []
    for i, name in enumerate(recurrence.outputs):
        axes = [sizes.axis(a) for a in recurrence.definition(name).shape if a != "1"]
        empty = torch.zeros(sizes.batch, 0, sizes.heads, *axes, dtype=dtype)
        tokens = [row[i].expand(sizes.batch, sizes.heads, -1, -1).reshape(sizes.batch, sizes.heads, *axes) for row in rows]
        outputs.append(torch.stack(tokens, 1) if tokens else empty)
    shapes = [(sizes.batch, sizes.heads, *(sizes.axis(a) for a in info.axes)) for info in recurrence.states]
    final = tuple(states[info.name].reshape(shape) for info, shape in zip(recurrence.states, shapes, strict=True))
    return Run(tuple(outputs), final, largest)


def _largest(x: Tensor) -> float:
    return float(x.detach().abs().max()) if x.numel() else 0.0


def _most(values: Iterable[float]) -> float:
    """The largest, and NaN where one is: `max` passes over it."""
    found = list(values)
    return math.nan if any(map(math.isnan, found)) else max(found, default=0.0)


def _matrix(x: Tensor, axes: int) -> Tensor:
    """[.., *axes] as [.., rows, columns]."""
    return x[..., None, None] if axes == 0 else x.unsqueeze(-1) if axes == 1 else x


def _column(info: ArgumentInfo, x: Tensor, t: int, heads: int) -> Tensor:
    """An argument at token t as [B, HV, rows, columns]: value head i reads key head i // (HV // H)."""
    x = x[:, t] if info.role == "input" else x.unsqueeze(0)
    if x.shape[1] != heads:
        x = x.repeat_interleave(heads // x.shape[1], 1)
    return _matrix(x, len(info.axes))


class Token:
    """The values of one token's terms."""

    def __init__(
        self,
        recurrence: Recurrence,
        arguments: dict[str, Tensor],
        options: dict[str, float | bool],
        sizes: Sizes,
        before: dict[str, Tensor],
    ) -> None:
        self.recurrence, self.arguments, self.options = recurrence, arguments, options
        self.sizes, self.before = sizes, before
        self.dtype = next(iter(arguments.values())).dtype
        self._states: dict[tuple[str, int | None], Tensor] = {}
        self._known: dict[int, Tensor] = {}  # definitions are shared objects: each is worked out once

    def after(self, name: str, micro: int | None = None) -> Tensor:
        """A state after this token, or after one of its micro-steps."""
        if (name, micro) not in self._states:
            info = next(s for s in self.recurrence.states if s.name == name)
            value = self.value(info.equation if micro is None else info.micro[micro])
            shape = [self.sizes.axis(a) for a in (*info.axes, "1", "1")[:2]]
            value = value.detach() if info in self.recurrence.scales else value
            self._states[name, micro] = value.expand(self.sizes.batch, self.sizes.heads, *shape)
        return self._states[name, micro]

    def value(self, term: Term) -> Tensor:
        """A term as [B, HV, rows, columns] (1 where it does not vary)."""
        match term:
            case Constant(value):
                return self._number(value)
            case AxisSize(axis):
                return self._number(float(self.sizes.axis(axis)))
            case Argument(name):
                return self.arguments[name]
            case OptionValue(name):
                return self._option(name)
            case State(name, lag, micro=micro):
                return self.before[name] if lag else self.after(name, micro)
            case Eye(shape):
                return torch.eye(self.sizes.axis(shape[0]), dtype=self.dtype)[None, None]
            case Apply():
                if id(term) not in self._known:
                    self._known[id(term)] = self._apply(term)
                return self._known[id(term)]
        raise AssertionError(f"{term} is made by later stages")

    def _number(self, value: float) -> Tensor:
        return torch.full((1, 1, 1, 1), value, dtype=self.dtype)

    def _option(self, name: str) -> Tensor:
        if name in self.options:
            return self._number(float(self.options[name]))
        default = next(o.default for o in self.recurrence.options if o.name == name)
        assert not isinstance(default, bool), "a boolean option is no number"
        return self.value(default)

    def _apply(self, term: Apply) -> Tensor:
        if term.op == "select":
            return self.value(term.args[0] if self._flag(term.option) else term.args[1])
        values = [self.value(a) for a in term.args]
        if term.op in ("where<", "where<="):
            chosen = values[0] < values[1] if term.op == "where<" else values[0] <= values[1]
            return torch.where(chosen, values[2], values[3])
        if term.op in ROWS:
            return ROWS[term.op](values[0], -2 if term.args[0].shape[1] == "1" else -1)
        return OPERATIONS[term.op](*values)

    def _flag(self, name: str) -> bool:
        default = next(o.default for o in self.recurrence.options if o.name == name)
        return bool(self.options.get(name, default))


def _zero(x: Tensor) -> Tensor:
    return torch.zeros((), dtype=x.dtype)


ROWS: dict[str, Callable[[Tensor, int], Tensor]] = {
    "l2norm": lambda x, axis: x / torch.sqrt((x * x).sum(axis, keepdim=True) + EPSILON),
    "rmsnorm": lambda x, axis: x / torch.sqrt((x * x).mean(axis, keepdim=True) + EPSILON),
    "sum": lambda x, axis: x.sum(axis, keepdim=True),
}
"""Functions over the entries of a vector, which run over the given axis."""

OPERATIONS: dict[str, Callable[..., Tensor]] = {
    "neg": torch.neg,
    "add": torch.add,
    "sub": torch.sub,
    "mul": torch.mul,
    "div": torch.div,
    "pow": torch.pow,
    "min": torch.minimum,
    "max": torch.maximum,
    "matmul": torch.matmul,
    "transpose": lambda x: x.mT,
    "exp": torch.exp,
    "log": torch.log,
    "log1p": torch.log1p,
    "expm1": torch.expm1,
    "sqrt": torch.sqrt,
    "rsqrt": torch.rsqrt,
    "sigmoid": torch.sigmoid,
    "logsigmoid": lambda x: -torch.logaddexp(-x, _zero(x)),  # torch's softplus is linear beyond 20, which costs 1e-9
    "softplus": lambda x: torch.logaddexp(x, _zero(x)),
    "silu": lambda x: x * torch.sigmoid(x),
    "relu": torch.relu,
    "tanh": torch.tanh,
    "sin": torch.sin,
    "cos": torch.cos,
    "abs": torch.abs,
    "sign": torch.sign,
}
"""The other operations of `recgen.lang.terms`."""
