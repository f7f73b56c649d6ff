"""Everything that `templates/triton/scan.py.j2` prints: the scan of tiles of tokens and its backward as Triton kernels."""

from __future__ import annotations

from dataclasses import dataclass, replace

from recgen.analysis.scan_form import ScanForm
from recgen.codegen.expressions import RESERVED, local
from recgen.codegen.scan_adjoint import ScanAdjoint, ScanBackward
from recgen.codegen.scan_memory import ScanMemory
from recgen.codegen.scan_phases import flat
from recgen.codegen.token_host import gradient_texts
from recgen.codegen.triton_context import GradientText
from recgen.codegen.triton_printer import INDENT, functions
from recgen.derive.program import Value, mentioned
from recgen.derive.scan import argument_values, scan_programs
from recgen.plan import ScanPlan


@dataclass(frozen=True)
class ScanBlocks:
    """The host's choice of blocks: of the `split` axis, and of the `others` whole; `beside`: entries of the widest value for one of it."""

    split: bool
    split_block: str
    split_size: str
    others: tuple[str, ...]
    beside: str
    names: str


@dataclass(frozen=True)
class ScanKernels:
    """Lines and names for the template; nothing is computed there.

    `segmented`: sequences may be cut into segments, since no state waits for another. `totals`, `advance_totals`,
    `store_summary`: what a segment leaves of the state before it, and what it adds; `earlier`: its near border from those before it.
    """

    functions: tuple[str, ...]
    unspecialized: str
    numbers: tuple[str, ...]
    values: tuple[str, ...]
    axes: tuple[str, ...]
    once: tuple[str, ...]
    start: tuple[str, ...]
    zeros: tuple[str, ...]
    inputs: tuple[str, ...]
    program: tuple[str, ...]
    save: tuple[str, ...]
    store: tuple[str, ...]
    carry: tuple[str, ...]
    finish: tuple[str, ...]
    earlier: tuple[str, ...]
    segmented: bool
    totals: tuple[str, ...]
    advance_totals: tuple[str, ...]
    store_summary: tuple[str, ...]
    backward: ScanBackward
    gradients: tuple[GradientText, ...]
    entries: str
    padded: str
    padded_entries: str
    tiles: ScanBlocks


def scan_kernels(form: ScanForm, plan: ScanPlan, known: tuple[str, ...]) -> ScanKernels:
    """The context; `known`: templates of functions that the module has already."""
    split = form.token.split
    form = replace(form, axes=(*(x for x in form.axes if x != split), *((split,) if split else ())))
    values = argument_values(form, local)
    reserved = RESERVED | {o.name for o in form.recurrence.options} | set(form.axes)
    return _Builder(ScanMemory(form, values, scan_programs(form, values, reserved))).build(plan, known)


