"""The stage plan: which form runs where, what is saved and what computed again, and what a token of a head costs."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from recgen.analysis.normal_form import NormalForm
from recgen.codegen.emit import GeneratedModule
from recgen.compilers import CompilerFault
from recgen.derive.chunk_ir import ChunkForm
from recgen.explaining.chunk import operand_letter
from recgen.explaining.cost import Polynomial, backward_flops, forward_flops, monomial, recomputed, total
from recgen.explaining.document import Block, Items, Paragraph, Stage, Table
from recgen.plan import MOST_TOKENS, KernelPlan
from recgen.tiles import ChunkTiles

CHUNKS = (16, 32, 64)
"""The chunk sizes offered."""

COST_CHUNK, COST_SIZE = 64, 128
"""The sizes that costs are given for."""
_BF16, _FLOAT = 2, 4
PHASED = (
    "chunkwise kernels: printed from the steps of the chunk form; PyTorch computes the operands that they take and the outputs from what "
    "they read, in float32; sequences are taken whole; float32 products in three parts, tf32 or bfloat16; of their tiles the first row "
    "that fits is used"
)
"""What is to be said of kernels that are printed from steps."""


def explain_plan(form: NormalForm, chunk: ChunkForm, plan: KernelPlan, module: GeneratedModule) -> Stage:
    """Forms by device, memory, costs."""
    offered = forms(module)
    again = tuple(dict.fromkeys(s.symbol for s in recomputed(chunk)))
    columns = f"({form.value_axis} + {len(form.columns)})" if form.columns else form.value_axis
    saved = f"the state before each chunk, {_FLOAT} {form.key_axis} {columns} bytes in float32, when a gradient is wanted; nothing else"
    costs = _costs(form, chunk)
    rows = tuple((name, p.text(form.key_axis, form.value_axis), f"{p.at(COST_CHUNK, COST_SIZE, COST_SIZE):,.0f}") for name, p in costs)
    sizes = f"{form.key_axis} = {form.value_axis} = {COST_SIZE}, C = {COST_CHUNK}"
    blocks = (
        Table(("form", "float32, bfloat16, float16 on a GPU", "elsewhere, and float64"), offered),
        Items(
            (
                _chunks(plan),
                f"saved for the backward: {saved}",
                f"computed again in the backward: {', '.join(again) if again else 'nothing'}",
                "PyTorch computes in float32 (float64 for float64 inputs); kernels multiply in the inputs' precision and add up in float32",
            )
        ),
        *_kernels(plan),
        Paragraph(
            "Per token and value head, with inputs in bfloat16 (an input that a group of heads shares counted for each); FLOPs of products "
            f"and solves; the last column for {sizes}:"
        ),
        Table(("cost", "formula", "value"), rows),
    )
    data: dict[str, Any] = {
        "forms": [{"form": n, "gpu": gpu, "elsewhere": other} for n, gpu, other in offered],
        "chunk_sizes": list(CHUNKS),
        "kernels": asdict(plan),
        "saved": saved,
        "recomputed": list(again),
        "operands": [operand_letter(chunk, o.name) for o in chunk.operands],
        "costs": costs_data(form.key_axis, form.value_axis, costs),
        "costs_for": {form.key_axis: COST_SIZE, form.value_axis: COST_SIZE, "C": COST_CHUNK},
    }
    return Stage("plan", "where it runs and what it costs", blocks, data)


def _chunks(plan: KernelPlan) -> str:
    """The chunk sizes, and the most tokens."""
    return chunk_sizes() + f"; {plan.tokens} at most, since a token has several micro-steps" * (plan.tokens < MOST_TOKENS)


def chunk_sizes() -> str:
    """The chunk sizes that can be asked for."""
    return f"chunks of {', '.join(map(str, CHUNKS[:-1]))} or {CHUNKS[-1]} tokens, {CHUNKS[-1]} by default"


def _kernels(plan: KernelPlan) -> tuple[Block, ...]:
    """Tiles, warps and stages of the kernels."""
    r = plan.recurrent
    entries = f"about {r.forward} entries of the state a program forward, {r.backward} backward, {r.step} in a step"
    items = [f"recurrent kernels: {entries}; loads {r.stages} tokens ahead"]
    if plan.phased:
        return Items((*items, PHASED, *refusals(plan.faults))), tile_table(plan.chunk)
    items.append("chunkwise kernels: float32 products in three parts, tf32 or bfloat16; of their tiles the first row that fits is used")
    cut = plan.segments
    items.append(
        f"a sequence is cut into segments, scanned at once, where that makes {cut.least} or more of {cut.chunks} or more chunks and "
        f"at most {cut.fill} programs for each multiprocessor"
    )
    return Items((*items, *refusals(plan.faults))), tile_table(plan.chunk)


def refusals(faults: tuple[CompilerFault, ...]) -> tuple[str, ...]:
    """The compilers that are refused, and why."""
    return tuple(
        f"refused on {f.generation}{' with inputs in half precision' if f.half else ''}: {f.kernels} by ptxas before "
        f"{'.'.join(map(str, f.before))}, which {f.effect}"
        for f in faults
    )


def tile_table(rows: tuple[ChunkTiles, ...]) -> Table:
    """The tiles of the chunkwise kernels."""
    return Table(_TILE_COLUMNS, tuple(_tile_row(t) for t in rows))


_TILE_COLUMNS = (
    "inputs",
    "keys to",
    "GPU",
    "KiB",
    "C",
    "prepare, warps",
    "scans",
    "warps",
    "stages",
    "gradients",
    "warps",
    "compared with the float64 form on",
)


def _tile_row(t: ChunkTiles) -> tuple[str, ...]:
    """One row of tiles in words: warps that prepare, value columns and warps of the scans, then of the gradients."""
    sizes = (t.chunk, t.prepare_warps, t.scan, t.scan_warps, t.stages, t.gradients, t.gradient_warps)
    kind = "half" if t.half else "float32"
    seen = "; ".join(map(str, t.validated)) or "nothing yet"
    return (kind, str(t.keys), t.generation or "any", str(t.shared // 1024), *map(str, sizes), seen)


def forms(module: GeneratedModule) -> tuple[tuple[str, str, str], ...]:
    """Which forms run as Triton kernels: those that have one in the module's text."""

    def runs(kernel: str) -> str:
        return "Triton" if f"def {kernel}(" in module.text else "PyTorch"

    return (
        ("chunk", runs("_triton_chunk_forward"), "PyTorch"),
        ("fused_recurrent", runs("_triton_recurrent_forward"), "PyTorch"),
        ("step", runs("_triton_step"), "PyTorch"),
        ("naive_recurrent", "PyTorch", "PyTorch"),
    )


