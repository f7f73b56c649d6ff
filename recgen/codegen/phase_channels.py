"""What the kernels of systems that differ by value channel print beside what all do: decays of both sides, scores, substitutions, gates."""

from __future__ import annotations

from recgen.codegen.chunk_decay import NAN_STAYS
from recgen.codegen.phase_links import sums_lines
from recgen.codegen.phase_printer import PhasePrinter
from recgen.codegen.phase_values import Tile, Value, scaled, times, total
from recgen.derive.chunk_ir import Step
from recgen.derive.chunk_nodes import (
    Causal,
    Decayed,
    DecayedProduct,
    Gamma,
    GateGradient,
    Node,
    Score,
    ScoreGradients,
    Solved,
    Substitution,
    Sym,
    Through,
)

_CROSSED = {"start": ("m_ij", "m_from"), "before": ("m_before", "m_after"), "end": ("m_after", "m_before")}
"""The links to a border that cross a token: of a column of numbers by row, and of channels by token."""


class ChannelPrinter(PhasePrinter):
    """Prints one kernel of a form that differs by value channel."""

    # ------------------------------------------------------------------ decays

    def _side(self, values: bool) -> tuple[str, str]:
        """The prefix of the names of a side's decay, and the letter of its channels."""
        return ("value_", "V") if values else ("", "K")

    def _by_channel(self, values: bool) -> bool:
        """Whether a side decays by channel."""
        return values or self.form.decay == "vector"

    def _sums(self, values: bool) -> None:
        """The sums of a side's log decays over the chunk."""
        prefix, _ = self._side(values)
        signed = f"{prefix}sign" in self.form.signs
        self.use(f"{prefix}log_decay")
        if signed:
            self.use(f"{prefix}sign")
        self.seen(f"{prefix}sums", values)
        if f"{prefix}sums" not in self.known:
            with self.home(f"{prefix}sums", values):
                self.emit(*(channel_sums(prefix, signed) if self._by_channel(values) else sums_lines("", signed)))
            self.known[f"{prefix}sums"] = Tile("sums", "")

    def _exponential(self, exponent: str, sign: str, values: bool) -> str:
        prefix, _ = self._side(values)
        limited = f"tl.minimum({exponent}, 0.0, {NAN_STAYS})" if self.bounded else exponent
        return f"tl.exp2({limited})" + f" * {sign.replace('@', f'b_{prefix}')}" * (f"{prefix}sign" in self.form.signs)

    def _made(self, name: str, tile: Tile) -> Tile:
        found = self.made(name, tile.shape, lambda: tile)
        assert found is not None
        return found

    def _over(self, stretch: str, values: bool) -> Tile:
        """The decay between every token and a border of the chunk."""
        prefix, letter = self._side(values)
        self._sums(values)
        exponent, sign = {
            "start": ("@Gc + @Gf", "@turned"),
            "before": ("@Hc + @Hf", "@turned_before"),
            "end": ("(@Lc - @Gc) + (@Lf - @Gf)", "@turned * @turned_through"),
        }[stretch]
        if self._by_channel(values):
            exponent, sign = (x.replace("@Lc", "@Lc[None, :]").replace("@Lf", "@Lf[None, :]") for x in (exponent, sign))
            sign = sign.replace("through", "through[None, :]")
        text = self._exponential(exponent.replace("@", f"b_{prefix}"), sign, values)
        return self._made(f"{prefix}over_{stretch}", Tile(text, f"C{letter}" if self._by_channel(values) else "C"))

    def _through(self, values: bool) -> Tile:
        """The decay through the chunk, of every channel or of all."""
        prefix, letter = self._side(values)
        self._sums(values)
        text = self._exponential(f"b_{prefix}Lc + b_{prefix}Lf", "@turned_through", values)
        return self._made(f"{prefix}through", Tile(text, letter if self._by_channel(values) else ""))

    def _gamma(self, exclusive: bool) -> Tile:
        self._sums(False)
        later, mask, turned = ("H", "m_before", "_before") if exclusive else ("G", "m_ij", "")
        signs = f" * b_turned{turned}[:, None] * b_turned[None, :]" * ("sign" in self.form.signs)
        return Tile(f"_tl_gamma(b_{later}c, b_{later}f, b_Gc, b_Gf, {mask}){signs}", "CC")

    # ------------------------------------------------------------------- nodes

    def value(self, node: Node) -> Value:
        """See `PhasePrinter`."""
        match node:
            case Causal(matrix, strict):
                tile = self.tile(matrix)
                return Tile(f"tl.where({'m_before' if strict else 'm_ij'}, {tile.text}, 0.0)", "CC")
            case Gamma(exclusive):
                return self._gamma(exclusive)
            case Decayed(matrix, stretch, values):
                tile, over = self.tile(matrix), self._over(stretch, values)
                return scaled(over, tile) if over.shape == "C" else times(tile, over)
            case Through(matrix, values):
                return self._carried(self.tile(matrix), self._through(values))
            case Score(values=True) if self.blocks:
                return self.summed_up("CC", lambda: self._score(node))
            case Score():
                return self._score(node)
            case DecayedProduct(weights, right):
                arguments = f"{self.tile(weights).text}, {self.tile(right).text}, {self._links(node)}"
                return Tile(f"_tl_decayed_product({arguments})", self.form.shape(right))
            case Solved(Sym(name), right, turned):
                return self._solved(name, self.tile(right), turned)
            case GateGradient():
                return self._gate(node)
        return super().value(node)

    def _carried(self, state: Tile, through: Tile) -> Tile:
        """A state carried through the chunk."""
        axes = {"K": "[:, None]", "V": "[None, :]", "": ""}[through.shape]
        return Tile(f"{state.factor} * {through.factor}{axes}", "KV")

    def _links(self, node: Score | DecayedProduct | ScoreGradients) -> str:
        """The arguments that say which links there are, and how they decay."""
        prefix, _ = self._side(node.values)
        self._sums(node.values)
        later, turned = ("H", "turned_before") if node.exclusive else ("G", "turned")
        signs = (f"b_{prefix}{turned}", f"b_{prefix}turned") if f"{prefix}sign" in self.form.signs else ("1.0", "1.0")
        names = [f"b_{prefix}{later}c", f"b_{prefix}{later}f", signs[0], f"b_{prefix}Gc", f"b_{prefix}Gf", signs[1]]
        if not self.signed:
            names = [n for n in names if n != "1.0"]
        return f"{', '.join(names)}, {node.exclusive}, {node.strict}, BC"

    def _score(self, node: Score) -> Tile:
        arguments = f"{self.tile(node.left).text}, {self.tile(node.right).text}, {self._links(node)}"
        return Tile(f"_tl_score({arguments})", "CC")

    def _solved(self, name: str, right: Tile, turned: bool) -> Tile:
        value = self.form.steps[name].value
        assert isinstance(value, Substitution)
        strength = None if value.strength is None else self.tile(value.strength)
        scale = "1.0" if strength is None else strength.over_rows if strength.shape == "C" else strength.text
        decay = self._decays() if value.decays else "1.0"
        arguments = f"{self.tile(value.matrix).text}, {scale}, {decay}, {right.text}, {value.exclusive}, {value.decays}, BC"
        return Tile(f"_tl_solved{'_transposed' * turned}({arguments})", "CV")

    def _decays(self) -> str:
        """What every token's value channels decay by."""
        self._sums(True)
        sign = "tl.where(b_value_sign < 0.0, -1.0, 1.0)"
        return self._made("value_decay", Tile(self._exponential("b_value_log2", sign, True), "CV")).text

    # --------------------------------------------------------------- gradients

    def step(self, step: Step, name: str) -> None:
        """See `PhasePrinter`; of a score's three gradients, the scan backwards makes the one that it knows enough for."""
        value = step.value
        if not isinstance(value, ScoreGradients):
            super().step(step, name)
            return
        self.emit(f"# {step.symbol}: {step.meaning}")
        shape = "CV" if value.values else "CK"
        if "S" not in self.known:
            assert name == step.names[1]
            product = f"_tl_turned_product({self.tile(value.weights).text}, {self.tile(value.left).text}, {self._links(value)})"
            self.known[name] = self.bind(name, Tile(product, shape))
            return
        arguments = [self.tile(x).text for x in (value.weights, value.left, value.right)]
        names = ", ".join(f"b_{n}" for n in step.names)
        self.emit(f"{names} = _tl_score_gradients({', '.join(arguments)}, {self._links(value)})")
        self.known |= {n: Tile(f"b_{n}", shape) for n in step.names}

    def _gate(self, node: GateGradient) -> Tile:
        """Sums over the links that cross each token; the state that passes through crosses all."""
        _, letter = self._side(node.values)
        passed = self._passed(node)
        if not node.values and self.form.decay == "scalar":
            found = [Tile(f"{times(passed, self._through(False)).text} + tl.zeros((BC,), ACC)", "C")]
            found += [Tile(f"_tl_crossing({self.tile(x).text}, m_ij, BC, WIDE)", "C") for x in node.links]
            found += [Tile(f"_tl_crossing({self.tile(x).text}, m_before, BC, WIDE)", "C") for x in node.links_before]
        else:
            found = [Tile(f"({times(passed, self._through(node.values)).text})[None, :] + tl.zeros((BC, B{letter}), ACC)", f"C{letter}")]
            found += [self.tile(x) for x in node.between]
        for stretch, rows in (("start", node.start), ("before", node.before), ("end", node.end)):
            if rows:
                found.append(self._crossed(stretch, rows, letter if len(found[0].shape) > 1 else ""))
        return total(found)

    def _crossed(self, stretch: str, rows: tuple[Node, ...], letter: str) -> Tile:
        """For every token, the sum of the rows whose links to a border cross it."""
        tile = total([self.tile(x) for x in rows])
        if letter:
            return Tile(f"_tl_sums({_CROSSED[stretch][1]}, {tile.text}, WIDE)", tile.shape)
        return Tile(f"tl.sum(tl.where({_CROSSED[stretch][0]}, tl.sum({tile.text}, 1)[:, None], 0.0), 0)", "C")

    def _passed(self, node: GateGradient) -> Tile:
        """The products of the incoming state and the outgoing one's gradient, summed up for every channel, or for all."""

        def product() -> str:
            return times(self.tile(node.state), self.tile(node.gradient)).text

        if node.values:
            return Tile(f"tl.sum({product()}, 0)", "V")
        if self.form.decay == "scalar":
            return self.summed_up("", lambda: Tile(f"tl.sum({product()})", ""))
        return self.summed_up("K", lambda: Tile(f"tl.sum({product()}, 1)", "K"))


