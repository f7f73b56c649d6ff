"""Names that the chunkwise Triton kernels use for themselves."""

from __future__ import annotations

from recgen.derive.operands import OperandSet

_ALONE = (
    "S dS h dh dg passed through log2 coarse out links gamma gamma_before Gc Gf Hc Hf Lc Lf from_start from_start_before to_end "
    "scale log weights last maximum ends dl turns turned turned_before turned_through near near_before diagonal part crossing "
    "crossing_before border"
)
_PER_READ = "read d_read dq query_in"
_PER_READ_ACROSS = "across d_across d_start"
_PER_STREAM = "E Z X dX dE dw da write_end correct_in own"


def internal_names(operands: OperandSet, columns: tuple[str, ...]) -> frozenset[str]:
    """Names that the kernels use for themselves, without their b_; those of further columns have the states' names behind them."""
    reads, streams = [r.tag for r in operands.reads], [s.tag for s in operands.streams]
    names = {name for name, _ in operands.terms} | set(_ALONE.split())
    names |= {f"{x}{t}" for x in _PER_READ.split() for t in reads} | {f"{x}{t}" for x in _PER_STREAM.split() for t in streams}
    names |= {f"{x}_{c}" for x in names for c in columns}
    pairs = {f"A_qk{r}{t}" for r in reads for t in streams} | {
        f"{x}{s}{t}" for x in ("R", "A_kk", "row", "column") for s in streams for t in streams
    }
    names |= {f"{x}{r.tag}" for x in _PER_READ_ACROSS.split() for r in operands.across}
    pairs |= {f"A_qe{r.tag}{t}" for r in operands.across for t in streams}
    return frozenset(names | {f"{x}{p}" for x in ("", "D_", "P_", "cP_") for p in pairs})
