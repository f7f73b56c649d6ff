"""What the kind of decay changes in the chunkwise kernels, and the kernels' lines for no decay at all."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from recgen.analysis.normal_form import Decay
from recgen.derive.operands import OperandSet, ReadNames, StreamNames

DOT = "_tl_dot"
NAN_STAYS = "propagate_nan=tl.PropagateNan.ALL"
Lines = tuple[str, ...]


def wide_dot(left: str, right: str) -> str:
    """left @ right as a product of float32 numbers, whatever the inputs' precision."""
    return f"{DOT}({left}, {right}, tl.float32, WIDE)"


def split_left(left: str, right: str) -> str:
    """left @ right, of half precision with the left factor in two parts of it."""
    return f"_tl_dot_split_left({left}, {right}, DT, WIDE)"


def split_right(left: str, right: str) -> str:
    """left @ right, of half precision with the right factor in two parts of it."""
    return f"_tl_dot_split_right({left}, {right}, DT, WIDE)"


def times_rows(strength: str, text: str) -> str:
    """Every row of a tile times its entry of an operand, the tile alone for ""."""
    return f"b_{strength}[:, None] * {text}" if strength else text


def summed(name: str, parts: list[str]) -> tuple[Lines, str]:
    """The lines that add up more than two tiles in `name`, and the sum as text."""
    if len(parts) <= 2:
        return (), " + ".join(parts)
    return tuple(f"{name} {'+' if i else ''}= {part}" for i, part in enumerate(parts)), name


@dataclass(frozen=True)
class Rows:
    """Key rows [C, K] in products with values: their tile, the numbers that scale each row's product, and one for all ("" for none).

    Products are scaled, not their factors, which are rounded to the inputs' precision: a tile that is an input stays as exact as that.
    """

    tile: str
    scale: str = ""
    factor: str = ""

    def times(self, state: str, split: bool = False) -> str:
        """rows @ state, [C, V]; `split`: with the state in two parts of half precision."""
        product = split_right(self.tile, state) if split else f"{DOT}({self.tile}, {state}, DT, WIDE)"
        scales = [f"{self.scale}[:, None]"] * bool(self.scale) + [self.factor] * bool(self.factor)
        return " * ".join((product, *scales))

    def times_column(self, column: str) -> str:
        """rows @ a further column of the state, [C]; exact, without a product of tiles."""
        scales = [self.scale] * bool(self.scale) + [self.factor] * bool(self.factor)
        return " * ".join((f"tl.sum({self.tile} * {column}[None, :], 1)", *scales))

    def outer_column(self, numbers: str) -> str:
        """rows^T @ numbers per token, [K]."""
        weighted = " * ".join((numbers, *[self.scale] * bool(self.scale)))
        product = f"tl.sum({self.tile} * ({weighted})[:, None], 0)"
        return f"{product} * {self.factor}" if self.factor else product

    def outer(self, values: str) -> str:
        """rows^T @ values, [K, V]."""
        factor = f" * {self.factor}" if self.factor else ""
        if self.scale:  # the values are rounded once more anyway
            return f"{DOT}(tl.trans({self.tile}), {values} * {self.scale}[:, None]{factor}, DT, WIDE)"
        return f"{DOT}(tl.trans({self.tile}), {values}, DT, WIDE){factor}"


@dataclass(frozen=True)
class Score:
    """Products of rows with the decay from token j to token i (to just before it where `exclusive`), for j <= i, j < i where `strict`.

    `tag` names the pair; `strength` is the operand that scales the rows of `left` in a correction, `factor` a number that scales all
    products, "" for none.
    """

    tag: str
    left: str
    right: str
    exclusive: bool
    strict: bool
    left_gradient: str
    right_gradient: str
    strength: str = ""
    factor: str = ""

    def scaled(self, text: str) -> str:
        """c * text, by rows."""
        return times_rows(self.strength, text)

    @property
    def to_right(self) -> str:
        """The tile of the gradient of the products as the right side meets it, with the strength."""
        return f"b_{'cP' if self.strength else 'P'}_{self.tag}"


@dataclass(frozen=True)
class Boundary:
    """A gradient [C, K] that comes from a state at the chunk's border: the operand, its gradient's tile, how far the decay goes."""

    operand: str
    gradient: str
    stretch: str
    strength: str = ""
    factor: str = ""

    @property
    def product(self) -> str:
        """Operand times gradient, [C, K]."""
        return times_rows(self.strength, f"b_{self.operand} * b_{self.gradient}")


