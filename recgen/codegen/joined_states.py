"""Several states as one in the PyTorch forms: vector states as further columns of the matrix, the running maximum behind all of them."""

from __future__ import annotations

from recgen.analysis.normal_form import NormalForm
from recgen.codegen.torch_printer import column_slice
from recgen.derive.chunk_ir import ChunkForm


def columns_of_state(chunk: ChunkForm) -> str:
    """How many columns the matrix has with the further ones."""
    return f"sizes.values + {chunk.columns}" if chunk.columns else "sizes.values"


def state_shape(chunk: ChunkForm) -> str:
    """The sizes of the joined state of one head."""
    columns = columns_of_state(chunk)
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
