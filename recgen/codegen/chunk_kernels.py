"""The chunkwise Triton kernels' bodies: prepare, scan, reverse scan, gradients, as lines for `templates/triton/chunk.py.j2`.

Four kernels. `prepare`, for every chunk: the scores A^qk and R and the inverse A^kk, stored. `scan`, for every value block: the state in
registers, chunk after chunk; outputs are written directly. `reverse scan`: the gradient of the state likewise, backwards; the gradients of
the resolved right-hand sides are stored. `gradients`, for every chunk: everything else, from the states on both sides of the chunk.
"""

from __future__ import annotations

from dataclasses import dataclass

from recgen.analysis.normal_form import NormalForm
from recgen.codegen.tile_printer import TilePrinter, tile_mask
from recgen.codegen.triton_arguments import KernelArgument, kernel_arguments, kernel_axes
from recgen.codegen.triton_printer import Numbers
from recgen.codegen.triton_token import output_axis
from recgen.derive.gradient import differentiate
from recgen.derive.operands import OperandSet, StreamNames
from recgen.derive.program import Program, Value, assigned, complete, lower, mentioned, needed
from recgen.lang.terms import Read

DOT = "_tl_dot"
INTERNAL = frozenset(
    {
        "S",
        "dS",
        "h",
        "dh",
        "dR",
        "dg",
        "da_in",
        "d_strength",
        "found",
        "passed",
        "through",
        "log2",
        "coarse",
        "out",
        "links",
        "gamma",
        "gamma_before",
    }
    | {"Gc", "Gf", "Hc", "Hf", "Lc", "Lf", "from_start", "from_start_before", "to_end"}
)
"""Names that the kernels use for themselves, beside those that carry a read's or a stream's tag."""


@dataclass(frozen=True)
class Stored:
    """A [C, C] matrix that `prepare` keeps: its name and its place among them."""

    name: str
    slot: int