def channel_sums(prefix: str, signed: bool) -> tuple[str, ...]:
    """Log decays by channel summed over the chunk as two numbers, as `sums_lines` does for one decay."""
    p = f"b_{prefix}"
    lines = [
        f"{p}log2 = tl.maximum({p}log_decay * 1.4426950408889634, -151.0, {NAN_STAYS})",
        f"{p}coarse = tl.floor({p}log2 * 512 + 0.5) / 512",
        f"{p}Gc, {p}Gf = tl.cumsum({p}coarse, 0), tl.cumsum({p}log2 - {p}coarse, 0)",
        f"{p}Hc, {p}Hf = {p}Gc - {p}coarse, {p}Gf - ({p}log2 - {p}coarse)",
        f"{p}Lc, {p}Lf = tl.sum({p}coarse, 0), tl.sum(tl.where(o_c[:, None] == BC - 1, {p}Gf, 0.0), 0)",
    ]
    if signed:
        lines += [
            f"{p}turns = tl.where({p}sign < 0.0, 1.0, 0.0)",
            f"{p}turned_before = _tl_parity(tl.cumsum({p}turns, 0) - {p}turns)",
            f"{p}turned = _tl_parity(tl.cumsum({p}turns, 0))",
            f"{p}turned_through = _tl_parity(tl.sum({p}turns, 0))",
        ]
    return tuple(lines)
