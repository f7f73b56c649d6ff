"""Prints token programs as the body of a Triton kernel: numbers, and tiles with rows and columns, of one token and head.

Every axis is padded to a power of two. What a formula makes of the padding stays there: sums and products mask what they sum over.
"""

from __future__ import annotations

from recgen.codegen.triton_printer import Numbers, ProgramPrinter
from recgen.derive.program import Assign, Literal, Operand, Value
from recgen.derive.token_program import shape_of
from recgen.lang.terms import SCALAR, Shape


def placed(axis: str, side: int, prefix: str) -> str:
    """The offsets or the mask of an axis as rows (side 0) or columns (side 1) of a tile."""
    return f"{prefix}_{axis}{('[:, None]', '[None, :]')[side]}"


def mask(shape: Shape) -> str:
    """What tells the entries of a tile from its padding; "" for a number."""
    return " & ".join(placed(axis, side, "mask") for side, axis in enumerate(shape) if axis != "1")


def offsets(shape: Shape, strides: tuple[str, str]) -> str:
    """Where the entries of a tile lie, by the strides of its rows and columns: text to be added to a pointer."""
    parts = [(placed(axis, side, "off"), strides[side]) for side, axis in enumerate(shape) if axis != "1"]
    return "".join(f" + {text}" if stride == "1" else f" + {text} * {stride}" for text, stride in parts)


def block_shape(shape: Shape) -> str:
    """The shape of a padded tile, as a tuple."""
    return "()" if shape == SCALAR else "(" + ", ".join("1" if axis == "1" else f"block_{axis}" for axis in shape) + ")"


class TilePrinter(ProgramPrinter):
    """Prints the statements of token programs."""

    def __init__(self, numbers: Numbers) -> None:
        super().__init__({}, numbers)
        self.multiplied: set[str] = set()
        """The axes of products of two matrices."""

    def shape(self, value: Value) -> str:
        """The shape of a value's tile, as a tuple."""
        return block_shape(shape_of(value))

    def whole(self, operand: Operand, shape: Shape) -> str:
        """The operand as a tile of this shape."""
        text = self.operand(operand)
        return f"tl.full({block_shape(shape)}, {text}, ACC)" if isinstance(operand, Literal) else text

    def _mask(self, axis: str) -> str:
        return ""

    def _assigned(self, s: Assign) -> str:
        names = [self.operand(x) for x in s.args]
        match s.op:
            case "turn":
                return f"tl.trans({names[0]})"
            case "sum":
                return self._sum(s.args[0], names[0], shape_of(s.target))
            case "product":
                return self._product(s, names)
            case "exp":  # every entry of a state may have one
                self.functions.add("exp")
                return f"_tl_exp({names[0]})"
            case "eye":
                axis = shape_of(s.target)[0]
                return f"({placed(axis, 0, 'off')} == {placed(axis, 1, 'off')}).to(ACC)"
        return super()._assigned(s)

    @staticmethod
    def _sum(source: Operand, text: str, target: Shape) -> str:
        """The sum over the axes that the target lacks."""
        assert isinstance(source, Value)
        shape = shape_of(source)
        text = f"tl.where({mask(shape)}, {text}, 0.0)"
        lost = [side for side in (1, 0) if shape[side] != target[side]]
        if target == SCALAR:
            return f"tl.sum(tl.sum({text}, 1), 0)"
        return f"tl.sum({text}, {lost[0]}, keep_dims=True)"

    def _product(self, s: Assign, names: list[str]) -> str:
        """In float32 as it is, over the entries that are there."""
        left, right = s.args
        assert isinstance(left, Value) and isinstance(right, Value)
        inner = shape_of(left)[1]
        self.multiplied |= {*shape_of(left), *shape_of(right)}
        factors = (f"tl.where({placed(inner, side, 'mask')}, {name}, 0.0)" for side, name in zip((1, 0), names, strict=True))
        return f'tl.dot({", ".join(factors)}, input_precision="ieee", out_dtype=ACC)'
