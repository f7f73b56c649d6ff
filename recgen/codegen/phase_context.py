"""What `templates/triton/phases.py.j2` prints."""

from __future__ import annotations

from dataclasses import dataclass

from recgen.analysis.coupled_form import CoupledForm
from recgen.analysis.normal_form import NormalForm
from recgen.codegen.chunk_kernel_context import DeviceText
from recgen.codegen.phase_kernels import PhaseKernels, by_value_kernels, coupled_kernels
from recgen.compilers import CompilerFault
from recgen.derive.bordered_nodes import Crossing, Kept
from recgen.derive.chunk_ir import ChunkForm, nodes
from recgen.derive.chunk_nodes import Inverse
from recgen.derive.coupled_operands import CoupledOperands
from recgen.derive.operands import OperandSet
from recgen.plan import CoupledPlan, KernelPlan
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
    """Lines of the four kernels and the host's constants.

    `read_sizes`: of the reads on the host; `rows`: what the backward's kernels write, `gradients` those of the operands; `solves`: a system
    for every value channel; `whole`: a program holds the whole value axis.
    """

    title: str
    device: DeviceText
    kernels: PhaseKernels
    count: int
    states: tuple[StateText, ...]
    reads: tuple[str, ...]
    read_sizes: tuple[str, ...]
    rows: tuple[RowText, ...]
    gradients: str
    matrices: int
    columns: int
    solves: bool
    whole: bool
    tiles: tuple[ChunkTiles, ...]
    faults: tuple[CompilerFault, ...]


def phase_context(form: CoupledForm, operands: CoupledOperands, chunk: ChunkForm, plan: CoupledPlan) -> PhaseContext:
    """The context of a coupled form."""
    bounded = all(d.bounded for d in form.decays)
    found = [n for phase in (chunk.prepare, chunk.adjoint_finish) for step in phase for n in nodes(step.value)]
    device = DeviceText(
        split_right=False,
        split_left=False,
        inverse=any(isinstance(n, Inverse) for n in found),
        gammas=any(isinstance(n, Kept) and n.kind == "scalar" for n in found),
        crossing=any(isinstance(n, Crossing) for n in found),
        vector=False,
        halvings=False,
        signed=bool(operands.signs),
        bounded=bounded,
    )
    kernels = coupled_kernels(operands, chunk, bounded=bounded)
    states = tuple(StateText(f"S_{i + 1}", i) for i in range(operands.count))
    return _context(form, device, kernels, states, chunk, plan)


def by_value_context(form: NormalForm, operands: OperandSet, chunk: ChunkForm, plan: KernelPlan) -> PhaseContext:
    """The context of a form that differs by value channel."""
    bounded = form.decay.bounded and form.value_decay.bounded
    device = DeviceText(
        split_right=bool(operands.across),
        split_left=False,
        inverse=False,
        gammas=form.decay.kind == "scalar",
        crossing=form.decay.kind == "scalar",
        vector="vector" in (form.decay.kind, form.value_decay.kind),
        halvings=False,
        signed=bool(operands.signs),
        bounded=bounded,
    )
    kernels = by_value_kernels(operands, chunk, bounded=bounded)
    return _context(form, device, kernels, (StateText("S", 0),), chunk, plan)


def _context(
    form: CoupledForm | NormalForm,
    device: DeviceText,
    kernels: PhaseKernels,
    states: tuple[StateText, ...],
    chunk: ChunkForm,
    plan: CoupledPlan | KernelPlan,
) -> PhaseContext:
    across = isinstance(form, NormalForm) and any(r.across for r in form.reads)
    return PhaseContext(
        title=form.recurrence.name,
        device=device,
        kernels=kernels,
        count=len(states),
        states=states,
        reads=chunk.reads,
        read_sizes=tuple("sizes.keys" if axis == form.key_axis else "sizes.values" for axis in form.read_axes),
        rows=tuple(RowText(name, _SIZES[size]) for name, size in kernels.rows),
        gradients=", ".join(f'made["{kernels.aliases.get(step, step)}"]' for _, step in chunk.gradients) + ",",
        matrices=kernels.matrices,
        columns=kernels.columns,
        solves=isinstance(form, NormalForm),
        whole=across,
        tiles=plan.chunk,
        faults=plan.faults,
    )


_SIZES = {"K": "sizes.keys", "V": "sizes.values", "1": "1"}
