"""The chunk form printed as PyTorch: what `templates/torch/chunk.py.j2` loops over."""

from __future__ import annotations

from dataclasses import dataclass, replace

from recgen.codegen.chunk_states import StatesText
from recgen.codegen.cumulated_decays import decay_lines
from recgen.codegen.joined_states import columns_of_state, state_shape
from recgen.codegen.torch_printer import VALUE_STRETCHES, ChunkPrinter, Line, Links, stretches, through_name
from recgen.derive.bordered_ir import Crossing, Kept, Mixed
from recgen.derive.chunk_ir import (
    INVERTED,
    ChunkForm,
    DecayedProduct,
    Gamma,
    GateGradient,
    Inverse,
    MatMul,
    Node,
    Score,
    ScoreGradients,
    Step,
    Substitution,
    Sum,
    Sym,
    Through,
    needed,
    nodes,
    used_names,
)
from recgen.derive.operands import NamedOperands


@dataclass(frozen=True)
class ChunkContext:
    """Printed steps and the structure that selects helpers."""

    coupled: bool
    decays: bool
    value_decay: bool
    spans: bool
    all_kept: bool
    columns: int
    stabilized: bool
    scale: str
    state: str
    columns_of_state: str
    plural: str
    joined: tuple[str, ...]
    joined_layout: str
    apart: tuple[str, ...]
    signed: bool
    bounded: bool
    exclusive: bool
    gamma: bool
    inverse: bool
    block_inverse: bool
    adds_products: bool
    substitution: bool
    inverted: int
    blocks: bool
    anchored: bool
    score: bool
    decayed_product: bool
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


def build_chunk_context(states: StatesText, operands: NamedOperands, chunk: ChunkForm, rereads: bool) -> ChunkContext:
    """Prints every phase; steps that a phase does not need are left out."""
    finish = chunk.finish
    forward_names = used_names(chunk.scan + finish)
    forward_prepare = needed(chunk.prepare, forward_names)
    adjoint = (*chunk.adjoint_prepare, *chunk.adjoint_scan, *chunk.adjoint_finish)
    backward_prepare = needed(chunk.prepare, used_names(adjoint))
    again = (*needed(chunk.adjoint_prepare, used_names(finish)), *finish)
    reread = (*needed(chunk.prepare, used_names(again)), *again)
    every = (*chunk.prepare, *chunk.scan, *finish, *adjoint)
    found = [n for s in every for n in nodes(s.value)]
    flat = ChunkPrinter(chunk.decay, stabilized=chunk.stabilized)
    forward_scan = _Scan(chunk, chunk.scan, forward_prepare, finish, "S")
    prepared = (*backward_prepare, *chunk.adjoint_prepare)
    backward_scan = _Scan(chunk, chunk.adjoint_scan, prepared, chunk.adjoint_finish, "dS")
    like = operands.operands[0].name
    context = ChunkContext(
        coupled=chunk.states > 1,
        decays=chunk.decay in ("scalar", "vector")
        or chunk.value_decay != "none"
        or _has(found, lambda n: isinstance(n, Kept) and n.kind == "scalar"),
        value_decay=chunk.value_decay != "none",
        spans=chunk.decay in ("scalar", "vector") or chunk.value_decay != "none",
        all_kept=_has(found, lambda n: isinstance(n, Kept) and n.kind == "none"),
        columns=chunk.columns,
        stabilized=chunk.stabilized,
        scale=states.scale,
        state=state_shape(chunk),
        columns_of_state=columns_of_state(chunk),
        plural=states.plural,
        joined=states.joined,
        joined_layout=state_shape(chunk).replace("sizes.keys", "K").replace("sizes.values", "V"),
        apart=states.apart,
        signed=states.signed,
        bounded=states.bounded,
        exclusive=_exclusive(found) or not stretches(every).isdisjoint(("from_start_before", "value_from_start_before")),
        gamma=not chunk.stabilized and _has(found, lambda n: isinstance(n, Gamma) or (isinstance(n, Kept) and n.kind == "scalar")),
        inverse=_has(found, lambda n: isinstance(n, Inverse)),
        block_inverse=_has(found, lambda n: isinstance(n, Inverse) and len(n.blocks) > 1),
        adds_products=False,
        substitution=_has(found, lambda n: isinstance(n, Substitution)),
        inverted=INVERTED,
        blocks=_has(found, lambda n: isinstance(n, Links | Substitution)),
        anchored=_has(found, lambda n: isinstance(n, Links)),
        score=_has(found, lambda n: isinstance(n, Score)),
        decayed_product=_has(found, lambda n: isinstance(n, DecayedProduct)),
        score_gradients=_has(found, lambda n: isinstance(n, ScoreGradients)),
        sum_after=_has(found, lambda n: isinstance(n, ScoreGradients) or (isinstance(n, GateGradient) and bool(n.before))),
        crossing=_has(found, lambda n: isinstance(n, Crossing) or (isinstance(n, GateGradient) and bool(n.links or n.links_before))),
        earlier_rows=_has(found, lambda n: isinstance(n, GateGradient) and bool(n.links_before)),
        operand_names=tuple(o.name for o in operands.operands),
        read_names=chunk.reads,
        reference=like,
        reads=", ".join(chunk.reads),
        read_count=len(chunk.reads),
        gradients=", ".join(name for _, name in chunk.gradients),
        forward_decays=decay_lines(chunk, (*forward_prepare, *chunk.scan, *finish), states.signed),
        forward_memory=forward_scan.memory(like),
        prepare=tuple(flat.line(s) for s in forward_prepare),
        scan=forward_scan.lines("states[i + 1]"),
        finish=tuple(flat.line(s) for s in finish),
        backward_decays=decay_lines(chunk, (*backward_prepare, *adjoint), states.signed),
        backward_memory=backward_scan.memory(like),
        backward_prepare=tuple(flat.line(s) for s in backward_prepare),
        adjoint_prepare=tuple(flat.line(s) for s in chunk.adjoint_prepare),
        adjoint_scan=backward_scan.lines("gradients[i]"),
        adjoint_finish=tuple(flat.line(s) for s in chunk.adjoint_finish),
        rereads=rereads,
        reread_decays=decay_lines(chunk, reread, states.signed),
        reread=tuple(flat.line(s) for s in reread),
        token=states.token,
    )
    lines = (*context.prepare, *context.scan, *context.finish, *context.backward_prepare, *context.adjoint_prepare, *context.adjoint_scan)
    printed = (line.code for line in (*lines, *context.adjoint_finish, *context.reread))
    return replace(context, adds_products=any("_add_product(" in code for code in printed))


