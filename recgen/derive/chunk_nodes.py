"""Nodes of the chunk form: what a step computes.

Matrices of one chunk of C tokens and one head; rows are tokens [C, K], [C, V], [C, C], or the state [K, V]. The cumulated log decay within
the chunk is G (inclusive of the token) or H (exclusive of it); of the value side, whose channels are then those of V, where a node says
`values`.
"""

from __future__ import annotations

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
    Kept,
    Mixed,
    Pairings,
    Square,
)


@dataclass(frozen=True)
class Sym:
    """An operand, the state S, or an earlier step."""

    name: str


@dataclass(frozen=True)
class MatMul:
    """left @ right, either transposed first."""

    left: Node
    right: Node
    turn_left: bool = False
    turn_right: bool = False


@dataclass(frozen=True)
class Sum:
    """The sum of its terms."""

    terms: tuple[Node, ...]


@dataclass(frozen=True)
class Negative:
    """-matrix."""

    matrix: Node


@dataclass(frozen=True)
class Scaled:
    """Every row of `matrix` times its entry of `column` [C, 1]."""

    column: Node
    matrix: Node


@dataclass(frozen=True)
class Symmetric:
    """matrix + its transpose, [C, C]."""

    matrix: Node


@dataclass(frozen=True)
class ScaledColumns:
    """Every column of `matrix` times its entry of `column` [C, 1]."""

    matrix: Node
    column: Node


@dataclass(frozen=True)
class DecayColumn:
    """Scalar decay over a stretch (see `Decayed`), as a column [C, 1]."""

    stretch: str


@dataclass(frozen=True)
class Hadamard:
    """Entry by entry."""

    left: Node
    right: Node


@dataclass(frozen=True)
class Causal:
    """`matrix` [C, C] with 0 where column j comes after row i (at i too where `strict`)."""

    matrix: Node
    strict: bool


@dataclass(frozen=True)
class Gamma:
    """Scalar decay between tokens: exp(G_i - G_j) for j <= i, or exp(H_i - G_j) for j < i where `exclusive`; else 0."""

    exclusive: bool


@dataclass(frozen=True)
class Score:
    """Vector decay: sum_k left_ik exp(G_ik - G_jk) right_jk for j <= i (j < i where `strict`); with H_i where `exclusive` (then j < i)."""

    left: Node
    right: Node
    exclusive: bool
    strict: bool
    values: bool = False


@dataclass(frozen=True)
class DecayedProduct:
    """Vector decay: rows i of sum_j weights_ij exp(G_ik - G_jk) right_jk over the j of a Score with these flags, [C, K].

    What a Score's rows are the gradients of: <left, DecayedProduct(weights, right)> = <weights, Score(left, right)>.
    """

    weights: Node
    right: Node
    exclusive: bool
    strict: bool
    values: bool = False


@dataclass(frozen=True)
class ScoreGradients:
    """Three results for the gradient `weights` [C, C] of a Score: its left operand's, its right operand's, and the log decay's."""

    weights: Node
    left: Node
    right: Node
    exclusive: bool
    strict: bool
    values: bool = False


@dataclass(frozen=True)
class Decayed:
    """[C, K] rows scaled by the decay over a stretch: "start" exp(G_i), "before" exp(H_i), "end" exp(G_C - G_i)."""

    matrix: Node
    stretch: str
    values: bool = False


@dataclass(frozen=True)
class Through:
    """A state carried through the whole chunk: diag(exp(G_C)) matrix; matrix diag(exp(G_C)) on the value side."""

    matrix: Node
    values: bool = False


@dataclass(frozen=True)
class Inverse:
    """(I - L)^-1 where L has the strictly causal blocks `blocks` (correcting streams by streams), as its blocks row by row."""

    blocks: tuple[tuple[Node, ...], ...]


INVERTED = 8
"""Tokens of a block of a substitution whose inverse is kept for every value channel: its memory is so many times that of the values."""


@dataclass(frozen=True)
class Substitution:
    """What solves E = X + c * P(A, E) for any X, where `matrix` A [C, C] is strictly causal and `strength` c [C, 1] or [C, V], None for 1.

    P(A, E) is the product of A and E, with `decays` the decayed one over the value channels (exp(H_i - G_j) where `exclusive`). Every
    channel has a system of its own, so there is no inverse but of small blocks: the rest is substituted, block after block.
    """

    matrix: Node
    strength: Node | None
    exclusive: bool
    decays: bool


@dataclass(frozen=True)
class Solved:
    """E for the right-hand side `right` [C, V]; for the transposed system where `turned`."""

    substitution: Node
    right: Node
    turned: bool = False


@dataclass(frozen=True)
class Beside:
    """The columns of `matrix`, then further columns [C, 1], None for zeros."""

    matrix: Node
    columns: tuple[Node | None, ...]


@dataclass(frozen=True)
class Part:
    """Of what `Beside` makes with `count` further columns: the matrix (`column` None) or one of those."""

    matrix: Node
    column: int | None
    count: int


@dataclass(frozen=True)
class RowSum:
    """The sum of every row, [C, 1]."""

    matrix: Node


@dataclass(frozen=True)
class GateGradient:
    """The gradient of the log decay as sums over the links that cross each token.

    `links`, `links_before`: score * gradient [C, C] of links from token j to token i (to just before token i). `between`: links between
    tokens that are already summed per token. `start`, `before`: operand * gradient [C, K] of links from the incoming state to token i (to
    just before it). `end`: of links from token j to the outgoing state. `state`, `gradient`: the incoming state and the outgoing state's
    gradient, whose product decayed through the chunk passes every token. On the value side operands and gradients are [C, V].
    """

    links: tuple[Node, ...]
    links_before: tuple[Node, ...]
    between: tuple[Node, ...]
    start: tuple[Node, ...]
    before: tuple[Node, ...]
    end: tuple[Node, ...]
    state: Node
    gradient: Node
    values: bool = False


Node = (
    Sym
    | MatMul
    | Sum
    | Negative
    | Symmetric
    | Scaled
    | ScaledColumns
    | DecayColumn
    | Hadamard
    | Causal
    | Gamma
    | Score
    | DecayedProduct
    | ScoreGradients
    | Decayed
    | Through
    | Inverse
    | Substitution
    | Solved
    | Beside
    | Part
    | RowSum
    | GateGradient
    | Kept
    | Cut
    | Bordered
    | Gathered
    | Empty
    | Joined
    | Block
    | Square
    | Entry
    | Mixed
    | Pairings
    | ColumnSum
    | Crossing
)
