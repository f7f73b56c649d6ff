"""Matrices of links in the kernels of coupled states, and their gradients, by parts.

A matrix of links has a border for the chunk's start, which no tile has room for. Its rows before the tokens are those after them moved by
one: where a state holds itself they come from the sums exclusive of the token, and a product of links has the same rows as its left factor.
So every part is computed as a tile of its own, and nothing is ever moved. Gradients are kept by the rows that they belong to likewise.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from recgen.codegen.chunk_decay import NAN_STAYS
from recgen.codegen.phase_values import Links, Rows, Tile, dot, times, total
from recgen.derive.bordered_nodes import Bordered, Kept
from recgen.derive.chunk_nodes import MatMul, Node

if TYPE_CHECKING:
    from recgen.codegen.phase_coupled import CoupledPrinter

ROWS = ("after", "before", "end")
COLUMNS = ("tokens", "start")
MASKS = {"after": "m_ij", "before": "m_before"}
"""The links forwards among the rows after and before the tokens."""


def part_name(name: str, rows: str, columns: str) -> str:
    """What a part is called in the kernels and in their memory."""
    return f"{name}_{rows}" + "_start" * (columns == "start")


def part_shape(rows: str, columns: str) -> str:
    """The axes of a part."""
    return ("" if rows == "end" else "C") + ("C" if columns == "tokens" else "")


@dataclass(frozen=True)
class NamedLinks:
    """Links under a name: every part is computed once, where it is first asked for, or loaded where a kernel before has stored it."""

    name: str
    printer: CoupledPrinter
    compute: Callable[[str, str], Tile | None]

    def part(self, rows: str, columns: str) -> Tile | None:
        """See `Links`."""
        return self.printer.part(self.name, rows, columns, lambda: self.compute(rows, columns))


def kept(node: Kept, printer: CoupledPrinter) -> Callable[[str, str], Tile]:
    """What a state holds of itself."""

    def compute(rows: str, columns: str) -> Tile:
        shape = part_shape(rows, columns)
        if node.kind == "none":
            return Tile(f"tl.where({MASKS[rows]}, 1.0, 0.0)" if shape == "CC" else "tl.full((BC,), 1.0, ACC)" if shape else "1.0", shape)
        printer.sums(node.tag)
        return Tile(_kept_text(node.tag, rows, columns, printer), shape)

    return compute


def _kept_text(tag: str, rows: str, columns: str, printer: CoupledPrinter) -> str:
    """A part of a state's own links, with the sums G after, H before every token and L of all."""
    later = {"after": "G", "before": "H", "end": "L"}[rows]
    turns = {"after": "turned", "before": "turned_before", "end": "turned_through"}[rows]
    c, f, sign = f"b_{later}c{tag}", f"b_{later}f{tag}", f"b_{turns}{tag}"
    if columns == "tokens" and rows != "end":
        signs = f" * {sign}[:, None] * b_turned{tag}[None, :]" * printer.signed
        return f"_tl_gamma({c}, {f}, b_Gc{tag}, b_Gf{tag}, {MASKS[rows]}){signs}"
    exponent = f"{c} + {f}" if columns == "start" else f"({c} - b_Gc{tag}) + ({f} - b_Gf{tag})"
    limited = f"tl.minimum({exponent}, 0.0, {NAN_STAYS})" if printer.bounded else exponent
    signs = f" * {sign}" + f" * b_turned{tag}" * (columns == "tokens")
    return f"tl.exp2({limited})" + signs * printer.signed


def sums_lines(tag: str, signed: bool) -> tuple[str, ...]:
    """Log decays of a state summed over the chunk as two numbers, multiples of 1/512 and the rest (see the PyTorch form)."""
    lines = [
        f"b_log2{tag} = tl.maximum(b_log_decay{tag} * 1.4426950408889634, -151.0, {NAN_STAYS})",
        f"b_coarse{tag} = tl.floor(b_log2{tag} * 512 + 0.5) / 512",
        f"b_Gc{tag}, b_Gf{tag} = tl.cumsum(b_coarse{tag}, 0), tl.cumsum(b_log2{tag} - b_coarse{tag}, 0)",
        f"b_Hc{tag}, b_Hf{tag} = b_Gc{tag} - b_coarse{tag}, b_Gf{tag} - (b_log2{tag} - b_coarse{tag})",
        f"b_Lc{tag}, b_Lf{tag} = tl.sum(b_coarse{tag}, 0), tl.sum(tl.where(o_c == BC - 1, b_Gf{tag}, 0.0), 0)",
    ]
    if signed:
        lines += [
            f"b_turns{tag} = tl.where(b_sign{tag} < 0.0, 1.0, 0.0)",
            f"b_turned_before{tag} = _tl_parity(tl.cumsum(b_turns{tag}, 0) - b_turns{tag})",
            f"b_turned{tag} = _tl_parity(tl.cumsum(b_turns{tag}, 0))",
            f"b_turned_through{tag} = _tl_parity(tl.sum(b_turns{tag}, 0))",
        ]
    return tuple(lines)


