"""Prints what the chunk form of coupled states adds to that of one: links with a border, and states side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING

from recgen.derive.bordered_nodes import (
    Block,
    Bordered,
    ColumnSum,
    Crossing,
    Cut,
    Empty,
    Entry,
    Gathered,
    Joined,
    Kept,
    Mixed,
    Pairings,
    Square,
)

if TYPE_CHECKING:
    from recgen.codegen.torch_printer import ChunkPrinter
    from recgen.derive.chunk_nodes import Node

CALLS = Kept | Cut | Bordered | Gathered | Empty | Joined | Block | Square | Entry | Mixed | Pairings | ColumnSum | Crossing
"""Nodes whose text needs no brackets as a factor."""

_ROWS = {"after": "1:", "before": ":-1", "end": "-1:"}
_COLUMNS = {"all": ":", "tokens": "1:", "start": ":1"}
_ABOVE = {"after": "1, 0", "before": "0, 1", "end": "tokens, 0"}
_BESIDE = {"all": "0, 0", "tokens": "1, 0", "start": "0, tokens"}


def bordered_text(node: Node, printer: ChunkPrinter) -> str:
    """The node as an expression; `printer` prints what stands in it."""
    match node:
        case Kept(tag, "scalar"):
            return f"_gamma(cumulated{tag}, cumulated{tag})"
        case Kept():
            return "_all_kept(write)"  # there is always a write, of as many tokens
        case Cut(matrix, rows, columns):
            turned = ".mT" if (rows, columns) == ("end", "tokens") else ""
            return f"{printer.factor(matrix)}[..., {_ROWS[rows]}, {_COLUMNS[columns]}]{turned}"
        case Bordered(matrix, rows, columns):
            text = printer.factor(matrix, turned=True) if (rows, columns) == ("end", "tokens") else printer.text(matrix)
            return f"F.pad({text}, ({_BESIDE[columns]}, {_ABOVE[rows]}))"
        case Gathered(matrices):
            return "_gathered(\n" + "".join(f"        {printer.text(m)},\n" for m in matrices) + "    )"
        case Empty(matrix):
            return f"torch.zeros_like({printer.text(matrix)})"
        case Joined(parts):
            return f"_side_by_side({_listed(parts, printer)})"
        case Block(matrix, index, count):
            return f"{printer.factor(matrix)}.chunk({count}, -1)[{index}]"
        case Square(entries):
            return f"_square(({', '.join(f'({_listed(row, printer)})' for row in entries)}))"
        case Entry(matrix, row, column):
            return f"{printer.factor(matrix)}[..., {row}:{row + 1}, {column}:{column + 1}]"
        case Mixed(square, state, turned):
            return f"_mixed({printer.factor(square, turned)}, {printer.text(state)})"
        case Pairings(gradient, state, count):
            return f"_pairings({printer.text(gradient)}, {printer.text(state)}, {count})"
        case ColumnSum(matrix):
            return f"{printer.factor(matrix)}.sum(-2).unsqueeze(-1)"
        case Crossing(matrix):
            return f"_crossing({printer.text(matrix)})[..., 1:, :]"
    raise AssertionError(node)


def _listed(parts: tuple[Node | None, ...], printer: ChunkPrinter) -> str:
    return ", ".join("None" if p is None else printer.text(p) for p in parts)
