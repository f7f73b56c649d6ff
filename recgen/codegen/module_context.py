"""Names, signatures, schemas and documentation of a generated module."""

from __future__ import annotations

from dataclasses import dataclass

from recgen.analysis.coupled_form import CoupledForm
from recgen.analysis.normal_form import NormalForm
from recgen.analysis.token_form import TokenForm
from recgen.codegen.expressions import local
from recgen.codegen.token_printer import TokenPrinter
from recgen.lang.recurrence import ArgumentInfo, OptionInfo, Recurrence
from recgen.lang.terms import AxisSize, walk
from recgen.plan import MOST_TOKENS

Form = NormalForm | CoupledForm | TokenForm


@dataclass(frozen=True)
class ArgumentRow:
    """A row of the module's argument table."""

    name: str
    axes: str
    grouped: bool
    per_token: bool
    needed_if: str


@dataclass(frozen=True)
class StateRow:
    """A row of the module's state table: `axes` with the key axis first, `turned` where a matrix was declared the other way round."""

    name: str
    axes: str
    turned: bool


@dataclass(frozen=True)
class ModuleContext:
    """What the module-level templates print.

    `chunked`: the chunk form is made of products of matrices; `tokenwise`: steps and the recurrent form are those of the equations as they
    stand; `scanned`: the chunk form is a scan; `kernels`: it has Triton kernels.
    """

    name: str
    title: str
    summary: str
    header: tuple[str, ...]
    exports: tuple[str, ...]
    namespace: str
    arguments: tuple[ArgumentRow, ...]
    parameters: tuple[ArgumentRow, ...]
    packed: tuple[str, ...]
    table: str
    micro_sizes: str
    fewer_tokens: bool
    fewer_because: str
    kernels: bool
    tokens: int
    output_axes: str
    output_like: str
    states: tuple[StateRow, ...]
    chunked: bool
    tokenwise: bool
    scanned: bool
    chunk_size: str
    several_states: bool
    matrix_states: bool
    state_type: str
    v_first: str
    key_axis: str
    value_axis: str
    number_names: str
    flag_names: str
    number_defaults: tuple[str, ...]
    expression_parameters: tuple[str, ...]
    operand_list: str
    forward_schema: tuple[str, ...]
    backward_schema: tuple[str, ...]
    step_schema: tuple[str, ...]
    signature: str
    step_signature: str
    step_keywords: str
    step_return: str
    return_type: str
    argument_tuple: str
    number_tuple: str
    flag_tuple: str
    first_argument: str
    anchor: int
    argument_docs: str
    chunk_docs: str
    step_docs: str


@dataclass(frozen=True)
class DeclaredState:
    """A state as declared; `turned`: a matrix that was declared [value axis, key axis]."""

    name: str
    axes: tuple[str, ...]
    turned: bool


def states_of(form: Form) -> tuple[DeclaredState, ...]:
    """The states of a form, in declaration order."""
    if isinstance(form, NormalForm):
        return tuple(DeclaredState(s.name, s.axes, form.transposed and s == form.state) for s in form.recurrence.states)
    token = form.token if isinstance(form, CoupledForm) else form
    return tuple(DeclaredState(s.name, s.axes, s.turned) for s in token.states)


def _state_type(states: tuple[DeclaredState, ...]) -> str:
    return "torch.Tensor" if len(states) == 1 else "tuple[torch.Tensor, ...]"


def _forms(form: Form) -> str:
    chunkwise = isinstance(form, NormalForm | CoupledForm) or form.kind == "scan"
    return "step, recurrent and chunkwise" if chunkwise else "step and recurrent"


def row(items: tuple[str, ...]) -> str:
    """A tuple's literal from texts."""
    return "(" + ", ".join(items) + ("," if len(items) == 1 else "") + ")"


def quoted(names: tuple[str, ...]) -> str:
    """A tuple of strings as a literal."""
    return row(tuple(f'"{n}"' for n in names))


def output_axes(form: Form) -> tuple[tuple[str, ...], ...]:
    """The axes of every output."""
    return tuple(tuple(a for a in o.value.shape if a != "1") for o in form.outputs)


def _always_there(arguments: tuple[ArgumentInfo, ...]) -> tuple[int, ...]:
    """The inputs that no option leaves out; all of them where each is left out by some."""
    inputs = [(i, a) for i, a in enumerate(arguments) if a.role == "input"]
    return tuple(i for i, a in inputs if not a.needed_if) or tuple(i for i, _ in inputs)


def output_like(form: Form) -> tuple[int, ...]:
    """For every output, the argument whose dtype it takes: the first input with its axis, of those that are always there."""
    inputs = [(i, form.recurrence.arguments[i]) for i in _always_there(form.recurrence.arguments)]
    return tuple(next((i for i, a in inputs if axes and axes[0] in a.axes), inputs[0][0]) for axes in output_axes(form))


