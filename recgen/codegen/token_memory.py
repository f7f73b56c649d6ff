"""Where the arguments, the outputs and the states of a token form lie in memory, as lines of its Triton kernels."""

from __future__ import annotations

from dataclasses import dataclass

from recgen.analysis.token_form import TokenForm, TokenState
from recgen.codegen.token_tiles import TilePrinter, mask, offsets
from recgen.codegen.triton_arguments import KernelArgument
from recgen.codegen.triton_printer import INDENT, Numbers
from recgen.derive.program import Value
from recgen.derive.token_program import TokenProgram, axes_shape, shape_of
from recgen.lang.terms import Shape


@dataclass(frozen=True)
class Fetched:
    """What a token needs from memory: the value, the pointers and their mask, and the pointer that is None where there is nothing.

    It is loaded two tokens ahead, so that memory is not waited for.
    """

    name: str
    where: str
    mask: str
    optional: str

    def _guarded(self, lines: tuple[str, ...], otherwise: tuple[str, ...] = ()) -> tuple[str, ...]:
        if not self.optional:
            return lines
        other = ("else:", *(INDENT + line for line in otherwise)) if otherwise else ()
        return (f"if {self.optional} is not None:", *(INDENT + line for line in lines), *other)

    def fetch(self, number: int) -> tuple[str, ...]:
        """Loads it for the token `number` ahead, which is there where `more`."""
        mask = f"tl.where(more, {self.mask}, False)" if self.mask else "more"
        return self._guarded((f"ahead_{number}_{self.name} = tl.load({self.where}, mask={mask}, other=0.0)",))

    def arrive(self, missing: str = "") -> tuple[str, ...]:
        """Takes it, wide, and moves up what comes next; `missing`: what stands for it where there is nothing."""
        lines = (f"b_{self.name} = ahead_1_{self.name}.to(ACC)", f"ahead_1_{self.name} = ahead_2_{self.name}")
        return self._guarded(lines, (f"b_{self.name} = {missing}",) if missing else ())


