"""The adjoint of one token as lines of a Triton kernel.

N is the gradient of the state, by the tokens after this one on entry, by this token too on exit; G that of the decayed state. A program
holds one block of the value axis, so gradients of scalars and key vectors are partial sums over it, which the host adds up: the adjoint of
the spec's own expressions is linear, hence may be applied to the parts.
"""

from __future__ import annotations

from dataclasses import dataclass

from recgen.codegen.triton_arguments import KernelArgument
from recgen.codegen.triton_printer import INDENT
from recgen.codegen.triton_token import DECAY, VALUE_DECAY, StreamText, Token, output_axis
from recgen.derive.gradient import differentiate
from recgen.derive.operands import ReadNames, StreamNames
from recgen.derive.program import Branch, Literal, Operand, Program, Statement, Value, assigned


@dataclass(frozen=True)
class Adjoint:
    """The printed adjoint of one token, in the order in which it runs, and what it leaves behind for every argument."""

    reads_before: tuple[str, ...]
    reads_after: tuple[str, ...]
    cotangents: tuple[str, ...]
    readout: tuple[str, ...]
    state: tuple[str, ...]
    operands: tuple[str, ...]
    stores: tuple[str, ...]
    carry: tuple[str, ...]
    start_sums: tuple[str, ...]
    store_sums: tuple[str, ...]


