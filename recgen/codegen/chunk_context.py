"""The chunk form printed as PyTorch: what `templates/torch/chunk.py.j2` loops over."""

from __future__ import annotations

from dataclasses import dataclass

from recgen.analysis.normal_form import NormalForm
from recgen.codegen.torch_printer import ChunkPrinter, Line, stretches
from recgen.derive.chunk_ir import ChunkForm, Gamma, GateGradient, Inverse, Node, Score, ScoreGradients, Step, needed, nodes, used_names
from recgen.derive.operands import OperandSet


@dataclass(frozen=True)
class ChunkContext:
    """Printed steps and the structure that selects helpers."""

    decays: bool
    exclusive: bool
    gamma: bool
    inverse: bool
    block_inverse: bool
    score: bool
    score_gradients: bool
    sum_after: bool
    crossing: bool
    earlier_rows: bool
    operand_names: tuple[str, ...]
    read_names: tuple[str, ...]
    reference: str
    reads: str
    read_count: int
    gradients: str
    forward_decays: tuple[str, ...]
    forward_memory: tuple[str, ...]
    prepare: tuple[Line, ...]
    scan: tuple[Line, ...]
    finish: tuple[Line, ...]
    backward_decays: tuple[str, ...]
    backward_memory: tuple[str, ...]
    backward_prepare: tuple[Line, ...]
    adjoint_prepare: tuple[Line, ...]
    adjoint_scan: tuple[Line, ...]
    adjoint_finish: tuple[Line, ...]
    rereads: bool
    reread_decays: tuple[str, ...]
    reread: tuple[Line, ...]
    token: tuple[Line, ...]


def build_chunk_context(form: NormalForm, operands: OperandSet, chunk: ChunkForm, rereads: bool) -> ChunkContext:
    """Prints every phase; steps that a phase does not need are left out."""
    finish = chunk.finish
    forward_names = used_names(chunk.scan + finish)
    forward_prepare = needed(chunk.prepare, forward_names)
    adjoint = (*chunk.adjoint_prepare, *chunk.adjoint_scan, *chunk.adjoint_finish)
    backward_prepare = needed(chunk.prepare, used_names(adjoint))
    again = (*(s for s in chunk.adjoint_prepare if s.name.startswith("E")), *finish)
    reread = (*needed(chunk.prepare, used_names(again)), *again)
    every = (*chunk.prepare, *chunk.scan, *finish, *adjoint)
    found = [n for s in every for n in nodes(s.value)]
    flat = ChunkPrinter(chunk.decay)
    printed = _Scans(form, operands, chunk, forward_prepare, backward_prepare)
    return ChunkContext(
        decays=chunk.decay != "none",
        exclusive=_has(found, lambda n: isinstance(n, Gamma | Score | ScoreGradients) and n.exclusive) or "from_start_before" in stretches(every),
        gamma=_has(found, lambda n: isinstance(n, Gamma)),
        inverse=_has(found, lambda n: isinstance(n, Inverse)),
        block_inverse=_has(found, lambda n: isinstance(n, Inverse) and len(n.blocks) > 1),
        score=_has(found, lambda n: isinstance(n, Score)),
        score_gradients=_has(found, lambda n: isinstance(n, ScoreGradients)),
        sum_after=_has(found, lambda n: isinstance(n, ScoreGradients) or (isinstance(n, GateGradient) and bool(n.before))),
        crossing=_has(found, lambda n: isinstance(n, GateGradient) and bool(n.links or n.links_before)),
        earlier_rows=_has(found, lambda n: isinstance(n, GateGradient) and bool(n.links_before)),
        operand_names=tuple(o.name for o in operands.operands),
        read_names=chunk.reads,
        reference=operands.operands[0].name,
        reads=", ".join(chunk.reads),
        read_count=len(chunk.reads),
        gradients=", ".join(name for _, name in chunk.gradients),
        forward_decays=decay_lines((*forward_prepare, *chunk.scan, *finish)),
        forward_memory=printed.memory(chunk.scan, "S"),
        prepare=tuple(flat.line(s) for s in forward_prepare),
        scan=printed.scan(chunk.scan, forward_prepare, "S"),
        finish=tuple(flat.line(s) for s in finish),
        backward_decays=decay_lines((*backward_prepare, *adjoint)),
        backward_memory=("gradients = torch.empty_like(S)", *printed.memory(chunk.adjoint_scan, "dS")),
        backward_prepare=tuple(flat.line(s) for s in backward_prepare),
        adjoint_prepare=tuple(flat.line(s) for s in chunk.adjoint_prepare),
        adjoint_scan=printed.scan(chunk.adjoint_scan, (*backward_prepare, *chunk.adjoint_prepare), "dS"),
        adjoint_finish=tuple(flat.line(s) for s in chunk.adjoint_finish),
        rereads=rereads,
        reread_decays=decay_lines(reread),
        reread=tuple(flat.line(s) for s in reread),
        token=_token(form, operands),
    )


