"""Chunkwise Triton kernels printed from the steps of a chunk form.

Four kernels, as lines for `templates/triton/phases.py.j2`. `prepare`, for every chunk: what needs neither state nor values, as far as the
others ask for it, stored. `scan`, for every value block: the state in registers, chunk after chunk, and the reads. `reverse`: its gradient
likewise, backwards; that of the resolved right-hand sides is stored. `gradients`, for every chunk: everything else, from the states on both
sides of the chunk, by sums over the value blocks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from recgen.codegen.phase_channels import ChannelPrinter
from recgen.codegen.phase_coupled import CoupledPrinter
from recgen.codegen.phase_printer import Memory, PhasePrinter
from recgen.codegen.phase_steps import PhaseSteps, phase_steps
from recgen.codegen.phase_values import Blocks, Tile, Value
from recgen.derive.bordered_nodes import Mixed
from recgen.derive.chunk_ir import ChunkForm, Step
from recgen.derive.chunk_nodes import MatMul, Node, Sum, Sym
from recgen.derive.coupled_operands import CoupledOperands, CoupledStreamNames
from recgen.derive.forward import S
from recgen.derive.operands import OperandSet

Lines = tuple[str, ...]


@dataclass(frozen=True)
class PhaseKernels:
    """The bodies of the four kernels, of which the last has a loop over value blocks, and what the first one stores of a chunk.

    `rows`: what the backward's kernels write and of which size; `aliases`: operands' gradients that are what another of them already is.
    """

    prepare: Lines
    scan: Lines
    reverse: Lines
    before: Lines
    block: Lines
    after: Lines
    matrices: int
    columns: int
    rows: tuple[tuple[str, str], ...]
    aliases: dict[str, str]


def coupled_kernels(operands: CoupledOperands, chunk: ChunkForm, *, bounded: bool) -> PhaseKernels:
    """The kernels of a coupled form."""
    sizes = {o.name: o.size for o in operands.operands}
    form, memory = phase_steps(chunk, sizes, operands.signs, frozenset(), bounded=bounded), Memory()
    states, gradients = (state_tiles(name, operands.count) for name in ("S", "dS"))
    reads = frozenset(f"d_{name}" for name in chunk.reads)
    solved = tuple(f"dX{s.tag}" for s in operands.streams if s.corrections)
    rows, aliases = written(form, chunk, solved)
    of_values = tuple(name for name, size in rows if size == "V")
    scan = _scan(CoupledPrinter(form, memory, {"S": states}, wants=True), operands, chunk)
    reverse = _reverse(CoupledPrinter(form, memory, {"dS": gradients}, reads, wants=True), operands, of_values)
    last = CoupledPrinter(form, memory, {"S": states, "dS": gradients}, reads | set(solved), blocks=True)
    before, block, after = gradient_lines(last, tuple(name for name, size in rows if size != "V"))
    prepare = _prepare(CoupledPrinter(form, memory, {}, stores=True), memory)
    return PhaseKernels(prepare, scan, reverse, before, block, after, len(memory.matrices), len(memory.columns), rows, aliases)


def written(form: PhaseSteps, chunk: ChunkForm, solved: tuple[str, ...]) -> tuple[tuple[tuple[str, str], ...], dict[str, str]]:
    """The rows that the backward writes, with their sizes, and which gradients of operands are what has been solved for."""
    gradients = [(step, form.sizes[name]) for name, step in chunk.gradients]
    values = {step: form.steps[step].value for step, _ in gradients}
    aliases = {step: value.name for step, value in values.items() if isinstance(value, Sym) and value.name in solved}
    return (*((name, "V") for name in solved), *((step, size) for step, size in gradients if step not in aliases)), aliases


def state_tiles(name: str, count: int) -> Value:
    """The tiles of all states, or of their gradients, under their names."""
    return Blocks(tuple(Tile(f"b_{name}_{i + 1}", "KV") for i in range(count)))


def stored_matrices(p: PhasePrinter, memory: Memory) -> None:
    """Stores the matrices that other kernels ask for."""
    for name, slot in memory.matrices.items():
        p.emit(f"tl.store(p_matrices + {slot} * BC * BC + o_cc, {p.tile(Sym(name)).text})")


def gradient_lines(p: PhasePrinter, wanted: tuple[str, ...]) -> tuple[Lines, Lines, Lines]:
    """Gradients from the states on both sides of a chunk: printed until it is known what the loop needs from before it."""
    needed = -1
    while needed < len(p.hoisted):
        needed = len(p.hoisted)
        p.begin()
        for name in wanted:
            with p.place("body" if p.form.over_values(name) else "after"):
                p.store(name, p.tile(Sym(name)))
    return tuple(p.lines["before"]), tuple(p.lines["body"]), tuple(p.lines["after"])


def by_value_kernels(operands: OperandSet, chunk: ChunkForm, *, bounded: bool) -> PhaseKernels:
    """The kernels of a form that differs by value channel."""
    sizes = {o.name: o.size for o in operands.operands}
    across = frozenset(f"read{r.tag}" for r in operands.across)
    form, memory = phase_steps(chunk, sizes, operands.signs, across, bounded=bounded), Memory()
    state, gradient = Tile("b_S", "KV"), Tile("b_dS", "KV")
    reads = frozenset(f"d_{name}" for name in chunk.reads)
    solved = tuple(f"dX{s.tag}" for s in operands.streams if s.correct)
    rows, aliases = written(form, chunk, solved)
    scan = ChannelPrinter(form, memory, {"S": state}, wants=True)
    for read in chunk.reads:
        scan.store(read, scan.tile(Sym(read)))
    _step_state(scan, chunk.scan, "S", {})
    reverse = ChannelPrinter(form, memory, {"dS": gradient}, reads, wants=True)
    for name in solved:
        reverse.store(name, reverse.tile(Sym(name)))
    _step_state(reverse, chunk.adjoint_scan, "dS", {"dS_read": form.steps["dS_read"].value})
    last = ChannelPrinter(form, memory, {"S": state, "dS": gradient}, reads | set(solved), blocks=True)
    before, block, after = gradient_lines(last, tuple(name for name, _ in rows if name not in solved))
    first = ChannelPrinter(form, memory, {}, stores=True)
    stored_matrices(first, memory)
    scans = tuple(scan.lines["body"]), tuple(reverse.lines["body"])
    prepare = tuple(first.lines["body"])
    return PhaseKernels(prepare, *scans, before, block, after, len(memory.matrices), len(memory.columns), rows, aliases)


def _step_state(p: PhasePrinter, phase: tuple[Step, ...], name: str, inline: dict[str, Node]) -> None:
    """The state at the chunk's other end in the place of that at this one; sums in `inline` are added term by term."""
    step = next(s for s in phase if s.name == name)
    assert isinstance(step.value, Sum)
    terms: list[Node] = []
    for term in step.value.terms:
        value = inline.get(term.name, term) if isinstance(term, Sym) else term
        terms += value.terms if isinstance(value, Sum) else [value]
    p.assign(f"b_{name}", p.tile(Sum(tuple(terms))), f"{step.symbol}: {step.meaning}")


