"""What the chunkwise Triton kernels write and read in a chunk, from the state before it."""

from __future__ import annotations

from dataclasses import replace

from recgen.codegen.chunk_decay import DOT, Rows, split_left
from recgen.codegen.chunk_kernels import ChunkKernels
from recgen.derive.operands import ReadNames


def resolve_lines(k: ChunkKernels, state: str) -> tuple[str, ...]:
    """The resolved writes E of the correcting streams from the incoming state."""
    lines = []
    for s in k.feedback:
        lines.append(f"b_X{s.tag} = {k.decay.correct(s).times(state)}")
        lines += [f"b_X{s.tag} += {DOT}(b_R{s.tag}{p.tag}, b_{p.value}, DT, WIDE)" for p in k.plain]
        found = k.strength(s, f"b_X{s.tag}")
        if s.value or s.strength:
            lines.append(f"b_X{s.tag} = {f'b_{s.value} + ' if s.value else ''}{found}")
    for s in k.feedback:
        first, *rest = (f"{DOT}(b_A_kk{s.tag}{r.tag}, b_X{r.tag}, DT, WIDE)" for r in k.feedback)
        lines += [f"b_E{s.tag} = {first}", *(f"b_E{s.tag} += {part}" for part in rest)]
    return tuple(lines)


def read_lines(k: ChunkKernels, state: str) -> tuple[str, ...]:
    """What the queries read."""
    lines: list[str] = []
    for r in k.operands.reads:
        if r.across:
            lines += _read_across(k, r, state)
            continue
        lines.append(f"b_read{r.tag} = {k.decay.query(r).times(state, split=k.keeps_float32)}")
        lines += [f"b_read{r.tag} += {_taken(k, f'b_A_qk{r.tag}{s.tag}', k.write(s))}" for s in k.operands.streams]
    return tuple(lines)


def _taken(k: ChunkKernels, scores: str, writes: str) -> str:
    """scores @ writes; plain writes are inputs, which half precision holds, so that it is for the scores to be as exact."""
    return f"{DOT}({scores}, {writes}, DT, WIDE)" if k.form.feedback else split_left(scores, writes)


def _read_across(k: ChunkKernels, r: ReadNames, state: str) -> tuple[str, ...]:
    """What a query across reads, [C, K]."""
    found = Rows(f"b_{r.query}").times(f"tl.trans({state})", split=k.keeps_float32)
    lines = [f"b_read{r.tag} = {found}", *k.decay.decayed(f"b_read{r.tag}", r.stretch)]
    weights = (f"{DOT}(b_{r.query}, tl.trans({k.write(s)}), DT, WIDE)" for s in k.operands.streams)
    scores = tuple(replace(s, tag=f"read{s.tag}") for s in k.across_scores(r, f"d_read{r.tag}", f"read{r.tag}"))
    lines += [f"b_D_{s.tag} = {w}" for s, w in zip(scores, weights, strict=True)]
    return (*lines, *k.decay.products(scores))


def resolve_column_lines(k: ChunkKernels, state: str) -> tuple[str, ...]:
    """As `resolve_lines`, of every further column; their states are named `state`, an underline, and theirs."""
    lines = []
    for i, c in enumerate(k.columns):
        for s in k.feedback:
            found = k.decay.correct(s).times_column(f"{state}_{c}")
            parts = [found, *(f"tl.sum(b_R{s.tag}{p.tag} * b_{p.columns[i]}[None, :], 1)" for p in k.plain if p.columns[i])]
            value = f"b_{s.columns[i]} + " if s.columns[i] else ""
            strength = f"b_{s.strength} * " if s.strength else ""
            lines.append(f"b_X{s.tag}_{c} = {value}{strength}({' + '.join(parts)})")
        for s in k.feedback:
            solved = (f"tl.sum(b_A_kk{s.tag}{r.tag} * b_X{r.tag}_{c}[None, :], 1)" for r in k.feedback)
            lines.append(f"b_E{s.tag}_{c} = {' + '.join(solved)}")
    return tuple(lines)


def read_column_lines(k: ChunkKernels, state: str) -> tuple[str, ...]:
    """As `read_lines`, of every further column."""
    lines = []
    for i, c in enumerate(k.columns):
        for r in k.operands.reads:
            written = ((s, k.column_write(s, i)) for s in k.operands.streams)
            taken = (f"tl.sum(b_A_qk{r.tag}{s.tag} * {x}[None, :], 1)" for s, x in written if x)
            lines.append(f"b_read{r.tag}_{c} = {' + '.join((k.decay.query(r).times_column(f'{state}_{c}'), *taken))}")
    return tuple(lines)
