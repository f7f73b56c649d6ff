"""The text of a scan's operations that move and contract axes, for values [tokens, rows, HV, *axes]."""

from __future__ import annotations

from recgen.derive.program import Assign, Value


def spread_text(s: Assign) -> str:
    """A view over more axes."""
    (source,) = s.args
    assert isinstance(source, Value)
    text = source.name
    for i, axis in reversed(tuple(enumerate(s.target.axes))):
        if axis not in source.axes:
            text = f"_spread({text}, {i - len(s.target.axes)}, {axis})"
    return text


def sum_text(s: Assign) -> str:
    """A sum over the axes that the target has not."""
    (source,) = s.args
    assert isinstance(source, Value)
    places = tuple(i - len(source.axes) for i, axis in enumerate(source.axes) if axis not in s.target.axes)
    return f"{source.name}.sum({places[0] if len(places) == 1 else places})"


def _factors(s: Assign) -> tuple[Value, Value]:
    """The operands of a contraction, the one with more axes first."""
    left, right = s.args
    assert isinstance(left, Value) and isinstance(right, Value)
    return (left, right) if len(left.axes) == 2 else (right, left)


def shape_text(value: Value) -> str:
    """The shape of a value, in the names of the printed functions."""
    lead = "*sizes.lead, " if value.per_token else ""
    return f"{lead}sizes.{'key_heads' if value.grouped else 'heads'}{''.join(f', {a}' for a in value.axes)}"


def matrix_vector(s: Assign) -> bool:
    """Whether a contraction is a product of one matrix and one vector."""
    matrix, vector = _factors(s)
    return len(matrix.axes) == 2 and len(vector.axes) == 1 and set(matrix.axes) == {vector.axis, s.target.axis}


def product_text(s: Assign) -> str:
    """The product of matrices and vectors into the memory that the target has."""
    matrix, vector = _factors(s)
    name, flat = s.target.name, f"{matrix.name}.flatten(0, -3)"
    if vector.axis == matrix.axes[0]:
        return f"torch.bmm({vector.name}.flatten(0, -2).unsqueeze(-2), {flat}, out={name}.flatten(0, -2).unsqueeze(-2))"
    return f"torch.bmm({flat}, {vector.name}.flatten(0, -2).unsqueeze(-1), out={name}.flatten(0, -2).unsqueeze(-1))"


def dot_text(s: Assign) -> str:
    """A contraction: of vectors by their sum, of matrix and vector as a product, anything else by letters."""
    matrix, vector = _factors(s)
    if len(matrix.axes) == len(vector.axes) == 1 and not s.target.axis:
        return f"({vector.name} * {matrix.name}).sum(-1)"
    if matrix_vector(s):
        if vector.axis == matrix.axes[0]:
            return f"({vector.name}.unsqueeze(-2) @ {matrix.name}).squeeze(-2)"
        return f"({matrix.name} @ {vector.name}.unsqueeze(-1)).squeeze(-1)"
    left, right = s.args
    assert isinstance(left, Value) and isinstance(right, Value)
    letters = dict(zip(dict.fromkeys((*left.axes, *right.axes)), "abc", strict=False))
    one, other, out = ("".join(letters[a] for a in v.axes) for v in (left, right, s.target))
    return f'torch.einsum("...{one},...{other}->...{out}", {left.name}, {right.name})'
