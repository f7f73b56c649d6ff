"""The chunkwise kernels' lines for one decay per token and head under a running maximum of log weights.

Everything that decays has the write's weight in it and is divided by the exponential of the maximum (see the PyTorch form): the rest is as
for a decay alone. Two small kernels find the maximum before and after each chunk, from what each chunk makes of any, and `prepare` finds it
up to every token, for which it takes all pairs of them. The other kernels load these from `w_scales`: a chunk's tokens', the one before the
chunk, and the one after it. So a state is divided by the same number at the end of one chunk and at the start of the next.
"""

from __future__ import annotations

from recgen.codegen.chunk_decay import NAN_STAYS, Lines
from recgen.codegen.scalar_decay import ScalarDecay


class StabilizedDecay(ScalarDecay):
    """One decay per token and head, and one log weight."""

    @property
    def names(self) -> Lines:
        """Operands that describe the decay."""
        return ("log_decay", "log_weight")

    def sums(self) -> Lines:
        """Log decays cumulated as two sums, of multiples of 1/512 and of the rest, in natural units as the maximum is; weights."""
        return (
            f"b_log = tl.maximum(b_log_decay, -511.0, {NAN_STAYS})",
            "b_coarse = tl.floor(b_log * 512 + 0.5) / 512",
            "b_Gc, b_Gf = tl.cumsum(b_coarse, 0), tl.cumsum(b_log - b_coarse, 0)",
            "b_Lc, b_Lf = tl.sum(b_coarse, 0), tl.sum(tl.where(o_c == BC - 1, b_Gf, 0.0), 0)",
            'b_weights = tl.where(m_t, b_log_weight, float("-inf"))  # tokens beyond the last write nothing',
        )

    def measure(self) -> Lines:
        """Finds the maximum up to every token."""
        return (
            *self.sums(),
            "b_scale = tl.load(w_scales + BC)",
            "b_links = (b_Gc[:, None] - b_Gc[None, :]) + (b_Gf[:, None] - b_Gf[None, :]) + b_weights[None, :]",
            'b_maximum = tl.maximum(b_Gc + b_Gf + b_scale, tl.max(tl.where(m_ij, b_links, float("-inf")), 1))',
            "tl.store(w_scales + o_c, b_maximum)",
        )

    def cumulate(self) -> Lines:
        """What the maximum leaves of decays from the chunk's start and to its end."""
        return (
            *self.sums(),
            "b_scale = tl.load(w_scales + BC)",
            "b_maximum = tl.load(w_scales + o_c)",
            "b_last = tl.load(w_scales + BC + 1)",
            "b_from_start = tl.exp((b_scale - b_maximum) + b_Gc + b_Gf)",
            "b_to_end = tl.exp((b_weights - b_last) + (b_Lc - b_Gc) + (b_Lf - b_Gf))",
            "b_through = tl.exp((b_scale - b_last) + b_Lc + b_Lf)",
        )

    def gammas(self) -> Lines:
        """Γ with the weights."""
        differences = "(b_Gc[:, None] - b_Gc[None, :]) + (b_Gf[:, None] - b_Gf[None, :])"
        return (
            f"b_links = (b_weights[None, :] - b_maximum[:, None]) + {differences}",
            f"b_gamma = tl.where(m_ij, tl.exp(tl.minimum(b_links, 0.0, {NAN_STAYS})), 0.0)",
        )

    def totals(self) -> Lines:
        """A chunk's decay and what its own writes make of the maximum, kept where `prepare` puts the tokens' later."""
        return (
            *self.sums(),
            "b_ends = b_weights + (b_Lc - b_Gc) + (b_Lf - b_Gf)",
            "tl.store(w_scales, b_Lc + b_Lf)",
            "tl.store(w_scales + 1, tl.max(b_ends, 0))",
        )