class AdjointPrinter:
    """Derives and prints it."""

    def __init__(self, token: Token) -> None:
        self.token = token
        self.printer = token.printer
        arguments = tuple(a.value for a in token.arguments)
        self.readout, self.output_cotangents = differentiate(token.readout_program, (*token.reads, *arguments), token.reserved)
        reserved = token.reserved | assigned(self.readout.statements) | {v.name for _, v in self.output_cotangents}
        self.operands, self.cotangents = differentiate(token.operand_program, arguments, reserved)

    def build(self) -> Adjoint:
        """Every part, printed."""
        known = {*self.token.once, *self.token.operand_program.statements}
        needed = _read(self.readout)
        return Adjoint(
            reads_before=tuple(line for name, line in self.token.read_lines(1) if name in needed),
            reads_after=tuple(line for name, line in self.token.read_lines(0) if name in needed),
            cotangents=self._cotangent_lines(),
            readout=(*self._fresh(self.readout, known), *self._read_lines()),
            state=self._state_lines(),
            operands=(*self._operand_cotangents(), *self._fresh(self.operands, known)),
            stores=tuple(line for a in self.token.arguments for line in self._store(a)),
            carry=self._carry_lines(),
            start_sums=tuple(line for a in self.token.arguments if not a.per_token for line in a.guarded(_zeros(a))),
            store_sums=tuple(line for a in self.token.arguments if not a.per_token for line in a.guarded(_store_sum(a))),
        )

    def _fresh(self, adjoint: Program, known: set[Statement]) -> tuple[str, ...]:
        """The adjoint's statements without those whose values are at hand."""
        return self.printer.lines(tuple(s for s in adjoint.statements if s not in known))

    def _cotangent_lines(self) -> tuple[str, ...]:
        """Loads of the outputs' gradients at token `at`; zeros for an output whose gradient is None or another block's business."""
        lines: list[str] = []
        values = {o.name: o.value for o in self.token.form.outputs}
        for name, value in self.output_cotangents:
            axis = output_axis(values[name])
            names = self.printer.axes[axis] if axis else None
            offsets = f" + {names.offsets} * ds_{name}[3]" if names else ""
            load = f"tl.load(dp_{name} + at * ds_{name}[1]{offsets}, mask={self.token.output_mask(axis)}, other=0.0).to(ACC)"
            shape = f"({names.block},)" if names else "()"
            lines += [f"if dp_{name} is not None:", f"{INDENT}b_{value.name} = {load}", "else:"]
            lines.append(f"{INDENT}b_{value.name} = tl.full({shape}, 0.0, ACC)")
        return tuple(lines)

    def _read_lines(self) -> tuple[str, ...]:
        """dR, the gradient of every read that an output depends on."""
        gradients = dict(self.readout.results)
        reads = [r.name for r in self.token.reads if r.name in gradients]
        return tuple(f"b_d{name} = {self.printer.masked(gradients[name])}" for name in reads)

    def _active_reads(self) -> list[ReadNames]:
        """The reads that matter, those of the state before the token last."""
        gradients = dict(self.readout.results)
        return sorted((r for r in self.token.operands.reads if f"R{r.tag}" in gradients), key=lambda r: r.lag)

    def _through_reads(self, memory: str) -> list[str]:
        """What the reads of a block add to its gradient."""
        return [self._into_state(r) for r in self._active_reads() if self.token.memory(r) == memory]

    def _gradient_of_state(self, slot: int) -> str:
        """The block of the gradient of the state after a micro-step that writes."""
        return "b_N" if slot == self.token.slots[-1] else f"b_N_{slot}"

    def _column_reads(self, lag: int, end: str) -> list[tuple[ReadNames, str]]:
        """The reads at this lag that matter of the column whose names end so, each with its gradient."""
        gradients = dict(self.readout.results)
        reads = self.token.operands.reads
        return [(r, f"b_dR{r.tag}{end}") for r in reads if r.lag == lag and f"R{r.tag}{end}" in gradients]

    def _into_state(self, read: ReadNames) -> str:
        """The gradient of the state [K, V] through a read."""
        query, d = self.token.text(read.query), f"b_dR{read.tag}"
        return f"{d}[:, None] * {query}[None, :]" if read.across else f"{query}[:, None] * {d}[None, :]"

    @property
    def _weight(self) -> str:
        """What the gradients of resolved writes are multiplied with."""
        return "b_weight * " if self.token.stabilized else ""

    def _column_state(self, column: int, end: str) -> tuple[str, ...]:
        """As for the matrix, of a further column."""
        lines = [f"b_N{end} += {self.token.text(r.query)} * {d}" for r, d in self._column_reads(0, end)]
        total = [f"b_N{end}"]
        for s in self.token.streams:
            if s.correct or s.at(column):
                lines.append(f"b_dE{s.tag}{end} = {self._weight}tl.sum({s.write} * b_N{end}, 0)")
            if s.correct:
                strength = f"{s.strength} * " if s.strength else ""
                lines.append(f"b_dU{s.tag}{end} = {strength}b_dE{s.tag}{end}")
                total += [f"{s.correct} * b_dU{s.tag}{end}"] * (s.memory != "b_M")
        return (*lines, f"b_G{end} = {' + '.join(total)}")

    def _state_lines(self) -> tuple[str, ...]:
        """N with this token's reads, then dE and dU of every stream, and N of the state before it, from the last micro-step to G."""
        lines = [f"b_N += {part}" for part in self._through_reads("b_S")]
        for slot in reversed(self.token.slots):
            after, memory = self._gradient_of_state(slot), self.token.before(slot)
            total = [after]
            for s in self.token.streams:
                if s.slot != slot:
                    continue
                lines.append(f"b_dE{s.tag} = {self._weight}tl.sum({s.write}[:, None] * {after}, 0)")
                if s.correct:
                    lines.append(f"b_dU{s.tag} = {s.strength} * b_dE{s.tag}" if s.strength else f"b_dU{s.tag} = b_dE{s.tag}")
                    if s.memory == memory:
                        total.append(f"{s.correct}[:, None] * b_dU{s.tag}[None, :]")
            before = [x for x in self.token.slots if x < slot]
            target = self._gradient_of_state(before[-1]) if before else "b_G"
            lines.append(f"{target} = {' + '.join([*total, *self._through_reads(memory)])}")
        for column, end in self.token.columns_at:
            lines += self._column_state(column, end)
        return tuple(lines)

    def _carry_lines(self) -> tuple[str, ...]:
        """N before this token."""
        lines: list[str] = []
        decay = self.token.decay_text if self.token.decay_factor() else ""
        terms = [" * ".join([*filter(None, (self.token.decay_factor(), self.token.value_factor)), "b_G"])]
        terms += [f"{s.correct}[:, None] * b_dU{s.tag}[None, :]" for s in self.token.streams if s.correct and s.memory == "b_M"]
        terms += self._through_reads("b_M")
        lines += [f"b_N = {' + '.join(terms)}", "b_S = b_M"]
        for _, end in self.token.columns_at:
            terms = [f"{decay} * b_G{end}" if decay else f"b_G{end}"]
            terms += [f"{s.correct} * b_dU{s.tag}{end}" for s in self.token.streams if s.correct and s.memory == "b_M"]
            terms += [f"{self.token.text(r.query)} * {d}" for r, d in self._column_reads(1, end)]
            lines += [f"b_N{end} = {' + '.join(terms)}", f"b_S{end} = b_M{end}"]
        return tuple(lines)

    def _operand_cotangents(self) -> tuple[str, ...]:
        """The gradient of every operand, summed over the roles that it plays."""
        parts = self._parts()
        used = _read(self.operands)
        wanted = [(role, value) for role, value in self.cotangents if value.name in used]
        return tuple(f"b_{value.name} = {' + '.join(parts.get(role) or [self._zeros(value)])}" for role, value in wanted)

    def _zeros(self, value: Value) -> str:
        """Zeros of the shape of a value."""
        return f"tl.full({f'({self.printer.axes[value.axis].block},)' if value.axis else '()'}, 0.0, ACC)"

    def _parts(self) -> dict[str, list[str]]:
        """Operand name -> what each of its roles contributes."""
        parts: dict[str, list[str]] = {}
        for r in self._active_reads():
            d, state = f"b_dR{r.tag}", self.token.memory(r)
            part = f"tl.sum({state} * {d}[:, None], 0)" if r.across else f"tl.sum({state} * {d}[None, :], 1)"
            parts.setdefault(r.query, []).append(part)
        for names, s in zip(self.token.operands.streams, self.token.streams, strict=True):
            self._write_parts(parts, names, s)
        for column, end in self.token.columns_at:
            for lag, state in ((0, f"b_S{end}"), (1, f"b_M{end}")):
                for r, d in self._column_reads(lag, end):
                    parts.setdefault(r.query, []).append(f"{state} * {d}")
            for names, s in zip(self.token.operands.streams, self.token.streams, strict=True):
                if s.correct or s.at(column):
                    self._column_parts(parts, names, s, column, end)
        vector = self.token.form.decay.kind == "vector"
        scaled = " * ".join(filter(None, ("b_G * b_M", self.token.value_factor)))
        products = [f"tl.sum({scaled}, 1)" if vector else f"tl.sum(tl.sum({scaled}, 1), 0)"]
        columns = (f"b_G{end} * b_M{end}" for _, end in self.token.columns_at)
        products += [x if vector else f"tl.sum({x}, 0)" for x in columns]
        if self.token.value_factor:
            parts[VALUE_DECAY] = [f"tl.sum({' * '.join(filter(None, ('b_G * b_M', self.token.decay_factor())))}, 0)"]
        if self.token.stabilized:
            parts["log_decay"] = [f"b_decay * ({' + '.join(products)})"]
        else:
            parts[DECAY] = products
        return parts

    def _write_parts(self, parts: dict[str, list[str]], names: StreamNames, s: StreamText) -> None:
        """What one stream's write into the matrix contributes."""
        parts.setdefault(names.write, []).append(f"{self._weight}tl.sum({self._gradient_of_state(s.slot)} * b_E{s.tag}[None, :], 1)")
        parts.setdefault(names.value, []).append(f"b_dE{s.tag}")
        if self.token.stabilized:
            parts.setdefault("log_weight", []).append(f"tl.sum(b_dE{s.tag} * b_E{s.tag}, 0)")
        if names.correct:
            answers = f"b_dE{s.tag} * b_U{s.tag}"
            parts.setdefault(names.strength, []).append(answers if names.by_channel else f"tl.sum({answers}, 0)")
            parts.setdefault(names.correct, []).append(f"tl.sum({s.memory} * b_dU{s.tag}[None, :], 1)")

    def _column_parts(self, parts: dict[str, list[str]], names: StreamNames, s: StreamText, column: int, end: str) -> None:
        """What one stream's write into a further column contributes."""
        parts.setdefault(names.write, []).append(f"{self._weight}b_N{end} * b_E{s.tag}{end}")
        parts.setdefault(names.columns[column], []).append(f"b_dE{s.tag}{end}")
        if self.token.stabilized:
            parts.setdefault("log_weight", []).append(f"b_dE{s.tag}{end} * b_E{s.tag}{end}")
        if names.correct:
            parts.setdefault(names.strength, []).append(f"b_dE{s.tag}{end} * b_U{s.tag}{end}")
            parts.setdefault(names.correct, []).append(f"{s.memory}{end} * b_dU{s.tag}{end}")

    def _gradient(self, argument: KernelArgument) -> str:
        """The gradient of an argument at this token, from the operands and from the read-out."""
        found = [dict(p.results).get(argument.value.name) for p in (self.operands, self.readout)]
        texts = [self.printer.operand(v) for v in found if v is not None]
        if texts:
            return " + ".join(texts)
        return f"tl.full({_shape(argument)}, 0.0, ACC)"

    def _store(self, argument: KernelArgument) -> tuple[str, ...]:
        """Writes an input's gradient, or adds a param's up."""
        name, axis = argument.info.name, argument.axis
        gradient = self._gradient(argument)
        if not argument.per_token:
            return argument.guarded(f"sum_{name} += {gradient}")
        value = f"({gradient})" if " " in gradient else gradient
        offsets, mask = (f" + {axis.offsets}", f", mask={axis.mask}") if axis else ("", "")
        where = f"dp_{name} + {argument.gradient_row('row')}{offsets}"
        return argument.guarded(f"tl.store({where}, {value}.to(dp_{name}.dtype.element_ty){mask})")


