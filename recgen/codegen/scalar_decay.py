"""The chunkwise kernels' lines for one decay per token and head: numbers per token scale the products of undecayed rows."""

from __future__ import annotations

from typing import ClassVar

from recgen.codegen.chunk_decay import NAN_STAYS, Boundary, ChunkDecay, Lines, Rows, Score, summed
from recgen.derive.operands import ReadNames, StreamNames


class ScalarDecay(ChunkDecay):
    """One decay per token and head."""

    gated = True
    links_scores = True
    _STRETCHES: ClassVar = {"start": "b_from_start", "before": "b_from_start_before", "end": "b_to_end"}

    def _exponential(self, exponent: str, sign: str) -> str:
        limited = f"tl.minimum({exponent}, 0.0, {NAN_STAYS})" if self.decay.bounded else exponent
        return f"tl.exp2({limited})" + (f" * {sign}" if self.signed else "")

    def cumulate(self) -> Lines:
        """Cumulated decays as two sums, of multiples of 1/512 and of the rest (see the PyTorch form); the sign as the parity of a count."""
        lines = [
            f"b_log2 = tl.maximum(b_log_decay * 1.4426950408889634, -151.0, {NAN_STAYS})",
            "b_coarse = tl.floor(b_log2 * 512 + 0.5) / 512",
            "b_Gc, b_Gf = tl.cumsum(b_coarse, 0), tl.cumsum(b_log2 - b_coarse, 0)",
            "b_Lc, b_Lf = tl.sum(b_coarse, 0), tl.sum(tl.where(o_c == BC - 1, b_Gf, 0.0), 0)",
        ]
        if self.signed:
            lines += [
                "b_turns = tl.where(b_sign < 0.0, 1.0, 0.0)",
                "b_turned_before = _tl_parity(tl.cumsum(b_turns, 0) - b_turns)",
                "b_turned = _tl_parity(tl.cumsum(b_turns, 0))",
                "b_turned_through = _tl_parity(tl.sum(b_turns, 0))",
            ]
        lines += [
            f"b_from_start = {self._exponential('b_Gc + b_Gf', 'b_turned')}",
            f"b_to_end = {self._exponential('(b_Lc - b_Gc) + (b_Lf - b_Gf)', 'b_turned * b_turned_through')}",
            f"b_through = {self._exponential('b_Lc + b_Lf', 'b_turned_through')}",
        ]
        if self.before:
            lines += [
                "b_Hc, b_Hf = b_Gc - b_coarse, b_Gf - (b_log2 - b_coarse)",
                f"b_from_start_before = {self._exponential('b_Hc + b_Hf', 'b_turned_before')}",
            ]
        return tuple(lines)

    def gammas(self) -> Lines:
        """Γ, and Γ to just before each token where something needs it."""
        lines = ["b_gamma = _tl_gamma(b_Gc, b_Gf, b_Gc, b_Gf, m_ij)"]
        lines += ["b_gamma_before = _tl_gamma(b_Hc, b_Hf, b_Gc, b_Gf, m_before)"] * self.before
        if self.signed:
            lines.append("b_gamma = b_gamma * b_turned[:, None] * b_turned[None, :]")
            lines += ["b_gamma_before = b_gamma_before * b_turned_before[:, None] * b_turned[None, :]"] * self.before
        return tuple(lines)

    def query(self, read: ReadNames) -> Rows:
        """See `ChunkDecay`."""
        return Rows(f"b_{read.query}", self._STRETCHES[read.stretch], self.factors.get(read.query, ""))

    def correct(self, stream: StreamNames) -> Rows:
        """See `ChunkDecay`."""
        return Rows(f"b_{stream.correct}", self._STRETCHES[stream.stretch])

    def write(self, stream: StreamNames) -> Rows:
        """See `ChunkDecay`."""
        return Rows(f"b_{stream.write}", self._STRETCHES["end"])

    def through(self, state: str) -> Lines:
        """See `ChunkDecay`."""
        return (f"{state} = {state} * b_through",)

    def decayed(self, tile: str, stretch: str) -> Lines:
        """See `ChunkDecay`."""
        return (f"{tile} = {tile} * {self._STRETCHES[stretch]}[:, None]",)

    def masked(self, text: str, score: Score) -> str:
        """See `ChunkDecay`."""
        weighted = f"({text}) * {'b_gamma_before' if score.exclusive else 'b_gamma'}{f' * {score.factor}' if score.factor else ''}"
        return f"tl.where(m_before, {weighted}, 0.0)" if score.strict and not score.exclusive else weighted

    def adjoint(self, scores: tuple[Score, ...], boundaries: tuple[Boundary, ...]) -> Lines:
        """The log decay's gradient sums the links that cross each token, never a difference of row and column sums."""
        lines = [
            f"b_{b.gradient} = b_{b.gradient} * {self._STRETCHES[b.stretch]}[:, None]{f' * {b.factor}' if b.factor else ''}"
            for b in boundaries
        ]
        lines.append("b_dg = tl.sum(b_passed, 0) * b_through + tl.zeros((BC,), ACC)")
        for stretch, mask in (("start", "m_ij"), ("before", "m_before"), ("end", "m_after")):
            products = [b.product for b in boundaries if b.stretch == stretch]
            if products:
                added, total = summed("b_border", products)
                lines += [*added, f"b_dg += tl.sum(tl.where({mask}, tl.sum({total}, 1)[:, None], 0.0), 0)"]
        lines += super().adjoint(scores, ())
        for exclusive, mask in ((False, "m_ij"), (True, "m_before")):
            links = [s.scaled(f"b_{s.tag} * b_D_{s.tag}") for s in scores if s.exclusive == exclusive]
            lines += [f"b_links {'+' if i else ''}= {link}" for i, link in enumerate(links)]
            lines += [f"b_dg += _tl_crossing(b_links, {mask}, BC, WIDE)"] * bool(links)
        return (
            *lines,
            "if length > 0:  # always; Triton 3.6 for sm_100 fails at a param's sum over tokens of what no branch parts from a product",
            "    b_dg = tl.where(m_t, b_dg, 0.0)",
        )