class ChunkKernels:
    """Lines of the four kernels of one form."""

    def __init__(self, form: NormalForm, operands: OperandSet) -> None:
        self.form, self.operands = form, operands
        self.scalar = form.decay.kind == "scalar"
        tags = [s.tag for s in operands.streams]
        internal = (
            {name for name, _ in operands.terms} | INTERNAL | {f"{x}{t}" for x in ("E", "Z", "dX", "dE", "dR", "R", "dw_end") for t in tags}
        )
        internal |= {f"{x}{r.tag}" for x in ("read", "d_read", "dq_in") for r in operands.reads}
        pairs = {f"qk{r.tag}{t}" for r in operands.reads for t in tags} | {f"kk{t}" for t in tags}
        internal |= {f"{x}_{p}" for x in ("A", "D", "P") for p in pairs} | {"A_kk"}
        self.arguments: tuple[KernelArgument, ...] = kernel_arguments(form, frozenset(internal))
        axes = tuple(dict.fromkeys(axis for a in form.recurrence.arguments for axis in a.axes))
        self.numbers = Numbers(axes)
        self.printer = TilePrinter(kernel_axes(form), self.numbers)
        self._names = {d.value: d.name for d in form.recurrence.definitions}
        self.reserved = frozenset(internal) | {a.value.name for a in self.arguments}
        inputs = tuple((a.term, a.value) for a in self.arguments)
        self.program = complete(lower(operands.terms, inputs, self._names, self.reserved), operands.terms)
        self.reads = tuple(Value(f"read{r.tag}", form.value_axis, False, True) for r in operands.reads)
        reads = tuple((Read(i, (form.value_axis, "1")), v) for i, v in enumerate(self.reads))
        outputs = tuple((o.name, o.value) for o in form.outputs)
        taken = self.reserved | assigned(self.program.statements)
        self.readout = complete(lower(outputs, (*inputs, *reads), self._names, taken), outputs)
        self.sizes = {o.name: o.size for o in operands.operands}

    # ------------------------------------------------------------- arguments

    def loads(self, program: Program, roles: tuple[str, ...]) -> tuple[str, ...]:
        """Loads of the arguments that these results of a program need, then the program's lines for them."""
        results = tuple((r, o) for r, o in program.results if r in roles)
        statements = needed(program.statements, {o.name for _, o in results if isinstance(o, Value)})
        used = mentioned(statements) | {o.name for _, o in results if isinstance(o, Value)}
        lines = [line for a in self.arguments if a.value.name in used for line in self.load(a)]
        return (*lines, *self.printer.lines(statements))

    def load(self, a: KernelArgument) -> tuple[str, ...]:
        """A tile of an argument, zeros beyond the sequence and in the padding."""
        name = a.info.name
        if not a.per_token:
            offsets = f" + {a.axis.offsets}[None, :] * s_{name}[1], mask={a.axis.mask}[None, :], other=0.0" if a.axis else ""
            return a.guarded(f"b_{a.value.name} = tl.load(p_{name}{offsets}).to(ACC)")
        if not a.axis:
            return a.guarded(f"b_{a.value.name} = tl.load(p_{name} + o_t * s_{name}[1], mask=m_t, other=0.0).to(ACC)")
        mask = tile_mask(a.axis.mask)
        address = f"p_{name} + o_t[:, None] * s_{name}[1] + {a.axis.offsets}[None, :] * s_{name}[3]"
        return a.guarded(f"b_{a.value.name} = tl.load({address}, mask={mask}, other=0.0).to(ACC)")

    def operand_lines(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """The named operands of a chunk: loads, expressions, and tiles under their names."""
        names = tuple(n for n in dict.fromkeys(names) if n)
        lines = list(self.loads(self.program, names))
        for name in names:
            axis = {"K": self.form.key_axis, "V": self.form.value_axis, "1": ""}[self.sizes[name]]
            lines.append(f"b_{name} = {self.printer.operand_tile(self.program.result(name), axis)}")
        return tuple(lines)

    # ----------------------------------------------------------------- decay

    def decay_lines(self, gamma: bool) -> tuple[str, ...]:
        """Cumulated decays of a chunk, as two sums (see the PyTorch form), and Γ where asked for."""
        if not self.scalar:
            return ()
        lines = [
            "b_log2 = tl.maximum(b_log_decay * 1.4426950408889634, -151.0)",
            "b_coarse = tl.floor(b_log2 * 512 + 0.5) / 512",
            "b_Gc, b_Gf = tl.cumsum(b_coarse, 0), tl.cumsum(b_log2 - b_coarse, 0)",
            "b_Lc, b_Lf = tl.sum(b_coarse, 0), tl.sum(tl.where(o_c == BC - 1, b_Gf, 0.0), 0)",
            "b_from_start = tl.exp2(tl.minimum(b_Gc + b_Gf, 0.0))",
            "b_to_end = tl.exp2(tl.minimum((b_Lc - b_Gc) + (b_Lf - b_Gf), 0.0))",
            "b_through = tl.exp2(tl.minimum(b_Lc + b_Lf, 0.0))",
        ]
        if self.before:
            lines += [
                "b_Hc, b_Hf = b_Gc - b_coarse, b_Gf - (b_log2 - b_coarse)",
                "b_from_start_before = tl.exp2(tl.minimum(b_Hc + b_Hf, 0.0))",
            ]
        if gamma:
            lines.append("b_gamma = _tl_gamma(b_Gc, b_Gf, b_Gc, b_Gf, m_ij)")
            lines += ["b_gamma_before = _tl_gamma(b_Hc, b_Hf, b_Gc, b_Gf, m_before)"] * self.before
        return tuple(lines)

    @property
    def before(self) -> bool:
        """Whether something reads the state before its decay."""
        return any(r.lag for r in self.operands.reads) or any(s.correct and not s.decayed for s in self.operands.streams)

    def stretched(self, text: str, stretch: str) -> str:
        """Rows scaled by the decay over a stretch."""
        return f"{text} * b_{_STRETCHES[stretch]}[:, None]" if self.scalar else text

    def masked(self, text: str, *, exclusive: bool, strict: bool) -> str:
        """A [C, C] matrix times the decay between its tokens, 0 where it is not causal."""
        if not self.scalar:
            return f"tl.where({'m_before' if strict or exclusive else 'm_ij'}, {text}, 0.0)"
        gamma = "b_gamma_before" if exclusive else "b_gamma"
        weighted = f"({text}) * {gamma}"
        return f"tl.where(m_before, {weighted}, 0.0)" if strict and not exclusive else weighted

    # --------------------------------------------------------------- prepare

    @property
    def correcting(self) -> StreamNames | None:
        """The stream that corrects, if there is one."""
        return next((s for s in self.operands.streams if s.correct), None)

    @property
    def plain(self) -> tuple[StreamNames, ...]:
        """The streams that do not correct."""
        return tuple(s for s in self.operands.streams if not s.correct)

    @property
    def stored(self) -> tuple[Stored, ...]:
        """The matrices that `prepare` keeps for the other kernels."""
        names = [f"A_qk{r.tag}{s.tag}" for r in self.operands.reads for s in self.operands.streams]
        if self.correcting:
            names += ["A_kk", *(f"R{p.tag}" for p in self.plain)]
        return tuple(Stored(name, i) for i, name in enumerate(names))

    def score_lines(self) -> tuple[str, ...]:
        """A^qk of every read and stream, R of the correction with every stream."""
        lines = []
        for r in self.operands.reads:
            for s in self.operands.streams:
                dot = f"{DOT}(b_{r.query}, tl.trans(b_{s.write}), DT, WIDE)"
                lines.append(f"b_A_qk{r.tag}{s.tag} = {self.masked(dot, exclusive=bool(r.lag), strict=bool(r.lag))}")
        c = self.correcting
        if c:
            for s in self.operands.streams:
                dot = f"{DOT}(b_{c.correct}, tl.trans(b_{s.write}), DT, WIDE)"
                lines.append(f"b_R{s.tag} = {self.masked(dot, exclusive=not c.decayed, strict=True)}")
        return tuple(lines)

    def prepare_lines(self) -> tuple[str, ...]:
        """The prepare kernel of one chunk."""
        k_side = [n for n, size in self.sizes.items() if size == "K" or n == "log_decay"]
        c = self.correcting
        lines = [*self.operand_lines((*k_side, *((c.strength,) if c else ()))), *self.decay_lines(gamma=True), *self.score_lines()]
        if c:
            lines.append(f"b_A_kk = _tl_unit_inverse({self.strength(c, f'b_R{c.tag}')}, BC, WIDE)")
        lines += [
            f"tl.store(w_matrices + ({m.slot} * BC + o_c[:, None]) * BC + o_c[None, :], b_{m.name}.to(w_matrices.dtype.element_ty))"
            for m in self.stored
        ]
        return tuple(lines)

    @staticmethod
    def strength(s: StreamNames, text: str) -> str:
        """c * text."""
        return f"b_{s.strength}[:, None] * {text}" if s.strength else text

    def matrices(self, names: tuple[str, ...], turned: bool) -> tuple[str, ...]:
        """Loads of stored matrices, transposed by their addresses where asked for."""
        rows, columns = ("o_c[None, :]", "o_c[:, None]") if turned else ("o_c[:, None]", "o_c[None, :]")
        places = {m.name: m.slot for m in self.stored}
        return tuple(f"b_{n} = tl.load(w_matrices + ({places[n]} * BC + {rows}) * BC + {columns})" for n in names)

    # ------------------------------------------------------------------ scan

    def resolve_lines(self, state: str) -> tuple[str, ...]:
        """The resolved writes E of the correcting stream from the incoming state."""
        c = self.correcting
        if not c:
            return ()
        stretch = "start" if c.decayed else "before"
        lines = [f"b_found = {self.stretched(f'{DOT}(b_{c.correct}, {state}, DT, WIDE)', stretch)}"]
        lines += [f"b_found += {DOT}(b_R{p.tag}, b_{p.value}, DT, WIDE)" for p in self.plain]
        known = f"b_{c.value} + " if c.value else ""
        lines.append(f"b_E{c.tag} = {DOT}(b_A_kk, {known}{self.strength(c, 'b_found')}, DT, WIDE)")
        return tuple(lines)

    def write(self, s: StreamNames) -> str:
        """The resolved writes of a stream."""
        return f"b_E{s.tag}" if s.correct else f"b_{s.value}"

    def read_lines(self, state: str) -> tuple[str, ...]:
        """What the queries read."""
        lines = []
        for r in self.operands.reads:
            lines.append(f"b_read{r.tag} = {self.stretched(f'{DOT}(b_{r.query}, {state}, DT, WIDE)', r.stretch)}")
            lines += [f"b_read{r.tag} += {DOT}(b_A_qk{r.tag}{s.tag}, {self.write(s)}, DT, WIDE)" for s in self.operands.streams]
        return tuple(lines)

    def state_lines(self) -> tuple[str, ...]:
        """The state at the chunk's end."""
        lines = ["b_S = b_S * b_through"] * self.scalar
        lines += [f"b_S += {DOT}(tl.trans(b_{s.write}), {self.stretched(self.write(s), 'end')}, DT, WIDE)" for s in self.operands.streams]
        return tuple(lines)

    def forward_matrices(self) -> tuple[str, ...]:
        """The stored matrices that a forward step reads."""
        return tuple(m.name for m in self.stored)

    def scan_lines(self) -> tuple[str, ...]:
        """One chunk of the scan, the state b_S in registers."""
        return (
            *self.operand_lines(tuple(self.sizes)),
            *self.decay_lines(gamma=False),
            *self.matrices(self.forward_matrices(), turned=False),
            *self.resolve_lines("b_S"),
            *self.read_lines("b_S"),
            *self.state_lines(),
            *self.loads(self.readout, tuple(o.name for o in self.form.outputs)),
            *self.store_output_lines(),
        )

    def store_output_lines(self) -> tuple[str, ...]:
        """Writes the outputs [B, T, HV, *axes]; those not over the value axis by the first value block alone."""
        lines = []
        for o in self.form.outputs:
            axis = output_axis(o.value)
            names = self.printer.axes[axis] if axis else None
            text = self.printer.operand_tile(self.readout.result(o.name), axis)
            row = f"p_{o.name} + o_row"
            if names is None:
                lines.append(f"tl.store({row}, {text}.to(p_{o.name}.dtype.element_ty), mask=tl.where(i_v == 0, m_t, False))")
                continue
            mask = tile_mask(names.mask) if axis == self.form.value_axis else f"tl.where(i_v == 0, {tile_mask(names.mask)}, False)"
            address = f"{row}[:, None] * {names.size} + {names.offsets}[None, :]"
            lines += [f"b_out = {text}", f"tl.store({address}, b_out.to(p_{o.name}.dtype.element_ty), mask={mask})"]
        return tuple(lines)

    # ----------------------------------------------------------- reverse scan

    def cotangent_lines(self, again: tuple[str, ...]) -> tuple[str, ...]:
        """The reads' gradients from the outputs'; `again` computes the reads where they are needed."""
        program, cotangents = self.readout_gradient(tuple(self.reads))
        loads: list[str] = []
        for (role, value), _ in zip(cotangents, self.form.outputs, strict=False):
            loads += self.load_cotangent(role, value)
        needed = mentioned(program.statements) & {r.name for r in self.reads}
        used = mentioned(program.statements)
        arguments = [line for a in self.arguments if a.value.name in used for line in self.load(a)]
        lines = [*(again if needed else ()), *arguments, *loads, *self.printer.lines(program.statements)]
        found = dict(program.results)
        for r in self.operands.reads:
            operand = found.get(f"read{r.tag}")
            text = "tl.zeros((BC, BV), ACC)" if operand is None else self.printer.operand_tile(operand, self.form.value_axis)
            lines.append(f"b_d_read{r.tag} = {text}")
        return tuple(lines)

    def readout_gradient(self, wanted: tuple[Value, ...]) -> tuple[Program, tuple[tuple[str, Value], ...]]:
        """The adjoint of the read-out for some of its inputs."""
        return differentiate(self.readout, wanted, self.reserved)

    def load_cotangent(self, role: str, value: Value) -> tuple[str, ...]:
        """Loads an output's gradient."""
        output = next(o for o in self.form.outputs if o.name == role)
        axis = output_axis(output.value)
        name = f"b_{value.name}"
        if not axis:
            return (f"{name} = tl.load(pd_{role} + o_t * sd_{role}[1], mask=m_t, other=0.0).to(ACC)",)
        names = self.printer.axes[axis]
        address = f"pd_{role} + o_t[:, None] * sd_{role}[1] + {names.offsets}[None, :] * sd_{role}[3]"
        return (f"{name} = tl.load({address}, mask={tile_mask(names.mask)}, other=0.0).to(ACC)",)

    @property
    def rereads(self) -> bool:
        """Whether a gradient through the read-out depends on what was read."""
        program, _ = self.readout_gradient((*self.reads, *(a.value for a in self.arguments)))
        return bool(mentioned(program.statements) & {r.name for r in self.reads})

    def again_lines(self) -> tuple[str, ...]:
        """E and the reads once more, from the state before the chunk in b_h."""
        names = self.forward_matrices()
        return (*self.matrices(names, turned=False), *self.resolve_lines("b_h"), *self.read_lines("b_h"))

    def reverse_lines(self) -> tuple[str, ...]:
        """One chunk of the reverse scan, the gradient of the outgoing state b_dS in registers."""
        c = self.correcting
        lines = [*self.operand_lines(tuple(self.sizes)), *self.decay_lines(gamma=False)]
        if self.rereads:
            lines.append("b_h = tl.load(w_states + o_s, mask=m_s, other=0.0).to(ACC)")
        lines += [*self.cotangent_lines(self.again_lines()), "tl.store(w_dstates + o_s, b_dS.to(w_dstates.dtype.element_ty), mask=m_s)"]
        lines += self.matrices(self.forward_matrices(), turned=True)
        for s in self.operands.streams:
            lines.append(f"b_Z{s.tag} = {self.stretched(f'{DOT}(b_{s.write}, b_dS, DT, WIDE)', 'end')}")
            lines += [f"b_Z{s.tag} += {DOT}(b_A_qk{r.tag}{s.tag}, b_d_read{r.tag}, DT, WIDE)" for r in self.operands.reads]
        if c:
            lines += [f"b_dX{c.tag} = {DOT}(b_A_kk, b_Z{c.tag}, DT, WIDE)", f"b_dR{c.tag} = {self.strength(c, f'b_dX{c.tag}')}"]
            lines += [f"b_Z{p.tag} += {DOT}(b_R{p.tag}, b_dR{c.tag}, DT, WIDE)" for p in self.plain]
        lines += ["b_dS = b_dS * b_through"] * self.scalar
        for r in self.operands.reads:
            lines.append(f"b_dS += {DOT}(tl.trans(b_{r.query}), {self.stretched(f'b_d_read{r.tag}', r.stretch)}, DT, WIDE)")
        if c:
            stretch = "start" if c.decayed else "before"
            lines.append(f"b_dS += {DOT}(tl.trans(b_{c.correct}), {self.stretched(f'b_dR{c.tag}', stretch)}, DT, WIDE)")
        lines += [
            f"tl.store(w_dwrites + {self.write_address(i)}, {self._write_gradient(s)}.to(w_dwrites.dtype.element_ty), mask=m_tv)"
            for i, s in enumerate(self.operands.streams)
        ]
        return tuple(lines)

    def _write_gradient(self, s: StreamNames) -> str:
        return f"b_dX{s.tag}" if s.correct else f"b_Z{s.tag}"

    @staticmethod
    def write_address(i: int) -> str:
        """Where the gradients of stream i's right-hand sides lie."""
        rows = f"({i} * total.to(tl.int64) * HV + o_row)" if i else "o_row"
        return f"{rows}[:, None] * V + o_v[None, :]"


_STRETCHES = {"start": "from_start", "before": "from_start_before", "end": "to_end"}
