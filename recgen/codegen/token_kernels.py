"""Everything that `templates/triton/token.py.j2` prints: the forward, the backward and the step of a token form as Triton kernels."""

from __future__ import annotations

from dataclasses import dataclass

from recgen.analysis.token_form import TokenForm, TokenState
from recgen.codegen.token_tiles import TilePrinter, block_shape, mask, offsets
from recgen.codegen.triton_arguments import KernelArgument, dtype_source, size_lines, wide_source
from recgen.codegen.triton_context import GradientText, OutputText, equation_lines, host_arguments, pointer_text
from recgen.codegen.triton_printer import INDENT, Numbers, functions
from recgen.derive.program import Value
from recgen.derive.token_program import TokenProgram, axes_shape, shape_of
from recgen.lang.terms import Shape
from recgen.plan import RecurrentTiles


@dataclass(frozen=True)
class StateText:
    """A state on the host: its sizes in memory as text, and in how many parts its initial gradient is summed."""

    name: str
    sizes: str
    parts: str


@dataclass(frozen=True)
class TokenKernels:
    """Lines and names for the template; nothing is computed there."""

    functions: tuple[str, ...]
    equations: tuple[str, ...]
    unspecialized: str
    pointers: tuple[str, ...]
    numbers: tuple[str, ...]
    sizes: tuple[str, ...]
    outputs: tuple[OutputText, ...]
    gradients: tuple[GradientText, ...]
    states: tuple[StateText, ...]
    axes: tuple[str, ...]
    advance: tuple[str, ...]
    advance_step: tuple[str, ...]
    once: tuple[str, ...]
    load: tuple[str, ...]
    load_step: tuple[str, ...]
    start: tuple[str, ...]
    checkpoint: tuple[str, ...]
    restore: tuple[str, ...]
    keep: tuple[str, ...]
    recall: tuple[str, ...]
    finish: tuple[str, ...]
    take: tuple[str, ...]
    give: tuple[str, ...]
    token: tuple[str, ...]
    store: tuple[str, ...]
    store_step: tuple[str, ...]
    update: tuple[str, ...]
    carry: tuple[str, ...]
    advance_cotangents: tuple[str, ...]
    start_adjoint: tuple[str, ...]
    cotangents: tuple[str, ...]
    adjoint: tuple[str, ...]
    store_gradients: tuple[str, ...]
    carry_adjoint: tuple[str, ...]
    finish_adjoint: tuple[str, ...]
    host: TokenHost


@dataclass(frozen=True)
class TokenHost:
    """The functions that launch the kernels: their parameters, the sizes that they read off, and what they pass on.

    `blocks` are lines that choose the block of every axis; of the one that programs share, `split_block` is the smaller of `split_least`.
    `held`: entries of all tiles that a program holds. `entries`, `padded`, `padded_entries`: of all states, in memory and in blocks.
    """

    arguments: tuple[str, ...]
    returned: str
    sizes: tuple[str, ...]
    step_sizes: tuple[str, ...]
    pointers: tuple[str, ...]
    values: tuple[str, ...]
    constants: tuple[str, ...]
    wide: str
    blocks: tuple[str, ...]
    block_names: str
    block_parameters: str
    forward_blocks: str
    backward_blocks: str
    step_blocks: str
    has_split: bool
    split_block: str
    split_least: str
    split_size: str
    held: str
    stages: int
    entries: str
    padded: str
    padded_entries: str
    finals: str
    pool: str


