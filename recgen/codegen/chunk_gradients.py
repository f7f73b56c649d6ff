"""The gradients kernel's body: every argument's gradient of one chunk, from the states on both of its sides."""

from __future__ import annotations

from dataclasses import dataclass

from recgen.codegen.chunk_decay import DOT, Boundary, Score, wide_dot
from recgen.codegen.chunk_kernels import ChunkKernels
from recgen.codegen.chunk_readout import load_cotangent, read_gradients
from recgen.codegen.chunk_writes import read_column_lines, read_lines, resolve_column_lines, resolve_lines
from recgen.codegen.tile_printer import tile_mask
from recgen.codegen.triton_arguments import KernelArgument
from recgen.codegen.triton_printer import INDENT
from recgen.derive.gradient import differentiate
from recgen.derive.operands import ReadNames
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
        sizes = kernels.sizes
        values = tuple(r for r in kernels.program.results if sizes.get(r[0]) == "V")
        keys = tuple(r for r in kernels.program.results if sizes.get(r[0], "V") != "V" and r[0] != "sign")
        reserved = kernels.reserved | assigned(kernels.program.statements) | assigned(kernels.readout.statements)
        self.value_adjoint = self._adjoint(values, reserved)
        reserved |= assigned(self.value_adjoint[0].statements)
        self.key_adjoint = self._adjoint(keys, reserved)
        reserved |= assigned(self.key_adjoint[0].statements)
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

    def _add(self, adjoint: Program) -> tuple[str, ...]:
        """Adds an adjoint's results to the accumulators."""
        lines = []
        for name, gradient in adjoint.results:
            if name in self.sliced:
                continue
            lines.append(f"g_{name} += {self.printer.operand(gradient)}")
        return tuple(lines)

    # -------------------------------------------------------------- the parts

    def _before(self) -> tuple[str, ...]:
        k = self.k
        lines = [*k.operand_lines(self._in_blocks()), *(self._zero(a) for a in self.accumulated)]
        lines += k.decay.load_kept(self._kept()) if k.decay.vector else k.decay.cumulate()
        lines += k.decay.cumulate() if k.decay.vector and self.operands.across else ()
        lines += k.between_tokens()
        lines += [f"b_dq{r.tag} = tl.zeros((BC, BK), ACC)" for r in self.operands.ordinary]
        lines += [f"b_{x}{r.tag} = tl.zeros((BC, BK), ACC)" for r in self.operands.across for x in ("across", "d_across")]
        lines += [f"b_dw{s.tag} = tl.zeros((BC, BK), ACC)" for s in self.operands.streams]
        lines += [f"b_da{s.tag} = tl.zeros((BC, BK), ACC)" for s in k.feedback]
        lines += [f"b_D_{score.tag} = tl.zeros((BC, BC), ACC)" for score in self._scores]
        lines += ["b_dl = tl.zeros((BC,), ACC)"] * self.operands.stabilized
        return (*lines, *k.decay.passed()[:1], *self._columns_before())

    def _columns_before(self) -> tuple[str, ...]:
        """Further columns: their states and gradients at the chunk's borders, and what was written and read."""
        k = self.k
        if not k.columns:
            return ()
        lines = [*k.operand_lines(tuple(c for s in self.operands.streams for c in s.columns)), *k.matrices(turned=False)]
        lines += [f"b_h_{c} = tl.load(w_states_{c} + o_k, mask=m_k, other=0.0).to(ACC)" for c in k.columns]
        lines += [*resolve_column_lines(k, "b_h"), *(read_column_lines(k, "b_h") if self._again else ())]
        loop = []
        for n, c in enumerate(k.columns):
            lines.append(f"b_dh_{c} = tl.zeros((BK,), ACC)")
            loop.append(f"b_dh_{c} += tl.load(w_dstates_{c} + i_part * K + o_k, mask=m_k, other=0.0)")
            for i, s in enumerate(self.operands.streams):
                if k.column_write(s, n):
                    lines.append(f"b_dE{s.tag}_{c} = tl.zeros((BC,), ACC)")
                    row = f"w_dwrites_{c} + {k.column_row(i)} * PARTS + i_part"
                    loop.append(f"b_dE{s.tag}_{c} += tl.load({row}, mask=m_t, other=0.0)")
        return (*lines, "for i_part in range(PARTS):  # each value block of the reverse scan knows a part", *(INDENT + x for x in loop))

    def _columns_block(self) -> tuple[str, ...]:
        """What came to the reads of further columns through one value block."""
        k = self.k
        lines = []
        for n, c in enumerate(k.columns):
            for r in self.operands.reads:
                lines.append(f"b_dq{r.tag} += b_d_read{r.tag}_{c}[:, None] * b_h_{c}[None, :]")
                written = ((s, k.column_write(s, n)) for s in self.operands.streams)
                lines += [f"b_D_A_qk{r.tag}{s.tag} += b_d_read{r.tag}_{c}[:, None] * {x}[None, :]" for s, x in written if x]
        return tuple(lines)

    def _columns_after(self) -> tuple[str, ...]:
        """What further columns add to the sums over value blocks."""
        k = self.k
        lines = []
        for n, c in enumerate(k.columns):
            written = [(s, k.column_write(s, n)) for s in self.operands.streams if k.column_write(s, n)]
            lines += [f"b_dw{s.tag} += {x}[:, None] * b_dh_{c}[None, :]" for s, x in written]
            for s in k.feedback:
                lines.append(f"b_da{s.tag} += b_dE{s.tag}_{c}[:, None] * b_h_{c}[None, :]")
                lines += [f"b_D_R{s.tag}{r.tag} += b_dE{s.tag}_{c}[:, None] * {x}[None, :]" for r, x in written]
            lines += [f"b_passed += b_h_{c} * b_dh_{c}"] * k.decay.gated
            if self.operands.stabilized:
                lines += [f"b_dl += {x} * b_dE{s.tag}_{c}" for s, x in written]
        return tuple(lines)

    @property
    def _across_scores(self) -> tuple[Score, ...]:
        """Those of reads across, for gradients summed over the value blocks."""
        return tuple(s for r in self.operands.across for s in self.k.across_scores(r, f"d_across{r.tag}", f"across{r.tag}"))

    @property
    def _scores(self) -> tuple[Score, ...]:
        return (*self.k.read_scores, *self._across_scores, *self.k.found_scores)

    @property
    def _again(self) -> bool:
        """Whether a value block computes the reads again."""
        return bool(mentioned(self.out_adjoint[0].statements) & {r.name for r in self.k.reads})

    def _in_blocks(self) -> tuple[str, ...]:
        """The operands of the key side that a value block needs; all others are loaded after the loop, to leave it the registers."""
        k = self.k
        names = [s.strength for s in k.feedback]
        if not k.decay.vector:
            names += [*k.decay.names, *(s.correct for s in k.feedback), *(r.query for r in self.operands.ordinary if self._again)]
        return (*names, *k.across_side)

    def _kept(self) -> tuple[str, ...]:
        """The kept rows that a value block needs."""
        queries = tuple(f"query_in{r.tag}" for r in self.operands.ordinary if self._again)
        return (*queries, *(f"correct_in{s.tag}" for s in self.k.feedback))

    def _block(self) -> tuple[str, ...]:
        k = self.k
        values = tuple(n for n, size in k.sizes.items() if size == "V")
        lines = list(k.operand_lines(values))
        lines += ["b_h = tl.load(w_states + o_s, mask=m_s, other=0.0)", "b_dh = tl.load(w_dstates + o_s, mask=m_s, other=0.0)"]
        lines += [*k.matrices(turned=False), *resolve_lines(k, "b_h")]
        lines += self._out_lines()
        for i, s in enumerate(self.operands.streams):
            rows, address = k.write_address(i)
            lines += [*rows, f"b_dE{s.tag} = tl.load(w_dwrites + {address}, mask=m_tv, other=0.0).to(ACC)"]
        for r in self.operands.across:
            lines += self._across_lines(r)
        if self.operands.stabilized:  # the weight scales everything that is written
            lines += [f"b_dl += tl.sum({k.write(s)} * b_dE{s.tag}, 1)" for s in self.operands.streams]
        lines += self._value_lines()
        for r in self.operands.ordinary:
            lines.append(f"b_dq{r.tag} += {self._with_state(f'b_d_read{r.tag}', 'b_h')}")
            lines += [f"b_D_A_qk{r.tag}{s.tag} += {DOT}(b_d_read{r.tag}, tl.trans({k.write(s)}), DT, WIDE)" for s in self.operands.streams]
        lines += [f"b_dw{s.tag} += {self._with_state(k.write(s), 'b_dh')}" for s in self.operands.streams]
        for s in k.feedback:
            lines.append(f"b_da{s.tag} += {self._with_state(f'b_dE{s.tag}', 'b_h')}")
            lines += [f"b_D_R{s.tag}{r.tag} += {DOT}(b_dE{s.tag}, tl.trans({k.write(r)}), DT, WIDE)" for r in self.operands.streams]
        return (*lines, *self._columns_block(), *k.decay.passed()[1:])

    def _with_state(self, rows: str, state: str) -> str:
        """rows @ state^T, [C, K]: a state that is kept in float32 is multiplied so."""
        turned = f"tl.trans({state})"
        return wide_dot(rows, turned) if self.k.keeps_float32 else f"{DOT}({rows}, {turned}, DT, WIDE)"

    def _across_lines(self, r: ReadNames) -> tuple[str, ...]:
        """A read across: the query's gradient, and the sums from which those of the write directions and the gate are made."""
        k, tag = self.k, r.tag
        weights = [(s, f"A_qe{tag}{s.tag}") for s in self.operands.streams]
        return (
            f"b_d_start{tag} = b_d_read{tag}",
            *k.decay.decayed(f"b_d_start{tag}", r.stretch),
            f"b_dq{tag} = {DOT}(b_d_start{tag}, b_h, DT, WIDE)",
            *k.decay.scores(k.across_scores(r, f"d_read{tag}", "")),
            *(f"b_dq{tag} += {DOT}(b_{name}, {k.write(s)}, DT, WIDE)" for s, name in weights),
            f"b_d_across{tag} += b_d_read{tag}",
            f"b_across{tag} += {self._with_state(f'b_{r.query}', 'b_h')}",
            *(f"b_D_{name} += {DOT}(b_{r.query}, tl.trans({k.write(s)}), DT, WIDE)" for s, name in weights),
        )

    def _out_lines(self) -> tuple[str, ...]:
        """Through the read-out: gradients of the reads and of the arguments that it uses."""
        k = self.k
        program, cotangents = self.out_adjoint
        used = mentioned(program.statements)
        lines = [line for role, value in cotangents for line in load_cotangent(k, role, value)]
        lines += list(read_lines(k, "b_h")) if used & {r.name for r in k.reads} else []
        lines += [line for a in k.arguments if a.value.name in used for line in k.load(a)]
        lines += self.printer.lines(program.statements)
        lines += read_gradients(k, program)
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
            parts = [f"b_dE{s.tag}" for s in self.operands.streams if s.value == role]
            parts += [f"b_dq{r.tag}" for r in self.operands.across if r.query == role]
            lines.append(f"b_{value.name} = {' + '.join(parts)}")
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
        """From the sums over value blocks to the gradients of the key side's operands, then of their arguments.

        With c the strength, `da` is the gradient of c * a: that of c is rowsum(a * da), since what a correction finds is linear in a.
        """
        k = self.k
        boundaries = [Boundary(r.query, f"dq{r.tag}", r.stretch, factor=k.factors.get(r.query, "")) for r in self.operands.ordinary]
        boundaries += [Boundary(f"d_across{r.tag}", f"across{r.tag}", r.stretch) for r in self.operands.across]
        boundaries += [Boundary(s.correct, f"da{s.tag}", s.stretch, s.strength) for s in k.feedback]
        boundaries += [Boundary(s.write, f"dw{s.tag}", "end") for s in self.operands.streams]
        scores = self._scores
        lines = [*self._columns_after(), *k.operand_lines(k.key_side), *k.decay.cumulate(), *k.decay.gammas()]
        lines += k.matrices(turned=False, names=tuple(s.tag for s in scores)) if k.decay.links_scores else ()
        lines += k.decay.scores(self._across_scores) if k.decay.links_scores else ()
        lines += k.decay.adjoint(scores, tuple(boundaries))
        parts: dict[str, list[str]] = {}
        for r in self.operands.ordinary:
            parts.setdefault(r.query, []).append(f"b_dq{r.tag}")
        for s in k.feedback:
            parts.setdefault(s.correct, []).append(k.strength(s, f"b_da{s.tag}"))
            if s.strength:
                parts.setdefault(s.strength, []).append(f"tl.sum(b_{s.correct} * b_da{s.tag}, 1)")
        for s in self.operands.streams:
            parts.setdefault(s.write, []).append(f"b_dw{s.tag}")
            for c, operand in zip(k.columns, s.columns, strict=False):
                parts.setdefault(operand, []).append(f"b_dE{s.tag}_{c}")
        if k.decay.gated:
            parts.setdefault("log_decay", []).append("b_dg")
        if self.operands.stabilized:
            parts["log_weight"] = ["b_dl"]
        program, cotangents = self.key_adjoint
        for role, value in cotangents:
            first, *rest = parts[role]
            lines += [f"b_{value.name} = {first}", *(f"b_{value.name} += {part}" for part in rest)]
        used = mentioned(program.statements)
        loaded = mentioned(needed(k.program.statements, {x.name for x in self.arguments})) | used
        lines += [line for a in k.arguments if a.value.name in loaded and not a.sliced for line in k.load(a)]
        lines += self.printer.lines(program.statements)
        return (*lines, *self._add(program))

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
