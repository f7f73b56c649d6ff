"""One token of a recurrence as lines of a Triton kernel: operands, the state's update, reads and outputs.

Block names: M the state before the token, D the decayed one, S the state after the token, U what a state answers to a correction, E a
resolved write, R a read; operands are named after their roles, everything else carries the user's own names. Vector states beside the
matrix have the same blocks with their names behind, of one column [BK]: every value block carries them, the first one stores them.
"""

from __future__ import annotations

from dataclasses import dataclass

from recgen.analysis.normal_form import NormalForm
from recgen.codegen.triton_arguments import KernelArgument, kernel_arguments, kernel_axes
from recgen.codegen.triton_printer import Numbers, ProgramPrinter
from recgen.derive.operands import OperandSet, ReadNames
from recgen.derive.program import Branch, Literal, Statement, Value, assigned, lower
from recgen.derive.reads import read_set
from recgen.lang.terms import Apply, Term

DECAY, VALUE_DECAY = "decay", "value_decay"


@dataclass(frozen=True)
class StreamText:
    """One write stream in a kernel: the operand that each role reads, "" where it has none.

    `memory`: the block that its correction reads, the state before its micro-step.
    """

    tag: str
    write: str
    value: str
    strength: str
    correct: str
    decayed: bool
    memory: str
    slot: int
    columns: tuple[str, ...]

    def at(self, column: int) -> str:
        """What it writes into a further column."""
        return self.columns[column]


def multiplier(log: Term) -> Term:
    """exp(log) as the spec wrote it, so that a multiplier of 0 stays one: logarithms that the analyzer took are undone."""
    match log:
        case Apply("log_floor", (factor,)):
            return factor
        case Apply("logsigmoid", args):
            return Apply("sigmoid", args, log.shape, "", log.span)
        case Apply("add", (a, b)) if _taken(a) or _taken(b):
            return Apply("mul", (multiplier(a), multiplier(b)), log.shape, "", log.span)
    return Apply("exp", (log,), log.shape, "", log.span)


def _taken(log: Term) -> bool:
    """Whether a logarithm is among the summands."""
    if isinstance(log, Apply) and log.op == "add":
        return any(_taken(a) for a in log.args)
    return isinstance(log, Apply) and log.op in ("log_floor", "logsigmoid")


