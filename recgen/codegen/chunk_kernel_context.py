"""What `templates/triton/chunk.py.j2` prints."""

from __future__ import annotations

from dataclasses import dataclass

from recgen.analysis.normal_form import NormalForm
from recgen.codegen.chunk_columns import ColumnText, EdgeLines, columns_of, edge_lines, in_order, scale_index
from recgen.codegen.chunk_gradients import GradientLines, GradientPrinter
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
class ChunkKernelContext:
    """Lines of the four kernels and the host's constants."""

    functions: tuple[str, ...]
    numbers: tuple[str, ...]
    unspecialized: str
    once: tuple[str, ...]
    gammas: bool
    crossing: bool
    bounded: bool
    signed: bool
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
    matrix: str
    several: bool
    finals: str
    saved: str
    initial_gradients: str
    initial_columns: str
    final_columns: str
    ones: str
    prepare: tuple[str, ...]
    scan: ScanLines
    reverse: ReverseLines
    lines: GradientLines
    gradients: tuple[GradientName, ...]
    whole: bool
    host_numbers_bound: tuple[str, ...]
    host_numbers: tuple[str, ...]
    other_axes: tuple[str, ...]
    tiles: tuple[ChunkTiles, ...]
    segments: SegmentPlan
    faults: tuple[CompilerFault, ...]


def chunk_kernel_context(form: NormalForm, operands: OperandSet, plan: KernelPlan, shared: tuple[str, ...]) -> ChunkKernelContext:
    """The context; `shared`: function templates that the module already includes."""
    kernels = ChunkKernels(form, operands)
    prepare, scan, reverse = prepare_lines(kernels), scan_lines(kernels), reverse_lines(kernels)
    lines = GradientPrinter(kernels).build()
    numbers = kernels.numbers.found
    axes = tuple(a for a in kernels.printer.axes if a not in (form.key_axis, form.value_axis))
    options = [o.name for o in sorted(form.recurrence.options, key=lambda o: isinstance(o.default, bool))]  # numbers, then flags
    bound = tuple(f"{name} = options[{i}]" for i, name in enumerate(options) if any(name in text for _, text in numbers))
    sizes = dict.fromkeys(x for a in form.recurrence.arguments for x in a.axes)
    bound += tuple(f'_size_{x} = _size_of("{x}", arguments)' for x in sizes if any(f"_size_{x}" in text for _, text in numbers))
    scalars = [f"s_{a.info.name}" for a in kernels.arguments if a.axis is None]
    return ChunkKernelContext(
        functions=tuple(f for f in functions(kernels.printer.functions) if f not in shared),
        numbers=tuple(f"n_{name}: tl.float64" for name, _ in numbers),
        unspecialized=", ".join(f'"{name}"' for name in (*scalars, *(f"n_{name}" for name, _ in numbers))),
        once=tuple(f"c_{name} = tl.full((), n_{name}, ACC)" for name, _ in numbers),
        crossing=form.decay.kind == "scalar",
        gammas=form.decay.kind == "scalar" and form.stabilizer is None,
        bounded=form.decay.bounded,
        signed=form.decay.signed is not None,
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
        saved="states_of[0]" if form.columns else "states",
        finals=in_order(form, "final_state", "final_{name}", "final_scale"),
        initial_gradients=in_order(
            form, "memory.d_initial", "_summed(memory.columns[{number}].d_initial)", f"_no_gradient(initial[{scale_index(form)}])"
        ),
        several=len(form.recurrence.states) > 1,
        initial_columns="".join(f"initial[{c.index}], " for c in columns_of(form)).rstrip(),
        final_columns="".join(f"d_final[{c.index}], " for c in columns_of(form)).rstrip(),
        ones=", ".join("1" for _ in form.columns),
        matrix=str([s.name for s in form.recurrence.states].index(form.state.name)),
        prepare=prepare,
        scan=scan,
        reverse=reverse,
        lines=lines,
        gradients=tuple(GradientName(a.info.name) for a in kernels.arguments),
        whole=form.whole_values,
        host_numbers_bound=bound,
        host_numbers=tuple(f"float({text})" for _, text in numbers),
        other_axes=axes,
        tiles=plan.chunk,
        segments=plan.segments,
        faults=plan.faults,
    )
