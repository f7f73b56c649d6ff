"""Where the arguments, the outputs and the states of a scan lie in memory, as lines of its Triton kernels."""

from __future__ import annotations

from recgen.analysis.scan_form import ScanForm
from recgen.analysis.token_form import TokenState
from recgen.codegen.scan_tiles import ScanTilePrinter, TileDims
from recgen.codegen.triton_arguments import KernelArgument
from recgen.codegen.triton_printer import INDENT, Numbers
from recgen.derive.program import Value
from recgen.derive.scan import ScanPrograms


class ScanMemory:
    """A scan form with its programs, the printer of both, and the lines that load and store tiles of tokens.

    In the kernels `at` are the tile's tokens in their sequence's tensor, `row` their rows of heads in tensors without other strides.
    """

    def __init__(self, form: ScanForm, values: tuple[Value, ...], programs: ScanPrograms) -> None:
        self.form, self.token, self.programs = form, form.token, programs
        self.numbers = Numbers(form.axes)
        self.dims = TileDims(form.token.split)
        self.printer = ScanTilePrinter(form.axes, self.dims, self.numbers)
        pairs = zip(form.recurrence.arguments, values, strict=True)
        self.arguments = tuple(KernelArgument(a, v, None, self.split in a.axes) for a, v in pairs)

    @property
    def split(self) -> str:
        """The axis that programs share."""
        return self.token.split

    def offsets(self, value: Value, strides: dict[str, str]) -> str:
        """Where a value's entries lie, as text to be added to a pointer, of inputs and outputs to their tokens."""
        places = ((self.dims.along(f"off_{x}", (x,), value.axes, "None" * value.per_token), strides[x]) for x in value.axes)
        return "".join(f" + {text}" if stride == "1" else f" + {text} * {stride}" for text, stride in places)

    def alone(self, argument: KernelArgument) -> bool:
        """Whether no two programs have parts of the same gradient."""
        return argument.sliced or not self.split

    def mask(self, value: Value) -> str:
        """What tells a value's entries from the padding and from tokens beyond the end."""
        return self.dims.mask(value.axes, value.per_token)

    def mine(self, value: Value) -> str:
        """Which entries of something a program is in charge of: of what all blocks share, the first is."""
        text = self.mask(value)
        if not self.split or self.split in value.axes:
            return text
        return f"tl.where(i_v == 0, {text}, False)" if text else "i_v == 0"

    # ----------------------------------------------------------------- tiles

    def take(self, pointer: str, value: Value, masked: str | None = None) -> str:
        """A load, wide, zeros in the padding or where `masked` does not hold; what is no token's has one token's place in front."""
        masked = self.mask(value) if masked is None else masked
        text = f"tl.load({pointer}{f', mask={masked}, other=0.0' if masked else ''}).to(ACC)"
        if value.per_token:
            return text
        return f"{text}[None{', :' * len(self.dims.of(value.axes))}]" if value.axes else f"tl.full((1,), 0.0, ACC) + {text}"

    def put(self, pointer: str, text: str, value: Value, masked: str | None = None) -> str:
        """A store of a tile, of what is no token's without a token's place."""
        masked = self.mask(value) if masked is None else masked
        if not value.per_token:
            text = f"tl.reshape({text}, {self.dims.shape(value.axes)})" if value.axes else f"tl.sum({text}, 0)"
        return f"tl.store({pointer}, {text}{f', mask={masked}' if masked else ''})"

    # ---------------------------------------------------------------- inputs

    def params(self) -> tuple[str, ...]:
        """Loads the params."""
        lines: list[str] = []
        for a in self.arguments:
            if not a.per_token:
                strides = {axis: f"s_{a.info.name}[{i}]" for i, axis in enumerate(a.info.axes, 1)}
                lines += a.guarded(f"b_{a.value.name} = {self.take(f'p_{a.info.name}{self.offsets(a.value, strides)}', a.value)}")
        return tuple(lines)

    def inputs(self, names: frozenset[str]) -> tuple[str, ...]:
        """Loads the inputs whose values have these names at the tile's tokens."""
        lines: list[str] = []
        for a in self.arguments:
            if a.per_token and a.value.name in names:
                strides = {axis: f"s_{a.info.name}[{i}]" for i, axis in enumerate(a.info.axes, 3)}
                pointer = (
                    f"p_{a.info.name} + {self.dims.over_tokens('at', a.value.axes)} * s_{a.info.name}[1]{self.offsets(a.value, strides)}"
                )
                lines += a.guarded(f"b_{a.value.name} = {self.take(pointer, a.value)}")
        return tuple(lines)

    def cotangents(self) -> tuple[str, ...]:
        """Loads the gradients of the outputs, zeros where there are none."""
        lines: list[str] = []
        for name, value in self.programs.cotangents:
            strides = {axis: f"ds_{name}[{i}]" for i, axis in enumerate(value.axes, 3)}
            pointer = f"dp_{name} + {self.dims.over_tokens('at', value.axes)} * ds_{name}[1]{self.offsets(value, strides)}"
            lines += [f"if dp_{name} is not None:", f"{INDENT}b_{value.name} = {self.take(pointer, value, self.mine(value))}"]
            lines += ["else:", f"{INDENT}b_{value.name} = tl.full({self.printer.shape(value)}, 0.0, ACC)"]
        return tuple(lines)

    # ---------------------------------------------------------------- states

    def states(self) -> tuple[tuple[TokenState, Value, Value], ...]:
        """Every state with its values before the tile and after its tokens."""
        return tuple(zip(self.token.states, self.programs.first, self.programs.scanned, strict=True))

    def entries(self, state: TokenState, prefix: str) -> str:
        """The number of a state's entries."""
        return " * ".join(f"{prefix}_{axis}" for axis in state.axes) or "1"

    def all_entries(self, prefix: str) -> str:
        """The entries of all states."""
        return " + ".join(self.entries(s, prefix) for s in self.token.states)

    def earlier_entries(self, i: int, prefix: str) -> str:
        """The entries of the states before the i-th, as text to be added to a pointer."""
        return "".join(f" + {self.entries(s, prefix)}" for s in self.token.states[:i])

    def of_caller(self, state: TokenState, value: Value, strides: str) -> str:
        """Where a state's entries lie in a caller's tensor."""
        order = state.axes[::-1] if state.turned else state.axes
        entries = self.offsets(value, {axis: f"{strides}[{i}]" for i, axis in enumerate(order, 2)})
        return f"i_n * {strides}[0] + i_h * {strides}[1]{entries}"

    def dense(self, state: TokenState, value: Value) -> str:
        """Where they lie in a tensor made for a caller."""
        order = state.axes[::-1] if state.turned else state.axes
        return self.offsets(value, _dense(order, "size"))

    def ours(self, value: Value, prefix: str) -> str:
        """Where they lie in memory of the kernels, with (`block`) or without (`size`) the padding."""
        text = self.offsets(value, _dense(value.axes, prefix))
        return text.replace("off_", "loc_") if prefix == "block" else text

    def load_states(self, row: str, target: str = "b_{0}") -> tuple[str, ...]:
        """Loads the states from a row of memory of the kernels."""
        return tuple(f"{target.format(v.name)} = {self.take(row + self._part(i, v), v)}" for i, (_, v, _) in enumerate(self.states()))

    def store_states(self, row: str, source: str = "b_{0}") -> tuple[str, ...]:
        """Stores the states to a row of memory of the kernels, those that all blocks have by the first one."""
        return tuple(self.put(row + self._part(i, v), source.format(v.name), v, self.mine(v)) for i, (_, v, _) in enumerate(self.states()))

    def _part(self, i: int, value: Value) -> str:
        """Where the i-th state lies in a row."""
        return self.earlier_entries(i, "size") + self.ours(value, "size")

    def carry(self) -> tuple[str, ...]:
        """The states before the next tile."""
        return tuple(f"b_{first.name} = {self.printer.end(scanned)}" for _, first, scanned in self.states())

    # -------------------------------------------------------------- segments

    def _row(self, pointer: str, segment: str) -> str:
        """A segment's row in a summary."""
        return f"{pointer} + (({segment}) * HV + i_h) * ({self.all_entries('size')})"

    def store_summary(self, name: str) -> tuple[str, ...]:
        """Stores what a segment adds and what it passes on."""
        return (
            *self.store_states(self._row("w_added", "edge + i_s"), name),
            *self.store_states(self._row("w_passed", "edge + i_s"), "total_{0}"),
        )

    def from_summaries(self, name: str) -> tuple[str, ...]:
        """A state after the segment `i_e`, from the one before it."""
        added = self.load_states(self._row("w_added", "edge + i_e"), "added_{0}")
        passed = self.load_states(self._row("w_passed", "edge + i_e"), "passed_{0}")
        return (
            *added,
            *passed,
            *(f"{name.format(v.name)} = passed_{v.name} * {name.format(v.name)} + added_{v.name}" for _, v, _ in self.states()),
        )


def _dense(order: tuple[str, ...], prefix: str) -> dict[str, str]:
    """The strides of axes in this order without gaps."""
    return {axis: " * ".join(f"{prefix}_{x}" for x in order[i + 1 :]) or "1" for i, axis in enumerate(order)}
