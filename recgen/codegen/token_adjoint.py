"""The adjoint of a token in its Triton kernel: what flows in, what is written, and what is passed on to the token before."""

from __future__ import annotations

from recgen.codegen.token_memory import Fetched, TokenMemory
from recgen.codegen.token_tiles import block_shape, mask, offsets
from recgen.codegen.triton_arguments import KernelArgument
from recgen.codegen.triton_printer import INDENT
from recgen.derive.program import Value
from recgen.derive.token_program import axes_shape, shape_of


class TokenAdjoint:
    """Builds the lines."""

    def __init__(self, memory: TokenMemory) -> None:
        self.memory, self.form, self.program = memory, memory.form, memory.program
        self.arguments, self.printer = memory.arguments, memory.printer

    def start_adjoint(self) -> tuple[str, ...]:
        """The gradients of the final states, and sums for those of the params."""
        lines: list[str] = []
        for _, s, v, _ in self.memory.each_state():
            where = self.memory.state_offsets(s, (f"dsf_{s.name}[2]", f"dsf_{s.name}[3]"))
            found = self.memory.mine(s.axes, axes_shape(s.axes))
            masked = f", mask={found}, other=0.0" if found else ""
            load = f"tl.load(dpf_{s.name} + i_n * dsf_{s.name}[0] + i_h * dsf_{s.name}[1]{where}{masked}).to(ACC)"
            lines += [f"if dpf_{s.name} is not None:", f"{INDENT}carry_{s.name} = {load}", "else:"]
            lines.append(f"{INDENT}carry_{s.name} = tl.full({self.printer.shape(v)}, 0.0, ACC)")
        for a in self.arguments:
            if not a.per_token:
                lines += a.guarded(f"sum_{a.info.name} = tl.full({self.printer.shape(a.value)}, 0.0, ACC)")
        return tuple(lines)

    @property
    def fetched(self) -> tuple[tuple[Fetched, str], ...]:
        """The gradients of the outputs at token `at`, and zeros for one whose gradient is None."""
        found, known = [], dict(self.program.cotangents)
        for o in self.form.outputs:
            if o.name in known:
                shape = o.value.shape
                where = f"dp_{o.name} + at * ds_{o.name}[1]{offsets(shape, (f'ds_{o.name}[3]', ''))}"
                fetched = Fetched(known[o.name].name, where, self.memory.mine(shape, shape), f"dp_{o.name}")
                found.append((fetched, f"tl.full({block_shape(shape)}, 0.0, ACC)"))
        return tuple(found)

    def cotangents(self) -> tuple[str, ...]:
        """The gradients of the states after the token."""
        known = dict(self.program.cotangents)
        pairs = zip(self.program.after, self.form.states, strict=True)
        return tuple(f"b_{known[after].name} = carry_{s.name}" for after, s in pairs if after in known)

    def gradient(self, value: Value) -> str:
        """The gradient of an argument or of a state before the token."""
        found = dict(self.program.adjoint.results).get(value.name)
        return f"tl.full({self.printer.shape(value)}, 0.0, ACC)" if found is None else self.printer.operand(found)

    def store_gradients(self) -> tuple[str, ...]:
        """Writes the inputs' gradients, and adds the params' up."""
        lines: list[str] = []
        for a in self.arguments:
            name, gradient = a.info.name, self.gradient(a.value)
            if not a.per_token:
                lines += a.guarded(f"sum_{name} += {gradient}")
                continue
            row = "row" if self.memory.alone(a) else "(i_v * total + row)"
            lines += a.guarded(self._put(a, f"({row} * HV + i_h)", f"{gradient}.to(dp_{name}.dtype.element_ty)"))
        return tuple(lines)

    def _put(self, a: KernelArgument, row: str, value: str) -> str:
        """A store of a gradient in memory of its own."""
        shape = shape_of(a.value)
        entries = "".join(f" * size_{axis}" for axis in a.info.axes)
        place = offsets(shape, (f"size_{shape[1]}" if shape[1] != "1" else "1", "1"))
        masked = f", mask={mask(shape)}" if mask(shape) else ""
        return f"tl.store(dp_{a.info.name} + {row}{entries}{place}, {value}{masked})"

    def carry_adjoint(self) -> tuple[str, ...]:
        """The states' gradients before this token."""
        pairs = tuple(zip(self.form.states, self.program.before, strict=True))
        return tuple(f"carry_{s.name} = {self.gradient(v)}" for s, v in pairs)

    def finish_adjoint(self) -> tuple[str, ...]:
        """Stores the initial states' gradients and the params' sums."""
        lines: list[str] = []
        for _, s, _, m in self.memory.each_state():
            row = "(i_n * HV + i_h)" if not self.form.split or self.form.split in s.axes else "((i_v * N + i_n) * HV + i_h)"
            masked = f", mask={m}" if m else ""
            where = f"dpi_{s.name} + {row} * ({self.memory.entries(s, 'size')}){self.memory.dense_offsets(s)}"
            lines += [f"if dpi_{s.name} is not None:", f"{INDENT}tl.store({where}, carry_{s.name}{masked})"]
        for a in self.arguments:
            if not a.per_token:
                row = "(i_n * HV + i_h)" if self.memory.alone(a) else "((i_n * NV + i_v) * HV + i_h)"
                lines += a.guarded(self._put(a, row, f"sum_{a.info.name}"))
        return tuple(lines)