# ------------------------------------------------------------- coupled states


def _prepare(p: CoupledPrinter, memory: Memory) -> Lines:
    """What the other kernels ask for."""
    stored_matrices(p, memory)
    for name, slot in memory.columns.items():
        tile = p.tile(Sym(name)) if name in p.form.steps else _part(p, name)
        p.emit(f"tl.store(p_columns + {slot} * BC{' + o_c' * bool(tile.shape)}, {tile.text})")
    return tuple(p.lines["body"])


def _part(p: CoupledPrinter, name: str) -> Tile:
    """A part of links by the name that it is stored under."""
    links, rows = name.removesuffix("_start").rsplit("_", 1)
    part = p.links(Sym(links)).part(rows, "start" if name.endswith("_start") else "tokens")
    assert part is not None
    return part


def _scan(p: CoupledPrinter, operands: CoupledOperands, chunk: ChunkForm) -> Lines:
    """One chunk forwards: resolved writes, reads, the states."""
    for read in chunk.reads:
        p.store(read, p.tile(Sym(read)))
    carried: list[Node] = [MatMul(Sym(f"k_end{s.tag}"), _write(s), turn_left=True) for s in operands.streams]
    p.emit("# S: the states at the chunk's end")
    _carry(p, "S", [Mixed(Sym("through"), S, False), *carried], reversed)
    return tuple(p.lines["body"])


def _write(stream: CoupledStreamNames) -> Node:
    return Sym(f"E{stream.tag}" if stream.corrections else stream.value)


def _reverse(p: CoupledPrinter, operands: CoupledOperands, of_values: tuple[str, ...]) -> Lines:
    """One chunk backwards: the right-hand sides' gradients, those of the values, of the states."""
    for name in of_values:
        p.store(name, p.tile(Sym(name)))
    parts: list[Node] = [Mixed(Sym("through"), Sym("dS"), True)]
    parts += [MatMul(Sym(f"q_in{r.tag}"), Sym(f"d_read{r.tag}"), turn_left=True) for r in operands.reads]
    parts += [MatMul(Sym(f"a_in{s.tag}"), Sym(f"dX{s.tag}"), turn_left=True) for s in operands.streams if s.corrections]
    p.emit("# dS: gradient of the states at the chunk's start")
    _carry(p, "dS", parts, list)
    return tuple(p.lines["body"])


def _carry(p: CoupledPrinter, name: str, parts: list[Node], order: Callable[[list[int]], list[int] | reversed[int]]) -> None:
    """The states at the chunk's other end in the place of those at this one.

    A state is made of itself and of those before it (a gradient of those after it), so each is replaced when no other needs it any more.
    """
    found = p.value(Sum(tuple(parts)))
    assert isinstance(found, Blocks)
    for i in order(list(range(len(found.tiles)))):
        tile = found.tiles[i]
        assert tile is not None
        p.assign(f"b_{name}_{i + 1}", tile)
