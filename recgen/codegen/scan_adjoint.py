"""The backward of a scan in its Triton kernel: the states of a stretch once more, then the adjoint from the other end."""

from __future__ import annotations

from dataclasses import dataclass

from recgen.codegen.scan_memory import ScanMemory
from recgen.codegen.triton_arguments import KernelArgument
from recgen.codegen.triton_printer import INDENT
from recgen.derive.program import Value, mentioned, needed


@dataclass(frozen=True)
class ScanBackward:
    """The lines of the backward: the states once more (`restore`, `keep`, `again_inputs`, `again`), then the adjoint from the other end."""

    start: tuple[str, ...]
    zeros: tuple[str, ...]
    sums: tuple[str, ...]
    restore: tuple[str, ...]
    keep: tuple[str, ...]
    again_inputs: tuple[str, ...]
    again: tuple[str, ...]
    kept: tuple[str, ...]
    inputs: tuple[str, ...]
    program: tuple[str, ...]
    store: tuple[str, ...]
    carry: tuple[str, ...]
    later: tuple[str, ...]
    store_summary: tuple[str, ...]
    finish: tuple[str, ...]


class ScanAdjoint:
    """Prints it."""

    def __init__(self, memory: ScanMemory) -> None:
        self.memory, self.programs, self.printer = memory, memory.programs, memory.printer

    def lines(self) -> ScanBackward:
        """Every part."""
        m, program = self.memory, self.programs.backward
        scanned = {v.name for v in self.programs.scanned}
        again = needed(self.programs.forward.statements, set(scanned))
        work = f"p_work + j * ({m.all_entries('block')})"
        shapes = {v.name: self.printer.shape(v) for _, v, _ in m.states()}
        return ScanBackward(
            start=self._start_adjoint(),
            zeros=tuple(f"carry_{name} = tl.full({shape}, 0.0, ACC)" for name, shape in shapes.items()),
            sums=tuple(line for a in m.arguments if not a.per_token for line in a.guarded(self._zero_sum(a))),
            restore=m.load_states(f"p_saved + ((slot + start // 64) * HV + i_h) * ({m.all_entries('size')})"),
            keep=tuple(m.put(f"{work}{self._padded(i, v)}", f"b_{v.name}", v, "") for i, (_, v, _) in enumerate(m.states())),
            again_inputs=m.inputs(mentioned(again)),
            again=self.printer.lines(again),
            kept=tuple(f"b_{v.name} = {m.take(f'{work}{self._padded(i, v)}', v, '')}" for i, (_, v, _) in enumerate(m.states())),
            inputs=(*m.inputs(mentioned(program.statements)), *m.cotangents()),
            program=(
                *(f"b_{last.name} = carry_{v.name}" for last, (_, v, _) in zip(self.programs.last, m.states(), strict=True)),
                *self.printer.lines(program.statements),
            ),
            store=self._store_gradients(),
            carry=tuple(f"carry_{v.name} = {self._gradient(v)}" for _, v, _ in m.states()),
            later=m.from_summaries("carry_{0}"),
            store_summary=m.store_summary("carry_{0}"),
            finish=self._finish_adjoint(),
        )

    def _padded(self, i: int, value: Value) -> str:
        return self.memory.earlier_entries(i, "block") + self.memory.ours(value, "block")

    def _start_adjoint(self) -> tuple[str, ...]:
        """The gradients of the final states, where there are any."""
        m, lines = self.memory, list[str]()
        for s, v, _ in m.states():
            pointer = f"dpf_{s.name} + {m.of_caller(s, v, f'dsf_{s.name}')}"
            lines += [f"if dpf_{s.name} is not None:", f"{INDENT}carry_{v.name} = {m.take(pointer, v, m.mine(v))}"]
        return tuple(lines)

    def _zero_sum(self, a: KernelArgument) -> str:
        return f"sum_{a.info.name} = tl.full({self.printer.shape(a.value)}, 0.0, ACC)"

    def _gradient(self, value: Value) -> str:
        """The gradient of an argument or of a state at the tile's start."""
        found = dict(self.programs.backward.results).get(value.name)
        return f"tl.full({self.printer.shape(value)}, 0.0, ACC)" if found is None else self.printer.whole(found, value)

    def _store_gradients(self) -> tuple[str, ...]:
        """Writes the inputs' gradients, and adds the params' up."""
        m, lines = self.memory, list[str]()
        for a in m.arguments:
            name, gradient = a.info.name, self._gradient(a.value)
            if not a.per_token:
                lines += a.guarded(f"sum_{name} += {gradient}")
                continue
            row = m.dims.over_tokens("row", a.value.axes)
            row = row if m.alone(a) else f"(i_v * total * HV + {row})"
            pointer = f"dp_{name} + {row}{self._entries(a)}"
            text = f"({gradient}).to(dp_{name}.dtype.element_ty)"
            lines += a.guarded(m.put(pointer, text, a.value))
        return tuple(lines)

    def _entries(self, a: KernelArgument) -> str:
        """The entries of an argument's gradient after its row."""
        strides = {x: " * ".join(f"size_{y}" for y in a.info.axes[i + 1 :]) or "1" for i, x in enumerate(a.info.axes)}
        return "".join(f" * size_{x}" for x in a.info.axes) + self.memory.offsets(a.value, strides)

    def _finish_adjoint(self) -> tuple[str, ...]:
        """Stores the initial states' gradients (by a sequence's first segment) and the params' sums."""
        m, lines = self.memory, list[str]()
        for s, v, _ in m.states():
            row = "(i_n * HV + i_h)" if not m.split or m.split in s.axes else "((i_v * N + i_n) * HV + i_h)"
            pointer = f"dpi_{s.name} + {row} * ({m.entries(s, 'size')}){m.dense(s, v)}"
            lines += [f"if dpi_{s.name} is not None:", f"{INDENT}if i_s == 0:"]
            lines.append(f"{INDENT}{INDENT}{m.put(pointer, f'carry_{v.name}', v)}")
        for a in m.arguments:
            if not a.per_token:
                row = "part * HV + i_h" if m.alone(a) else "(part * NV + i_v) * HV + i_h"
                pointer = f"dp_{a.info.name} + ({row}){self._entries(a)}"
                lines += a.guarded(m.put(pointer, f"sum_{a.info.name}", a.value))
        return tuple(lines)
