"""Prints programs as PyTorch."""

from __future__ import annotations

from recgen.derive.program import Assign, Literal, Operand, Statement, Value

INDENT = "    "


def program_lines(statements: tuple[Statement, ...], like: str, indent: str = "") -> tuple[str, ...]:
    """One line of Python for every statement, branches as if/else; `like` is a tensor that is always there."""
    lines: list[str] = []
    for s in statements:
        if isinstance(s, Assign):
            lines.append(f"{indent}{s.target.name} = {_number(s, like) or assignment(s)}")
            continue
        lines += [f"{indent}if {s.option}:", *program_lines(s.then, like, indent + INDENT)]
        lines += [f"{indent}else:", *program_lines(s.otherwise, like, indent + INDENT)]
    return tuple(lines)


def operand_text(operand: Operand) -> str:
    """A value's name, or a number; infinity by its Python name."""
    if isinstance(operand, Value):
        return operand.name
    return {"inf": "math.inf", "-inf": "-math.inf", "(-inf)": "-math.inf"}.get(operand.text, operand.text)


def _number(s: Assign, like: str) -> str | None:
    """A number that stands where another branch has a value of every token."""
    if s.op != "copy" or not isinstance(s.args[0], Literal):
        return None
    return f"{like}.new_full((*sizes.lead, sizes.heads), {operand_text(s.args[0])})"


def assignment(s: Assign) -> str:
    """The right-hand side of one statement."""
    names = [operand_text(a) for a in s.args]
    if s.op in _FORMULAS:
        return _FORMULAS[s.op].format(*names, axis=-2 if s.target.axis else -1)
    if s.op in ("min", "max"):
        return _extremum(s, names)
    if s.op.startswith("where"):
        return _where(s, names)
    raise AssertionError(f"no PyTorch form of {s.op}")


def _where(s: Assign, names: list[str]) -> str:
    """A choice by comparison; a choice between two numbers keeps the precision of what is compared."""
    left, right, then, otherwise = s.args
    if isinstance(left, Literal) and isinstance(right, Literal):
        like = names[2] if isinstance(then, Value) else names[3]
        chosen = [f"torch.full_like({like}, {x})" if isinstance(a, Literal) else x for a, x in zip(s.args[2:], names[2:], strict=True)]
        return f"{chosen[0]} if {names[0]} {s.op[5:]} {names[1]} else {chosen[1]}"
    if isinstance(then, Literal) and isinstance(otherwise, Literal):
        names[2] = f"torch.full_like({names[0] if isinstance(left, Value) else names[1]}, {names[2]})"
    return f"torch.where({names[0]} {s.op[5:]} {names[1]}, {names[2]}, {names[3]})"


def _extremum(s: Assign, names: list[str]) -> str:
    left, right = s.args
    if isinstance(left, Literal):
        names = names[::-1]
    if isinstance(left, Literal) or isinstance(right, Literal):
        return f"{names[0]}.clamp({'max' if s.op == 'min' else 'min'}={names[1]})"
    return f"torch.{'minimum' if s.op == 'min' else 'maximum'}({names[0]}, {names[1]})"


_FORMULAS = {
    **{
        op: f"torch.{op}({{0}})"
        for op in ("exp", "log", "log1p", "expm1", "sqrt", "rsqrt", "sigmoid", "relu", "tanh", "sin", "cos", "abs", "sign")
    },
    "logsigmoid": "F.logsigmoid({0})",
    "softplus": "_softplus({0})",
    "silu": "F.silu({0})",
    "neg": "-{0}",
    "add": "{0} + {1}",
    "sub": "{0} - {1}",
    "mul": "{0} * {1}",
    "div": "{0} / {1}",
    "pow": "{0} ** {1}",
    "sum": "{0}.sum(-1)",
    "dot": "({0} * {1}).sum(-1)",
    "spread": "{0}.unsqueeze(-1)",
    "tokens": "_per_token({0}, sizes)",
    "heads": "_per_value_head({0}, sizes.heads, {axis})",
    "sum_heads": "_per_key_head({0}, sizes.key_heads, {axis})",
    "sum_tokens": "_over_tokens({0}, sizes)",
    "copy": "{0}",
    "zeros": "_zeros_like({0})",
    "l2norm": "_l2norm({0})",
    "l2norm_grad": "_l2norm_gradient({0}, {1})",
    "rmsnorm": "_rmsnorm({0})",
    "rmsnorm_grad": "_rmsnorm_gradient({0}, {1})",
    "log_floor": "torch.log(_floored({0}).abs())",
    "sign_of": "torch.where({0} < 0, -1.0, 1.0).to({0}.dtype)",
    "floored": "_floored({0})",
}

HELPERS = {
    "softplus": "softplus",
    "l2norm": "l2norm",
    "l2norm_grad": "l2norm_gradient",
    "rmsnorm": "rmsnorm",
    "rmsnorm_grad": "rmsnorm_gradient",
    "log_floor": "floored",
    "floored": "floored",
    "heads": "per_value_head",
    "sum_heads": "per_key_head",
    "tokens": "per_token",
    "sum_tokens": "per_token",
    "zeros": "zeros_like",
}
"""Operations that call a helper of the module, and its name."""


def operations(statements: tuple[Statement, ...]) -> set[str]:
    """Every operation that the statements use."""
    found: set[str] = set()
    for s in statements:
        found |= {s.op} if isinstance(s, Assign) else operations(s.then) | operations(s.otherwise)
    return found