def _shape(argument: KernelArgument) -> str:
    return f"({argument.axis.block},)" if argument.axis else "()"


def _zeros(argument: KernelArgument) -> str:
    return f"sum_{argument.info.name} = tl.full({_shape(argument)}, 0.0, ACC)"


def _store_sum(argument: KernelArgument) -> str:
    """Writes a param's partial gradient, of one sequence and head, and of one value block unless that holds a slice of it."""
    name, axis = argument.info.name, argument.axis
    row = "i_n * HV + i_h" if argument.sliced else "(i_n * NV + i_v) * HV + i_h"
    offsets, mask = (f" + {axis.offsets}", f", mask={axis.mask}") if axis else ("", "")
    return f"tl.store(dp_{name} + ({row}){argument.entries}{offsets}, sum_{name}{mask})"


def _read(program: Program) -> set[str]:
    """Every name that a program's statements and results read."""

    def read(statements: tuple[Statement, ...]) -> set[str]:
        names: set[str] = set()
        for s in statements:
            names |= read(s.then) | read(s.otherwise) if isinstance(s, Branch) else _values(s.args)
        return names

    return read(program.statements) | _values(tuple(v for _, v in program.results))


def _values(operands: tuple[Operand, ...]) -> set[str]:
    return {o.name for o in operands if not isinstance(o, Literal)}