def build_module_context(
    form: Form,
    header: tuple[str, ...],
    digest: str,
    operand_list: str,
    tokens: int = MOST_TOKENS,
    kernels: bool = True,
) -> ModuleContext:
    """Everything that depends on names alone; `tokens`: of a chunk at most; `kernels`: a normal form's chunks have kernels."""
    r = form.recurrence
    numbers = tuple(o for o in r.options if not isinstance(o.default, bool))
    flags = tuple(o for o in r.options if isinstance(o.default, bool))
    outputs = len(form.outputs)
    tensors = ", ".join(f"Tensor{'?' if a.needed_if else ''} {a.name}" for a in r.arguments)
    options = "".join(f"float {o.name}, " for o in numbers) + "".join(f"bool {o.name}, " for o in flags)
    states = states_of(form)
    matrices = any(len(s.axes) == 2 for s in states)
    tags = [""] if len(states) == 1 else [f"_{i}" for i in range(len(states))]
    initial = ", ".join(f"Tensor? initial_state{tag}" for tag in tags)
    returned = ", ".join(["Tensor"] * (outputs + len(states) + 1))
    gradients = ", ".join([f"Tensor? d_output_{i}" for i in range(outputs)] + [f"Tensor? d_final_state{tag}" for tag in tags])
    mutated = ", ".join(f"Tensor({chr(97 + i)}!) state{tag}" for i, tag in enumerate(tags))
    handled = ("", "chunk_", "fused_recurrent_", "naive_recurrent_", "step_")
    scanned = isinstance(form, TokenForm) and form.kind == "scan"
    prefixes = handled if scanned or isinstance(form, NormalForm | CoupledForm) else tuple(p for p in handled if p != "chunk_")
    return ModuleContext(
        name=r.name,
        title=f"{r.name}: {_forms(form)} forms with gradients, generated by recgen.",
        summary=_sentence(r.doc) or r.name,
        header=header,
        exports=tuple(sorted(f"{p}{r.name}" for p in prefixes)),
        namespace=f"recgen_{r.name}_{digest[:12]}",
        arguments=tuple(_argument_row(a) for a in r.arguments),
        parameters=tuple(_argument_row(a) for a in r.declared),
        packed=tuple(f'"{p.info.name}": {quoted(p.members)}' for p in r.packed),
        table="_PARAMETERS" if r.packed else "_ARGUMENTS",
        micro_sizes="{" + ", ".join(f'"{name}": ({size}, "const {name}")' for name, size in _micro_sizes(r).items()) + "}",
        fewer_tokens=tokens < MOST_TOKENS,
        fewer_because="an inverse of more loses digits" if isinstance(form, CoupledForm) else "a token has several micro-steps",
        kernels=kernels and (scanned or isinstance(form, NormalForm)),
        tokens=tokens,
        output_axes=row(tuple(quoted(axes) for axes in output_axes(form))),
        output_like=row(tuple(str(i) for i in output_like(form))),
        states=tuple(StateRow(s.name, quoted(s.axes[::-1] if s.turned else s.axes), s.turned) for s in states),
        chunked=isinstance(form, NormalForm | CoupledForm),
        tokenwise=not isinstance(form, NormalForm),
        scanned=scanned,
        chunk_size="16" if scanned else "64",  # a scan's chunk of states stays in a core's cache
        several_states=len(states) > 1,
        matrix_states=matrices,
        state_type=_state_type(states),
        v_first="state_v_first" if matrices else "None",
        key_axis=form.key_axis if isinstance(form, NormalForm | CoupledForm) else "",
        value_axis=form.value_axis if isinstance(form, NormalForm | CoupledForm) else "",
        number_names=quoted(tuple(o.name for o in numbers)),
        flag_names=quoted(tuple(o.name for o in flags)),
        number_defaults=tuple(_default(o, r) for o in numbers),
        expression_parameters=_expression_parameters(r, numbers, flags),
        operand_list=operand_list,
        forward_schema=(f"({tensors}, ", f"{options}", f"{initial}, ", f"Tensor? cu_seqlens, int chunk, bool save) -> ({returned})"),
        backward_schema=(
            f"({tensors}, ",
            f"{options}",
            f"{initial}, Tensor? cu_seqlens, int chunk, Tensor states, ",
            f"{gradients})",
            f" -> ({', '.join(['Tensor'] * (len(r.arguments) + len(states)))})",
        ),
        step_schema=(f"({tensors}, ", f"{options}", f"{mutated}, Tensor? state_indices) -> ({', '.join(['Tensor'] * outputs)})"),
        signature=_signature(form, numbers, flags),
        step_signature="\n".join(f"    {a.name}: torch.Tensor," for a in r.declared if not a.needed_if),
        step_keywords="\n".join(_option_lines(form, numbers, flags)),
        step_return="torch.Tensor" if outputs == 1 else f"tuple[{', '.join(['torch.Tensor'] * outputs)}]",
        return_type=", ".join([*["torch.Tensor"] * outputs, f"{_state_type(states)} | None"]),
        argument_tuple=_items(tuple(a.name for a in r.declared)),
        number_tuple=_items(tuple(o.name for o in numbers)),
        flag_tuple=_items(tuple(o.name for o in flags)),
        first_argument=r.declared[_always_there(r.declared)[0]].name,
        anchor=_always_there(r.declared)[0],
        argument_docs=_docs(form, ("B", "T")),
        chunk_docs=_docs(form, ("B", "T"), tokens),
        step_docs=_step_docs(form),
    )


