"""What the chunkwise Triton kernels share: arguments, operands, scores, stored matrices, writes.

Four kernels, each printed as lines for `templates/triton/chunk.py.j2`. `prepare`, for every chunk: the scores and the inverse, stored (with
a vector decay also the rows decayed to the chunk's borders). `scan`, for every value block: the state in registers, chunk after chunk;
outputs are written directly. `reverse`: the gradient of the state likewise, backwards; the gradients of the resolved right-hand sides are
stored. `gradients`, for every chunk: everything else, from the states on both sides of the chunk.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from recgen.analysis.normal_form import NormalForm
from recgen.codegen.chunk_decay import ChunkDecay, Score, times_rows
from recgen.codegen.chunk_names import internal_names
from recgen.codegen.scalar_decay import ScalarDecay
from recgen.codegen.stabilized_decay import StabilizedDecay
from recgen.codegen.tile_printer import TilePrinter, tile_mask
from recgen.codegen.triton_arguments import KernelArgument, kernel_arguments, kernel_axes
from recgen.codegen.triton_printer import Numbers
from recgen.codegen.vector_decay import VectorDecay
from recgen.derive.operands import OperandSet, ReadNames, StreamNames
from recgen.derive.program import Program, Value, assigned, complete, lower, mentioned, needed
from recgen.derive.reads import read_set
from recgen.lang.terms import SCALAR, Apply, is_number, walk

DECAYS = {"none": ChunkDecay, "scalar": ScalarDecay, "vector": VectorDecay}


def _without_factors(operands: OperandSet) -> tuple[OperandSet, dict[str, str]]:
    """The operands with queries free of numbers that are the same for all tokens, and for each such query the name of its number."""
    terms, factors = list(operands.terms), {}
    for i, (name, term) in enumerate(operands.terms):
        if name not in {r.query for r in operands.ordinary} or not isinstance(term, Apply) or term.op != "mul":
            continue
        number = next((x for x in term.args if x.shape == SCALAR and is_number(x)), None)
        if number is not None and name not in {n for s in operands.streams for n in (s.write, s.correct)}:
            terms[i] = (name, term.args[1] if term.args[0] is number else term.args[0])
            factors[name] = f"{name}_factor"
            terms.append((f"{name}_factor", number))
    return replace(operands, terms=tuple(terms)), factors


@dataclass(frozen=True)
class Stored:
    """A [C, C] matrix that `prepare` keeps: its name and its place among them."""

    name: str
    slot: int


class ChunkKernels:
    """The operands of one form and the lines that several kernels need."""

    def __init__(self, form: NormalForm, operands: OperandSet) -> None:
        self.form = form
        self.operands, factors = _without_factors(operands) if form.decay.kind != "vector" else (operands, {})
        operands = self.operands
        self.columns = tuple(c.name for c in form.columns)
        internal = internal_names(operands, self.columns)
        self.arguments: tuple[KernelArgument, ...] = kernel_arguments(form, internal)
        axes = tuple(dict.fromkeys(axis for a in form.recurrence.arguments for axis in a.axes))
        self.numbers = Numbers(axes)
        self.printer = TilePrinter(kernel_axes(form), self.numbers)
        names = {d.value: d.name for d in form.recurrence.definitions}
        self.reserved = internal | {a.value.name for a in self.arguments}
        inputs = tuple((a.term, a.value) for a in self.arguments)
        self.program = complete(lower(operands.terms, inputs, names, self.reserved), operands.terms)
        self.read_set = read_set(form, operands, "read")
        self.reads = self.read_set.differentiable
        outputs = tuple((o.name, o.value) for o in form.outputs)
        taken = self.reserved | assigned(self.program.statements)
        self.readout = complete(lower(outputs, (*inputs, *self.read_set.inputs), names, taken), outputs)
        self.sizes = {o.name: o.size for o in operands.operands}
        self.factors = {name: self.printer.operand(self.program.result(factor)) for name, factor in factors.items()}
        kind = StabilizedDecay if operands.stabilized else DECAYS[form.decay.kind]
        self.decay = kind(form.decay, operands, self.factors)

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

    @property
    def key_side(self) -> tuple[str, ...]:
        """Operands over the key axis, and what describes the decay."""
        return tuple(n for n, size in self.sizes.items() if size == "K" or n in self.decay.names)

    @property
    def scan_side(self) -> tuple[str, ...]:
        """Operands that the scans take from the inputs: all, or with kept rows those that are not over the key axis."""
        if not self.decay.vector:
            return tuple(self.sizes)
        return (*(n for n in self.sizes if n not in self.key_side), *self.across_side)

    @property
    def across_side(self) -> tuple[str, ...]:
        """Operands over the key axis that reads across need wherever they are made: write directions, and what describes the decay."""
        return (*(s.write for s in self.operands.streams), *self.decay.names) if self.operands.across else ()

    def between_tokens(self) -> tuple[str, ...]:
        """Decays between the chunk's tokens, where reads across need them."""
        return self.decay.gammas() if self.operands.across else ()

    def scan_operands(self) -> tuple[str, ...]:
        """The operands of a chunk as the scans need them."""
        return (
            *self.operand_lines(self.scan_side),
            *self.decay.load_kept(self.decay.kept),
            *(() if self.decay.vector and not self.operands.across else self.decay.cumulate()),
            *self.between_tokens(),
        )

    # ---------------------------------------------------------------- scores

    @property
    def feedback(self) -> tuple[StreamNames, ...]:
        """The streams that correct."""
        return tuple(s for s in self.operands.streams if s.correct)

    @property
    def plain(self) -> tuple[StreamNames, ...]:
        """The streams that do not correct."""
        return tuple(s for s in self.operands.streams if not s.correct)

    @property
    def read_scores(self) -> tuple[Score, ...]:
        """What each read takes of each write."""
        return tuple(
            Score(
                f"A_qk{r.tag}{s.tag}",
                r.query,
                s.write,
                bool(r.lag),
                not r.sees(s),
                f"dq{r.tag}",
                f"dw{s.tag}",
                factor=self.factors.get(r.query, ""),
            )
            for r in self.operands.ordinary
            for s in self.operands.streams
        )

    def across_scores(self, read: ReadNames, left: str, target: str) -> tuple[Score, ...]:
        """What a read across takes of each write, as a score of its gradient `left` with the weights as the score's gradient."""
        return tuple(
            Score(f"A_qe{read.tag}{s.tag}", left, s.write, bool(read.lag), not read.sees(s), target, f"dw{s.tag}")
            for s in self.operands.streams
        )

    @property
    def found_scores(self) -> tuple[Score, ...]:
        """What each correction finds of each earlier write."""
        return tuple(
            Score(f"R{s.tag}{r.tag}", s.correct, r.write, not s.decayed, not s.finds(r), f"da{s.tag}", f"dw{r.tag}", s.strength)
            for s in self.feedback
            for r in self.operands.streams
        )

    @property
    def keeps_float32(self) -> bool:
        """Whether the states between chunks are not rounded to the inputs' precision.

        It matters where they make most of a gate's gradient, and would cost registers where there are corrections too.
        """
        return self.decay.vector and not self.form.feedback

    @property
    def keeps_matrices(self) -> bool:
        """Whether the matrices that `prepare` keeps are float32.

        With corrections they are rounded to the inputs' precision, but not where a decay is given as a multiplier: its gradient is that of
        the logarithm divided by it, and links through a multiplier near 0 are too small for float16.
        """
        log = self.form.decay.log
        multiplier = log is not None and any(isinstance(t, Apply) and t.op == "log_floor" for t in walk(log))
        return not self.form.feedback or multiplier

    @property
    def stored(self) -> tuple[Stored, ...]:
        """The matrices that `prepare` keeps for the other kernels."""
        names = [s.tag for s in self.read_scores]
        names += [f"A_kk{s.tag}{r.tag}" for s in self.feedback for r in self.feedback]
        found = self.operands.streams if self.decay.links_scores else self.plain
        names += [f"R{s.tag}{r.tag}" for s in self.feedback for r in found]
        return tuple(Stored(name, i) for i, name in enumerate(names))

    def matrices(self, turned: bool, names: tuple[str, ...] | None = None) -> tuple[str, ...]:
        """Loads of the stored matrices (or of some), transposed by their addresses where asked for."""
        rows, columns = ("o_c[None, :]", "o_c[:, None]") if turned else ("o_c[:, None]", "o_c[None, :]")
        return tuple(
            f"b_{m.name} = tl.load(w_matrices + ({m.slot} * BC + {rows}) * BC + {columns})"
            for m in self.stored
            if names is None or m.name in names
        )

    @staticmethod
    def strength(s: StreamNames, text: str) -> str:
        """c * text."""
        return times_rows(s.strength, text)

    # ---------------------------------------------------------------- writes

    def write(self, s: StreamNames) -> str:
        """The resolved writes of a stream."""
        return f"b_E{s.tag}" if s.correct else f"b_{s.value}"

    def column_write(self, s: StreamNames, i: int) -> str:
        """What a stream writes into a further column, [C]; "" for nothing."""
        if s.correct:
            return f"b_E{s.tag}_{self.columns[i]}"
        return f"b_{s.columns[i]}" if s.columns[i] else ""

    @staticmethod
    def write_address(i: int) -> tuple[tuple[str, ...], str]:
        """Where the gradients of stream i's right-hand sides lie: the line that finds their rows, and the offsets."""
        rows = f"o_row_{i + 1}" if i else "o_row"
        line = f"{rows} = {i} * total.to(tl.int64) * HV + o_row"
        return (line,) * bool(i), f"{rows}[:, None] * V + o_v[None, :]"

    @staticmethod
    def column_row(i: int) -> str:
        """The row of a token among the gradients of the numbers that stream i writes."""
        return f"({i} * total.to(tl.int64) * HV + o_row)" if i else "o_row"
