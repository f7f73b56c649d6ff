"""Several states as one in the PyTorch forms: vectors as further columns of a matrix, a running maximum behind them, matrices stacked."""

from __future__ import annotations

from recgen.analysis.coupled_form import CoupledForm
from recgen.analysis.normal_form import NormalForm
from recgen.codegen.torch_printer import column_slice
from recgen.derive.chunk_ir import ChunkForm


def columns_of_state(chunk: ChunkForm) -> str:
    """How many columns the matrix has with the further ones."""
    return f"sizes.values + {chunk.columns}" if chunk.columns else "sizes.values"


def state_shape(chunk: ChunkForm) -> str:
    """The sizes of the joined state of one head."""
    columns = columns_of_state(chunk)
    if chunk.states > 1:
        return f"{chunk.states} * sizes.keys, sizes.values"
    return f"sizes.keys * ({columns}) + 1" if chunk.stabilized else f"sizes.keys, {columns}"


def joined_lines(form: NormalForm) -> tuple[str, ...]:
    """Joins `states`, which are in declaration order."""

    def one(name: str, shape: str) -> str:
        index = [s.name for s in form.recurrence.states].index(name)
        return f"_one(states[{index}], slots, lead, {shape}, like, dtype)"

    parts = [f"matrix = {one(form.state.name, '(sizes.keys, sizes.values)')}"]
    names = ["matrix"]
    for i, column in enumerate(form.columns):
        parts.append(f"column_{i + 1} = {one(column.name, '(sizes.keys, 1)')}")
        names.append(f"column_{i + 1}")
    whole = f"torch.cat(({', '.join(names)}), -1)" if len(names) > 1 else "matrix"
    if form.stabilizer is not None:
        parts.append(f"maximum = {one(form.stabilizer.state.name, '(1,)')}")
        whole = f"torch.cat(({whole}.flatten(1), maximum), 1)"
    return (*parts, f"return {whole}")


def apart_lines(form: NormalForm) -> tuple[str, ...]:
    """The declared states of the joined `state`."""
    count = len(form.columns)
    texts = {form.state.name: f"matrix[..., {column_slice(None, count)}].contiguous()" if count else "matrix.contiguous()"}
    texts |= {c.name: f"matrix[..., {i - count}].contiguous()" for i, c in enumerate(form.columns)}
    lines = ["matrix = state"]
    if form.stabilizer is not None:
        lines = ["matrix = state[..., :-1].unflatten(-1, (sizes.keys, -1))"]
        texts[form.stabilizer.state.name] = "state[..., -1].contiguous()"
    return (*lines, f"return {', '.join(texts[s.name] for s in form.recurrence.states)}")


def stacked_lines(form: CoupledForm) -> tuple[str, ...]:
    """Stacks `states`, which are in declaration order, over the keys in the order of the form."""
    declared = [s.name for s in form.recurrence.states]
    places = (declared.index(name) for name in form.names)
    parts = (f"_one(states[{i}], slots, lead, (sizes.keys, sizes.values), like, dtype)" for i in places)
    return (*(f"state_{i + 1} = {part}" for i, part in enumerate(parts)), f"return torch.cat(({_numbered(form)}), -2)")


def unstacked_lines(form: CoupledForm) -> tuple[str, ...]:
    """The declared states of the stacked `state`."""
    results = (f"state_{form.names.index(s.name) + 1}.contiguous()" for s in form.recurrence.states)
    return (f"{_numbered(form)} = state.chunk({len(form.states)}, -2)", f"return {', '.join(results)}")


def _numbered(form: CoupledForm) -> str:
    return ", ".join(f"state_{i + 1}" for i in range(len(form.states)))
