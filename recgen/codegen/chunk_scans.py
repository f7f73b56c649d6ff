"""The bodies of the prepare kernel and of the two scans.

Further columns come before the tiles that they share rows with: their products are sums of whole tiles, which then need no registers while
those of the state are made.
"""

from __future__ import annotations

from dataclasses import dataclass

from recgen.codegen.chunk_decay import DOT, split_right, wide_dot
from recgen.codegen.chunk_kernels import ChunkKernels
from recgen.codegen.chunk_readout import cotangent_lines, rereads, store_output_lines
from recgen.codegen.chunk_writes import read_column_lines, read_lines, resolve_column_lines, resolve_lines
from recgen.derive.operands import StreamNames


def prepare_lines(k: ChunkKernels) -> tuple[str, ...]:
    """One chunk: scores with their decay, the causal inverse, and with a vector decay the rows at the chunk's borders."""
    strengths = tuple(s.strength for s in k.feedback)
    return (
        *k.operand_lines((*k.key_side, *strengths)),
        *k.decay.measure(),
        *k.decay.gammas(),
        *k.decay.keep(),
        *k.decay.scores((*k.read_scores, *k.found_scores)),
        *_inverse_lines(k),
        *(
            f"tl.store(w_matrices + ({m.slot} * BC + o_c[:, None]) * BC + o_c[None, :], b_{m.name}.to(w_matrices.dtype.element_ty))"
            for m in k.stored
        ),
    )


def _inverse_lines(k: ChunkKernels) -> tuple[str, ...]:
    """(I - L)^-1 as blocks A_kk of correcting streams by streams, one stream bordering those before it."""

    def link(s: StreamNames, r: StreamNames) -> str:
        return k.strength(s, f"b_R{s.tag}{r.tag}")

    def total(name: str, parts: list[str]) -> list[str]:
        return [f"{name} {'+' if i else ''}= {part}" for i, part in enumerate(parts)]

    lines = []
    for n, s in enumerate(k.feedback):
        before = k.feedback[:n]
        for j in before:
            lines += total(f"b_row{s.tag}{j.tag}", [wide_dot(link(s, i), f"b_A_kk{i.tag}{j.tag}") for i in before])
            lines += total(f"b_column{j.tag}{s.tag}", [wide_dot(f"b_A_kk{j.tag}{i.tag}", link(i, s)) for i in before])
        if before:
            lines += total(f"b_own{s.tag}", [link(s, s), *(wide_dot(f"b_row{s.tag}{j.tag}", link(j, s)) for j in before)])
        lines.append(f"b_A_kk{s.tag}{s.tag} = _tl_unit_inverse({f'b_own{s.tag}' if before else link(s, s)}, BC, WIDE)")
        for j in before:
            lines.append(f"b_A_kk{s.tag}{j.tag} = {wide_dot(f'b_A_kk{s.tag}{s.tag}', f'b_row{s.tag}{j.tag}')}")
            lines.append(f"b_A_kk{j.tag}{s.tag} = {wide_dot(f'b_column{j.tag}{s.tag}', f'b_A_kk{s.tag}{s.tag}')}")
        for i in before:
            lines += [f"b_A_kk{i.tag}{j.tag} += {wide_dot(f'b_A_kk{i.tag}{s.tag}', f'b_row{s.tag}{j.tag}')}" for j in before]
    return tuple(lines)


@dataclass(frozen=True)
class ScanLines:
    """One chunk of the scan, the state b_S in registers: `resolve` its writes, `read` and give the outputs, `carry` the state on."""

    resolve: tuple[str, ...]
    read: tuple[str, ...]
    carry: tuple[str, ...]


def scan_lines(k: ChunkKernels) -> ScanLines:
    """The scan's lines."""
    values = tuple(s.value for s in k.operands.streams if s.value)
    reads = (
        *read_column_lines(k, "b_S"),
        *read_lines(k, "b_S"),
        *k.loads(k.readout, tuple(o.name for o in k.form.outputs)),
        *store_output_lines(k),
    )
    carry: list[str] = []
    for i, c in enumerate(k.columns):
        carry += k.decay.through_column(f"b_S_{c}")
        written = ((s, k.column_write(s, i)) for s in k.operands.streams)
        carry += [f"b_S_{c} += {k.decay.write(s).outer_column(x)}" for s, x in written if x]
    carry += [*k.decay.through("b_S"), *(f"b_S += {k.decay.write(s).outer(k.write(s))}" for s in k.operands.streams)]
    resolve = (*k.scan_operands(), *_none_in_identity(k, values), *k.matrices(turned=False), *resolve_column_lines(k, "b_S"))
    return ScanLines((*resolve, *resolve_lines(k, "b_S")), reads, tuple(carry))


def _none_in_identity(k: ChunkKernels, names: tuple[str, ...]) -> tuple[str, ...]:
    """Zeros for the identity's columns, where their mask does not see to it: a square state's columns are masked as keys."""
    if k.form.key_axis != k.form.value_axis:
        return ()
    return ("if SUMMARY:", *(f"    b_{name} = tl.where(m_one, 0.0, b_{name})" for name in dict.fromkeys(names)))


@dataclass(frozen=True)
class ReverseLines:
    """One chunk of the reverse scan, the gradient of the outgoing state b_dS in registers.

    `cotangents`: the gradients of the reads; `carry`: of the right-hand sides, and on to the chunk's start; `writes` stores the former.
    """

    cotangents: tuple[str, ...]
    carry: tuple[str, ...]
    writes: tuple[str, ...]


