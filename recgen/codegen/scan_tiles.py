"""Prints the programs of a chunk of the scan class as the body of a Triton kernel: tiles [tokens, *axes] of one head.

Every value has the tokens in front, one of them where it is the same for all (a param, a state between two tiles). The axis that programs
share lies along the lanes, and what of it is left over, as the tokens and the other axes, in each thread's registers: a scan over the
tokens, and most of a sum over another axis, need no exchange between threads. Axes are padded to powers of two; what a formula makes of
the padding stays there, sums mask it.
"""

from __future__ import annotations

from dataclasses import dataclass

from recgen.codegen.scan_phases import flat
from recgen.codegen.triton_printer import INDENT, Axis, Numbers, ProgramPrinter
from recgen.derive.program import Assign, Branch, Literal, Operand, Statement, Value

_ROW_FUNCTIONS = ("l2norm", "l2norm_grad", "rmsnorm", "rmsnorm_grad")
_ALIASES = ("heads", "sum_heads")
"""Moves without a trace: a kernel works on one value head."""


@dataclass(frozen=True)
class TileDims:
    """The dimensions of tiles after that of the tokens: the `split` axis has two, blocks of lanes as the first and lanes as the last."""

    split: str

    def of(self, axes: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
        """Every dimension of a tile over these axes: its axis, and its size in a kernel."""
        others = tuple((x, f"block_{x}") for x in axes if x != self.split)
        if self.split not in axes:
            return others
        return ((self.split, f"block_{self.split} // LANES"), *others, (self.split, "LANES"))

    def shape(self, axes: tuple[str, ...], tokens: str = "") -> str:
        """The shape of a tile, as a tuple."""
        sizes = [tokens] * bool(tokens) + [size for _, size in self.of(axes)]
        return f"({', '.join(sizes)}{',' * (len(sizes) == 1)})"

    def along(self, text: str, axes: tuple[str, ...], whole: tuple[str, ...], tokens: str = ":") -> str:
        """Something over some axes as a part of a tile over more; `tokens`: what stands at the tokens, "" for no such dimension."""
        places = [tokens] * bool(tokens) + [":" if x in axes else "None" for x, _ in self.of(whole)]
        return text if set(places) == {":"} else f"{text}[{', '.join(places)}]"

    def over_tokens(self, text: str, axes: tuple[str, ...]) -> str:
        """Something of every token as a part of a tile [tokens, *axes]."""
        return self.along(text, (), axes) if axes else text

    def mask(self, axes: tuple[str, ...], tokens: bool) -> str:
        """What tells the entries of a tile from its padding and, with `tokens`, from tokens beyond the end; "" for all."""
        own = [self.along(f"mask_{x}", (x,), axes, "None" if tokens else "") for x in axes]
        return " & ".join([self.over_tokens("m_t", axes)] * tokens + own)


class ScanTilePrinter(ProgramPrinter):
    """Prints statements; states around the tokens of a tile are `after`, `before` and `end`, gradients of a tile's first state `begin`."""

    def __init__(self, axes: tuple[str, ...], dims: TileDims, numbers: Numbers) -> None:
        super().__init__({axis: Axis(f"size_{axis}", f"block_{axis}", f"off_{axis}", f"mask_{axis}") for axis in axes}, numbers)
        self.dims = dims
        self._befores: set[Operand] = set()

    def lines(self, statements: tuple[Statement, ...], targets: tuple[Value, ...] = ()) -> tuple[str, ...]:
        """One line for every statement."""
        self._befores |= {a.args[0] for a in flat(statements) if a.op == "before"}
        lines: list[str] = []
        for s in statements:
            if isinstance(s, Branch):
                for head, body in ((f"if opt_{s.option}:", s.then), ("else:", s.otherwise)):
                    lines += [head, *(INDENT + line for line in self.lines(body, s.targets) or ("pass",))]
            elif s.op in _ALIASES and isinstance(s.args[0], Value) and s.target not in targets:
                self._alias[s.target.name] = self._alias.get(s.args[0].name, s.args[0].name)
            else:
                lines.append(f"{self._named(s)} = {self._assigned(s)}")
        return tuple(lines)

    def shape(self, value: Value) -> str:
        """The shape of a value's tile, as a tuple."""
        return self.dims.shape(value.axes, "BT" if value.per_token else "1")

    def whole(self, operand: Operand, like: Value) -> str:
        """The operand as a tile of the shape of `like`."""
        text = self.operand(operand)
        return f"tl.full({self.shape(like)}, {text}, ACC)" if isinstance(operand, Literal) else text

    def end(self, scanned: Value) -> str:
        """A state after the tile's last token."""
        return f"end_{scanned.name}"

    def _mask(self, axis: str) -> str:
        return ""  # what sums over an axis masks it itself

    def _named(self, s: Assign) -> str:
        """What a statement assigns: a scan has more than one result."""
        name = s.target.name
        if s.op == "scan":
            return f"b_{name}, {f'before_{name}' if s.target in self._befores else '_'}, end_{name}"
        return f"b_{name}, begin_{name}" if s.op == "scan_gradient" else f"b_{name}"

    def _assigned(self, s: Assign) -> str:
        names = [self.operand(a) for a in s.args]
        match s.op:
            case "heads" | "sum_heads":
                return names[0]
            case "tokens":
                return f"tl.broadcast_to({names[0]}, {self.shape(s.target)})"
            case "sum_tokens":
                return f"tl.sum({self._there(s.args[0])}, 0, keep_dims=True)"
            case "spread":
                return f"tl.broadcast_to({self._expanded(s.args[0], s.target.axes)}, {self.shape(s.target)})"
            case "sum" | "dot":
                return self._summed(s)
            case "exp":  # every entry of a state may have one
                self.functions.add("exp")
                return f"_tl_exp({names[0]})"
        if s.op in _ROW_FUNCTIONS:
            return self._row_function(s, names)
        return self._over_tokens(s, names) or super()._assigned(s)

    def _over_tokens(self, s: Assign, names: list[str]) -> str:
        """An operation that joins tokens; "" for others."""
        at = self.dims.over_tokens("o_t", s.target.axes)
        match s.op:
            case "before":
                return f"before_{names[0][2:]}"
            case "scan_first":
                return f"begin_{names[0][2:]}"
            case "later":
                self.functions.add("later")
                return f"_tl_later({self._there(s.args[0])}, {at}, BT)"
            case "at_first":
                self.functions.add("row")
                return f"_tl_row({names[0]}, {at} == 0)"
            case "scan" | "scan_gradient":
                self.functions.add(s.op)
                return f"_tl_{s.op}({', '.join(names)}, {at}, count, BT)"
        return ""

    def _there(self, operand: Operand) -> str:
        """An operand with zeros beyond the last token."""
        assert isinstance(operand, Value)
        return f"tl.where({self.dims.over_tokens('m_t', operand.axes)}, {self.operand(operand)}, 0.0)"

    def _expanded(self, operand: Operand, axes: tuple[str, ...]) -> str:
        """A value as a part of a tile over more axes."""
        assert isinstance(operand, Value)
        return self.dims.along(self.operand(operand), operand.axes, axes)

    def _summed(self, s: Assign) -> str:
        """A sum over axes, or a product summed over them."""
        values = [a for a in s.args if isinstance(a, Value)]
        union = tuple(axis for axis in self.axes if any(axis in v.axes for v in values))
        text = " * ".join(self._expanded(v, union) for v in values)
        lost = [axis for axis in union if axis not in s.target.axes]
        masks = (self.dims.along(f"mask_{axis}", (axis,), union, "None") for axis in lost)
        text = f"tl.where({' & '.join(masks)}, {text}, 0.0)"
        place = 1
        for axis, _ in self.dims.of(union):  # what lies in registers before lanes
            if axis in lost:
                text = f"tl.sum({text}, {place})"
            else:
                place += 1
        return text

    def _row_function(self, s: Assign, names: list[str]) -> str:
        axis = next(a.axis for a in s.args if isinstance(a, Value))
        self.functions.add(f"rows_{s.op}")
        size = [f"size_{axis}"] if s.op.startswith("rmsnorm") else []
        return f"_tl_rows_{s.op}({', '.join([*names, self.dims.mask((axis,), False) + '[None, :]', *size])})"

    def _filled(self, s: Assign, source: str) -> str:
        """Zeros, or a copy, in the shape of the target."""
        if s.op == "zeros":
            return f"tl.full({self.shape(s.target)}, 0.0, ACC)"
        return f"tl.full({self.shape(s.target)}, {source}, ACC)" if isinstance(s.args[0], Literal) else source
