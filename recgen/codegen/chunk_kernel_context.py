"""What `templates/triton/chunk.py.j2` prints."""

from __future__ import annotations

from dataclasses import dataclass

from recgen.analysis.normal_form import NormalForm
from recgen.codegen.chunk_columns import ColumnText, EdgeLines, columns_of, edge_lines, scale_index
from recgen.codegen.chunk_gradients import GradientLines, GradientPrinter
from recgen.codegen.chunk_host import HostStates, KernelNumbers, host_states, kernel_numbers
from recgen.codegen.chunk_kernels import ChunkKernels
from recgen.codegen.chunk_scans import ReverseLines, ScanLines, prepare_lines, reverse_lines, scan_lines
from recgen.codegen.triton_printer import functions
from recgen.compilers import CompilerFault
from recgen.derive.operands import OperandSet
from recgen.plan import KernelPlan, SegmentPlan
from recgen.tiles import ChunkTiles


@dataclass(frozen=True)
class GradientName:
    """An argument whose gradient a kernel writes."""

    name: str


@dataclass(frozen=True)
class ScaleText:
    """The running maximum: its number among the declared states, the lines that say what a chunk makes of it, and what the host adds.

    `launch`: its kernels where there are chunks, `alone` where there are none. All "" without one.
    """

    index: str
    lines: tuple[str, ...]
    memory: str
    launch: str
    alone: str
    given: str


def _scale_text(form: NormalForm, kernels: ChunkKernels) -> ScaleText:
    if form.stabilizer is None:
        return ScaleText("", (), "", "", "", "")
    lines = (*kernels.operand_lines(kernels.decay.names), *kernels.decay.totals())
    memory = ", like.new_empty(plan.slots, sizes.heads, plan.chunk + 2, dtype=torch.float32, device=device)"
    return ScaleText(scale_index(form), lines, memory, "totals, scales, ", "scales,", ", *scales")


@dataclass(frozen=True)
class DeviceText:
    """Which functions the kernels call, and of the decays whether they differ by channel, may be negative, and forget always."""

    split_right: bool
    split_left: bool
    inverse: bool
    gammas: bool
    crossing: bool
    vector: bool
    halvings: bool
    signed: bool
    bounded: bool


@dataclass(frozen=True)
class ChunkKernelContext:
    """Lines of the four kernels and the host's constants."""

    title: str
    device: DeviceText
    functions: tuple[str, ...]
    numbers: KernelNumbers
    states: HostStates
    vector: bool
    corrects: bool
    keeps_float32: bool
    matrix_dtype: str
    passing: bool
    matrices: int
    rows: int
    streams: int
    stabilized: bool
    wide_writes: bool
    scale: ScaleText
    columns: tuple[ColumnText, ...]
    edges: EdgeLines
    prepare: tuple[str, ...]
    scan: ScanLines
    reverse: ReverseLines
    lines: GradientLines
    gradients: tuple[GradientName, ...]
    whole: bool
    other_axes: tuple[str, ...]
    tiles: tuple[ChunkTiles, ...]
    segments: SegmentPlan
    faults: tuple[CompilerFault, ...]


def _device_text(form: NormalForm, kernels: ChunkKernels) -> DeviceText:
    return DeviceText(
        split_right=form.feedback or kernels.keeps_float32,
        split_left=not form.feedback,
        inverse=form.feedback,
        gammas=form.decay.kind == "scalar" and form.stabilizer is None,
        crossing=form.decay.kind == "scalar",
        vector=kernels.decay.vector,
        halvings=kernels.decay.vector,
        signed=form.decay.signed is not None,
        bounded=form.decay.bounded,
    )


def chunk_kernel_context(form: NormalForm, operands: OperandSet, plan: KernelPlan, shared: tuple[str, ...]) -> ChunkKernelContext:
    """The context; `shared`: function templates that the module already includes."""
    kernels = ChunkKernels(form, operands)
    prepare, scan, reverse = prepare_lines(kernels), scan_lines(kernels), reverse_lines(kernels)
    lines = GradientPrinter(kernels).build()
    numbers = kernel_numbers(form, kernels)
    axes = tuple(a for a in kernels.printer.axes if a not in (form.key_axis, form.value_axis))
    return ChunkKernelContext(
        title=form.recurrence.name,
        device=_device_text(form, kernels),
        functions=tuple(f for f in functions(kernels.printer.functions) if f not in shared),
        numbers=numbers,
        states=host_states(form),
        vector=kernels.decay.vector,
        corrects=form.feedback,
        keeps_float32=kernels.keeps_float32,
        matrix_dtype=", dtype=torch.float32" if kernels.keeps_matrices else "",
        passing=kernels.decay.gated and not form.feedback,
        matrices=len(kernels.stored),
        rows=len(kernels.decay.kept),
        streams=len(operands.streams),
        stabilized=operands.stabilized,
        wide_writes=form.feedback or operands.stabilized,
        scale=_scale_text(form, kernels),
        columns=columns_of(form),
        edges=edge_lines(columns_of(form), form.feedback),
        prepare=prepare,
        scan=scan,
        reverse=reverse,
        lines=lines,
        gradients=tuple(GradientName(a.info.name) for a in kernels.arguments),
        whole=form.whole_values,
        other_axes=axes,
        tiles=plan.chunk,
        segments=plan.segments,
        faults=plan.faults,
    )