class _Kernels:
    """Builds the lines."""

    def __init__(self, form: TokenForm, program: TokenProgram) -> None:
        self.form, self.program, self.recurrence = form, program, form.recurrence
        self.axes = tuple(dict.fromkeys(axis for a in form.recurrence.arguments for axis in a.axes))
        self.numbers = Numbers(self.axes)
        self.printer = TilePrinter(self.numbers)
        pairs = zip(form.recurrence.arguments, program.arguments, strict=True)
        self.arguments = tuple(KernelArgument(a, v, None, form.split in a.axes) for a, v in pairs)

    # ------------------------------------------------------------- arguments

    def load(self, argument: KernelArgument, step: bool) -> tuple[str, ...]:
        """Loads an argument, wide, zeros in the padding: a param once, an input at token `at`."""
        name, shape = argument.info.name, shape_of(argument.value)
        at = f" + at * s_{name}[1]" if argument.per_token and not step else ""
        first = 1 if not argument.per_token else 2 if step else 3
        place = offsets(shape, (f"s_{name}[{first}]", f"s_{name}[{first + 1}]"))
        masked = f", mask={mask(shape)}, other=0.0" if mask(shape) else ""
        return argument.guarded(f"b_{argument.value.name} = tl.load(p_{name}{at}{place}{masked}).to(ACC)")

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

    def workspace(self, token: str, store: bool) -> tuple[str, ...]:
        """Writes the states before a token to the workspace, or reads them there."""
        lines = []
        for i, s, v, _ in self.each_state():
            where = f"p_work + {token} * ({self.all_entries('block')}){self.before_entries(i, 'block')}{self.padded_offsets(s)}"
            lines.append(f"tl.store({where}, b_{v.name})" if store else f"b_{v.name} = tl.load({where})")
        return tuple(lines)

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

    # --------------------------------------------------------------- adjoint

    def start_adjoint(self) -> tuple[str, ...]:
        """The gradients of the final states, and sums for those of the params."""
        lines: list[str] = []
        for _, s, v, _ in self.each_state():
            where = self.state_offsets(s, (f"dsf_{s.name}[2]", f"dsf_{s.name}[3]"))
            found = self.mine(s.axes, axes_shape(s.axes))
            masked = f", mask={found}, other=0.0" if found else ""
            load = f"tl.load(dpf_{s.name} + i_n * dsf_{s.name}[0] + i_h * dsf_{s.name}[1]{where}{masked}).to(ACC)"
            lines += [f"if dpf_{s.name} is not None:", f"{INDENT}carry_{s.name} = {load}", "else:"]
            lines.append(f"{INDENT}carry_{s.name} = tl.full({self.printer.shape(v)}, 0.0, ACC)")
        for a in self.arguments:
            if not a.per_token:
                lines += a.guarded(f"sum_{a.info.name} = tl.full({self.printer.shape(a.value)}, 0.0, ACC)")
        return tuple(lines)

    def cotangents(self) -> tuple[str, ...]:
        """The gradients of the outputs at token `at`, zeros for one whose gradient is None, and of the states after it."""
        lines: list[str] = []
        known = dict(self.program.cotangents)
        for o in self.form.outputs:
            if o.name not in known:
                continue
            name, shape = known[o.name].name, o.value.shape
            found = self.mine(shape, shape)
            masked = f", mask={found}, other=0.0" if found else ""
            load = f"tl.load(dp_{o.name} + at * ds_{o.name}[1]{offsets(shape, (f'ds_{o.name}[3]', ''))}{masked}).to(ACC)"
            lines += [f"if dp_{o.name} is not None:", f"{INDENT}b_{name} = {load}", "else:"]
            lines.append(f"{INDENT}b_{name} = tl.full({block_shape(shape)}, 0.0, ACC)")
        pairs = zip(self.program.after, self.form.states, strict=True)
        return (*lines, *(f"b_{known[after].name} = carry_{s.name}" for after, s in pairs if after in known))

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
            row = "row" if self.alone(a) else "(i_v * total + row)"
            lines += a.guarded(self._put(a, f"({row} * HV + i_h)", f"{gradient}.to(dp_{name}.dtype.element_ty)"))
        return tuple(lines)

    def alone(self, argument: KernelArgument) -> bool:
        """Whether no two programs have parts of the same gradient."""
        return argument.sliced or not self.form.split

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
        for _, s, _, m in self.each_state():
            row = "(i_n * HV + i_h)" if not self.form.split or self.form.split in s.axes else "((i_v * N + i_n) * HV + i_h)"
            masked = f", mask={m}" if m else ""
            where = f"dpi_{s.name} + {row} * ({self.entries(s, 'size')}){self.dense_offsets(s)}"
            lines += [f"if dpi_{s.name} is not None:", f"{INDENT}tl.store({where}, carry_{s.name}{masked})"]
        for a in self.arguments:
            if not a.per_token:
                row = "(i_n * HV + i_h)" if self.alone(a) else "((i_n * NV + i_v) * HV + i_h)"
                lines += a.guarded(self._put(a, row, f"sum_{a.info.name}"))
        return tuple(lines)

    # ------------------------------------------------------------------ host

    def gradients(self) -> tuple[GradientText, ...]:
        """Allocation and reduction of every argument's gradient."""
        found = []
        for a in self.arguments:
            name = a.info.name
            entries = "".join(f", _size_{axis}" for axis in a.info.axes)
            blocks = "1" if self.alone(a) else "_NV"
            if a.per_token:
                shape = f"({blocks}, _B, _T, _HV{entries})"
                narrow = f"{name}.dtype" if self.alone(a) else f"{name}.dtype if _NV == 1 else _wide"
                dtype = "_wide" if a.info.grouped else narrow
                reduced = f"_triton_sum_parts(_d_{name}, {name}, {'_H' if a.info.grouped else '_HV'})"
            else:
                shape, dtype = f"(_N * {blocks}, _HV{entries})", "_wide"
                reduced = f"_d_{name}.sum(0).to({name}.dtype)"
            missing = f" if {name} is not None else None" if a.optional else ""
            found.append(GradientText(name, f"torch.empty({shape}, dtype={dtype}, device={name}.device){missing}", reduced + missing))
        return tuple(found)

    def outputs(self) -> tuple[OutputText, ...]:
        """Allocation of every output."""
        found = []
        for o in self.form.outputs:
            axis = "" if o.value.shape[0] == "1" else o.value.shape[0]
            entries = f", _size_{axis}" if axis else ""
            dtype = f"{dtype_source(self.recurrence, axis)}.dtype"
            found.append(OutputText(o.name, f"(_B, _T, _HV{entries})", f"(_B, _HV{entries})", dtype))
        return tuple(found)

    def states(self) -> tuple[StateText, ...]:
        """The states on the host."""
        found = []
        for s in self.form.states:
            axes = s.axes[::-1] if s.turned else s.axes
            sizes = "".join(f", _size_{axis}" for axis in axes)
            found.append(StateText(s.name, sizes, "1" if not self.form.split or self.form.split in s.axes else "_NV"))
        return tuple(found)

    def host(self, tiles: RecurrentTiles) -> TokenHost:
        """The host's part; after every program has been printed."""
        split = self.form.split
        held = [s.axes for s in self.form.states] + [a.info.axes for a in self.arguments]
        over = [axes for axes in held if split in axes]
        beside = max((" * ".join(f"_block_{x}" for x in axes if x != split) or "1" for axes in over), key=len, default="1")
        least = {axis: 16 if axis in self.printer.multiplied else 1 for axis in self.axes}
        blocks = tuple(f"_block_{axis} = max(triton.next_power_of_2(_size_{axis}), {least[axis]})" for axis in self.axes if axis != split)
        booleans = (o.name for o in self.recurrence.options if isinstance(o.default, bool))
        constants = (*(t for axis in self.axes for t in (f"_size_{axis}", f"_block_{axis}")), *booleans)
        sizes = ", ".join(f"_size_{axis}" for axis in self.axes)
        together = not all(split in s.axes for s in self.form.states)  # a step writes in place what other blocks would still read
        calls = (tiles.forward, tiles.backward, "1 << 30" if together else tiles.step)
        forward, backward, step = (f"_triton_blocks({sizes}{f', {entries}' if split else ''})" for entries in calls)
        return TokenHost(
            arguments=host_arguments(self.recurrence),
            returned="".join(f"{o.name}, " for o in self.form.outputs).rstrip(),
            sizes=size_lines(self.recurrence, False),
            step_sizes=size_lines(self.recurrence, True),
            pointers=tuple(pointer_text(a.info.name, a.optional) for a in self.arguments),
            values=tuple(f"float({text})" for _, text in self.numbers.found),
            constants=constants,
            wide=wide_source(self.recurrence),
            blocks=blocks,
            block_names=", ".join(f"_block_{axis}" for axis in self.axes),
            block_parameters=f"{sizes}{', _entries' if split else ''}",
            forward_blocks=forward,
            backward_blocks=backward,
            step_blocks=step,
            has_split=bool(split),
            split_block=f"_block_{split}",
            split_least=f"max(triton.next_power_of_2(_size_{split}), {least.get(split, 1)}), max(_entries // ({beside}), 16)",
            split_size=f"_size_{split}, _block_{split}",
            held=" + ".join(" * ".join(f"_block_{x}" for x in axes) or "1" for axes in held),
            stages=1 if self.printer.multiplied else tiles.stages,
            entries=self.all_entries("_size"),
            padded=self.all_entries("_block"),
            padded_entries=self.all_entries("block"),
            finals=", ".join(f"_final_{s.name}" for s in self.form.states),
            pool=f"_state_{self.form.states[0].name}",
        )


