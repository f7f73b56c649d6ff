"""The chunkwise kernels' lines for one decay per token, head and key channel.

The rows themselves carry the decay. `prepare` keeps rows decayed to the chunk's borders for the scans, and scores are summed over halvings
of the chunk: in a block of twice 2^l tokens, rows of the later half take the decay since the middle, rows of the earlier half that up to
it. Where a decay is proved to lie in [0, 1], both are products of such numbers: no exponent is positive, and its terms have one sign.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from recgen.codegen.chunk_decay import DOT, NAN_STAYS, Boundary, ChunkDecay, Lines, Rows, Score, summed
from recgen.codegen.triton_printer import INDENT
from recgen.derive.operands import ReadNames, StreamNames


class VectorDecay(ChunkDecay):
    """One decay per token, head and key channel."""

    gated = True
    vector = True
    _MASKS: ClassVar = {"start": "m_ij", "before": "m_before", "end": "m_after"}
    """Row i: the tokens whose decays lie between token i and the border."""
    _CROSSED: ClassVar = {"start": "m_from", "before": "m_after", "end": "m_before"}
    """Row t: the tokens whose links to the border cross token t."""

    @property
    def kept(self) -> Lines:
        """Queries, corrections and writes."""
        queries = [f"query_in{r.tag}" for r in self.operands.ordinary]
        corrections = [f"correct_in{s.tag}" for s in self.operands.streams if s.correct]
        return (*queries, *corrections, *(f"write_end{s.tag}" for s in self.operands.streams))

    def _over(self, mask: str) -> str:
        """The decay over the tokens that a row of the mask names, [C, K]."""
        return f"_tl_decay_over({mask}, b_log2, {'b_turns, ' if self.signed else ''}WIDE)"

    def cumulate(self) -> Lines:
        """Cumulated decays."""
        lines = [f"b_log2 = tl.maximum(b_log_decay * 1.4426950408889634, -151.0, {NAN_STAYS})"]
        lines += ["b_turns = tl.where(b_sign < 0.0, 1.0, 0.0)"] * self.signed
        total = "tl.sum(b_log2, 0)"
        through = f"tl.exp2(tl.minimum({total}, 0.0, {NAN_STAYS}))" if self.decay.bounded else f"tl.exp2({total})"
        return (*lines, f"b_through = {through}{' * _tl_parity(tl.sum(b_turns, 0))' * self.signed}")

    def keep(self) -> Lines:
        """Rows decayed to the borders, by how far their decay goes."""
        lines: list[str] = []
        queries = [(f"query_in{r.tag}", r.query, r.stretch) for r in self.operands.ordinary]
        corrections = [(f"correct_in{s.tag}", s.correct, s.stretch) for s in self.operands.streams if s.correct]
        writes = [(f"write_end{s.tag}", s.write, "end") for s in self.operands.streams]
        for stretch, mask in self._MASKS.items():
            rows = [(name, operand) for name, operand, over in (*queries, *corrections, *writes) if over == stretch]
            lines += [f"b_near = {self._over(mask)}"] * bool(rows)
            for name, operand in rows:
                lines.append(f"tl.store({self._address(name)}, (b_{operand} * b_near).to(w_rows.dtype.element_ty), mask=m_k[None, :])")
        return (*lines, "tl.store(w_through + o_k, b_through, mask=m_k)")

    def _address(self, name: str) -> str:
        return f"w_rows + ({self.kept.index(name)} * BC + o_c[:, None]) * K + o_k[None, :]"

    def load_kept(self, names: Iterable[str]) -> Lines:
        """Loads of kept rows and of the decay through the chunk."""
        loads = [f"b_{n} = tl.load({self._address(n)}, mask=m_k[None, :], other=0.0)" for n in names]
        return (*loads, "b_through = tl.load(w_through + o_k, mask=m_k, other=0.0)")

    def query(self, read: ReadNames) -> Rows:
        """See `ChunkDecay`."""
        return Rows(f"b_query_in{read.tag}")

    def correct(self, stream: StreamNames) -> Rows:
        """See `ChunkDecay`."""
        return Rows(f"b_correct_in{stream.tag}")

    def write(self, stream: StreamNames) -> Rows:
        """See `ChunkDecay`."""
        return Rows(f"b_write_end{stream.tag}")

    def through(self, state: str) -> Lines:
        """See `ChunkDecay`."""
        return (f"{state} = {state} * b_through[:, None]",)

    def _halvings(self, body: Iterable[str]) -> Lines:
        """The loop over the halvings of a chunk, with the decay of every row from or to the middle of its block.

        Unrolled beside reads across: Triton 3.6 makes their gradients kernel wrong with a loop, of float32 products in three tf32 parts.
        """
        head = ["m_link = _tl_near(o_c[:, None], o_c[None, :], i_l)", f"b_near = {self._over('m_link')}"]
        if self.before:
            head += ["m_link_before = m_link & (o_c[:, None] != o_c[None, :])", f"b_near_before = {self._over('m_link_before')}"]
        head.append("m_pair = _tl_pairs(o_c[:, None], o_c[None, :], i_l)")
        levels = "tl.static_range(LEVELS)" if self.operands.across else "range(LEVELS)"
        return (f"for i_l in {levels}:", *(INDENT + line for line in (*head, *body)))

    @staticmethod
    def _near(score: Score) -> str:
        return "b_near_before" if score.exclusive else "b_near"

    def scores(self, scores: tuple[Score, ...]) -> Lines:
        """The diagonal, and a product for every halving."""
        lines, body = [], []
        for s in scores:
            own = "tl.zeros((BC, BC), ACC)" if s.strict else f"tl.where(m_same, tl.sum(b_{s.left} * b_{s.right}, 1)[:, None], 0.0)"
            lines.append(f"b_{s.tag} = {own}")
            product = f"{DOT}(b_{s.left} * {self._near(s)}, tl.trans(b_{s.right} * b_near), tl.float32, WIDE)"
            body.append(f"b_{s.tag} += tl.where(m_pair, {product}, 0.0)")
        return (*lines, *self._halvings(body))

    def decayed(self, tile: str, stretch: str) -> Lines:
        """See `ChunkDecay`."""
        return (f"{tile} = {tile} * {self._over(self._MASKS[stretch])}",)

    def products(self, scores: tuple[Score, ...]) -> Lines:
        """See `ChunkDecay`."""
        lines, body = [], []
        for s in scores:
            if not s.strict:
                lines.append(f"b_{s.left_gradient} += tl.sum(tl.where(m_same, b_D_{s.tag}, 0.0), 1)[:, None] * b_{s.right}")
            product = f"{DOT}(tl.where(m_pair, b_D_{s.tag}, 0.0), b_{s.right} * b_near, tl.float32, WIDE)"
            body.append(f"b_{s.left_gradient} += {product} * {self._near(s)}")
        return (*lines, *self._halvings(body))

    def adjoint(self, scores: tuple[Score, ...], boundaries: tuple[Boundary, ...]) -> Lines:
        """Every halving's links cross the tokens between the middle of the block and the row: the transpose of the exponents' sums."""
        lines = ["b_dg = (b_passed * b_through)[None, :] + tl.zeros((BC, BK), ACC)"]
        for stretch, mask in self._MASKS.items():
            chosen = [b for b in boundaries if b.stretch == stretch]
            lines += [f"b_near = {self._over(mask)}"] * bool(chosen)
            lines += [f"b_{b.gradient} = b_{b.gradient} * b_near" for b in chosen]
            if chosen:
                added, total = summed("b_border", [b.product for b in chosen])
                lines += [*added, f"b_dg += _tl_sums({self._CROSSED[stretch]}, {total}, WIDE)"]
        for s in scores:
            if not s.strict:
                lines.append(f"b_diagonal = tl.sum(tl.where(m_same, b_D_{s.tag}, 0.0), 1)[:, None]")
                lines.append(f"b_{s.left_gradient} += b_diagonal * b_{s.right}")
                lines.append(f"b_{s.right_gradient} += {s.scaled(f'b_diagonal * b_{s.left}')}")
        lines += self._halvings(self._score_gradients(scores))
        return (*lines, "b_dg = tl.where(m_tk, b_dg, 0.0)")

    def _score_gradients(self, scores: tuple[Score, ...]) -> Lines:
        body = ["b_crossing = tl.zeros((BC, BK), ACC)"]
        body += ["b_crossing_before = tl.zeros((BC, BK), ACC)"] * self.before
        for s in scores:
            near, crossing = self._near(s), "b_crossing_before" if s.exclusive else "b_crossing"
            body.append(f"b_P_{s.tag} = tl.where(m_pair, b_D_{s.tag}, 0.0)")
            body += [f"b_cP_{s.tag} = {s.scaled(f'b_P_{s.tag}')}"] * bool(s.strength)
            body.append(f"b_part = {DOT}(b_P_{s.tag}, b_{s.right} * b_near, tl.float32, WIDE) * {near}")
            body += [f"b_{s.left_gradient} += b_part", f"{crossing} += {s.scaled(f'b_{s.left}')} * b_part"]
            body.append(f"b_part = {DOT}(tl.trans({s.to_right}), b_{s.left} * {near}, tl.float32, WIDE) * b_near")
            body += [f"b_{s.right_gradient} += b_part", f"b_crossing += b_{s.right} * b_part"]
        body += ["m_crossed = _tl_near(o_c[None, :], o_c[:, None], i_l)", "b_dg += _tl_sums(m_crossed, b_crossing, WIDE)"]
        body += ["b_dg += _tl_sums(m_crossed & (o_c[:, None] != o_c[None, :]), b_crossing_before, WIDE)"] * self.before
        return tuple(body)