class Token:
    """The programs of one token, lowered, and their printer."""

    def __init__(self, form: NormalForm, operands: OperandSet) -> None:
        internal = frozenset({"S", "M", "N", "D", "G"} | {f"{x}{s.tag}" for s in operands.streams for x in ("U", "E", "dE", "dU")})
        internal |= {f"{x}{r.tag}" for r in operands.reads for x in ("R", "dR")}
        internal |= {f"{x}_{s.slot}" for s in operands.streams for x in "DN"}
        internal |= {f"{x}_{c.name}" for x in internal for c in form.columns} | {name for name, _ in operands.terms}
        internal |= {DECAY, VALUE_DECAY, "scale", "maximum", "weight"}
        self.form = form
        self.operands = operands
        self.arguments: tuple[KernelArgument, ...] = kernel_arguments(form, internal)
        self.numbers = Numbers(tuple(dict.fromkeys(axis for a in form.recurrence.arguments for axis in a.axes)))
        self.printer = ProgramPrinter(kernel_axes(form), self.numbers)
        names = {d.value: d.name for d in form.recurrence.definitions}
        inputs = tuple((a.term, a.value) for a in self.arguments)
        self.reserved = internal | {a.value.name for a in self.arguments}
        self.columns = tuple(c.name for c in form.columns)
        self.stabilized = operands.stabilized
        logs = () if self.stabilized else ("log_decay", "value_log_decay", *self.operands.signs)
        self.roles = tuple((name, term) for name, term in operands.terms if name not in logs)
        if form.decay.log is not None and not self.stabilized:
            self.roles += ((DECAY, form.decay.signed if form.decay.signed is not None else multiplier(form.decay.log)),)
        if form.value_decay.log is not None:
            gamma = form.value_decay.signed
            self.roles += ((VALUE_DECAY, gamma if gamma is not None else multiplier(form.value_decay.log)),)
        self.operand_program = lower(self.roles, inputs, names, self.reserved)
        self.reserved |= assigned(self.operand_program.statements)
        self.read_set = read_set(form, operands, "R")
        self.reads = self.read_set.differentiable
        outputs = tuple((o.name, o.value) for o in form.outputs)
        self.readout_program = lower(outputs, (*inputs, *self.read_set.inputs), names, self.reserved)
        self.reserved |= assigned(self.readout_program.statements)
        self.once = tuple(s for p in (self.operand_program, self.readout_program) for s in p.statements if not per_token(s))
        self.once_lines = self.printer.lines(self.once)
        self.operand_lines = self.printer.lines(tuple(s for s in self.operand_program.statements if per_token(s))) + self._named()
        self.readout_lines = self.printer.lines(tuple(s for s in self.readout_program.statements if per_token(s)))

    def _named(self) -> tuple[str, ...]:
        """The operands under the names of their roles, computed vectors with zeros in the padding before they meet the state."""
        loaded = {f"b_{a.value.name}" for a in self.arguments}
        lines = []
        for role, operand in self.operand_program.results:
            if isinstance(operand, Value):
                lines.append(f"b_{role} = {self.printer.masked(operand, self.printer.value(operand) not in loaded)}")
        return tuple(lines)

    def text(self, role: str) -> str:
        """The operand of a role as text; "" for a role that the stream does not have."""
        if not role:
            return ""
        operand = self.operand_program.result(role)
        return f"b_{role}" if isinstance(operand, Value) else self.printer.operand(operand)

    @property
    def streams(self) -> tuple[StreamText, ...]:
        """The write streams with printed operands."""
        text = self.text
        found = []
        for s in self.operands.streams:
            memory = self.before(s.slot) if s.decayed or s.slot != self.slots[0] else "b_M"
            roles = (text(s.write), text(s.value), text(s.strength), text(s.correct))
            found.append(StreamText(s.tag, *roles, s.decayed, memory, s.slot, tuple(map(text, s.columns))))
        return tuple(found)

    @property
    def slots(self) -> tuple[int, ...]:
        """The micro-steps that write, in order."""
        return tuple(sorted({s.slot for s in self.operands.streams}))

    def before(self, slot: int) -> str:
        """The block of the state before the writes of a micro-step, after decay."""
        at = self.slots.index(slot)
        return f"b_D_{self.slots[at - 1]}" if at else "b_D"

    def after(self, slot: int) -> str:
        """The block of the state after a micro-step."""
        done = [x for x in self.slots if x <= slot]
        return "b_D" if not done else "b_S" if done[-1] == self.slots[-1] else f"b_D_{done[-1]}"

    @property
    def columns_at(self) -> tuple[tuple[int, str], ...]:
        """Every further column: its number, and what its blocks' names end with."""
        return tuple((i, f"_{name}") for i, name in enumerate(self.columns))

    @property
    def decay_text(self) -> str:
        """What the state is multiplied with at a token."""
        return "b_decay" if self.stabilized else self.text(DECAY)

    @property
    def scale_lines(self) -> tuple[str, ...]:
        """The running maximum, and what it leaves of the decay and of the write's weight: no exponent is positive."""
        if not self.stabilized:
            return ()
        log_decay, log_weight = self.text("log_decay"), self.text("log_weight")
        return (
            f"b_maximum = tl.maximum({log_decay} + b_scale, {log_weight})",
            f"b_decay = tl.exp((b_scale - b_maximum) + {log_decay})",
            f"b_weight = tl.exp({log_weight} - b_maximum)",
        )

    def decayed(self, end: str = "") -> str:
        """The decayed state (or a further column, whose blocks' names end so) as a formula of M; "" without decay."""
        factors = [self.decay_factor(end), self.value_factor]
        return " * ".join([*filter(None, factors), f"b_M{end}"]) if any(factors) else ""

    def decay_factor(self, end: str = "") -> str:
        """What the key side multiplies the state with (or a further column); "" without decay."""
        if self.form.decay.log is None:
            return ""
        return f"{self.decay_text}{'[:, None]' if self.form.decay.kind == 'vector' and not end else ''}"

    @property
    def value_factor(self) -> str:
        """What the value side multiplies the state with; "" without decay."""
        return "" if self.form.value_decay.log is None else f"{self.text(VALUE_DECAY)}[None, :]"

    @property
    def resolve_lines(self) -> tuple[str, ...]:
        """D, U and E from M and the operands, and the state between micro-steps."""
        lines = [*self.scale_lines, f"b_D = {self.decayed() or 'b_M'}"]
        streams = self.streams
        for i, s in enumerate(streams):
            if i and streams[i - 1].slot != s.slot:
                lines.append(f"{self.before(s.slot)} = {self._written(streams[i - 1].slot)}")
            terms = [s.value] if s.value else []
            if s.correct:
                lines.append(f"b_U{s.tag} = tl.sum({s.correct}[:, None] * {s.memory}, 0)")
                terms.append(f"{s.strength} * b_U{s.tag}" if s.strength else f"b_U{s.tag}")
            lines.append(f"b_E{s.tag} = {' + '.join(terms)}")
        for column, end in self.columns_at:
            lines.append(f"b_D{end} = {self.decayed(end) or f'b_M{end}'}")
            for s in streams:
                terms = [s.at(column)] if s.at(column) else []
                if s.correct:
                    lines.append(f"b_U{s.tag}{end} = tl.sum({s.correct} * {s.memory}{end}, 0)")
                    terms.append(f"{s.strength} * b_U{s.tag}{end}" if s.strength else f"b_U{s.tag}{end}")
                if terms:
                    lines.append(f"b_E{s.tag}{end} = {' + '.join(terms)}")
        return tuple(lines)

    @property
    def update_lines(self) -> tuple[str, ...]:
        """S from D and the writes."""
        weight = "b_weight * " if self.stabilized else ""
        lines = [f"b_S = {self._written(self.slots[-1])}"]
        for column, end in self.columns_at:
            writes = [f"{s.write} * ({weight}b_E{s.tag}{end})" for s in self.streams if s.correct or s.at(column)]
            lines.append(f"b_S{end} = {' + '.join([f'b_D{end}', *writes])}")
        return tuple(lines)

    def _written(self, slot: int) -> str:
        """The state after the writes of a micro-step."""
        return " + ".join([self.before(slot), *(self._outer(s) for s in self.streams if s.slot == slot)])

    def _outer(self, s: StreamText) -> str:
        """What a stream writes, [K, V]."""
        return f"{s.write}[:, None] * {f'(b_weight * b_E{s.tag})' if self.stabilized else f'b_E{s.tag}'}[None, :]"

    def read_lines(self, lag: int) -> tuple[tuple[str, str], ...]:
        """The reads at the token (lag 0) or before it (lag 1), with the names of their values."""
        found = []
        for r in self.operands.reads:
            if r.lag == lag:
                found.append((f"R{r.tag}", f"b_R{r.tag} = {self.read_text(r)}"))
                column = f"b_R{r.tag}_{{0}} = tl.sum({self.text(r.query)} * {'b_M' if lag else 'b_S'}_{{0}}, 0)"
                found += [(f"R{r.tag}_{c}", column.format(c)) for c in self.columns]
        return tuple(found)

    def memory(self, read: ReadNames) -> str:
        """The block that a read reads."""
        return "b_M" if read.lag else self.after(read.slot)

    def read_text(self, read: ReadNames) -> str:
        """What a query reads of its state."""
        query, state = self.text(read.query), self.memory(read)
        return f"tl.sum({query}[None, :] * {state}, 1)" if read.across else f"tl.sum({query}[:, None] * {state}, 0)"

    def store_lines(self, row: str, condition: str = "") -> tuple[str, ...]:
        """Writes one token's outputs, 0 unless `condition`; those that do not run over the value axis by the first value block alone."""
        lines = []
        for output in self.form.outputs:
            operand, axis = self.readout_program.result(output.name), output_axis(output.value)
            text = self.printer.operand(operand)
            text = f"tl.full((), {text}, ACC)" if isinstance(operand, Literal) else text
            text = f"tl.where({condition}, {text}, 0.0)" if condition else text
            names = self.printer.axes[axis] if axis else None
            start = f"{row} * {names.size} + {names.offsets}" if names else row
            mask = self.output_mask(axis)
            lines.append(f"tl.store(p_{output.name} + {start}, {text}.to(p_{output.name}.dtype.element_ty), mask={mask})")
        return tuple(lines)

    def output_mask(self, axis: str) -> str:
        """Which entries of an output a program is in charge of."""
        if axis == self.form.value_axis:
            return self.printer.axes[axis].mask
        return f"tl.where(i_v == 0, {self.printer.axes[axis].mask}, False)" if axis else "i_v == 0"

    @property
    def whole(self) -> bool:
        """Whether a program must hold the whole value axis: the spec sums over it, or it is the key axis too."""
        programs = (self.operand_program, self.readout_program)
        whole = self.form.key_axis == self.form.value_axis or bool(self.operands.across)
        return whole or any(sums_over(p.statements, self.form.value_axis) for p in programs)


def output_axis(term: Term) -> str:
    """The axis of an output, "" for a scalar."""
    return next((axis for axis in term.shape if axis != "1"), "")


def per_token(s: Statement) -> bool:
    """Whether a statement's value changes from token to token."""
    targets = s.targets if isinstance(s, Branch) else (s.target,)
    return any(t.per_token for t in targets)


def sums_over(statements: tuple[Statement, ...], axis: str) -> bool:
    """Whether a statement sums over the axis."""
    for s in statements:
        if isinstance(s, Branch):
            if sums_over(s.then, axis) or sums_over(s.otherwise, axis):
                return True
        elif s.op in ("dot", "sum", "l2norm", "rmsnorm") and any(isinstance(a, Value) and a.axis == axis for a in s.args):
            return True
    return False