def _pool(state: TokenState) -> str:
    """The kernel's name of a pool of states; no argument's, since those have no two underscores in a row at the front."""
    return f"_state_{state.name}"


def token_kernels(form: TokenForm, program: TokenProgram, tiles: RecurrentTiles) -> TokenKernels:
    """The context."""
    k = _Kernels(form, program)
    token = k.printer.lines(program.forward.statements)
    update = k.printer.lines(program.update.statements)
    adjoint = k.printer.lines(program.adjoint.statements)
    carry, store, store_step = k.carry(), k.store(), k.store("here")
    lines = {
        "start_adjoint": k.start_adjoint(),
        "cotangents": k.cotangents(),
        "store_gradients": k.store_gradients(),
        "carry_adjoint": k.carry_adjoint(),
        "finish_adjoint": k.finish_adjoint(),
    }
    numbers = k.numbers.found
    scalars = [f"s_{a.info.name}" for a in k.arguments if not a.info.axes]
    options = [o.name for o in form.recurrence.options if isinstance(o.default, bool)]
    params = tuple(line for a in k.arguments if not a.per_token for line in k.load(a, False))
    return TokenKernels(
        functions=functions(k.printer.functions),
        equations=equation_lines(form.recurrence),
        unspecialized=", ".join(f'"{name}"' for name in (*scalars, *(f"n_{name}" for name, _ in numbers))),
        pointers=tuple(f"p_{a.info.name}, s_{a.info.name}" for a in k.arguments),
        numbers=tuple(f"n_{name}: tl.float64" for name, _ in numbers),
        sizes=(*(f"{p}_{x}: tl.constexpr" for x in k.axes for p in ("size", "block")), *(f"opt_{o}: tl.constexpr" for o in options)),
        outputs=k.outputs(),
        gradients=k.gradients(),
        states=k.states(),
        axes=tuple(line for axis in k.axes for line in _axis_lines(axis, axis == form.split)),
        advance=tuple(line for a in k.arguments for line in a.advance(False)),
        advance_step=tuple(line for a in k.arguments for line in a.advance(True)),
        once=(*(f"c_{name} = tl.full((), n_{name}, ACC)" for name, _ in numbers), *params),
        load=tuple(line for a in k.arguments if a.per_token for line in k.load(a, False)),
        load_step=tuple(line for a in k.arguments if a.per_token for line in k.load(a, True)),
        start=k.start(),
        checkpoint=k.checkpoint(),
        restore=k.restore(),
        keep=k.workspace("j", True),
        recall=k.workspace("(count - 1 - j)", False),
        finish=k.finish(),
        take=k.take(),
        give=k.give(),
        token=token,
        store=store,
        store_step=store_step,
        update=update,
        carry=carry,
        advance_cotangents=_advance_cotangents(form),
        adjoint=adjoint,
        host=k.host(tiles),
        **lines,
    )


def _axis_lines(axis: str, split: bool) -> tuple[str, ...]:
    """Offsets and mask of an axis: of the split one, of this program's block."""
    start = f"i_v * block_{axis} + " if split else ""
    return (
        f"loc_{axis} = tl.arange(0, block_{axis}).to(tl.int64)",
        f"off_{axis} = {start}loc_{axis}",
        f"mask_{axis} = off_{axis} < size_{axis}",
    )


def _advance_cotangents(form: TokenForm) -> tuple[str, ...]:
    """Moves the pointers of the outputs' gradients to this program's sequence and head."""
    lines: list[str] = []
    for o in form.outputs:
        lines += [f"if dp_{o.name} is not None:", f"{INDENT}dp_{o.name} += i_b * ds_{o.name}[0] + i_h * ds_{o.name}[2]"]
    return tuple(lines)
