"""What the chunk form of coupled states adds to the formulas of one: links with a border, states side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING

from recgen.derive.bordered_nodes import Block, Bordered, ColumnSum, Cut, Empty, Entry, Gathered, Joined, Kept, Mixed, Pairings, Square
from recgen.derive.chunk_nodes import Node, Sym

if TYPE_CHECKING:
    from recgen.explaining.chunk import ChunkPrinter
    from recgen.explaining.styles import Style

_ROWS = {"after": "i", "before": "i-1", "end": "C"}
_COLUMNS = {"all": ":", "tokens": "j", "start": "0"}

LETTERS = {
    "gamma": "Γ", "fed": "Φ", "after": "Γ^after", "before": "Γ^before", "end": "Γ^end", "products": "P", "through": "T", "passing": "dT",
    "dgamma": "dΓ", "dfed": "dΦ", "N_qk": "dΓ^qk", "N_kk": "dΓ^kk", "N_end": "dΓ^end",
}  # fmt: skip
"""Names of steps without their tags, as letters."""


def bordered_piece(node: Node, printer: ChunkPrinter, s: Style) -> str:
    """A node that binds like a letter or a call."""
    match node:
        case Cut(matrix, rows, columns):
            return s.part(printer.node(matrix, s), f"{_ROWS[rows]},{_COLUMNS[columns]}")
        case Bordered(matrix, rows, columns):
            return s.part(f"[{printer.node(matrix, s)}]", f"{_ROWS[rows]},{_COLUMNS[columns]}")
        case Gathered(parts):
            return s.call("tril", " + ".join(printer.node(p, s) for p in parts))
        case Empty():
            return "0"
        case Joined(parts):
            return f"[{', '.join('0' if p is None else printer.node(p, s) for p in parts)}]"
        case Block(matrix, index, _):
            return s.indexed(f"[{printer.node(matrix, s)}]", str(index + 1))
        case Square(entries):
            return printer.matrix([["0" if x is None else printer.node(x, s) for x in row] for row in entries], s)
        case Entry(matrix, row, column):
            return s.indexed(printer.node(matrix, s), f"{row + 1}{column + 1}")
        case Mixed(square, state, turned):
            small = printer.node(square, s)
            return f"{s.brackets(f'{s.transposed(small) if turned else small}{s.kronecker}I')}{s.times}{printer.node(state, s)}"
        case ColumnSum(matrix):
            return s.call("colsum", printer.node(matrix, s))
    raise AssertionError(f"{type(node).__name__} stands alone in a step")


def kept_line(node: Kept, s: Style) -> str:
    """What a state holds of itself, entry by entry."""
    number = node.tag[1:]
    later, earlier = s.symbol("G", sub=f"{number},i"), s.symbol("G", sub=f"{number},j")
    value = s.exp(f"{later} - {earlier}") if node.kind == "scalar" else "1"
    return f"{s.symbol('Γ', sub=f'{number},ij')} = {value}{s.words(' for j ≤ i, else 0')}"


def crossing_line(name: str, matrix: Node, printer: ChunkPrinter, s: Style) -> str:
    """A log decay's gradient: the links that cross token t."""
    links = s.indexed(s.brackets(printer.node(matrix, s)), "ij")
    return f"{s.indexed(printer.node(Sym(name), s), 't')} = {s.total('i ≥ t > j', links)}"


def pairings_line(name: str, node: Pairings, printer: ChunkPrinter, s: Style) -> str:
    """Every state's gradient with every state."""
    gradient, state = (printer.node(x, s) for x in (node.gradient, node.state))
    product = s.brackets(f"{s.indexed(f'[{gradient}]', 'a')}{s.hadamard}{s.indexed(f'[{state}]', 'b')}")
    return f"{s.indexed(printer.node(Sym(name), s), 'ab')} = {s.total('kv', s.indexed(product, 'kv'))}"