def _has(found: list[Node], wanted: object) -> bool:
    assert callable(wanted)
    return any(wanted(n) for n in found)


def decay_lines(steps: tuple[Step, ...]) -> tuple[str, ...]:
    """The cumulated decays that the steps use."""
    used = stretches(steps)
    uses_sums = bool(used) or any(isinstance(n, Gamma | Score | ScoreGradients) for s in steps for n in nodes(s.value))
    lines = ["cumulated = _cumulate(log_decay)"] if uses_sums else []
    if "before" in used or "from_start_before" in used:
        lines.append("before = _exclude(cumulated)")
    if used & {"from_start", "through"}:
        lines.append("from_start = _decay_between(cumulated, _zero_sums(cumulated))")
    if "from_start_before" in used:
        lines.append("from_start_before = _decay_between(before, _zero_sums(cumulated))")
    if "to_end" in used:
        lines.append("to_end = _decay_between(_at(cumulated, slice(-1, None)), cumulated)")
    if "through" in used:
        lines.append("through = from_start[..., -1:, :].mT")
    return tuple(lines)


class _Scans:
    """The loops over chunks: results of every chunk but the state itself are stacked."""

    def __init__(
        self, form: NormalForm, operands: OperandSet, chunk: ChunkForm, forward: tuple[Step, ...], backward: tuple[Step, ...]
    ) -> None:
        self.operands = operands
        self.decay = chunk.decay

    def memory(self, steps: tuple[Step, ...], state: str) -> tuple[str, ...]:
        """Memory for the stacked results, [chunks, B * HV, C, V]."""
        like = self.operands.operands[0].name
        return tuple(f"{s.name} = {like}.new_empty(*{like}.shape[:-1], S.shape[-1])" for s in steps if s.name != state)

    def scan(self, steps: tuple[Step, ...], prepared: tuple[Step, ...], state: str) -> tuple[Line, ...]:
        """The loop's body for chunk i."""
        own = [s.name for s in steps if s.name != state]
        stacked = {n for s in prepared for n in s.names} | {o.name for o in self.operands.operands} | set(own) | {"through", "S", "dS"} - {state}
        printer = ChunkPrinter(self.decay, frozenset(stacked), "i")
        return tuple(printer.line(s, f"{s.name}[i]" if s.name in own else s.name) for s in steps)


def _token(form: NormalForm, operands: OperandSet) -> tuple[Line, ...]:
    """The recurrent form of one token, operands as rows."""
    lines = []
    before = {read.tag: read for read in operands.reads if read.lag == 1}
    lines += [Line("reads before the write: S_{t-1}^T q", f"read{tag} = {read.query} @ S") for tag, read in before.items()]
    decayed = "S"
    if form.decay.kind != "none":
        lines.append(Line("the state forgets", "D = S * torch.exp(log_decay).mT"))
        decayed = "D"
    for s in operands.streams:
        if not s.correct:
            continue
        found = f"({s.correct} @ {decayed if s.decayed else 'S'})"
        answer = f"{s.strength} * {found}" if s.strength else found
        lines.append(Line("what is written: X + c S^T a", f"E{s.tag} = {s.value} + {answer}" if s.value else f"E{s.tag} = {answer}"))
    writes = [f"{s.write}.mT * {f'E{s.tag}' if s.correct else s.value}" for s in operands.streams]
    lines.append(Line("the new state: decay, then write w E^T", f"S = {decayed} + {' + '.join(writes)}"))
    lines += [Line("reads after the write: S_t^T q", f"read{r.tag} = {r.query} @ S") for r in operands.reads if r.lag == 0]
    return tuple(lines)