def _micro_sizes(r: Recurrence) -> dict[str, int]:
    """The sizes of the axes that count micro-steps."""
    consts = dict(r.consts)
    return {p.info.axes[0]: consts[p.info.axes[0]] for p in r.packed}


def _items(names: tuple[str, ...]) -> str:
    return ", ".join(names) + ("," if len(names) == 1 else "")


def _sentence(doc: str) -> str:
    return doc if not doc or doc.endswith(".") else doc + "."


def _argument_row(a: ArgumentInfo) -> ArgumentRow:
    needed = row(tuple(f'("{o}", {v})' for o, v in a.needed_if))
    return ArgumentRow(a.name, quoted(a.axes), a.grouped, a.role == "input", needed)


def _default(option: OptionInfo, r: Recurrence) -> str:
    assert not isinstance(option.default, bool)
    printer = TokenPrinter({}, {})
    text = printer.text(option.default)
    axes = dict.fromkeys(x.axis for x in walk(option.default) if isinstance(x, AxisSize))
    known = {axis: f'sizes["{axis}"][0]' for axis in axes}
    if not axes:
        return f"lambda _: {text}"
    bindings = ", ".join(f"{axis}={value}" for axis, value in known.items())
    return f"lambda sizes: (lambda {', '.join(axes)}: {text})({bindings})"


def _option_default(option: OptionInfo) -> str:
    if isinstance(option.default, bool):
        return str(option.default)
    if any(isinstance(x, AxisSize) for x in walk(option.default)):
        return "None"
    return TokenPrinter({}, {}).text(option.default)


def _option_lines(form: Form, numbers: tuple[OptionInfo, ...], flags: tuple[OptionInfo, ...]) -> list[str]:
    lines = [f"    {o.name}: float | None = {_option_default(o)}," for o in numbers]
    lines += [f"    {o.name}: bool = {_option_default(o)}," for o in flags]
    lines += [f"    {a.name}: torch.Tensor | None = None," for a in form.recurrence.declared if a.needed_if]
    matrices = any(len(s.axes) == 2 for s in states_of(form))
    return [*lines, *["    state_v_first: bool | None = None,"] * matrices]


def _signature(form: Form, numbers: tuple[OptionInfo, ...], flags: tuple[OptionInfo, ...]) -> str:
    """Inputs in the spec's order, numeric options, the states, boolean options, what they ask for, packing."""
    state_type = _state_type(states_of(form))
    lines = [f"    {a.name}: torch.Tensor," for a in form.recurrence.declared if not a.needed_if]
    lines += [f"    {o.name}: float | None = {_option_default(o)}," for o in numbers]
    lines += [f"    initial_state: {state_type} | None = None,", "    output_final_state: bool = False,"]
    lines += _option_lines(form, (), flags)
    return "\n".join([*lines, "    cu_seqlens: torch.Tensor | None = None,"])


def _expression_parameters(r: Recurrence, numbers: tuple[OptionInfo, ...], flags: tuple[OptionInfo, ...]) -> tuple[str, ...]:
    parts = [f"{local(a.name)}: torch.Tensor{' | None' if a.needed_if else ''}" for a in r.arguments]
    return (*parts, *(f"{o.name}: float" for o in numbers), *(f"{o.name}: bool" for o in flags))


def _layout(a: ArgumentInfo, lead: tuple[str, ...]) -> str:
    if a.role == "param":
        return "[" + ", ".join(("HV", *a.axes)) + "]"
    return "[" + ", ".join((*lead, "H" if a.grouped else "HV", *a.axes)) + "]"


_DOMAINS = {
    "log_decay": "a log decay, never positive; not checked",
    "decay": "a decay, between 0 and 1; not checked",
    "in": "within the bounds of its domain in the spec; not checked",
    "positive": "positive; not checked",
    "negative": "negative; not checked",
    "nonnegative": "not negative; not checked",
}
"""What the docstrings say of a domain."""


