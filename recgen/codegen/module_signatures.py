"""The signatures of a module's functions and the schemas of its operators."""

from __future__ import annotations

from dataclasses import dataclass

from recgen.codegen.declared_form import Form, flags_of, has_matrix, numbers_of, states_of
from recgen.codegen.expressions import local
from recgen.codegen.token_printer import TokenPrinter
from recgen.lang.recurrence import OptionInfo, Recurrence
from recgen.lang.terms import AxisSize, walk


@dataclass(frozen=True)
class Schemas:
    """The operators' schemas, in pieces that fill a line each."""

    forward: tuple[str, ...]
    backward: tuple[str, ...]
    step: tuple[str, ...]


@dataclass(frozen=True)
class Signatures:
    """Parameters and return types: of functions over sequences, of a step, of the expressions; the tuples that hand arguments on."""

    sequences: str
    returned: str
    step: str
    step_keywords: str
    step_returned: str
    state_type: str
    expression_parameters: tuple[str, ...]
    argument_tuple: str
    number_tuple: str
    flag_tuple: str


def build_schemas(form: Form) -> Schemas:
    """The schemas: arguments, options, states, what else each operator takes, and what it returns."""
    r, states, outputs = form.recurrence, len(states_of(form)), len(form.outputs)
    tensors = ", ".join(f"Tensor{'?' if a.needed_if else ''} {a.name}" for a in r.arguments)
    options = "".join(f"float {o.name}, " for o in numbers_of(r)) + "".join(f"bool {o.name}, " for o in flags_of(r))
    tags = [""] if states == 1 else [f"_{i}" for i in range(states)]
    initial = ", ".join(f"Tensor? initial_state{tag}" for tag in tags)
    gradients = ", ".join([f"Tensor? d_output_{i}" for i in range(outputs)] + [f"Tensor? d_final_state{tag}" for tag in tags])
    mutated = ", ".join(f"Tensor({chr(97 + i)}!) state{tag}" for i, tag in enumerate(tags))
    returned = _tensors(outputs + states + 1)
    return Schemas(
        forward=(f"({tensors}, ", options, f"{initial}, ", f"Tensor? cu_seqlens, int chunk, bool save) -> ({returned})"),
        backward=(
            f"({tensors}, ",
            options,
            f"{initial}, Tensor? cu_seqlens, int chunk, Tensor states, ",
            f"{gradients})",
            f" -> ({_tensors(len(r.arguments) + states)})",
        ),
        step=(f"({tensors}, ", options, f"{mutated}, Tensor? state_indices) -> ({_tensors(outputs)})"),
    )


def _tensors(count: int) -> str:
    return ", ".join(["Tensor"] * count)


def build_signatures(form: Form) -> Signatures:
    """The signatures of a form's functions."""
    r, outputs = form.recurrence, ["torch.Tensor"] * len(form.outputs)
    return Signatures(
        sequences=_sequences(form),
        returned=", ".join([*outputs, f"{_state_type(form)} | None"]),
        step="\n".join(_required_lines(form)),
        step_keywords="\n".join([*_number_lines(r), *_keyword_lines(form)]),
        step_returned=outputs[0] if len(outputs) == 1 else f"tuple[{', '.join(outputs)}]",
        state_type=_state_type(form),
        expression_parameters=_expression_parameters(r),
        argument_tuple=_items(tuple(a.name for a in r.declared)),
        number_tuple=_items(tuple(o.name for o in numbers_of(r))),
        flag_tuple=_items(tuple(o.name for o in flags_of(r))),
    )


def _sequences(form: Form) -> str:
    """Inputs in the spec's order, numeric options, the states, boolean options, what they ask for, packing."""
    lines = [*_required_lines(form), *_number_lines(form.recurrence)]
    lines += [f"    initial_state: {_state_type(form)} | None = None,", "    output_final_state: bool = False,"]
    return "\n".join([*lines, *_keyword_lines(form), "    cu_seqlens: torch.Tensor | None = None,"])


def _required_lines(form: Form) -> list[str]:
    return [f"    {a.name}: torch.Tensor," for a in form.recurrence.declared if not a.needed_if]


def _number_lines(r: Recurrence) -> list[str]:
    return [f"    {o.name}: float | None = {_option_default(o)}," for o in numbers_of(r)]


def _keyword_lines(form: Form) -> list[str]:
    """Boolean options, the inputs that they ask for, the order of a matrix state's axes."""
    lines = [f"    {o.name}: bool = {_option_default(o)}," for o in flags_of(form.recurrence)]
    lines += [f"    {a.name}: torch.Tensor | None = None," for a in form.recurrence.declared if a.needed_if]
    return [*lines, *["    state_v_first: bool | None = None,"] * has_matrix(form)]


def _option_default(option: OptionInfo) -> str:
    if isinstance(option.default, bool):
        return str(option.default)
    if any(isinstance(x, AxisSize) for x in walk(option.default)):
        return "None"
    return TokenPrinter({}, {}).text(option.default)


def _state_type(form: Form) -> str:
    return "torch.Tensor" if len(states_of(form)) == 1 else "tuple[torch.Tensor, ...]"


def _expression_parameters(r: Recurrence) -> tuple[str, ...]:
    parts = [f"{local(a.name)}: torch.Tensor{' | None' if a.needed_if else ''}" for a in r.arguments]
    return (*parts, *(f"{o.name}: float" for o in numbers_of(r)), *(f"{o.name}: bool" for o in flags_of(r)))


def _items(names: tuple[str, ...]) -> str:
    return ", ".join(names) + ("," if len(names) == 1 else "")