def costs_data(key_axis: str, value_axis: str, costs: tuple[tuple[str, Polynomial], ...]) -> dict[str, object]:
    """Costs by name, as a formula and for the sizes that are shown."""
    return {name: {"formula": p.text(key_axis, value_axis), "value": p.at(COST_CHUNK, COST_SIZE, COST_SIZE)} for name, p in costs}


def _costs(form: NormalForm, chunk: ChunkForm) -> tuple[tuple[str, Polynomial], ...]:
    reads = _elements(form, inputs=True)
    writes = _elements(form, inputs=False)
    states = Polynomial((((-1, 1, 1), monomial(_FLOAT).terms[0][1]),))
    streams, corrections = len(form.streams), sum(s.correct is not None for s in form.streams)
    decays = (form.decay.kind != "none") + (form.value_decay.kind != "none")
    step = monomial(2 * (streams + corrections + len(form.reads)), "K", "V") + monomial(decays, "K", "V")
    return (
        ("chunk, forward: bytes", _times(reads + writes, _BF16) + states),
        ("chunk, forward: FLOPs", forward_flops(chunk).per_token()),
        ("chunk, backward: bytes", _times(reads + writes + reads, _BF16) + states),
        ("chunk, backward: FLOPs", backward_flops(chunk).per_token()),
        ("step: bytes", _times(reads + writes, _BF16) + monomial(2 * _FLOAT, "K", "V")),
        ("step: FLOPs", step),
    )


def _elements(form: NormalForm, inputs: bool) -> Polynomial:
    """Numbers per token and head in all inputs, or in all outputs."""
    letters = {form.key_axis: "K", form.value_axis: "V"}
    if inputs:
        axes = [a.axes for a in form.recurrence.arguments if a.role == "input"]
    else:
        axes = [tuple(x for x in o.value.shape if x != "1") for o in form.outputs]
    return total(monomial(1, *(letters.get(x, "1") for x in a)) for a in axes)


def _times(p: Polynomial, factor: int) -> Polynomial:
    return Polynomial(tuple((powers, factor * x) for powers, x in p.terms))