def _argument_lines(form: Form, lead: tuple[str, ...]) -> list[str]:
    lines = ["Args:"]
    steps = _micro_sizes(form.recurrence)
    for a in form.recurrence.declared:
        count = "".join(f", {axis} = {steps[axis]}" for axis in a.axes if axis in steps)
        domain = f", {_DOMAINS.get(a.domain, a.domain)}" if a.domain else ""
        needed = " or ".join(f"{o}={v}" for o, v in a.needed_if)
        lines.append(f"    {a.name}: {_layout(a, lead)}{count}{domain}{f'; with {needed} only' if needed else ''}.")
    kinds = {True: "chooses code", False: "a number"}
    return lines + [f"    {o.name}: {kinds[isinstance(o.default, bool)]}." for o in form.recurrence.options]


def _state_text(form: Form, lead: str) -> str:
    """The layout of the state, or of each of them."""
    shapes = [f"[{', '.join((lead, 'HV', *s.axes))}]" for s in states_of(form)]
    if len(shapes) == 1:
        return shapes[0]
    return f"a tuple of {', '.join(f'{s.name} {shape}' for s, shape in zip(states_of(form), shapes, strict=True))}"


def _order_lines(form: Form) -> list[str]:
    """What `state_v_first` chooses; nothing without a matrix state."""
    matrices = [s for s in states_of(form) if len(s.axes) == 2]
    if not matrices:
        return []
    first = " and ".join(dict.fromkeys(f"[.., {', '.join(s.axes if s.turned else s.axes[::-1])}]" for s in matrices))
    declared = " and ".join(dict.fromkeys(f"[{', '.join(s.axes)}]" for s in matrices))
    what = "the state's axes" if len(states_of(form)) == 1 else "the axes of matrix states"
    return [f"    state_v_first: order of {what}, True for {first}; None for the declared {declared}."]


def _output_text(form: Form, lead: tuple[str, ...]) -> str:
    shapes = [", ".join((*lead, "HV", *axes)) for axes in output_axes(form)]
    return ", ".join(f"{o.name} [{shape}]" for o, shape in zip(form.outputs, shapes, strict=True))


def _docs(form: Form, lead: tuple[str, ...], tokens: int = 0) -> str:
    """The documentation of a function over sequences, of the chunkwise one with the most `tokens` that its chunks have."""
    lines = _argument_lines(form, lead)
    state, one = _state_text(form, "N"), len(states_of(form)) == 1
    lines += [
        f"    initial_state: {state}, any floating dtype; zeros if None.",
        f"    output_final_state: whether to return the state{'' if one else 's'} after the last token.",
        *_order_lines(form),
        "    cu_seqlens: int32 or int64 boundaries [N + 1] of sequences packed into one row (B = 1).",
        *[_chunk_line(form, tokens)] * (tokens > 0),
        "",
        "Returns:",
        *_returned_lines(f"{_output_text(form, lead)}, and the final {f'state {state}' if one else f'states: {state}'}", one),
    ]
    lines += ["", "Raises:", "    ValueError, TypeError: an argument is wrong; the message names it, what it should be and what it is."]
    return "\n".join(f"    {line}".rstrip() for line in ["", *lines])


def _chunk_line(form: Form, tokens: int) -> str:
    if isinstance(form, NormalForm | CoupledForm):
        fewer = f", here {tokens} at most" * (tokens < MOST_TOKENS)
        kernels = "; kernels may take fewer, as far as their tiles fit" * isinstance(form, NormalForm)
        return f"    chunk_size: tokens per chunk: 16, 32 or 64{fewer}{kernels}."
    return "    chunk_size: tokens whose states PyTorch holds at once: 16, 32 or 64; kernels take one token after another."


def _returned_lines(text: str, one: bool) -> list[str]:
    """What a form returns; a list of states fills a line."""
    precision = "in float32 (float64 for float64 inputs), or None."
    return [f"    {text} {precision}"] if one else [f"    {text},", f"    {precision}"]


def _step_docs(form: Form) -> str:
    lines = [
        *_argument_lines(form, ("B",)),
        f"    state: {_state_text(form, 'slots')}, any floating dtype, updated in place.",
        "    state_indices: int32 or int64 [B], the slot of every row, all different, the row itself if None; a negative one skips its row",
        "        (output 0), and so does, on a GPU, one that the pool does not have.",
        *_order_lines(form),
    ]
    lines += ["", "Returns:", f"    {_output_text(form, ('B',))}."]
    return "\n".join(f"    {line}".rstrip() for line in ["", *lines])