class TokenMemory:
    """A token form with its program, the printer of both, and the lines that load and store."""

    def __init__(self, form: TokenForm, program: TokenProgram) -> None:
        self.form, self.program, self.recurrence = form, program, form.recurrence
        self.axes = tuple(dict.fromkeys(axis for a in form.recurrence.arguments for axis in a.axes))
        self.numbers = Numbers(self.axes)
        self.printer = TilePrinter(self.numbers)
        pairs = zip(form.recurrence.arguments, program.arguments, strict=True)
        self.arguments = tuple(KernelArgument(a, v, None, form.split in a.axes) for a, v in pairs)

    def load(self, argument: KernelArgument, step: bool) -> tuple[str, ...]:
        """Loads a param, or an input of a step, wide, zeros in the padding."""
        name, shape = argument.info.name, shape_of(argument.value)
        first = 2 if argument.per_token and step else 1
        place = offsets(shape, (f"s_{name}[{first}]", f"s_{name}[{first + 1}]"))
        masked = f", mask={mask(shape)}, other=0.0" if mask(shape) else ""
        return argument.guarded(f"b_{argument.value.name} = tl.load(p_{name}{place}{masked}).to(ACC)")

    # ---------------------------------------------------------------- inputs

    @property
    def fetched(self) -> tuple[Fetched, ...]:
        """The inputs of a token."""
        found = []
        for a in self.arguments:
            if a.per_token:
                name, shape = a.info.name, shape_of(a.value)
                where = f"p_{name} + at * s_{name}[1]{offsets(shape, (f's_{name}[3]', f's_{name}[4]'))}"
                found.append(Fetched(a.value.name, where, mask(shape), f"p_{name}" if a.optional else ""))
        return tuple(found)

    def alone(self, argument: KernelArgument) -> bool:
        """Whether no two programs have parts of the same gradient."""
        return argument.sliced or not self.form.split

    def mine(self, axes: tuple[str, ...], shape: Shape) -> str:
        """Which entries of something over these axes a program is in charge of: of what all blocks share, the first is."""
        text = mask(shape)
        if not self.form.split or self.form.split in axes:
            return text
        return f"tl.where(i_v == 0, {text}, False)" if text else "i_v == 0"

    # ---------------------------------------------------------------- states

    def state_offsets(self, state: TokenState, strides: tuple[str, str]) -> str:
        """Where a state's entries lie, by the strides of its axes in memory: of a matrix the key axis first."""
        return offsets(axes_shape(state.axes), strides[::-1] if state.turned else strides)

    def dense_offsets(self, state: TokenState) -> str:
        """The same in memory of its own."""
        inner = (state.axes[::-1] if state.turned else state.axes)[-1:]
        return self.state_offsets(state, (f"size_{inner[0]}", "1") if len(state.axes) == 2 else ("1", "1"))

    def padded_offsets(self, state: TokenState) -> str:
        """The same in the workspace, with the padding."""
        shape = axes_shape(state.axes)
        strides = (f"block_{shape[1]}" if shape[1] != "1" else "1", "1")
        return offsets(shape, strides).replace("off_", "loc_")

    def entries(self, state: TokenState, prefix: str) -> str:
        """The number of a state's entries."""
        return " * ".join(f"{prefix}_{axis}" for axis in state.axes) or "1"

    def before_entries(self, i: int, prefix: str) -> str:
        """The entries of the states before the i-th, as text to be added to a pointer."""
        return "".join(f" + {self.entries(s, prefix)}" for s in self.form.states[:i])

    def each_state(self) -> list[tuple[int, TokenState, Value, str]]:
        """Every state with its number, its value before the token and its mask with `mask=`."""
        pairs = zip(self.form.states, self.program.before, strict=True)
        return [(i, s, v, mask(axes_shape(s.axes))) for i, (s, v) in enumerate(pairs)]

    def start(self) -> tuple[str, ...]:
        """Loads the initial states."""
        lines: list[str] = []
        for _, s, v, m in self.each_state():
            where = self.state_offsets(s, (f"si_{s.name}[2]", f"si_{s.name}[3]"))
            load = f"tl.load(pi_{s.name} + i_n * si_{s.name}[0] + i_h * si_{s.name}[1]{where}{f', mask={m}, other=0.0' if m else ''})"
            lines += [f"if pi_{s.name} is not None:", f"{INDENT}b_{v.name} = {load}.to(ACC)", "else:"]
            lines.append(f"{INDENT}b_{v.name} = tl.full({self.printer.shape(v)}, 0.0, ACC)")
        return tuple(lines)

    def checkpoint(self) -> tuple[str, ...]:
        """Saves the states before a token."""
        row = f"p_saved + ((slot + t // 64) * HV + i_h) * ({self.all_entries('size')})"
        return tuple(
            f"tl.store({row}{self.before_entries(i, 'size')}{self.dense_offsets(s)}, b_{v.name}{self.stored(s)})"
            for i, s, v, _ in self.each_state()
        )

    def restore(self) -> tuple[str, ...]:
        """Loads the states before a segment."""
        row = f"p_saved + ((slot + start // 64) * HV + i_h) * ({self.all_entries('size')})"
        return tuple(
            f"b_{v.name} = tl.load({row}{self.before_entries(i, 'size')}{self.dense_offsets(s)}{f', mask={m}, other=0.0' if m else ''})"
            for i, s, v, m in self.each_state()
        )

    def stored(self, state: TokenState) -> str:
        """The mask of a store to a state, as an argument."""
        text = self.mine(state.axes, axes_shape(state.axes))
        return f", mask={text}" if text else ""

    def keep(self) -> tuple[str, ...]:
        """Writes the states before the segment's token `j` to the workspace."""
        return tuple(f"tl.store({self._work('j', i, s)}, b_{v.name})" for i, s, v, _ in self.each_state())

    @property
    def kept(self) -> tuple[Fetched, ...]:
        """The states before the segment's token `i_t`, in the workspace."""
        return tuple(Fetched(v.name, self._work("i_t", i, s), m, "") for i, s, v, m in self.each_state())

    def _work(self, token: str, i: int, state: TokenState) -> str:
        """Where the i-th state before a token lies in the workspace."""
        return f"p_work + {token} * ({self.all_entries('block')}){self.before_entries(i, 'block')}{self.padded_offsets(state)}"

    def all_entries(self, prefix: str) -> str:
        """The entries of all states."""
        return " + ".join(self.entries(s, prefix) for s in self.form.states)

    def finish(self) -> tuple[str, ...]:
        """Stores the final states."""
        return tuple(
            f"tl.store(pf_{s.name} + (i_n * HV + i_h) * ({self.entries(s, 'size')}){self.dense_offsets(s)}, b_{v.name}{self.stored(s)})"
            for _, s, v, _ in self.each_state()
        )

    def take(self) -> tuple[str, ...]:
        """Loads the states of a slot; nothing of a slot that is not there."""
        lines = []
        for _, s, v, m in self.each_state():
            live = f"tl.where(here, {m}, False)" if m else "here"
            lines.append(f"p_{_pool(s)} += slot * s_{_pool(s)}[0] + i_h * s_{_pool(s)}[1]")
            where = self.state_offsets(s, (f"s_{_pool(s)}[2]", f"s_{_pool(s)}[3]"))
            lines.append(f"b_{v.name} = tl.load(p_{_pool(s)}{where}, mask={live}, other=0.0).to(ACC)")
        return tuple(lines)

    def give(self) -> tuple[str, ...]:
        """Stores the states of a slot."""
        lines = []
        for _, s, v, _ in self.each_state():
            text = self.mine(s.axes, axes_shape(s.axes))
            live = f"tl.where(here, {text}, False)" if text else "here"
            where = self.state_offsets(s, (f"s_{_pool(s)}[2]", f"s_{_pool(s)}[3]"))
            lines.append(f"tl.store(p_{_pool(s)}{where}, b_{v.name}.to(p_{_pool(s)}.dtype.element_ty), mask={live})")
        return tuple(lines)

    def carry(self) -> tuple[str, ...]:
        """The states before the next token: all at once, since one may be another's."""
        results = dict(self.program.forward.results)
        pairs = tuple(zip(self.program.after, self.program.before, strict=True))
        lines = [f"b_{after} = {self.printer.whole(results[after], shape_of(before))}" for after, before in pairs]
        return (*lines, *(f"b_{before.name} = b_{after}" for after, before in pairs))

    # --------------------------------------------------------------- outputs

    def store(self, condition: str = "") -> tuple[str, ...]:
        """Writes one token's outputs, 0 unless `condition`."""
        lines, results = [], dict(self.program.forward.results)
        for o in self.form.outputs:
            shape = o.value.shape
            text = self.printer.whole(results[o.name], shape)
            text = f"tl.where({condition}, {text}, 0.0)" if condition else text
            row = f"row * size_{shape[0]}" if shape[0] != "1" else "row"
            found = self.mine(shape, shape)
            masked = f", mask={found}" if found else ""
            lines.append(f"tl.store(p_{o.name} + {row}{offsets(shape, ('1', '1'))}, {text}.to(p_{o.name}.dtype.element_ty){masked})")
        return tuple(lines)


def _pool(state: TokenState) -> str:
    """The kernel's name of a pool of states; no argument's, since those have no two underscores in a row at the front."""
    return f"_state_{state.name}"
