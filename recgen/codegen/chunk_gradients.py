"""The gradients kernel's body: every argument's gradient of one chunk, from the states on both of its sides."""

from __future__ import annotations

from dataclasses import dataclass

from recgen.codegen.chunk_kernels import DOT, ChunkKernels
from recgen.codegen.tile_printer import tile_mask
from recgen.codegen.triton_arguments import KernelArgument
from recgen.derive.gradient import differentiate
from recgen.derive.program import Program, Value, assigned, mentioned, needed


@dataclass(frozen=True)
class GradientLines:
    """`before` the loop over value blocks, `block` in it, `after` it, `store` at the end; `sums`: accumulators of arguments."""

    before: tuple[str, ...]
    block: tuple[str, ...]
    after: tuple[str, ...]
    store: tuple[str, ...]


class GradientPrinter:
    """Builds the lines from the four-kernel plan.

    What flows through the values (the read-out, the values written) is differentiated block by block; what flows through the key side is
    differentiated once, from sums over the blocks. Both are linear in their cotangents, so their results add up.
    """

    def __init__(self, kernels: ChunkKernels) -> None:
        self.k = kernels
        self.form, self.operands, self.printer = kernels.form, kernels.operands, kernels.printer
        self.arguments = tuple(a.value for a in kernels.arguments)
        self.sliced = {a.value.name for a in kernels.arguments if a.sliced}
        values = tuple(r for r in kernels.program.results if kernels.sizes[r[0]] == "V")
        keys = tuple(r for r in kernels.program.results if kernels.sizes[r[0]] != "V")
        reserved = kernels.reserved | assigned(kernels.program.statements) | assigned(kernels.readout.statements)
        self.value_adjoint = self._adjoint(values, reserved)
        reserved |= assigned(self.value_adjoint[0].statements)
        self.key_adjoint = self._adjoint(keys, reserved)
        self.out_adjoint = differentiate(kernels.readout, (*kernels.reads, *self.arguments), reserved)

    def _adjoint(self, results: tuple[tuple[str, object], ...], reserved: frozenset[str]) -> tuple[Program, tuple[tuple[str, Value], ...]]:
        program = self.k.program
        part = Program(program.inputs, program.statements, tuple(r for r in program.results if r in results))
        return differentiate(part, self.arguments, reserved)

    def build(self) -> GradientLines:
        """All lines."""
        return GradientLines(self._before(), self._block(), self._after(), self._store())

    # ------------------------------------------------------------ accumulators

    @property
    def accumulated(self) -> tuple[KernelArgument, ...]:
        """The arguments whose gradient is summed over value blocks: all but those over the value axis."""
        return tuple(a for a in self.k.arguments if not a.sliced)

    def _zero(self, a: KernelArgument) -> str:
        return f"g_{a.value.name} = tl.zeros({self.printer.shape(a.value)}, ACC)"

    def _add(self, adjoint: Program, skip: bool) -> tuple[str, ...]:
        """Adds an adjoint's results to the accumulators."""
        lines = []
        for name, gradient in adjoint.results:
            if name in self.sliced and skip:
                continue
            lines.append(f"g_{name} += {self.printer.operand(gradient)}")
        return tuple(lines)

    # -------------------------------------------------------------- the parts

    def _before(self) -> tuple[str, ...]:
        k = self.k
        key_names = tuple(n for n, size in k.sizes.items() if size != "V")
        lines = [*k.operand_lines(key_names), *k.decay_lines(gamma=True), *(self._zero(a) for a in self.accumulated)]
        for r in self.operands.reads:
            lines.append(f"b_dq_in{r.tag} = tl.zeros((BC, BK), ACC)")
            lines += [f"b_D_qk{r.tag}{s.tag} = tl.zeros((BC, BC), ACC)" for s in self.operands.streams]
        for s in self.operands.streams:
            lines.append(f"b_dw_end{s.tag} = tl.zeros((BC, BK), ACC)")
        c = k.correcting
        if c:
            dot = f"{DOT}(b_{c.correct}, tl.trans(b_{c.write}), DT, WIDE)"
            lines.append(f"b_R{c.tag} = {k.masked(dot, exclusive=not c.decayed, strict=True)}")
            lines += ["b_da_in = tl.zeros((BC, BK), ACC)", "b_d_strength = tl.zeros((BC,), ACC)"]
            lines += [f"b_D_kk{s.tag} = tl.zeros((BC, BC), ACC)" for s in self.operands.streams]
        lines += ["b_passed = tl.zeros((BK,), ACC)"] * k.scalar
        return tuple(lines)

    def _block(self) -> tuple[str, ...]:
        k, c = self.k, self.k.correcting
        values = tuple(n for n, size in k.sizes.items() if size == "V")
        lines = list(k.operand_lines(values))
        lines += ["b_h = tl.load(w_states + o_s, mask=m_s, other=0.0)", "b_dh = tl.load(w_dstates + o_s, mask=m_s, other=0.0)"]
        lines += [*k.matrices(k.forward_matrices(), turned=False), *k.resolve_lines("b_h")]
        lines += self._out_lines()
        for i, s in enumerate(self.operands.streams):
            lines.append(f"b_dE{s.tag} = tl.load(w_dwrites + {k.write_address(i)}, mask=m_tv, other=0.0).to(ACC)")
        lines += self._value_lines()
        for r in self.operands.reads:
            lines.append(f"b_dq_in{r.tag} += {DOT}(b_d_read{r.tag}, tl.trans(b_h), DT, WIDE)")
            for s in self.operands.streams:
                lines.append(f"b_D_qk{r.tag}{s.tag} += {DOT}(b_d_read{r.tag}, tl.trans({k.write(s)}), DT, WIDE)")
        lines += [f"b_dw_end{s.tag} += {DOT}({k.write(s)}, tl.trans(b_dh), DT, WIDE)" for s in self.operands.streams]
        if c:
            lines.append(f"b_dR = {k.strength(c, f'b_dE{c.tag}')}")
            lines.append("b_da_in += " + f"{DOT}(b_dR, tl.trans(b_h), DT, WIDE)")
            lines += [f"b_D_kk{s.tag} += {DOT}(b_dR, tl.trans({k.write(s)}), DT, WIDE)" for s in self.operands.streams]
            if c.strength:
                lines.append(f"b_found += {DOT}(b_R{c.tag}, b_E{c.tag}, DT, WIDE)")
                lines.append(f"b_d_strength += tl.sum(b_dE{c.tag} * b_found, 1)")
        lines += ["b_passed += tl.sum(b_h.to(ACC) * b_dh.to(ACC), 1)"] * k.scalar
        return tuple(lines)

    def _out_lines(self) -> tuple[str, ...]:
        """Through the read-out: gradients of the reads and of the arguments that it uses."""
        k = self.k
        program, cotangents = self.out_adjoint
        used = mentioned(program.statements)
        lines = [line for role, value in cotangents for line in k.load_cotangent(role, value)]
        lines += list(k.read_lines("b_h")) if used & {r.name for r in k.reads} else []
        lines += [line for a in k.arguments if a.value.name in used for line in k.load(a)]
        lines += self.printer.lines(program.statements)
        found = dict(program.results)
        for r in self.operands.reads:
            operand = found.get(f"read{r.tag}")
            text = "tl.zeros((BC, BV), ACC)" if operand is None else self.printer.operand_tile(operand, self.form.value_axis)
            lines.append(f"b_d_read{r.tag} = {text}")
        reads = {r.name for r in k.reads}
        for name, gradient in program.results:
            if name not in reads:
                lines.append(
                    f"{'h' if name in self.sliced else 'g'}_{name} {'' if name in self.sliced else '+'}= {self.printer.operand(gradient)}"
                )
        return tuple(lines)

    def _value_lines(self) -> tuple[str, ...]:
        """Through the values written: their arguments, and the slices of those over the value axis are stored."""
        k = self.k
        program, cotangents = self.value_adjoint
        lines = []
        for role, value in cotangents:
            lines.append(f"b_{value.name} = {' + '.join(f'b_dE{s.tag}' for s in self.operands.streams if s.value == role)}")
        used = mentioned(program.statements)
        lines += [line for a in k.arguments if a.value.name in used for line in k.load(a)]
        lines += self.printer.lines(program.statements)
        through_readout = {name for name, _ in self.out_adjoint[0].results}
        found = dict(program.results)
        for name, gradient in program.results:
            if name not in self.sliced:
                lines.append(f"g_{name} += {self.printer.operand(gradient)}")
        for a in k.arguments:
            if not a.sliced:
                continue
            name = a.value.name
            parts = [self.printer.operand(found[name])] if name in found else []
            parts += [f"h_{name}"] if name in through_readout else []
            total = " + ".join(parts) or f"tl.zeros({self.printer.shape(a.value)}, ACC)"
            if a.per_token:
                lines += a.guarded(self._stored(a, total))
            else:
                address = f"pg_{a.info.name} + (i_p * HV + i_h) * V + o_v[None, :]"
                lines += a.guarded(f"tl.store({address}, {total}, mask=m_v[None, :])")
        return tuple(lines)

    def _stored(self, a: KernelArgument, text: str) -> str:
        """Stores the gradient of an input, one row per token and value head."""
        name = a.info.name
        if a.axis is None:
            return f"tl.store(pg_{name} + o_row, {text}, mask=m_t)"
        address = f"pg_{name} + o_row[:, None] * {a.axis.size} + {a.axis.offsets}[None, :]"
        return f"tl.store({address}, ({text}).to(pg_{name}.dtype.element_ty), mask={tile_mask(a.axis.mask)})"

    def _after(self) -> tuple[str, ...]:
        """From the sums over value blocks to the gradients of the key side's operands, then of their arguments."""
        k, c = self.k, self.k.correcting
        lines = [f"b_dq_in{r.tag} = {k.stretched(f'b_dq_in{r.tag}', r.stretch)}" for r in self.operands.reads]
        lines += [f"b_dw_end{s.tag} = {k.stretched(f'b_dw_end{s.tag}', 'end')}" for s in self.operands.streams]
        if c:
            lines.append(f"b_da_in = {k.stretched('b_da_in', 'start' if c.decayed else 'before')}")
        parts: dict[str, list[str]] = {}
        for s in self.operands.streams:
            parts.setdefault(s.write, []).append(f"b_dw_end{s.tag}")
        for r in self.operands.reads:
            parts.setdefault(r.query, []).append(f"b_dq_in{r.tag}")
            for s in self.operands.streams:
                lines += self._score(f"qk{r.tag}{s.tag}", r.query, s.write, parts, exclusive=bool(r.lag), strict=bool(r.lag))
        if c:
            parts.setdefault(c.correct, []).append("b_da_in")
            for s in self.operands.streams:
                lines += self._score(f"kk{s.tag}", c.correct, s.write, parts, exclusive=not c.decayed, strict=True)
            if c.strength:
                parts.setdefault(c.strength, []).append("b_d_strength")
        if k.scalar:
            lines += self._gate_lines()
            parts.setdefault("log_decay", []).append("b_dg")
        program, cotangents = self.key_adjoint
        for role, value in cotangents:
            first, *rest = parts[role]
            lines += [f"b_{value.name} = {first}", *(f"b_{value.name} += {part}" for part in rest)]
        used = mentioned(program.statements)
        loaded = mentioned(needed(k.program.statements, {x.name for x in self.arguments})) | used
        lines += [line for a in k.arguments if a.value.name in loaded and not a.sliced for line in k.load(a)]
        lines += self.printer.lines(program.statements)
        return (*lines, *self._add(program, skip=True))

    def _score(self, tag: str, left: str, right: str, parts: dict[str, list[str]], *, exclusive: bool, strict: bool) -> tuple[str, ...]:
        """The gradients of a score's operands."""
        parts.setdefault(left, []).append(f"{DOT}(b_P_{tag}, b_{right}, DT, WIDE)")
        parts.setdefault(right, []).append(f"{DOT}(tl.trans(b_P_{tag}), b_{left}, DT, WIDE)")
        return (f"b_P_{tag} = {self.k.masked(f'b_D_{tag}', exclusive=exclusive, strict=strict)}",)

    def _gate_lines(self) -> tuple[str, ...]:
        """The log decay's gradient: sums over the links that cross each token."""
        c = self.k.correcting
        inclusive: list[str] = []
        exclusive: list[str] = []
        for r in self.operands.reads:
            for s in self.operands.streams:
                tag = f"qk{r.tag}{s.tag}"
                (exclusive if r.lag else inclusive).append(f"{DOT}(b_{r.query}, tl.trans(b_{s.write}), DT, WIDE) * b_P_{tag}")
        if c:
            for s in self.operands.streams:
                term = f"{DOT}(b_{c.correct}, tl.trans(b_{s.write}), DT, WIDE) * b_P_kk{s.tag}"
                (inclusive if c.decayed else exclusive).append(term)
        start = [f"b_{r.query} * b_dq_in{r.tag}" for r in self.operands.reads if not r.lag]
        before = [f"b_{r.query} * b_dq_in{r.tag}" for r in self.operands.reads if r.lag]
        if c:
            (start if c.decayed else before).append(f"b_{c.correct} * b_da_in")
        end = [f"b_{s.write} * b_dw_end{s.tag}" for s in self.operands.streams]
        lines = ["b_dg = tl.sum(b_passed, 0) * b_through + tl.zeros((BC,), ACC)"]
        for links, mask in ((inclusive, "m_ij"), (exclusive, "m_before")):
            lines += [f"b_links {'+' if i else ''}= {link}" for i, link in enumerate(links)]
            lines += [f"b_dg += _tl_crossing(b_links, {mask}, BC, WIDE)"] if links else []
        if start:
            lines.append(f"b_dg += tl.sum(tl.where(m_ij, tl.sum({' + '.join(start)}, 1)[:, None], 0.0), 0)")
        if before:
            lines.append(f"b_dg += tl.sum(tl.where(m_before, tl.sum({' + '.join(before)}, 1)[:, None], 0.0), 0)")
        lines.append(f"b_dg += tl.sum(tl.where(m_after, tl.sum({' + '.join(end)}, 1)[:, None], 0.0), 0)")
        return (
            *lines,
            "if length > 0:  # always; Triton 3.6 for sm_100 fails at a param's sum over tokens of what no branch parts from a product",
            "    b_dg = tl.where(m_t, b_dg, 0.0)",
        )

    def _store(self) -> tuple[str, ...]:
        lines: list[str] = []
        for a in self.accumulated:
            name = f"g_{a.value.name}"
            if a.per_token:
                lines += a.guarded(self._stored(a, name))
            elif a.axis is None:
                lines += a.guarded(f"tl.store(pg_{a.info.name} + i_p * HV + i_h, {name})")
            else:
                address = f"pg_{a.info.name} + (i_p * HV + i_h) * {a.axis.size} + {a.axis.offsets}[None, :]"
                lines += a.guarded(f"tl.store({address}, {name}, mask={a.axis.mask}[None, :])")
        return tuple(lines)
