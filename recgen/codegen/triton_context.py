"""Everything that `templates/triton/recurrent.py.j2` prints: the recurrent forward, its adjoint, and the step, as Triton kernels."""

from __future__ import annotations

from dataclasses import dataclass

from recgen.analysis.normal_form import NormalForm
from recgen.codegen.module_docs import docstring
from recgen.codegen.triton_adjoint import Adjoint, AdjointPrinter
from recgen.codegen.triton_arguments import dtype_source, size_lines, wide_source
from recgen.codegen.triton_printer import functions
from recgen.codegen.triton_states import StatesText, states_text
from recgen.codegen.triton_token import Token, output_axis
from recgen.derive.operands import OperandSet
from recgen.lang.recurrence import Recurrence
from recgen.lang.source import Span
from recgen.plan import RecurrentTiles

WIDTH = 120


@dataclass(frozen=True)
class OutputText:
    """A returned value: how the host allocates it, per token and for a step."""

    name: str
    shape: str
    step_shape: str
    dtype: str


@dataclass(frozen=True)
class GradientText:
    """The gradient of one argument on the host: how the kernel's partial sums are allocated, and how they are added up."""

    name: str
    allocate: str
    reduced: str


@dataclass(frozen=True)
class HostText:
    """The functions that launch the kernels.

    `arguments` are their parameters; `sizes` and `step_sizes` lines that read every size; `pointers`, `numbers` and `constants` what they
    pass on; `wide` the input whose dtype says how wide the kernels accumulate; `whole`: no value blocks.
    """

    arguments: tuple[str, ...]
    returned: str
    sizes: tuple[str, ...]
    step_sizes: tuple[str, ...]
    pointers: tuple[str, ...]
    numbers: tuple[str, ...]
    constants: tuple[str, ...]
    wide: str
    key: str
    value: str
    record: str
    pool: str
    whole: bool


@dataclass(frozen=True)
class TritonContext:
    """Lines and names for the templates; nothing is computed there."""

    functions: tuple[str, ...]
    title: str
    equations: tuple[str, ...]
    unspecialized: str
    pointers: tuple[str, ...]
    numbers: tuple[str, ...]
    sizes: tuple[str, ...]
    outputs: tuple[OutputText, ...]
    gradients: tuple[GradientText, ...]
    axes: tuple[str, ...]
    advance: tuple[str, ...]
    advance_step: tuple[str, ...]
    once: tuple[str, ...]
    load: tuple[str, ...]
    load_step: tuple[str, ...]
    operands: tuple[str, ...]
    reads_before: tuple[str, ...]
    resolve: tuple[str, ...]
    update: tuple[str, ...]
    states: StatesText
    reads_after: tuple[str, ...]
    readout: tuple[str, ...]
    store: tuple[str, ...]
    store_step: tuple[str, ...]
    advance_cotangents: tuple[str, ...]
    adjoint: Adjoint
    host: HostText
    tiles: RecurrentTiles


def triton_context(form: NormalForm, operands: OperandSet, tiles: RecurrentTiles) -> TritonContext:
    """The context; raises analysis.algebra.Refusal where an argument has no place in these kernels."""
    recurrence, token = form.recurrence, Token(form, operands)
    adjoint = AdjointPrinter(token).build()  # names numbers and functions of its own: before the lists of them are made
    params = tuple(line for a in token.arguments if not a.per_token for line in a.load(False))
    other = _other_axes(token)
    scalars = [f"s_{a.info.name}" for a in token.arguments if a.axis is None]
    numbers = token.numbers.found
    options = [o.name for o in recurrence.options if isinstance(o.default, bool)]
    return TritonContext(
        functions=functions(token.printer.functions),
        title=recurrence.name,
        equations=equation_lines(recurrence),
        unspecialized=", ".join(f'"{name}"' for name in (*scalars, *(f"n_{name}" for name, _ in numbers))),
        pointers=tuple(f"p_{a.info.name}, s_{a.info.name}" for a in token.arguments),
        numbers=tuple(f"n_{name}: tl.float64" for name, _ in numbers),
        sizes=(*(f"{p}_{x}: tl.constexpr" for x in other for p in ("size", "block")), *(f"opt_{o}: tl.constexpr" for o in options)),
        outputs=_outputs(form),
        gradients=_gradients(token),
        axes=tuple(line for axis in other for line in _axis_lines(axis)),
        advance=tuple(line for a in token.arguments for line in a.advance(False)),
        advance_step=tuple(line for a in token.arguments for line in a.advance(True)),
        once=(*(f"c_{name} = tl.full((), n_{name}, ACC)" for name, _ in numbers), *params, *token.once_lines),
        load=tuple(line for a in token.arguments if a.per_token for line in a.load(False)),
        load_step=tuple(line for a in token.arguments if a.per_token for line in a.load(True)),
        operands=token.operand_lines,
        reads_before=tuple(line for _, line in token.read_lines(1)),
        resolve=token.resolve_lines,
        update=token.update_lines,
        states=states_text(form),
        reads_after=tuple(line for _, line in token.read_lines(0)),
        readout=token.readout_lines,
        store=token.store_lines("row"),
        store_step=token.store_lines("row", "here"),
        advance_cotangents=_advance_cotangents(form),
        adjoint=adjoint,
        host=_host(token),
        tiles=tiles,
    )


