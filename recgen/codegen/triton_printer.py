"""Prints programs as the body of a Triton kernel: scalars and padded vectors of one token and head.

Every vector is padded to a power of two. Whatever a formula makes of the padding (exp(0) is 1) stays there: sums mask it, and results that
enter the state are masked by `ProgramPrinter.masked`.
"""

from __future__ import annotations

import ast
import math
import struct
from dataclasses import dataclass

from recgen.derive.program import Assign, Branch, Literal, Operand, Statement, Value

INDENT = "    "
ALIASES = ("heads", "tokens", "sum_heads", "sum_tokens")
"""Moves without a trace in a kernel: it works on one token and value head, and what these sum over is summed after it."""


@dataclass(frozen=True)
class Axis:
    """An axis in a kernel: the names of its size, of the power of two that it is padded to, of its offsets and of their mask."""

    size: str
    block: str
    offsets: str
    mask: str


class Numbers:
    """The run-time numbers of a module: every expression over options and axis sizes that its programs use, evaluated on the host."""

    def __init__(self, axes: tuple[str, ...]) -> None:
        self._axes = axes
        self._names: dict[str, str] = {}

    @property
    def found(self) -> tuple[tuple[str, str], ...]:
        """(name, expression of the host) of each."""
        return tuple((name, text) for text, name in self._names.items())

    def name(self, text: str) -> str:
        """The name of the number with this text, without a prefix: an option's own name, else a running number."""
        host = _on_host(text, self._axes)
        if host not in self._names:
            self._names[host] = host if host.isidentifier() and not host.startswith("_") else str(len(self._names) + 1)
        return self._names[host]


def _on_host(text: str, axes: tuple[str, ...]) -> str:
    """The text with axis names replaced by the host's names of their sizes."""

    class Sizes(ast.NodeTransformer):
        def visit_Name(self, node: ast.Name) -> ast.Name:
            return ast.Name(f"_size_{node.id}") if node.id in axes else node

    return ast.unparse(Sizes().visit(ast.parse(text, mode="eval")))


class ProgramPrinter:
    """Prints the statements of programs that share values."""

    def __init__(self, axes: dict[str, Axis], numbers: Numbers) -> None:
        self.axes = axes
        self.numbers = numbers
        self.functions: set[str] = set()
        self._alias: dict[str, str] = {}

    def value(self, value: Value) -> str:
        """The name of a value in the kernel."""
        return f"b_{self._alias.get(value.name, value.name)}"

    def operand(self, operand: Operand) -> str:
        """A value's name, or a number."""
        if isinstance(operand, Value):
            return self.value(operand)
        value = operand.value if operand.value is not None else _constant(operand.text)
        return f"c_{self.numbers.name(operand.text)}" if value is None else number(value)

    def masked(self, operand: Operand, fresh: bool = True) -> str:
        """The operand with zeros in its padding; `fresh`: it is computed, not loaded."""
        text = self.operand(operand)
        if fresh and isinstance(operand, Value) and operand.axis:
            return f"tl.where({self.axes[operand.axis].mask}, {text}, 0.0)"
        return text

    def lines(self, statements: tuple[Statement, ...], targets: tuple[Value, ...] = ()) -> tuple[str, ...]:
        """One line for every statement; branches on options are resolved at compile time, and assign their `targets` whatever happens."""
        lines: list[str] = []
        for s in statements:
            if isinstance(s, Branch):
                lines += [f"if opt_{s.option}:", *self._side(s.then, s.targets), "else:", *self._side(s.otherwise, s.targets)]
            elif s.op in ALIASES and isinstance(s.args[0], Value) and s.target not in targets:
                self._alias[s.target.name] = self._alias.get(s.args[0].name, s.args[0].name)
            else:
                lines.append(f"b_{s.target.name} = {self._assigned(s)}")
        return tuple(lines)

    def _side(self, statements: tuple[Statement, ...], targets: tuple[Value, ...]) -> tuple[str, ...]:
        return tuple(INDENT + line for line in self.lines(statements, targets)) or (f"{INDENT}pass",)

    def _assigned(self, s: Assign) -> str:
        """The right-hand side of one statement."""
        names = [self.operand(a) for a in s.args]
        axis = next((a.axis for a in s.args if isinstance(a, Value) and a.axis), "")
        if s.op in ("zeros", "copy", "spread", *ALIASES):
            return self._filled(s, names[0])
        if s.op == "pow":
            return self._power(s, names)
        if isinstance(s.args[0], Literal) and (len(names) == 1 or s.op.startswith("where")):
            names[0] = f"tl.full((), {names[0]}, ACC)"  # Triton takes a Python number for a float32
        if s.op in _CALLS:
            self.functions.add(_CALLS[s.op])
            names += [self._mask(axis)] if s.op in _MASKED else []
            names += [self.axes[axis].size] if s.op in _SIZED else []
            return f"_tl_{_CALLS[s.op]}({', '.join(names)})"
        return _FORMULAS[s.op].format(*names, mask=self._mask(axis))

    def shape(self, value: Value) -> str:
        """The shape of a value's block, as a tuple."""
        return f"({self.axes[value.axis].block},)" if value.axis else "()"

    def _mask(self, axis: str) -> str:
        """What tells the entries of an axis from its padding; "" for none."""
        return self.axes[axis].mask if axis else ""

    def _filled(self, s: Assign, source: str) -> str:
        """A copy, a broadcast, or zeros, in the shape of the target."""
        shape = self.shape(s.target)
        if s.op == "zeros":
            return f"tl.full({shape}, 0.0, ACC)"
        if isinstance(s.args[0], Literal):
            return f"tl.full({shape}, {source}, ACC)"
        return f"tl.broadcast_to({source}, {shape})" if s.op == "spread" else source

    def _power(self, s: Assign, names: list[str]) -> str:
        """Small whole exponents as products, halves as roots, anything else by logarithms."""
        base, exponent = s.args
        value = exponent.value if isinstance(exponent, Literal) else None
        if value in _POWERS and isinstance(base, Value):
            return _POWERS[value].format(names[0])
        self.functions.add("power")
        names = [n if isinstance(a, Value) or n.startswith("c_") else f"tl.full((), {n}, ACC)" for a, n in zip(s.args, names, strict=True)]
        return f"_tl_power({', '.join(names)})"


