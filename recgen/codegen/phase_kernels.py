"""The chunkwise Triton kernels of coupled states, printed from the steps of their chunk form.

Four kernels, as lines for `templates/triton/phases.py.j2`. `prepare`, for every chunk: what needs no state and no values, as far as the
others ask for it, stored. `scan`, for every value block: the states in registers, chunk after chunk, and the reads. `reverse`: their
gradients likewise, backwards; those of the resolved right-hand sides and of the values are stored. `gradients`, for every chunk: everything
else, from the states on both sides of the chunk, by sums over the value blocks.
"""

from __future__ import annotations

from dataclasses import dataclass

from recgen.codegen.phase_printer import Memory, PhasePrinter, PhaseSteps
from recgen.codegen.phase_values import Blocks, Tile
from recgen.derive.bordered_nodes import Cut, Empty, Mixed
from recgen.derive.chunk_ir import ChunkForm
from recgen.derive.chunk_nodes import Hadamard, Inverse, MatMul, Node, ScaledColumns, Sum, Sym
from recgen.derive.coupled_operands import CoupledOperands
from recgen.derive.forward import S

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
    form, memory = _phase_steps(operands, chunk, bounded), Memory()
    solved = tuple(f"dX{s.tag}" for s in operands.streams if s.corrections)
    gradients = [(step, form.sizes[name]) for name, step in chunk.gradients]
    values = {step: form.steps[step].value for step, _ in gradients}
    aliases = {step: value.name for step, value in values.items() if isinstance(value, Sym) and value.name in solved}
    rows = (*((name, "V") for name in solved), *((step, size) for step, size in gradients if step not in aliases))
    scan = _scan(PhasePrinter(form, memory, wants=True), operands)
    of_values = tuple(name for name, size in rows if size == "V")
    reverse = _reverse(PhasePrinter(form, memory, wants=True), operands, of_values)
    before, block, after = _gradients(PhasePrinter(form, memory, blocks=True), operands, chunk, solved)
    prepare = _prepare(PhasePrinter(form, memory, stores=True), memory)
    return PhaseKernels(prepare, scan, reverse, before, block, after, len(memory.matrices), len(memory.columns), rows, aliases)


def _phase_steps(operands: CoupledOperands, chunk: ChunkForm, bounded: bool) -> PhaseSteps:
    """The steps by name; what corrections resolve is taken from the adjoint, which solves with the right-hand side as it is."""
    phases = (chunk.prepare, chunk.finish, chunk.adjoint_prepare, chunk.adjoint_scan, chunk.adjoint_finish)
    steps = {name: step for phase in phases for step in phase for name in step.names if name not in ("S", "dS")}
    sizes = {o.name: o.size for o in operands.operands}
    shapes: dict[str, str] = {}
    for step in chunk.prepare:
        shape = _shape(step.value, sizes, shapes)
        shapes |= dict.fromkeys(step.names, shape) if shape else {}
    of_streams = {f"{prefix}{s.tag}" for s in operands.streams for prefix in ("E", "X", "found_in", "dE_read", "Z", "dX")}
    gradients = {f"d_{o.name}" for o in operands.operands if o.size == "V"}
    reads = {f"{prefix}{r.tag}" for r in operands.reads for prefix in ("read", "d_read")}
    over_values = frozenset(of_streams | gradients | reads | {n for n, size in sizes.items() if size == "V"} | {"S", "dS"})
    return PhaseSteps(steps, sizes, over_values, shapes, bounded, bool(operands.signs))


def _shape(node: Node, sizes: dict[str, str], shapes: dict[str, str]) -> str:
    """What a value of the first phase is: "CC" a matrix [C, C], "C" a column; "" for anything else, links among it."""
    match node:
        case Sym(name):
            return shapes.get(name, "C" if sizes.get(name) == "1" else "")
        case Cut(_, "end", "tokens"):
            return "C"
        case Cut(_, _, "tokens") | Inverse() | Empty() | ScaledColumns():
            return "CC"
        case MatMul(Sym(left), Sym(right), False, True) if sizes.get(left) == sizes.get(right) == "K":
            return "CC"
        case Hadamard(_, right):
            return _shape(right, sizes, shapes)
        case Sum(terms):
            return _shape(terms[0], sizes, shapes)
    return ""


def _states(p: PhasePrinter, name: str, count: int) -> Blocks:
    """The tiles of all states, or of their gradients, under their names."""
    tiles = Blocks(tuple(Tile(f"b_{name}_{i + 1}", "KV") for i in range(count)))
    p.known[name] = tiles
    return tiles