def _host(token: Token) -> HostText:
    """The host's part."""
    form, recurrence = token.form, token.form.recurrence
    padded = (text for axis in _other_axes(token) for text in (f"_size_{axis}", f"triton.next_power_of_2(_size_{axis})"))
    return HostText(
        arguments=host_arguments(recurrence),
        returned="".join(f"{o.name}, " for o in form.outputs).rstrip(),
        sizes=size_lines(recurrence, False),
        step_sizes=size_lines(recurrence, True),
        pointers=tuple(pointer_text(a.info.name, a.optional) for a in token.arguments),
        numbers=tuple(f"float({text})" for _, text in token.numbers.found),
        constants=(*padded, *(o.name for o in recurrence.options if isinstance(o.default, bool))),
        wide=wide_source(recurrence),
        key=form.key_axis,
        value=form.value_axis,
        record=_record(form),
        pool="state" if len(form.recurrence.states) == 1 else f"_state_{form.state.name}",
        whole=token.whole,
    )


def _record(form: NormalForm) -> str:
    """The sizes of all states of one head together."""
    columns = f"_size_{form.value_axis}" + (f" + {len(form.columns)}" if form.columns else "")
    return f"_size_{form.key_axis} * ({columns}) + 1" if form.stabilizer is not None else f"_size_{form.key_axis}, {columns}"


def _other_axes(token: Token) -> tuple[str, ...]:
    """The axes of arguments that are neither the key axis nor the value axis."""
    return tuple(axis for axis in token.printer.axes if axis not in (token.form.key_axis, token.form.value_axis))


def _axis_lines(axis: str) -> tuple[str, str]:
    """Offsets and mask of an axis that is neither the key axis nor the value axis."""
    return f"off_{axis} = tl.arange(0, block_{axis}).to(tl.int64)", f"mask_{axis} = off_{axis} < size_{axis}"


def equation_lines(recurrence: Recurrence) -> tuple[str, ...]:
    """The spec's own lines for the states and the outputs."""
    source = recurrence.source
    states = [step.span for s in recurrence.states for step in s.steps]
    spans: list[Span | None] = [*states, *(d.span for d in recurrence.definitions if d.name in recurrence.outputs)]
    lines = (source.line(number) for span in spans if span is not None for number in range(span.line, span.end_line + 1))
    return tuple(dict.fromkeys(docstring(line.split("#")[0].strip()[:WIDTH]) for line in lines))


def host_arguments(recurrence: Recurrence) -> tuple[str, ...]:
    """The parameters of the host functions, as the spec names them: arguments, numeric options, boolean options."""
    numeric = [o.name for o in recurrence.options if not isinstance(o.default, bool)]
    boolean = [o.name for o in recurrence.options if isinstance(o.default, bool)]
    return (*(a.name for a in recurrence.arguments), *numeric, *boolean)


def pointer_text(name: str, optional: bool) -> str:
    """An argument and its strides, as the host passes them."""
    return f"{name}, _triton_strides({name})" if optional else f"{name}, {name}.stride()"


def _outputs(form: NormalForm) -> tuple[OutputText, ...]:
    """Allocation of every output."""
    found = []
    for output in form.outputs:
        axis = output_axis(output.value)
        entries = f", _size_{axis}" if axis else ""
        dtype = f"{dtype_source(form.recurrence, axis)}.dtype"
        found.append(OutputText(output.name, f"(_B, _T, _HV{entries})", f"(_B, _HV{entries})", dtype))
    return tuple(found)


def _gradients(token: Token) -> tuple[GradientText, ...]:
    """Allocation and reduction of every argument's gradient."""
    found = []
    for a in token.arguments:
        name = a.info.name
        entries = f", _size_{a.value.axis}" if a.value.axis else ""
        blocks = "1" if a.sliced else "_NV"
        if a.per_token:
            shape = f"({blocks}, _B, _T, _HV{entries})"
            narrow = f"{name}.dtype" if a.sliced else f"{name}.dtype if _NV == 1 else _wide"
            dtype = "_wide" if a.info.grouped else narrow
            heads = "_H" if a.info.grouped else "_HV"
            reduced = f"_triton_sum_parts(_d_{name}, {name}, {heads})"
        else:
            shape, dtype = f"(_N * {blocks}, _HV{entries})", "_wide"
            reduced = f"_d_{name}.sum(0).to({name}.dtype)"
        allocate = f"torch.empty({shape}, dtype={dtype}, device={name}.device)"
        missing = f" if {name} is not None else None" if a.optional else ""
        found.append(GradientText(name, allocate + missing, reduced + missing))
    return tuple(found)


def _advance_cotangents(form: NormalForm) -> tuple[str, ...]:
    """Moves the pointers of the outputs' gradients to this program's sequence and head."""
    lines: list[str] = []
    for o in form.outputs:
        lines += [f"if dp_{o.name} is not None:", f"    dp_{o.name} += i_b * ds_{o.name}[0] + i_h * ds_{o.name}[2]"]
    return tuple(lines)