def number(value: float) -> str:
    """A constant that keeps its value in float64 too, where Triton would round a Python number to float32."""
    if math.isinf(value):
        return 'float("inf")' if value > 0 else '-float("inf")'
    try:
        exact: bool = struct.unpack("f", struct.pack("f", value))[0] == value
    except OverflowError:
        exact = False
    return repr(value) if exact else f"tl.full((), {value!r}, ACC)"


def _constant(text: str) -> float | None:
    """The value of an expression without names, or None."""
    tree = ast.parse(text, mode="eval")
    if any(isinstance(x, ast.Name | ast.Call) for x in ast.walk(tree)):
        return None
    try:
        return float(eval(compile(tree, "<number>", "eval"), {"__builtins__": {}}))
    except (ArithmeticError, TypeError):
        return None


_POWERS = {
    0.0: "{0} * 0.0 + 1.0",
    1.0: "{0}",
    2.0: "{0} * {0}",
    3.0: "{0} * {0} * {0}",
    4.0: "({0} * {0}) * ({0} * {0})",
    0.5: "tl.sqrt({0})",
    -0.5: "1.0 / tl.sqrt({0})",
    -1.0: "1.0 / {0}",
    -2.0: "1.0 / ({0} * {0})",
}

_CALLS = {
    **{op: op for op in ("sigmoid", "logsigmoid", "softplus", "silu", "tanh", "log1p", "expm1", "sign")},
    **{op: op for op in ("relu", "l2norm", "l2norm_grad", "rmsnorm", "rmsnorm_grad")},
    "min": "minimum",
    "max": "maximum",
}
"""Operations that are functions of their own in the module."""

_MASKED = ("l2norm", "l2norm_grad", "rmsnorm", "rmsnorm_grad")
_SIZED = ("rmsnorm", "rmsnorm_grad")

_FORMULAS = {
    **{op: f"tl.{op}({{0}})" for op in ("exp", "log", "sqrt", "sin", "cos", "abs")},
    "rsqrt": "1.0 / tl.sqrt({0})",
    "neg": "-{0}",
    "add": "{0} + {1}",
    "sub": "{0} - {1}",
    "mul": "{0} * {1}",
    "div": "{0} / {1}",
    "sum": "tl.sum(tl.where({mask}, {0}, 0.0), 0)",
    "dot": "tl.sum(tl.where({mask}, {0} * {1}, 0.0), 0)",
    "where<": "tl.where({0} < {1}, {2}, {3})",
    "where<=": "tl.where({0} <= {1}, {2}, {3})",
    "log_floor": "tl.log(tl.maximum(tl.abs({0}), 2.0**-60))",
    "floored": "tl.where({0} < 0.0, tl.minimum({0}, -(2.0**-60)), tl.maximum({0}, 2.0**-60))",
    "sign_of": "tl.where({0} < 0.0, -1.0, 1.0)",
}

FUNCTIONS = {
    "exp": (),
    "sigmoid": (),
    "log1p": (),
    "expm1": (),
    "sign": (),
    "minimum": (),
    "maximum": (),
    "relu": (),
    "power": (),
    "l2norm": (),
    "l2norm_grad": (),
    "rows_l2norm": (),
    "rows_l2norm_grad": (),
    "rows_rmsnorm": (),
    "rows_rmsnorm_grad": (),
    "rmsnorm": (),
    "rmsnorm_grad": (),
    "logsigmoid": ("log1p",),
    "softplus": ("log1p",),
    "silu": ("sigmoid",),
    "tanh": ("expm1",),
    "row": (),
    "scan": ("row",),
    "scan_gradient": ("row",),
    "later": ("row",),
    "passed": ("row",),
}
"""Every function that a kernel may call, after those that it calls itself."""


def functions(used: set[str]) -> tuple[str, ...]:
    """The templates of these functions, dependencies first."""
    wanted = used | {d for name in used for d in FUNCTIONS[name]}
    return tuple(f"triton/functions/{name}.j2" for name in FUNCTIONS if name in wanted)
