"""Prints programs for tiles of tokens: scalars [BC], vectors [BC, block], params () and [1, block]."""

from __future__ import annotations

from recgen.codegen.triton_printer import INDENT, Axis, Numbers, ProgramPrinter
from recgen.derive.program import Assign, Branch, Literal, Operand, Statement, Value

_ROW_FUNCTIONS = ("l2norm", "l2norm_grad", "rmsnorm", "rmsnorm_grad")


def tile_mask(mask: str) -> str:
    """The mask of a tile of tokens by an axis, `mask` the axis' own."""
    axis = mask.removesuffix("[None, :]")
    return {"m_k": "m_tk", "m_v": "m_tv"}.get(axis, f"m_t[:, None] & {axis}[None, :]")


class TilePrinter(ProgramPrinter):
    """As `ProgramPrinter`, with one more axis in front: the tokens of a chunk."""

    def __init__(self, axes: dict[str, Axis], numbers: Numbers) -> None:
        tiles = {name: Axis(a.size, a.block, a.offsets, f"{a.mask}[None, :]") for name, a in axes.items()}
        super().__init__(tiles, numbers)
        self._params: set[str] = set()

    def lines(self, statements: tuple[Statement, ...], targets: tuple[Value, ...] = ()) -> tuple[str, ...]:
        """One line for every statement; moves from param to token and from scalar to vector are broadcasts."""
        lines: list[str] = []
        for s in statements:
            if isinstance(s, Branch):
                lines += [f"if opt_{s.option}:", *self._side(s.then, s.targets), "else:", *self._side(s.otherwise, s.targets)]
            elif s.op in ("heads", "sum_heads") and isinstance(s.args[0], Value) and s.target not in targets:
                self._alias[s.target.name] = self._alias.get(s.args[0].name, s.args[0].name)
            else:
                lines.append(f"b_{s.target.name} = {self._assigned(s)}")
        return tuple(lines)

    def _side(self, statements: tuple[Statement, ...], targets: tuple[Value, ...]) -> tuple[str, ...]:
        return tuple(INDENT + line for line in self.lines(statements, targets)) or (f"{INDENT}pass",)

    def _assigned(self, s: Assign) -> str:
        names = [self.operand(a) for a in s.args]
        source = s.args[0]
        if s.op in ("heads", "sum_heads"):
            return names[0]
        if s.op == "tokens":
            return f"{names[0]} + tl.zeros({self.shape(s.target)}, ACC)"
        if s.op == "sum_tokens":
            if not s.target.axis:
                return f"tl.sum(tl.where(m_t, {names[0]}, 0.0), 0)"
            return f"tl.sum(tl.where(m_t[:, None], {names[0]}, 0.0), 0)[None, :]"
        if s.op == "spread":
            assert isinstance(source, Value)
            return (
                f"{names[0]}[:, None] + tl.zeros({self.shape(s.target)}, ACC)"
                if source.per_token
                else f"{names[0]} + tl.zeros({self.shape(s.target)}, ACC)"
            )
        if s.op in ("sum", "dot"):
            return self._summed(s, names)
        if s.op in _ROW_FUNCTIONS:
            return self._row_function(s, names)
        return super()._assigned(s)

    def _summed(self, s: Assign, names: list[str]) -> str:
        axis = next(a.axis for a in s.args if isinstance(a, Value))
        product = " * ".join(names)
        row = f"tl.sum(tl.where({self.axes[axis].mask}, {product}, 0.0), 1)"
        return row if s.target.per_token else f"tl.sum({row}, 0)"  # a param is one row

    def _row_function(self, s: Assign, names: list[str]) -> str:
        axis = next(a.axis for a in s.args if isinstance(a, Value))
        self.functions.add(f"rows_{s.op}")
        size = [self.axes[axis].size] if s.op.startswith("rmsnorm") else []
        return f"_tl_rows_{s.op}({', '.join([*names, self.axes[axis].mask, *size])})"

    def shape(self, value: Value) -> str:
        """The shape of a value's tile."""
        if not value.axis:
            return "(BC,)" if value.per_token else "()"
        return f"({'BC' if value.per_token else '1'}, {self.axes[value.axis].block})"

    def _filled(self, s: Assign, source: str) -> str:
        if s.op == "zeros":
            return f"tl.full({self.shape(s.target)}, 0.0, ACC)"
        if isinstance(s.args[0], Literal):
            return f"tl.full({self.shape(s.target)}, {source}, ACC)"
        return source

    def operand_tile(self, operand: Operand, axis: str) -> str:
        """An operand of the chunk form, zeros beyond the sequence and in the padding: vectors [BC, block], numbers [BC]."""
        text = self.operand(operand)
        if isinstance(operand, Literal):
            text = f"tl.full((BC,), {text}, ACC)" if not axis else f"tl.full((BC, {self.axes[axis].block}), {text}, ACC)"
        mask = tile_mask(self.axes[axis].mask) if axis else "m_t"
        return f"tl.where({mask}, {text}, 0.0)"