def fed(terms: tuple[Node, ...], printer: CoupledPrinter) -> Callable[[str, str], Tile | None]:
    """What feeds a state after every token: the numbers of the feeds times rows of other links; nothing at the chunk's start."""

    def compute(rows: str, columns: str) -> Tile | None:
        assert rows == "after"
        found = []
        for term in terms:
            assert isinstance(term, Bordered)
            row = printer.value(term.matrix)
            assert isinstance(row, Rows)
            found.append(row.columns(columns))
        return _sum(found)

    return compute


def product(left: Links, right: Links) -> Callable[[str, str], Tile | None]:
    """What a state holds of what feeds it: its own links times `right`, which has a row of zeros at the chunk's start."""

    def compute(rows: str, columns: str) -> Tile | None:
        own, taken = left.part(rows, "tokens"), right.part("after", columns)
        if own is None or taken is None:
            return None
        if rows == "end":
            summed = f"tl.sum({own.over_rows} * {taken.factor}, 0)" if columns == "tokens" else f"tl.sum({times(own, taken).text}, 0)"
            return Tile(summed, part_shape(rows, columns))
        return dot(own, taken) if columns == "tokens" else Tile(f"tl.sum({own.factor} * {taken.over_columns}, 1)", "C")

    return compute


def gathered(parts: tuple[Node, ...], printer: CoupledPrinter) -> Callable[[str, str], Tile | None]:
    """The gradient of links: what reaches each part, the links forwards alone."""

    def compute(rows: str, columns: str) -> Tile | None:
        found = _sum([_contribution(p, rows, columns, printer) for p in parts])
        if found is None or len(found.shape) < 2:
            return found
        return Tile(f"tl.where({MASKS[rows]}, {found.text}, 0.0)", found.shape)

    return compute


def _contribution(node: Node, rows: str, columns: str, printer: CoupledPrinter) -> Tile | None:
    if isinstance(node, MatMul):
        return _through_feed(printer.links(node.left), printer.links(node.right), rows, columns)
    assert isinstance(node, Bordered)
    if node.rows != rows or node.columns not in (columns, "all"):
        return None
    found = printer.value(node.matrix)
    if isinstance(found, Rows):
        return found.columns(columns)
    assert isinstance(found, Tile)
    return found


def _through_feed(gradient: Links, fed: Links, rows: str, columns: str) -> Tile | None:
    """The gradient of a state's own links through their product with what feeds it: gradient @ fed^T, over all columns."""
    if columns == "start":
        return None
    found: list[Tile | None] = []
    tokens, start = gradient.part(rows, "tokens"), gradient.part(rows, "start")
    of_tokens, of_start = fed.part("after", "tokens"), fed.part("after", "start")
    if tokens is not None and of_tokens is not None:
        end = rows == "end"
        found.append(
            Tile(f"tl.sum({of_tokens.factor} * {tokens.over_columns}, 1)", "C") if end else dot(tokens, of_tokens, turn_right=True)
        )
    if start is not None and of_start is not None:
        outer = Tile(f"{start.over_rows} * {of_start.over_columns}", "CC")
        found.append(times(start, of_start) if rows == "end" else outer)
    return _sum(found)


def of_feed(own: Links, gradient: Links) -> Callable[[str, str], Tile | None]:
    """The gradient of what feeds a state: its own links, transposed, times the gradient of their product."""

    def compute(rows: str, columns: str) -> Tile | None:
        assert rows == "after"
        found: list[Tile | None] = []
        for each in ROWS:
            links, d = own.part(each, "tokens"), gradient.part(each, columns)
            if links is None or d is None:
                continue
            if each == "end":
                found.append(Tile(f"{links.over_rows} * {d.over_columns}", "CC") if columns == "tokens" else times(links, d))
            elif columns == "tokens":
                found.append(dot(links, d, turn_left=True))
            else:
                found.append(Tile(f"tl.sum({links.factor} * {d.over_rows}, 0)", "C"))
        return _sum(found)

    return compute


def crossing(links: Links, gradient: Links) -> Tile:
    """For every token the sum of links * gradient over the links that cross it; those from the start, to the end and past all too."""
    found: list[Tile] = []
    for rows in ROWS:
        for columns in COLUMNS:
            d = gradient.part(rows, columns)
            own = None if d is None else links.part(rows, columns)
            if d is None or own is None:
                continue
            linked = times(own, d)
            mask = "m_after" if rows == "end" else MASKS[rows]
            if len(linked.shape) == 2:
                found.append(Tile(f"_tl_crossing({linked.text}, {mask}, BC, WIDE)", "C"))
            elif linked.shape:
                found.append(Tile(f"tl.sum(tl.where({mask}, {linked.over_rows}, 0.0), 0)", "C"))
            else:
                found.append(linked)
    return total([*found, Tile("tl.zeros((BC,), ACC)", "C")] if all(not t.shape for t in found) else found)


def row_sums(left: Rows, right: Rows) -> Tile:
    """The sums of the rows of left * right, over all columns."""
    found = []
    for columns in COLUMNS:
        x, y = left.columns(columns), right.columns(columns)
        if x is not None and y is not None:
            found.append(Tile(f"tl.sum({times(x, y).text}, 1)", "C") if columns == "tokens" else times(x, y))
    return total(found)


def _sum(found: list[Tile | None]) -> Tile | None:
    tiles = [t for t in found if t is not None]
    return total(tiles) if tiles else None