def _carry(p: PhasePrinter, name: str, parts: list[Node], *, backwards: bool) -> None:
    """The states at the chunk's other end in the place of those at this one.

    A state is made of itself and of those before it (a gradient of those after it), so each is replaced when no other needs it any more.
    """
    found = p.value(Sum(tuple(parts)))
    assert isinstance(found, Blocks)
    order = list(enumerate(found.tiles))
    for i, tile in order if backwards else reversed(order):
        assert tile is not None
        p.assign(f"b_{name}_{i + 1}", tile)


def _prepare(p: PhasePrinter, memory: Memory) -> Lines:
    """What the other kernels ask for."""
    for name, slot in memory.matrices.items():
        p.emit(f"tl.store(p_matrices + {slot} * BC * BC + o_cc, {p.tile(Sym(name)).text})")
    for name, slot in memory.columns.items():
        tile = _column(p, name)
        p.emit(f"tl.store(p_columns + {slot} * BC{' + o_c' * bool(tile.shape)}, {tile.text})")
    return tuple(p.lines["body"])


def _column(p: PhasePrinter, name: str) -> Tile:
    """A column by the name that it is stored under: a step, or a part of links."""
    if name in p.form.steps:
        return p.tile(Sym(name))
    links, rows = name.removesuffix("_start").rsplit("_", 1)
    part = p.links(Sym(links)).part(rows, "start" if name.endswith("_start") else "tokens")
    assert part is not None
    return part


def _scan(p: PhasePrinter, operands: CoupledOperands) -> Lines:
    """One chunk forwards: resolved writes, reads, the states."""
    _states(p, "S", operands.count)
    for r in operands.reads:
        read = p.tile(Sym(f"read{r.tag}"))
        p.emit(f"tl.store(w_read{r.tag} + row * V + o_cv, {read.text}, mask=m_tv)")
    carried: list[Node] = [MatMul(Sym(f"k_end{s.tag}"), _write(operands, s.tag), turn_left=True) for s in operands.streams]
    p.emit("# S: the states at the chunk's end")
    _carry(p, "S", [Mixed(Sym("through"), S, False), *carried], backwards=False)
    return tuple(p.lines["body"])


def _write(operands: CoupledOperands, tag: str) -> Node:
    stream = next(s for s in operands.streams if s.tag == tag)
    return Sym(f"E{tag}" if stream.corrections else stream.value)


def _reverse(p: PhasePrinter, operands: CoupledOperands, of_values: tuple[str, ...]) -> Lines:
    """One chunk backwards: the right-hand sides' gradients, those of the values, of the states."""
    _states(p, "dS", operands.count)
    p.stored = frozenset(f"d_read{r.tag}" for r in operands.reads)
    for name in of_values:
        p.emit(f"tl.store(w_{name} + row * V + o_cv, {p.tile(Sym(name)).text}, mask=m_tv)")
    parts: list[Node] = [Mixed(Sym("through"), Sym("dS"), True)]
    parts += [MatMul(Sym(f"q_in{r.tag}"), Sym(f"d_read{r.tag}"), turn_left=True) for r in operands.reads]
    parts += [MatMul(Sym(f"a_in{s.tag}"), Sym(f"dX{s.tag}"), turn_left=True) for s in operands.streams if s.corrections]
    p.emit("# dS: gradient of the states at the chunk's start")
    _carry(p, "dS", parts, backwards=True)
    return tuple(p.lines["body"])


def _gradients(p: PhasePrinter, operands: CoupledOperands, chunk: ChunkForm, solved: tuple[str, ...]) -> tuple[Lines, Lines, Lines]:
    """The gradients of what is not over the values; printed until it is known what the loop needs from before it."""
    wanted = [(name, step) for name, step in chunk.gradients if p.form.sizes[name] != "V"]
    p.stored = frozenset((*(f"d_read{r.tag}" for r in operands.reads), *solved))
    needed = -1
    while needed < len(p.hoisted):
        needed = len(p.hoisted)
        p.begin()
        for name in ("S", "dS"):
            _states(p, name, operands.count)
        with p.place("after"):
            for name, step in wanted:
                p.emit(_stored(p, name, step))
    return tuple(p.lines["before"]), tuple(p.lines["body"]), tuple(p.lines["after"])


def _stored(p: PhasePrinter, name: str, step: str) -> str:
    """The line that stores an operand's gradient."""
    text = p.tile(Sym(step)).text
    if p.form.sizes[name] == "1":
        return f"tl.store(w_{step} + row + o_c, {text}, mask=m_t)"
    return f"tl.store(w_{step} + row * K + o_ck, {text}, mask=m_tk)"
