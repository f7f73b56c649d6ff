"""Chunk steps as formulas, in the letters of the literature: Γ, A^qk, A^kk, (I - L)^-1, U, W, K^end, S."""

from __future__ import annotations

import re
from collections.abc import Mapping

from recgen.derive.bordered_nodes import Crossing, Kept, Mixed, Pairings
from recgen.derive.chunk_ir import ChunkForm, Step
from recgen.derive.chunk_nodes import (
    Beside,
    Causal,
    DecayColumn,
    Decayed,
    DecayedProduct,
    Gamma,
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
from recgen.explaining.bordered import LETTERS, bordered_piece, crossing_line, kept_line, pairings_line
from recgen.explaining.styles import TEXT, Formula, Style, formula

SUM, HADAMARD, PRODUCT, ATOM = range(4)

_OPERANDS = {"q": "Q", "w": "K", "a": "A", "X": "X", "x": "x", "c": "c", "g": "g", "u": "u", "l": "l"}
"""The matrices whose rows are the operands of the chunk's tokens."""

_STEPS = {
    "gamma": "Γ", "gamma_before": "Γ^<", "A_qk": "A^qk", "q_in": "Q^in", "R": "A^kk", "X": "Y", "U": "U", "W": "W",
    "k_end": "K^end", "E": "E", "S": "S", "read": "O", "d_read": "dO", "dO_in": "dO^in", "dE_read": "dE^in", "dS_read": "dS^in",
    "Z": "dE", "dS": "dS", "dX": "dY", "dR": "dF", "found": "F", "found_in": "F^in", "dq_in": "dQ^in", "dw_end": "dK^end", "D_qk": "dA^qk",
    "D_kk": "dA^kk", "P_qk": "M^qk", "P_kk": "M^kk", "dl_qk": "dQ^qk", "dr_qk": "dK^qk", "dg_qk": "N^qk", "dr_kk": "dK^kk",
    "dg_kk": "N^kk", "written": "X^all", "A_qe": "A^qe", "taken": "O^qe",
    "taken_qk": "O^qk", "found_kk": "F^kk", "dR_in": "dF^in", "dE_end": "dE^end", "dl_qv": "O^qk", "dr_qv": "dE^qk", "dg_qv": "N^qv",
    "q_across": "Q^in", "dl_qx": "dQ^qe", "dr_qx": "dE^qe", "dg_qx": "N^qx", "dl_kv": "F^kk", "dr_kv": "dE^kk", "dg_kv": "N^kv",
    "D_qe": "dA^qe", "P_qe": "M^qe", "read_in": "O^in", "dl_qe": "O^qe", "dr_qe": "dK^qe", "dg_qe": "N^qe",
}  # fmt: skip
"""Names of steps without their tags, as letters."""

_NAME = re.compile(r"(?P<stem>.*?)(?P<tags>(_\d+)*)$")


class ChunkPrinter:
    """Prints the steps of one chunk form."""

    def __init__(self, chunk: ChunkForm, corrections: Mapping[str, str]) -> None:
        """`corrections`: the operand along which each stream corrects, by the stream's tag."""
        self.chunk = chunk
        self.operands = {o.name: o for o in chunk.operands}
        self.corrections = corrections
        self.gradients = {name: operand for operand, name in chunk.gradients}

    def step(self, step: Step) -> tuple[Formula, ...]:
        """The step's equations."""
        match step.value:
            case Inverse(blocks):
                return (formula(lambda s: f"L = {self._blocks(blocks, s)}"),)
            case Substitution():
                return (formula(lambda s: self._system(step.value, s)),)  # type: ignore[arg-type]
            case ScoreGradients():
                return tuple(formula(lambda s, i=i: self._score_gradient(step, i, s)) for i in range(3))  # type: ignore[misc]
            case Gamma(exclusive):
                return (formula(lambda s: f"{s.symbol(*_split('Γ^<' if exclusive else 'Γ'), 'ij')} = {self._gamma(exclusive, s)}"),)
            case Score():
                return (formula(lambda s: f"{self._symbol(step.name, s, 'ij')} = {self._score(step.value, s)}"),)  # type: ignore[arg-type]
            case DecayedProduct(values=values):
                index = f"i{'v' if values else 'k'}"
                return (formula(lambda s: f"{self._symbol(step.name, s, index)} = {self._decayed_product(step.value, s)}"),)  # type: ignore[arg-type]
            case GateGradient(values=values):
                gate = "du" if values else "dg"
                return (formula(lambda s: f"{s.symbol(gate, sub='t')} = {self._gate(step.value, s)}"),)  # type: ignore[arg-type]
            case Kept() as kept:
                return (formula(lambda s: kept_line(kept, s)),)
            case Crossing(links):
                return (formula(lambda s: crossing_line(step.name, links, self, s)),)
            case Pairings() as pairs:
                return (formula(lambda s: pairings_line(step.name, pairs, self, s)),)
        replaced = step.name in ("S", "dS")
        return (formula(lambda s: f"{self._symbol(step.name, s)} {s.becomes if replaced else '='} {self.node(step.value, s)}"),)

    def node(self, node: Node, style: Style, level: int = SUM) -> str:
        """A node, in brackets where it binds more loosely than `level`."""
        piece, own = self._node(node, style)
        return style.brackets(piece) if own < level else piece

    def _node(self, node: Node, s: Style) -> tuple[str, int]:
        match node:
            case Sym(name):
                return self._symbol(name, s), ATOM
            case MatMul(left, right, turn_left, turn_right):
                a, b = (self._turned(x, turn, s) for x, turn in ((left, turn_left), (right, turn_right)))
                return f"{a}{s.times}{b}", PRODUCT
            case Sum(terms):
                return " + ".join(self.node(t, s, SUM) for t in terms), SUM
            case Symmetric(matrix):
                return f"{self.node(matrix, s, SUM)} + {s.transposed(self.node(matrix, s, ATOM))}", SUM
            case Negative(matrix):
                return f"-{self.node(matrix, s, PRODUCT)}", PRODUCT
            case Scaled(column, matrix):
                return f"{s.diag(self.node(column, s))}{s.times}{self.node(matrix, s, PRODUCT)}", PRODUCT
            case ScaledColumns(matrix, column):
                return f"{self.node(matrix, s, PRODUCT)}{s.times}{s.diag(self.node(column, s))}", PRODUCT
            case DecayColumn(stretch):
                return s.exp(self._stretch(stretch, s)), ATOM
            case Hadamard(left, right):
                return f"{self.node(left, s, ATOM)}{s.hadamard}{self.node(right, s, ATOM)}", HADAMARD
            case Causal(matrix, strict):
                return s.call("tril", self.node(matrix, s), *["-1"] * strict), ATOM
            case Decayed(matrix, stretch, True):
                return f"{s.exp(self._stretch(stretch, s, 'U'))}{s.hadamard}{self.node(matrix, s, ATOM)}", HADAMARD
            case Decayed(matrix, stretch):
                return self._decayed(matrix, stretch, s)
            case Solved(_, right, turned):
                inverse = s.inverse(s.brackets("I - L"))
                inverse = s.transposed(s.brackets(inverse)) if turned else inverse
                return f"{inverse}{s.times}{self.node(right, s, PRODUCT)}", PRODUCT
            case Through(matrix, True):
                return f"{self.node(matrix, s, PRODUCT)}{s.times}{s.diag(s.exp(s.symbol('U', sub='C')))}", PRODUCT
            case Through(matrix):
                whole = s.exp(self._through(s))
                factor = s.diag(whole) if self.chunk.decay == "vector" else whole
                return f"{factor}{s.times}{self.node(matrix, s, PRODUCT)}", PRODUCT
            case Beside(matrix, columns):
                beside = ("0" if c is None else self.node(c, s) for c in columns)
                return f"[{', '.join((self.node(matrix, s), *beside))}]", ATOM
            case Part(matrix, column, _):
                return s.symbol(f"[{self.node(matrix, s)}]", sub="V" if column is None else f"V+{column + 1}"), ATOM
            case RowSum(matrix):
                return s.call("rowsum", self.node(matrix, s)), ATOM
            case Gamma(exclusive):
                return s.symbol(*_split("Γ^<" if exclusive else "Γ")), ATOM
            case Score():
                return self._score(node, s), SUM
        return bordered_piece(node, self, s), PRODUCT if isinstance(node, Mixed) else ATOM

    def _turned(self, node: Node, turn: bool, s: Style) -> str:
        return s.transposed(self.node(node, s, ATOM)) if turn else self.node(node, s, PRODUCT)

    def _decayed(self, matrix: Node, stretch: str, s: Style) -> tuple[str, int]:
        factor = s.exp(self._stretch(stretch, s))
        if self.chunk.decay == "vector":
            return f"{factor}{s.hadamard}{self.node(matrix, s, ATOM)}", HADAMARD
        return f"{s.diag(factor)}{s.times}{self.node(matrix, s, PRODUCT)}", PRODUCT

    def _system(self, node: Substitution, s: Style) -> str:
        """An entry of L, in the system of one value channel."""
        parts = [] if node.strength is None else [self._entry(node.strength, s, "iv" if self._by_channel(node.strength) else "i")]
        parts.append(self._entry(node.matrix, s, "ij"))
        parts += [self._between(node.exclusive, "v", s)] * node.decays
        return f"{s.symbol('L', sub='ij')} = {s.times.join(parts)}{s.words(', of every value channel v')}"

    def _by_channel(self, node: Node) -> bool:
        return isinstance(node, Sym) and self.operands[node.name].size == "V"

    @staticmethod
    def _between(exclusive: bool, channel: str, s: Style) -> str:
        """The decay from token j to token i, or to just before it, of a channel k of the keys or v of the values."""
        sums = "G" if channel == "k" else "U"
        later = s.symbol(sums, sub=f"i{channel}")
        if exclusive:
            later = s.symbol("H", sub="ik") if channel == "k" else s.symbol("U", "<", f"i{channel}")
        return s.exp(f"{later} - {s.symbol(sums, sub=f'j{channel}')}")

    def _stretch(self, stretch: str, s: Style, sums: str = "G") -> str:
        last = s.symbol(sums, sub="C")
        if sums == "U":
            return {"start": "U", "before": s.symbol("U", "<"), "end": f"{last} - U"}[stretch]
        if self.chunk.stabilized:
            return {"start": f"G + {s.symbol('m', sub='0')} - m", "end": f"{last} - G + l - {s.symbol('m', sub='C')}"}[stretch]
        return {"start": "G", "before": "H", "end": f"{last} - G"}[stretch]

    def _through(self, s: Style) -> str:
        scale = f" + {s.symbol('m', sub='0')} - {s.symbol('m', sub='C')}" if self.chunk.stabilized else ""
        return s.symbol("G", sub="C") + scale

    def _gamma(self, exclusive: bool, s: Style) -> str:
        later = s.symbol("H" if exclusive else "G", sub="i")
        scale = f" + {s.symbol('l', sub='j')} - {s.symbol('m', sub='i')}" if self.chunk.stabilized else ""
        inside = s.exp(f"{later} - {s.symbol('G', sub='j')}{scale}")
        return f"{inside}{s.words(f' for j {self._relation(exclusive)} i, else 0')}"

    @staticmethod
    def _relation(strict: bool) -> str:
        return "<" if strict else "≤"

    def _score(self, node: Score, s: Style) -> str:
        channel = "v" if node.values else "k"
        body = s.total(channel, self._link(node.left, node.right, node.exclusive, channel, s))
        return f"{body}{s.words(f' for j {self._relation(node.strict or node.exclusive)} i, else 0')}"

    def _decayed_product(self, node: DecayedProduct, s: Style) -> str:
        """An entry [i, k]."""
        channel = "v" if node.values else "k"
        decay = self._between(node.exclusive, channel, s)
        link = s.times.join((self._entry(node.weights, s, "ij"), decay, self._entry(node.right, s, f"j{channel}")))
        return s.total(f"j {self._relation(node.strict or node.exclusive)} i", link)

    def _link(self, left: Node, right: Node, exclusive: bool, channel: str, s: Style) -> str:
        """One channel of the score of tokens i and j."""
        decay = self._between(exclusive, channel, s)
        return f"{self._entry(left, s, f'i{channel}')}{s.times}{decay}{s.times}{self._entry(right, s, f'j{channel}')}"

    def _entry(self, node: Node, s: Style, index: str) -> str:
        if isinstance(node, Sym):
            return self._symbol(node.name, s, index)
        return s.symbol(self.node(node, s, ATOM), sub=index)

    def _score_gradient(self, step: Step, part: int, s: Style) -> str:
        """One of the three results of a score's adjoint."""
        value = step.value
        assert isinstance(value, ScoreGradients)
        weight = s.indexed(s.brackets(self.node(value.weights, s)), "ij")
        channel = "v" if value.values else "k"
        decay = self._between(value.exclusive, channel, s)
        last = self._relation(value.strict or value.exclusive)
        rows, columns = self._entry(value.left, s, f"i{channel}"), self._entry(value.right, s, f"j{channel}")
        name = step.names[part]
        if part == 0:
            return f"{self._symbol(name, s, f'i{channel}')} = {s.total(f'j {last} i', s.times.join((weight, decay, columns)))}"
        if part == 1:
            later_rows = "i > j" if last == "<" else "i ≥ j"
            return f"{self._symbol(name, s, f'j{channel}')} = {s.total(later_rows, s.times.join((weight, rows, decay)))}"
        crossing = "i > t > j" if value.exclusive else "i ≥ t > j"
        return f"{self._symbol(name, s, f't{channel}')} = {s.total(crossing, s.times.join((weight, rows, decay, columns)))}"

    def _gate(self, node: GateGradient, s: Style) -> str:
        """Sums over the links that cross token t."""
        parts = [s.total("i ≥ t > j", self._sub(m, "ij", s)) for m in node.links]
        parts += [s.total("i > t > j", self._sub(m, "ij", s)) for m in node.links_before]
        parts += [self._sub(m, "t", s) for m in node.between]
        channels = self._sub if node.values else self._channels
        parts += [s.total("i ≥ t", channels(m, "i", s)) for m in node.start]
        parts += [s.total("i > t", channels(m, "i", s)) for m in node.before]
        parts += [s.total("j < t", channels(m, "j", s)) for m in node.end]
        parts.append(self._past_every_token(node, s))
        return " + ".join(parts)

    def _past_every_token(self, node: GateGradient, s: Style) -> str:
        """The incoming state's link to the outgoing one."""
        product, whole = self._sub(Hadamard(node.state, node.gradient), "kv", s), s.exp(self._through(s))
        if node.values:
            return s.total("k", f"{s.exp(s.symbol('U', sub='Cv'))}{s.times}{product}")
        if self.chunk.decay == "vector":
            return s.total("v", f"{s.exp(s.symbol('G', sub='Ck'))}{s.times}{product}")
        return f"{whole}{s.times}{s.total('kv', product)}"

    def _channels(self, node: Node, index: str, s: Style) -> str:
        """A row of a [C, K] matrix; summed over the channels where they share one decay."""
        row = self._sub(node, index, s)
        return row if self.chunk.decay == "vector" else self._sub(RowSum(node), index, s)

    def _sub(self, node: Node, index: str, s: Style) -> str:
        """An entry or a row of a matrix."""
        return s.indexed(self.node(node, s, ATOM), index)

    def _blocks(self, blocks: tuple[tuple[Node, ...], ...], s: Style) -> str:
        rows = [[self.node(b, s) for b in row] for row in blocks]
        return rows[0][0] if len(rows) == 1 else self.matrix(rows, s)

    @staticmethod
    def matrix(rows: list[list[str]], s: Style) -> str:
        """A matrix by its entries."""
        if s.times == " ":
            return "[" + "; ".join(", ".join(row) for row in rows) + "]"
        return r"\begin{pmatrix} " + r" \\ ".join(" & ".join(row) for row in rows) + r" \end{pmatrix}"

    def _symbol(self, name: str, s: Style, index: str = "") -> str:
        """A step or operand as a letter with its tags and index."""
        if name in self.gradients:
            operand = self._symbol(self.gradients[name], s)
            return f"d{operand}"
        if name in self.operands:
            return self._operand(name, s, index)
        match = _NAME.fullmatch(name)
        assert match is not None
        stem, tags = match["stem"], match["tags"].replace("_", "")
        if stem == "A_kk":
            inverse = s.inverse(s.brackets("I - L"))
            return s.indexed(f"[{inverse}]", tags) if tags else inverse
        base, sup = _split(self._letter(stem, match["tags"]))
        return s.symbol(base, sup, tags + ("," if tags and index else "") + index)

    def _letter(self, stem: str, tags: str) -> str:
        """A correction's steps take the letter of the operand that it corrects along, which is often that of the writes."""
        if stem in ("a_in", "da_in", "dl_kk"):
            correct = self.operands[self.corrections[tags if tags in self.corrections else tags[:2]]]
            letter = _OPERANDS[correct.symbol]
            return {"a_in": f"{letter}^in", "da_in": f"d{letter}^in", "dl_kk": f"d{letter}^kk'"}[stem]
        return _STEPS.get(stem, stem) if self.chunk.states == 1 else LETTERS.get(stem, _STEPS.get(stem, stem))

    def _operand(self, name: str, s: Style, index: str) -> str:
        operand = self.operands[name]
        same = [o.name for o in self.chunk.operands if o.symbol == operand.symbol]
        tag = str(same.index(name) + 1) if len(same) > 1 else ""
        return s.symbol(_OPERANDS.get(operand.symbol, operand.symbol), sub=tag + ("," if tag and index else "") + index)


def _split(symbol: str) -> tuple[str, str]:
    base, _, sup = symbol.partition("^")
    return base, sup


def operand_letter(chunk: ChunkForm, name: str) -> str:
    """The letter of the matrix that stacks an operand, as text."""
    operand = next(o for o in chunk.operands if o.name == name)
    same = [o.name for o in chunk.operands if o.symbol == operand.symbol]
    return TEXT.symbol(_OPERANDS.get(operand.symbol, operand.symbol), sub=str(same.index(name) + 1) if len(same) > 1 else "")
