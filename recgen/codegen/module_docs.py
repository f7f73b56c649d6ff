"""What the docstrings of a module's public functions say of arguments, states and results."""

from __future__ import annotations

from dataclasses import dataclass

from recgen.analysis.coupled_form import CoupledForm
from recgen.analysis.normal_form import NormalForm
from recgen.codegen.declared_form import Form, micro_sizes, output_axes, states_of
from recgen.lang.recurrence import ArgumentInfo
from recgen.plan import MOST_TOKENS

_DOMAINS = {
    "log_decay": "a log decay, never positive; not checked",
    "decay": "a decay, between 0 and 1; not checked",
    "in": "within the bounds of its domain in the spec; not checked",
    "positive": "positive; not checked",
    "negative": "negative; not checked",
    "nonnegative": "not negative; not checked",
}
"""What the docstrings say of a domain."""


@dataclass(frozen=True)
class ModuleDocs:
    """The documentation of functions over sequences, of the chunkwise one, of a step."""

    sequences: str
    chunkwise: str
    step: str


def docstring(text: str) -> str:
    """Text as it is written between the triple quotes of a docstring, on lines of its own: what Python reads there is the text."""
    return text.replace("\\", "\\\\").replace('"""', '\\"\\"\\"').replace("\r", "\\r")


def build_docs(form: Form, tokens: int) -> ModuleDocs:
    """The documentation of a form's functions; `tokens`: of a chunk at most."""
    return ModuleDocs(_sequence_docs(form), _sequence_docs(form, tokens), _step_docs(form))


def _sequence_docs(form: Form, tokens: int = 0) -> str:
    """The documentation of a function over sequences, of the chunkwise one with the most `tokens` that its chunks have."""
    lines = _argument_lines(form, ("B", "T"))
    state, one = _state_text(form, "N"), len(states_of(form)) == 1
    lines += [
        f"    initial_state: {state}, any floating dtype; zeros if None.",
        f"    output_final_state: whether to return the state{'' if one else 's'} after the last token.",
        *_order_lines(form),
        "    cu_seqlens: int32 or int64 boundaries [N + 1] of sequences packed into one row (B = 1).",
        *[_chunk_line(form, tokens)] * (tokens > 0),
        "",
        "Returns:",
        *_returned_lines(f"{_output_text(form, ('B', 'T'))}, and the final {f'state {state}' if one else f'states: {state}'}", one),
    ]
    lines += ["", "Raises:", "    ValueError, TypeError: an argument is wrong; the message names it, what it should be and what it is."]
    return "\n".join(f"    {line}".rstrip() for line in ["", *lines])


def _step_docs(form: Form) -> str:
    """The documentation of a step."""
    lines = [
        *_argument_lines(form, ("B",)),
        f"    state: {_state_text(form, 'slots')}, any floating dtype, updated in place.",
        "    state_indices: int32 or int64 [B], the slot of every row, all different, the row itself if None; a negative one skips its row",
        "        (output 0), and so does, on a GPU, one that the pool does not have.",
        *_order_lines(form),
    ]
    lines += ["", "Returns:", f"    {_output_text(form, ('B',))}."]
    return "\n".join(f"    {line}".rstrip() for line in ["", *lines])


def _argument_lines(form: Form, lead: tuple[str, ...]) -> list[str]:
    lines = ["Args:"]
    steps = micro_sizes(form.recurrence)
    for a in form.recurrence.declared:
        count = "".join(f", {axis} = {steps[axis]}" for axis in a.axes if axis in steps)
        domain = f", {_DOMAINS.get(a.domain, a.domain)}" if a.domain else ""
        needed = " or ".join(f"{o}={v}" for o, v in a.needed_if)
        lines.append(f"    {a.name}: {_layout(a, lead)}{count}{domain}{f'; with {needed} only' if needed else ''}.")
    kinds = {True: "chooses code", False: "a number"}
    return lines + [f"    {o.name}: {kinds[isinstance(o.default, bool)]}." for o in form.recurrence.options]


def _layout(a: ArgumentInfo, lead: tuple[str, ...]) -> str:
    if a.role == "param":
        return "[" + ", ".join(("HV", *a.axes)) + "]"
    return "[" + ", ".join((*lead, "H" if a.grouped else "HV", *a.axes)) + "]"


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


def _chunk_line(form: Form, tokens: int) -> str:
    if isinstance(form, NormalForm | CoupledForm):
        fewer = f", here {tokens} at most" * (tokens < MOST_TOKENS)
        kernels = "; kernels may take fewer, as far as their tiles fit" * isinstance(form, NormalForm)
        return f"    chunk_size: tokens per chunk: 16, 32 or 64{fewer}{kernels}."
    return "    chunk_size: tokens whose states PyTorch holds at once: 16, 32 or 64; kernels have tiles of their own."


def _returned_lines(text: str, one: bool) -> list[str]:
    """What a form returns; a list of states fills a line."""
    precision = "in float32 (float64 for float64 inputs), or None."
    return [f"    {text} {precision}"] if one else [f"    {text},", f"    {precision}"]