class _Builder:
    """Prints every part; names of values and functions are known after the programs have been printed."""

    def __init__(self, memory: ScanMemory) -> None:
        self.memory, self.form, self.programs, self.printer = memory, memory.form, memory.programs, memory.printer
        self.scans = {s.target.name: s for s in flat(memory.programs.forward.statements) if s.op == "scan"}

    def build(self, plan: ScanPlan, known: tuple[str, ...]) -> ScanKernels:
        """The context."""
        m, forward = self.memory, self.programs.forward
        once = m.params()
        program, store = self.printer.lines(forward.statements), self._store_outputs()
        backward = ScanAdjoint(m).lines()
        segmented = self._segmented()
        totals = self._advance_totals() if segmented else ()
        numbers = m.numbers.found
        scalars = [f"s_{a.info.name}" for a in m.arguments if not a.info.axes]
        return ScanKernels(
            functions=tuple(x for x in functions(self.printer.functions) if x not in known),
            unspecialized=", ".join(f'"{name}"' for name in (*scalars, *(f"n_{name}" for name, _ in numbers))),
            numbers=tuple(f"n_{name}: tl.float64" for name, _ in numbers),
            values=tuple(f"float({text})" for _, text in numbers),
            axes=tuple(line for axis in self.form.axes for line in self._axis_lines(axis)),
            once=(*(f"c_{name} = tl.full((), n_{name}, ACC)" for name, _ in numbers), *once),
            start=self._start(),
            zeros=tuple(f"b_{v.name} = tl.full({self.printer.shape(v)}, 0.0, ACC)" for _, v, _ in m.states()),
            inputs=m.inputs(mentioned(forward.statements)),
            program=program,
            save=m.store_states(f"p_saved + ((slot + t // 64) * HV + i_h) * ({m.all_entries('size')})"),
            store=store,
            carry=m.carry(),
            finish=tuple(
                m.put(f"pf_{s.name} + (i_n * HV + i_h) * ({m.entries(s, 'size')}){m.dense(s, v)}", f"b_{v.name}", v, m.mine(v))
                for s, v, _ in m.states()
            ),
            earlier=self.memory.from_summaries("b_{0}"),
            segmented=segmented,
            totals=tuple(f"total_{v.name} = tl.full({self.printer.shape(v)}, 1.0, ACC)" for _, v, _ in m.states()),
            advance_totals=totals,
            store_summary=self.memory.store_summary("b_{0}"),
            backward=backward,
            gradients=gradient_texts(m.arguments, m.alone, "_N * _segments", "torch.float32"),
            entries=m.all_entries("_size"),
            padded=m.all_entries("_block"),
            padded_entries=m.all_entries("block"),
            tiles=self._tiles(),
        )

    # --------------------------------------------------------------- forward

    def _axis_lines(self, axis: str) -> tuple[str, ...]:
        block = f"tl.arange(0, block_{axis})"
        if axis == self.memory.split:
            block = f"(tl.arange(0, block_{axis} // LANES)[:, None] * LANES + tl.arange(0, LANES)[None, :])"
        return (
            f"loc_{axis} = {block}.to(tl.int64)",
            f"off_{axis} = {f'i_v * block_{axis} + ' * (axis == self.memory.split)}loc_{axis}",
            f"mask_{axis} = off_{axis} < size_{axis}",
        )

    def _start(self) -> tuple[str, ...]:
        """The initial states, where there are any."""
        m, lines = self.memory, list[str]()
        for s, v, _ in m.states():
            pointer = f"pi_{s.name} + {m.of_caller(s, v, f'si_{s.name}')}"
            lines += [f"if pi_{s.name} is not None:", f"{INDENT}b_{v.name} = {m.take(pointer, v)}"]
        return tuple(lines)

    def _store_outputs(self) -> tuple[str, ...]:
        m, lines = self.memory, list[str]()
        for name, operand in self.programs.forward.results:
            axes = tuple(x for x in self.form.axes if x in self.form.recurrence.definition(name).shape)
            like = Value("", " ".join(axes), False, True)
            pointer = f"p_{name} + {m.dims.over_tokens('row', axes)}{''.join(f' * size_{x}' for x in axes)}"
            pointer += m.offsets(like, dict.fromkeys(axes, "1"))
            text = f"{self.printer.whole(operand, like)}.to(p_{name}.dtype.element_ty)"
            lines.append(m.put(pointer, text, like, m.mine(like)))
        return tuple(lines)

    # -------------------------------------------------------------- segments

    def _segmented(self) -> bool:
        """Whether what a segment does to a state can be summarised: each has its own multiplier and write, and lies in the blocks."""
        late: set[str] = set()
        for s in flat(self.programs.forward.statements):
            reads = {x.name for x in s.args if isinstance(x, Value)}
            if s.op == "scan" and not reads.isdisjoint(late):
                return False
            if s.op in ("scan", "before") or not reads.isdisjoint(late):
                late.add(s.target.name)
        split = self.memory.split
        return not split or all(split in s.axes for s in self.memory.token.states)

    def _advance_totals(self) -> tuple[str, ...]:
        self.printer.functions.add("passed")
        lines = []
        for _, v, scanned in self.memory.states():
            decay = self.printer.operand(self.scans[scanned.name].args[0])
            lines.append(f"total_{v.name} = _tl_passed(total_{v.name}, {decay}, {self.memory.dims.over_tokens('o_t', v.axes)}, count, BT)")
        return tuple(lines)

    # ------------------------------------------------------------------ host

    def _tiles(self) -> ScanBlocks:
        split, axes = self.memory.split, self.form.axes
        held = [s.axes for s in self.memory.token.states] + [a.info.axes for a in self.memory.arguments]
        widths = dict.fromkeys(" * ".join(f"_block_{x}" for x in axes if x in own and x != split) or "1" for own in held)
        return ScanBlocks(
            split=bool(split),
            split_block=f"_block_{split}",
            split_size=f"_size_{split}",
            others=tuple(x for x in axes if x != split),
            beside=f"max({', '.join(widths)})" if len(widths) > 1 else next(iter(widths)),
            names="".join(f"_block_{x}, " for x in axes),
        )
