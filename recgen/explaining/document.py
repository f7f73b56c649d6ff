"""What a stage says, as blocks, and the blocks as text and as LaTeX."""

from __future__ import annotations

import re
import textwrap
from dataclasses import dataclass, field
from typing import Any

from recgen.explaining.styles import Formula, escaped

WIDTH = 110


@dataclass(frozen=True)
class Paragraph:
    """Plain words."""

    text: str


@dataclass(frozen=True)
class Equations:
    """Formulas, each with what it says."""

    rows: tuple[tuple[Formula, str], ...]


@dataclass(frozen=True)
class Table:
    """Cells of plain words under a header."""

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Items:
    """A list."""

    items: tuple[str, ...]


@dataclass(frozen=True)
class Verbatim:
    """Text as it stands."""

    text: str


Block = Paragraph | Equations | Table | Items | Verbatim


@dataclass(frozen=True)
class Stage:
    """One stage's part of an explanation: blocks for readers, `data` for machines."""

    name: str
    title: str
    blocks: tuple[Block, ...]
    data: dict[str, Any] = field(compare=False)


# -------------------------------------------------------------------- text


def as_text(stages: tuple[Stage, ...]) -> str:
    """The stages one after the other."""
    return "\n\n".join(_stage_text(s) for s in stages) + "\n"


def _stage_text(stage: Stage) -> str:
    head = f"{stage.name}: {stage.title}"
    body = "\n\n".join(textwrap.indent(_block_text(b), "  ") for b in stage.blocks)
    return f"{head}\n{'-' * len(head)}\n\n{body}"


def _block_text(block: Block) -> str:
    match block:
        case Paragraph(text):
            return textwrap.fill(text, WIDTH)
        case Verbatim(text):
            return text
        case Items(items):
            return "\n".join(textwrap.fill(item, WIDTH, initial_indent="- ", subsequent_indent="  ") for item in items)
        case Table(header, rows):
            return _columns((header, *rows))
        case Equations(rows):
            return _equations_text(rows)


def _equations_text(rows: tuple[tuple[Formula, str], ...]) -> str:
    """Comments in one column, under the formula where that is long."""
    column = min(60, max((len(f.text) for f, _ in rows), default=0))
    lines = []
    for f, comment in rows:
        formula = textwrap.fill(f.text, WIDTH, subsequent_indent="        ", break_long_words=False, break_on_hyphens=False)
        if len(f.text) <= column:
            lines.append(f"{formula.ljust(column)}   {comment}".rstrip())
        else:
            lines += [formula, *[f"{' ' * column}   {comment}"] * bool(comment)]
    return "\n".join(lines)


def _columns(rows: tuple[tuple[str, ...], ...]) -> str:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return "\n".join("  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip() for row in rows)


# ------------------------------------------------------------------- LaTeX


def as_latex(stages: tuple[Stage, ...]) -> str:
    """The stages as a fragment for a document with amsmath."""
    return "\n\n".join(_stage_latex(s) for s in stages) + "\n"


def _stage_latex(stage: Stage) -> str:
    body = "\n\n".join(_block_latex(b) for b in stage.blocks)
    return f"\\section*{{{escaped(f'{stage.name}: {stage.title}')}}}\n\n{body}"


def _block_latex(block: Block) -> str:
    match block:
        case Paragraph(text):
            return escaped(text)
        case Verbatim(text):
            return f"\\begin{{verbatim}}\n{text}\n\\end{{verbatim}}"
        case Items(items):
            return "\n".join(["\\begin{itemize}", *(f"  \\item {escaped(i)}" for i in items), "\\end{itemize}"])
        case Table(header, rows):
            lines = [" & ".join(escaped(cell) for cell in row) + r" \\" for row in (header, *rows)]
            return "\n".join([f"\\begin{{tabular}}{{{'l' * len(header)}}}", lines[0], "\\hline", *lines[1:], "\\end{tabular}"])
        case Equations(rows):
            lines = [f"  {_aligned(f.latex)}" + (rf" && \text{{{escaped(c)}}}" if c else "") for f, c in rows]
            return "\\begin{align*}\n" + " \\\\\n".join(lines) + "\n\\end{align*}"


def _aligned(latex: str) -> str:
    """The first relation marked for alignment."""
    return re.sub(r" (=|\\leftarrow) ", r" &\1 ", latex, count=1)