class ChunkDecay:
    """No decay, and what all kinds share."""

    gated = False
    vector = False
    links_scores = False
    """Whether the gate's gradient takes the scores as `prepare` stored them."""

    def __init__(self, decay: Decay, operands: OperandSet, factors: dict[str, str]) -> None:
        self.decay, self.operands, self.factors = decay, operands, factors
        self.signed = decay.signed is not None
        corrections = (not s.decayed for s in operands.streams if s.correct)
        self.before = any(r.lag for r in operands.reads) or any(corrections)

    @property
    def names(self) -> Lines:
        """Operands that describe the decay."""
        return tuple(n for n, _ in self.operands.terms if n in ("log_decay", "sign"))

    @property
    def kept(self) -> Lines:
        """Tiles [C, K] that `prepare` keeps for the other kernels."""
        return ()

    def measure(self) -> Lines:
        """Decays as `prepare` needs them, which may keep some for the others."""
        return self.cumulate()

    def cumulate(self) -> Lines:
        """Decays of a chunk from its borders."""
        return ()

    def gammas(self) -> Lines:
        """Decays between the chunk's tokens, as [C, C] matrices."""
        return ()

    def totals(self) -> Lines:
        """What a chunk makes of a running maximum; nothing without one."""
        return ()

    def keep(self) -> Lines:
        """Makes and stores the kept tiles."""
        return ()

    def load_kept(self, names: Iterable[str]) -> Lines:
        """Loads kept tiles."""
        return ()

    def query(self, read: ReadNames) -> Rows:
        """Queries, decayed from the chunk's start."""
        return Rows(f"b_{read.query}", factor=self.factors.get(read.query, ""))

    def correct(self, stream: StreamNames) -> Rows:
        """Correction directions, decayed from the chunk's start."""
        return Rows(f"b_{stream.correct}")

    def write(self, stream: StreamNames) -> Rows:
        """Write directions, decayed to the chunk's end."""
        return Rows(f"b_{stream.write}")

    def through(self, state: str) -> Lines:
        """The state carried through the chunk."""
        return ()

    def through_column(self, column: str) -> Lines:
        """A further column of the state carried through the chunk."""
        return (f"{column} = {column} * b_through",) if self.gated else ()

    def masked(self, text: str, score: Score) -> str:
        """A [C, C] matrix times the decay between its tokens, 0 where it is not causal."""
        weighted = f"{text} * {score.factor}" if score.factor else text
        return f"tl.where({'m_before' if score.strict else 'm_ij'}, {weighted}, 0.0)"

    def scores(self, scores: tuple[Score, ...]) -> Lines:
        """The scores, each as b_<tag>."""
        return tuple(f"b_{s.tag} = {self.masked(f'{DOT}(b_{s.left}, tl.trans(b_{s.right}), DT, WIDE)', s)}" for s in scores)

    def decayed(self, tile: str, stretch: str) -> Lines:
        """A tile [C, K] decayed over a stretch."""
        return ()

    def products(self, scores: tuple[Score, ...]) -> Lines:
        """Adds to b_<left_gradient>: the right rows, times the weights b_D_<tag> and the decay from token j to token i."""
        return tuple(f"b_{s.left_gradient} += {DOT}({self.masked(f'b_D_{s.tag}', s)}, b_{s.right}, DT, WIDE)" for s in scores)

    def passed(self) -> Lines:
        """The gradient through everything that passes the chunk: its zeros before the loop over value blocks, and one block's part."""
        return ("b_passed = tl.zeros((BK,), ACC)", "b_passed += tl.sum(b_h.to(ACC) * b_dh.to(ACC), 1)") if self.gated else ()

    def adjoint(self, scores: tuple[Score, ...], boundaries: tuple[Boundary, ...]) -> Lines:
        """From gradients of the scores (b_D_<tag>) and at the borders to gradients of the rows, added up; and of the log decay (b_dg)."""
        lines = [f"b_{b.gradient} = b_{b.gradient} * {b.factor}" for b in boundaries if b.factor]
        for s in scores:
            lines.append(f"b_P_{s.tag} = {self.masked(f'b_D_{s.tag}', s)}")
            lines += [f"b_cP_{s.tag} = {s.scaled(f'b_P_{s.tag}')}"] * bool(s.strength)
            lines.append(f"b_{s.left_gradient} += {DOT}(b_P_{s.tag}, b_{s.right}, DT, WIDE)")
            lines.append(f"b_{s.right_gradient} += {DOT}(tl.trans({s.to_right}), b_{s.left}, DT, WIDE)")
        return tuple(lines)
