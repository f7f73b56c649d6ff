"""What `templates/triton/phases.py.j2` prints."""

from __future__ import annotations

from dataclasses import dataclass

from recgen.analysis.coupled_form import CoupledForm
from recgen.codegen.chunk_kernel_context import DeviceText
from recgen.codegen.phase_kernels import PhaseKernels, coupled_kernels
from recgen.compilers import CompilerFault
from recgen.derive.bordered_nodes import Crossing, Kept
from recgen.derive.chunk_ir import ChunkForm, nodes
from recgen.derive.chunk_nodes import Inverse
from recgen.derive.coupled_operands import CoupledOperands
from recgen.plan import CoupledPlan
from recgen.tiles import ChunkTiles


@dataclass(frozen=True)
class StateText:
    """A state's variables in the kernels, and its place among the states of a chunk."""

    name: str
    place: int


@dataclass(frozen=True)
class RowText:
    """Rows that the backward's kernels write: their name, and their size on the host."""

    name: str
    size: str


@dataclass(frozen=True)
class PhaseContext:
    """Lines of the four kernels and the host's constants; `rows`: what the backward's kernels write, `gradients` those of the operands."""

    title: str
    device: DeviceText
    kernels: PhaseKernels
    count: int
    states: tuple[StateText, ...]
    reads: tuple[str, ...]
    rows: tuple[RowText, ...]
    gradients: str
    matrices: int
    columns: int
    whole: bool
    tiles: tuple[ChunkTiles, ...]
    faults: tuple[CompilerFault, ...]


def phase_context(form: CoupledForm, operands: CoupledOperands, chunk: ChunkForm, plan: CoupledPlan) -> PhaseContext:
    """The context of a coupled form."""
    bounded = all(d.bounded for d in form.decays)
    kernels = coupled_kernels(operands, chunk, bounded=bounded)
    found = [n for phase in (chunk.prepare, chunk.adjoint_finish) for step in phase for n in nodes(step.value)]
    decays = any(isinstance(n, Kept) and n.kind == "scalar" for n in found)
    return PhaseContext(
        title=form.recurrence.name,
        device=DeviceText(
            split_right=False,
            split_left=False,
            inverse=any(isinstance(n, Inverse) for n in found),
            gammas=decays,
            crossing=any(isinstance(n, Crossing) for n in found),
            vector=False,
            signed=bool(operands.signs),
            bounded=bounded,
        ),
        kernels=kernels,
        count=operands.count,
        states=tuple(StateText(f"S_{i + 1}", i) for i in range(operands.count)),
        reads=chunk.reads,
        rows=tuple(RowText(name, _SIZES[size]) for name, size in kernels.rows),
        gradients=", ".join(f'made["{kernels.aliases.get(step, step)}"]' for _, step in chunk.gradients) + ",",
        matrices=kernels.matrices,
        columns=kernels.columns,
        whole=False,
        tiles=plan.chunk,
        faults=plan.faults,
    )


_SIZES = {"K": "sizes.keys", "V": "sizes.values", "1": "1"}