def _exclusive(found: list[Node]) -> bool:
    """Whether some links end before their token."""
    return any((isinstance(n, Gamma | Links) or (isinstance(n, Substitution) and n.decays)) and n.exclusive for n in found)


def _has(found: list[Node], wanted: object) -> bool:
    assert callable(wanted)
    return any(wanted(n) for n in found)


class _Scan:
    """One loop over chunks: it carries `state`, keeps every chunk's in `store`, and stacks its other results.

    A stacked result that starts from a prepared one takes over its memory, where nothing else reads that.
    """

    def __init__(self, chunk: ChunkForm, steps: tuple[Step, ...], prepared: tuple[Step, ...], later: tuple[Step, ...], state: str) -> None:
        self.steps, self.state = steps, state
        self.own = [s.name for s in steps if s.name != state]
        names = {n for s in prepared for n in s.names} | {o.name for o in chunk.operands} | set(self.own) | {"through"}
        self.printer = ChunkPrinter(chunk.decay, frozenset(names) | VALUE_STRETCHES, "i")
        self.kept = used_names(later)

    def _base(self, step: Step) -> str:
        """The prepared result whose memory the step's result takes over; "" if there is none."""
        value = step.value
        if not isinstance(value, Sum) or not all(isinstance(t, MatMul) for t in value.terms[1:]):
            return ""
        first = value.terms[0]
        return first.name if isinstance(first, Sym) and first.name not in self.kept else ""

    def memory(self, like: str) -> tuple[str, ...]:
        """Memory for the stacked results, [chunks, B * HV, C, V]."""
        lines = []
        for s in self.steps:
            if s.name != self.state:
                base = self._base(s)
                lines.append(f"{s.name} = {base or f'{like}.new_empty(*{like}.shape[:-1], S.shape[-1])'}")
        return tuple(lines)

    def lines(self, store: str) -> tuple[Line, ...]:
        """The loop's body for chunk i; the state is written into `store`."""
        out = []
        for s in self.steps:
            comment = f"{s.symbol}: {s.meaning}"
            if s.name == self.state:
                out.append(Line(comment, f"{s.name} = {self._carried(s, store)}"))
            elif self._base(s):
                out.append(Line(comment, self.printer.accumulated(f"{s.name}[i]", s.value)))
            else:
                out.append(self.printer.line(s, f"{s.name}[i]"))
        return tuple(out)

    def _carried(self, step: Step, store: str) -> str:
        """The next state, computed where it is kept."""
        assert isinstance(step.value, Sum)
        mixed = next((t for t in step.value.terms if isinstance(t, Mixed)), None)
        if mixed is not None:
            first = f"_mixed({self.printer.factor(mixed.square, mixed.turned)}, {self.state}, {store})"
            return self._added(first, tuple(t for t in step.value.terms if t is not mixed))
        first = f"{store}.copy_({self.state})"
        factors = [f"{through_name(n)}[i]" for t in step.value.terms for n in nodes(t) if isinstance(n, Through)]
        if factors:
            first = f"torch.mul({self.state}, {factors[0]}, out={store})" + "".join(f".mul_({f})" for f in factors[1:])
        return self._added(first, tuple(t for t in step.value.terms if not isinstance(t, Through) and t != Sym(self.state)))

    def _added(self, first: str, rest: tuple[Node, ...]) -> str:
        """What else goes into the next state, added where it is kept."""
        for t in rest:
            first += f".add_({self.printer.text(t)})" if not isinstance(t, MatMul) else ""
        return self.printer.accumulated(first, Sum((Sym(self.state), *(t for t in rest if isinstance(t, MatMul)))))
