"""The chunk form as named matrix steps: what is printed as code, shown by `explain`, and proved."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

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
    Mixed,
    Pairings,
    Square,
)
from recgen.derive.chunk_nodes import (
    Beside,
    Causal,
    Decayed,
    DecayedProduct,
    GateGradient,
    Hadamard,
    Inverse,
    MatMul,
    Negative,
    Node,
    Part,
    RowSum,
    Scaled,
    ScaledColumns,
    Score,
    ScoreGradients,
    Solved,
    Substitution,
    Sum,
    Sym,
    Symmetric,
    Through,
)


@dataclass(frozen=True)
class Step:
    """`name = value`, with the symbol that papers give it and what it is; several names, comma-separated, where the value has parts."""

    name: str
    value: Node
    symbol: str
    meaning: str

    @property
    def names(self) -> tuple[str, ...]:
        """The names it defines."""
        return tuple(self.name.split(", "))


@dataclass(frozen=True)
class Operand:
    """A per-token matrix that the chunk form takes: `size` is "K" or "V" (an axis role), "1" for a column of numbers."""

    name: str
    size: str
    symbol: str


@dataclass(frozen=True)
class ChunkForm:
    """The forward chunk form and its adjoint.

    Forward: `prepare` (all chunks at once), `scan` (chunk after chunk; reads and sets S), `finish` (all chunks at once, from the stacked S
    and scan results). Adjoint likewise, backwards: `adjoint_prepare`, `adjoint_scan` (reads and sets dS), `adjoint_finish`; `gradients`
    names the step that holds each operand's gradient, `reads` the steps that hold the reads.

    `decay` is "coupled" where several matrix states are side by side, `states` their number.
    `columns`: how many further columns the state and every read have. `stabilized`: what decays has the write's weight e^l in it and is
    divided by e^m, m the running maximum: from token j to token i exp(G_i - G_j + l_j - m_i), from the incoming state exp(G_i + m_0 - m_i).
    `value_decay`: the kind of the value side's decay, "none" or "vector".
    """

    decay: str
    columns: int
    stabilized: bool
    operands: tuple[Operand, ...]
    prepare: tuple[Step, ...]
    scan: tuple[Step, ...]
    finish: tuple[Step, ...]
    reads: tuple[str, ...]
    adjoint_prepare: tuple[Step, ...]
    adjoint_scan: tuple[Step, ...]
    adjoint_finish: tuple[Step, ...]
    gradients: tuple[tuple[str, str], ...]
    value_decay: str = "none"
    states: int = 1


def children(node: Node) -> tuple[Node, ...]:
    """The nodes directly below."""
    match node:
        case MatMul(a, b) | Hadamard(a, b) | Scaled(a, b) | ScaledColumns(a, b) | Score(a, b) | DecayedProduct(a, b) | Solved(a, b):
            return (a, b)
        case Mixed(a, b) | Pairings(a, b):
            return (a, b)
        case ScoreGradients(a, b, c):
            return (a, b, c)
        case Sum(terms):
            return terms
        case Negative(a) | Symmetric(a) | Causal(a) | Decayed(a) | Through(a) | RowSum(a) | Part(a):
            return (a,)
        case Cut(a) | Bordered(a) | Empty(a) | Block(a) | Entry(a) | ColumnSum(a) | Crossing(a):
            return (a,)
        case Gathered(parts):
            return parts
        case Joined(parts):
            return tuple(x for x in parts if x is not None)
        case Square(entries):
            return tuple(x for row in entries for x in row if x is not None)
        case Substitution(a, strength):
            return (a,) if strength is None else (a, strength)
        case Beside(a, columns):
            return (a, *(c for c in columns if c is not None))
        case Inverse(blocks):
            return tuple(b for row in blocks for b in row)
        case GateGradient(links, links_before, between, start, before, end, state, gradient):
            return (*links, *links_before, *between, *start, *before, *end, state, gradient)
        case _:
            return ()


def nodes(node: Node) -> Iterator[Node]:
    """The node and everything below it."""
    yield node
    for child in children(node):
        yield from nodes(child)


def used_names(steps: tuple[Step, ...]) -> set[str]:
    """Every name that the steps mention."""
    return {n.name for s in steps for n in nodes(s.value) if isinstance(n, Sym)}


def needed(steps: tuple[Step, ...], wanted: set[str]) -> tuple[Step, ...]:
    """The steps that `wanted` depends on, in order."""
    kept: list[Step] = []
    wanted = set(wanted)
    for step in reversed(steps):
        if wanted & set(step.names):
            kept.append(step)
            wanted |= used_names((step,))
    return tuple(reversed(kept))
