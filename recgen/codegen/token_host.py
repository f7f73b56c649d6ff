"""The host's part of the kernels of a token form: what is allocated, which blocks are chosen, what is passed on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from recgen.codegen.token_memory import TokenMemory
from recgen.codegen.triton_arguments import KernelArgument, dtype_source, size_lines, wide_source
from recgen.codegen.triton_context import GradientText, OutputText, host_arguments, pointer_text
from recgen.codegen.triton_printer import INDENT
from recgen.plan import RecurrentTiles

LARGEST_FACTOR = 64
"""The size of an axis of a product of matrices at most: both factors, and those of the adjoint, lie in shared memory."""


@dataclass(frozen=True)
class StateText:
    """A state on the host: its sizes in memory as text, and in how many parts its initial gradient is summed."""

    name: str
    sizes: str
    parts: str


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
    size_names: str
    forward_blocks: str
    backward_blocks: str
    step_blocks: str
    has_split: bool
    split_block: str
    split_least: str
    split_size: str
    held: str
    entries: str
    padded: str
    padded_entries: str
    finals: str
    pool: str


class HostPrinter:
    """Builds the host's part; after every program has been printed."""

    def __init__(self, memory: TokenMemory) -> None:
        self.memory, self.form, self.recurrence = memory, memory.form, memory.recurrence
        self.arguments, self.axes, self.printer = memory.arguments, memory.axes, memory.printer

    def gradients(self) -> tuple[GradientText, ...]:
        """Allocation and reduction of every argument's gradient."""
        return gradient_texts(self.arguments, self.memory.alone, "_N", "_wide")

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

    def limit(self, axis: str) -> tuple[str, str]:
        """Refuses an axis of a product of matrices whose tiles would not fit into shared memory."""
        text = f"{self.recurrence.name}: the kernels multiply matrices over {axis} up to {LARGEST_FACTOR}, but it is {{_size_{axis}}}"
        return f"if _size_{axis} > {LARGEST_FACTOR}:", f'{INDENT}raise ValueError(f"{text}")'

    def host(self, tiles: RecurrentTiles) -> TokenHost:
        """The lines and names of the host functions."""
        split = self.form.split
        held = [s.axes for s in self.form.states] + [a.info.axes for a in self.arguments]
        over = [axes for axes in held if split in axes]
        beside = max((" * ".join(f"_block_{x}" for x in axes if x != split) or "1" for axes in over), key=len, default="1")
        least = {axis: 16 if axis in self.printer.multiplied else 1 for axis in self.axes}
        unsplit = [axis for axis in self.axes if axis != split]
        blocks = [line for axis in unsplit if axis in self.printer.multiplied for line in self.limit(axis)]
        blocks += [f"_block_{axis} = max(triton.next_power_of_2(_size_{axis}), {least[axis]})" for axis in unsplit]
        smallest = least.get(split, 1)
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
            values=tuple(f"float({text})" for _, text in self.memory.numbers.found),
            constants=constants,
            wide=wide_source(self.recurrence),
            blocks=tuple(blocks),
            block_names="".join(f"_block_{axis}, " for axis in self.axes),
            block_parameters=f"{sizes}{', _entries' if split else ''}",
            size_names="".join(f"_size_{axis}, " for axis in self.axes),
            forward_blocks=forward,
            backward_blocks=backward,
            step_blocks=step,
            has_split=bool(split),
            split_block=f"_block_{split}",
            split_least=f"max(triton.next_power_of_2(_size_{split}), {smallest}), max(_entries // ({beside}), {max(smallest, 8)})",
            split_size=f"_size_{split}, _block_{split}",
            held=" + ".join(" * ".join(f"_block_{x}" for x in axes) or "1" for axes in held),
            entries=self.memory.all_entries("_size"),
            padded=self.memory.all_entries("_block"),
            padded_entries=self.memory.all_entries("block"),
            finals=", ".join(f"_final_{s.name}" for s in self.form.states),
            pool=f"_state_{self.form.states[0].name}",
        )


def gradient_texts(
    arguments: tuple[KernelArgument, ...], alone: Callable[[KernelArgument], bool], programs: str, wide: str
) -> tuple[GradientText, ...]:
    """Allocation and reduction of every argument's gradient.

    `alone`: no two blocks have parts of it; `programs`: how many have a param's besides blocks; `wide`: the dtype of partial sums.
    """
    found = []
    for a in arguments:
        name, blocks = a.info.name, "1" if alone(a) else "_NV"
        entries = "".join(f", _size_{axis}" for axis in a.info.axes)
        if a.per_token:
            shape = f"({blocks}, _B, _T, _HV{entries})"
            narrow = f"{name}.dtype" if alone(a) else f"{name}.dtype if _NV == 1 else {wide}"
            dtype = wide if a.info.grouped else narrow
            reduced = f"_triton_sum_parts(_d_{name}, {name}, {'_H' if a.info.grouped else '_HV'})"
        else:
            shape, dtype = f"({programs} * {blocks}, _HV{entries})", wide
            reduced = f"_d_{name}.sum(0).to({name}.dtype)"
        missing = f" if {name} is not None else None" if a.optional else ""
        found.append(GradientText(name, f"torch.empty({shape}, dtype={dtype}, device={name}.device){missing}", reduced + missing))
    return tuple(found)
