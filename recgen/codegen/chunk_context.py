"""The chunk form printed as PyTorch: what `templates/torch/chunk.py.j2` loops over."""

from __future__ import annotations

from dataclasses import dataclass

from recgen.codegen.chunk_helpers import ChunkHelpers, chunk_helpers
from recgen.codegen.chunk_loops import ChunkLoop
from recgen.codegen.chunk_states import StatesText
from recgen.codegen.cumulated_decays import decay_lines
from recgen.codegen.joined_states import columns_of_state, state_shape
from recgen.codegen.torch_printer import ChunkPrinter, Line
from recgen.derive.chunk_ir import ChunkForm, Step, needed, used_names
from recgen.derive.chunk_nodes import INVERTED
from recgen.derive.operands import NamedOperands


@dataclass(frozen=True)
class ChunkPhases:
    """The chunk form, its adjoint, or the reads once more: cumulated decays, steps before the loop, memory for it, the loop, the rest.

    Where there is no loop, all steps are in `finish`.
    """

    decays: tuple[str, ...]
    prepare: tuple[Line, ...]
    memory: tuple[str, ...]
    scan: tuple[Line, ...]
    finish: tuple[Line, ...]

    @property
    def lines(self) -> tuple[Line, ...]:
        """All steps."""
        return (*self.prepare, *self.scan, *self.finish)


@dataclass(frozen=True)
class ChunkContext:
    """Printed steps and the structure that selects what is around them."""

    coupled: bool
    value_decay: bool
    stabilized: bool
    state: str
    columns_of_state: str
    kept: str
    joined_layout: str
    inverted: int
    operand_names: tuple[str, ...]
    read_names: tuple[str, ...]
    reference: str
    reads: str
    read_count: int
    gradients: str
    rereads: bool
    states: StatesText
    helpers: ChunkHelpers
    forward: ChunkPhases
    backward: ChunkPhases
    again: ChunkPhases


def build_chunk_context(states: StatesText, operands: NamedOperands, chunk: ChunkForm, rereads: bool) -> ChunkContext:
    """Prints every phase; steps that a phase does not need are left out."""
    reference = operands.operands[0].name
    forward = _forward(chunk, reference, states.signed)
    backward = _backward(chunk, reference, states.signed)
    again = _reads_again(chunk, states.signed)
    return ChunkContext(
        coupled=chunk.states > 1,
        value_decay=chunk.value_decay != "none",
        stabilized=chunk.stabilized,
        state=state_shape(chunk),
        columns_of_state=columns_of_state(chunk),
        kept=state_shape(chunk) if chunk.states > 1 else f"sizes.keys, {columns_of_state(chunk)}",
        joined_layout=state_shape(chunk).replace("sizes.keys", "K").replace("sizes.values", "V"),
        inverted=INVERTED,
        operand_names=tuple(o.name for o in operands.operands),
        read_names=chunk.reads,
        reference=reference,
        reads=", ".join(chunk.reads),
        read_count=len(chunk.reads),
        gradients=", ".join(name for _, name in chunk.gradients),
        rereads=rereads,
        states=states,
        helpers=chunk_helpers(chunk, (*forward.lines, *backward.lines, *again.lines)),
        forward=forward,
        backward=backward,
        again=again,
    )


def _forward(chunk: ChunkForm, reference: str, signed: bool) -> ChunkPhases:
    """The chunk form."""
    prepare = needed(chunk.prepare, used_names(chunk.scan + chunk.finish))
    loop = ChunkLoop(chunk, chunk.scan, prepare, chunk.finish, "S")
    return ChunkPhases(
        decays=decay_lines(chunk, (*prepare, *chunk.scan, *chunk.finish), signed),
        prepare=_lines(chunk, prepare),
        memory=loop.memory(reference),
        scan=loop.lines("states[i + 1]"),
        finish=_lines(chunk, chunk.finish),
    )


def _backward(chunk: ChunkForm, reference: str, signed: bool) -> ChunkPhases:
    """The adjoint, after what it needs of the chunk form."""
    adjoint = (*chunk.adjoint_prepare, *chunk.adjoint_scan, *chunk.adjoint_finish)
    before = needed(chunk.prepare, used_names(adjoint))
    prepare = (*before, *chunk.adjoint_prepare)
    loop = ChunkLoop(chunk, chunk.adjoint_scan, prepare, chunk.adjoint_finish, "dS")
    return ChunkPhases(
        decays=decay_lines(chunk, (*before, *adjoint), signed),
        prepare=_lines(chunk, prepare),
        memory=loop.memory(reference),
        scan=loop.lines("gradients[i]"),
        finish=_lines(chunk, chunk.adjoint_finish),
    )


def _reads_again(chunk: ChunkForm, signed: bool) -> ChunkPhases:
    """What was read, from the states before each chunk."""
    steps = (*needed(chunk.adjoint_prepare, used_names(chunk.finish)), *chunk.finish)
    steps = (*needed(chunk.prepare, used_names(steps)), *steps)
    return ChunkPhases(decay_lines(chunk, steps, signed), (), (), (), _lines(chunk, steps))


def _lines(chunk: ChunkForm, steps: tuple[Step, ...]) -> tuple[Line, ...]:
    printer = ChunkPrinter(chunk.decay, stabilized=chunk.stabilized)
    return tuple(printer.line(s) for s in steps)