def reverse_lines(k: ChunkKernels) -> ReverseLines:
    """The reverse scan's lines."""
    cotangents = list(k.scan_operands())
    if rereads(k):
        cotangents.append("b_h = tl.load(w_states + o_s, mask=m_s, other=0.0).to(ACC)")
        cotangents += [f"b_h_{c} = tl.load(w_states_{c} + o_k, mask=m_k, other=0.0).to(ACC)" for c in k.columns]
    again = (*k.matrices(turned=False), *resolve_column_lines(k, "b_h"), *resolve_lines(k, "b_h"))
    again = (*again, *read_column_lines(k, "b_h"), *read_lines(k, "b_h"))
    cotangents += [*cotangent_lines(k, again), *_none_in_identity(k, tuple(f"d_read{r.tag}" for r in k.operands.reads))]
    lines = list(k.matrices(turned=True))
    for i in range(len(k.columns)):
        lines += _reverse_column(k, i)
    for s in k.operands.streams:
        lines.append(f"b_Z{s.tag} = {k.decay.write(s).times('b_dS')}")
        lines += [f"b_Z{s.tag} += {DOT}(b_A_qk{r.tag}{s.tag}, b_d_read{r.tag}, DT, WIDE)" for r in k.operands.ordinary]
    for r in k.operands.across:
        lines += k.decay.scores(k.across_scores(r, f"d_read{r.tag}", ""))
        lines += [f"b_Z{s.tag} += {DOT}(tl.trans(b_A_qe{r.tag}{s.tag}), b_{r.query}, DT, WIDE)" for s in k.operands.streams]
    for s in k.feedback:
        first, *rest = (split_right(f"b_A_kk{r.tag}{s.tag}", f"b_Z{r.tag}") for r in k.feedback)
        lines += [f"b_dX{s.tag} = {first}", *(f"b_dX{s.tag} += {part}" for part in rest)]
    for s in k.feedback:
        lines += [f"b_Z{p.tag} += {DOT}(b_R{s.tag}{p.tag}, {_into_found(k, s)}, DT, WIDE)" for p in k.plain]
    lines += k.decay.through("b_dS")
    lines += [f"b_dS += {k.decay.query(r).outer(f'b_d_read{r.tag}')}" for r in k.operands.ordinary]
    for r in k.operands.across:
        lines += [f"b_d_start{r.tag} = b_d_read{r.tag}", *k.decay.decayed(f"b_d_start{r.tag}", r.stretch)]
        lines.append(f"b_dS += {DOT}(tl.trans(b_d_start{r.tag}), b_{r.query}, DT, WIDE)")
    lines += [f"b_dS += {k.decay.correct(s).outer(_into_found(k, s))}" for s in k.feedback]
    writes = []
    for i, s in enumerate(k.operands.streams):
        gradient = f"b_dX{s.tag}" if s.correct else f"b_Z{s.tag}"
        rows, address = k.write_address(i)
        writes += [*rows, f"tl.store(w_dwrites + {address}, {gradient}.to(w_dwrites.dtype.element_ty), mask=m_tv)"]
        for n, c in enumerate(k.columns):
            if k.column_write(s, n):
                writes.append(f"tl.store(w_dwrites_{c} + {k.column_row(i)} * NV + i_v, {gradient}_{c}, mask=m_t)")
    return ReverseLines(tuple(cotangents), tuple(lines), tuple(writes))


def _reverse_column(k: ChunkKernels, i: int) -> tuple[str, ...]:
    """As the matrix's lines, for a further column; of its gradient what came through this value block."""
    c = k.columns[i]
    lines = []
    for s in k.operands.streams:
        if k.column_write(s, i):
            taken = (f"tl.sum(b_A_qk{r.tag}{s.tag} * b_d_read{r.tag}_{c}[None, :], 1)" for r in k.operands.reads)
            lines.append(f"b_Z{s.tag}_{c} = {' + '.join((k.decay.write(s).times_column(f'b_dS_{c}'), *taken))}")
    for s in k.feedback:
        solved = (f"tl.sum(b_A_kk{r.tag}{s.tag} * b_Z{r.tag}_{c}[None, :], 1)" for r in k.feedback)
        lines.append(f"b_dX{s.tag}_{c} = {' + '.join(solved)}")
    into = {s.tag: f"(b_{s.strength} * b_dX{s.tag}_{c})" if s.strength else f"b_dX{s.tag}_{c}" for s in k.feedback}
    for s in k.feedback:
        lines += [f"b_Z{p.tag}_{c} += tl.sum(b_R{s.tag}{p.tag} * {into[s.tag]}[None, :], 1)" for p in k.plain if p.columns[i]]
    lines += k.decay.through_column(f"b_dS_{c}")
    lines += [f"b_dS_{c} += {k.decay.query(r).outer_column(f'b_d_read{r.tag}_{c}')}" for r in k.operands.reads]
    return (*lines, *(f"b_dS_{c} += {k.decay.correct(s).outer_column(into[s.tag])}" for s in k.feedback))


def _into_found(k: ChunkKernels, s: StreamNames) -> str:
    """The gradient of what a correction found."""
    return f"({k.strength(s, f'b_dX{s.tag}')})" if s.strength else f"b_dX{s.tag}"
