"""Random equations over numbers, vectors and matrices, compiled token by token: values and every gradient against the float64 loop."""

from __future__ import annotations

import random

import pytest

from recgen.pipeline import compile_text
from recgen.verify import reproduce

HEAD = """\
language 1

recurrence drawn
    input q : [K] grouped
    input v : [V]
    input a : []
    param p : [K]
    param W : [K, K]
    param B : []
    option flag = true
    option scale = 0.5
    state S : [K, V]
    state R : [V, K]
    state n : [K]
    state m : []
    plan recurrent

"""
LEAVES = {
    "1": ("a", "B", "m[t-1]", "scale", "0.5", "K^-0.5"),
    "K": ("q", "p", "n[t-1]"),
    "V": ("v",),
    "KV": ("S[t-1]", "R[t-1]^T"),
}
FUNCTIONS = ("tanh", "sigmoid", "sin", "silu", "softplus", "relu", "abs", "logsigmoid")
OF_ANY_SHAPE = (
    "{f}({x})", "{f}({x})", "{f}({x})", "({x} + {x})", "({x} - {x})", "({x} * {x})", "({one} * {x})", "({x} / (1 + abs({one})))",
    "({x} if flag else {x})", "where({one} < {one}, {x}, {x})", "max({x}, {one})", "min({x}, {one})",
)  # fmt: skip
OF_SHAPE = {
    "1": ("sum({K})", "({K}^T @ {K})", "({V}^T @ {V})", "({K}^T @ {KV} @ {V})", "abs({one})^2"),
    "K": ("({KV} @ {V})", "l2norm({K})", "rmsnorm({K})", "(W @ {K})", "(({V}^T @ R[t-1])^T)"),
    "V": ("({KV}^T @ {K})", "l2norm({V})", "(R[t-1] @ {K})", "(({K}^T @ {KV})^T)"),
    "KV": (
        "({K} @ {V}^T)", "({K} * {KV})", "({KV} * {V}^T)", "((I - 0.3 * {K} @ {K}^T) @ {KV})", "(W @ {KV})", "({KV} @ (I + {V} @ {V}^T))",
    ),
}  # fmt: skip


def drawn(draw: random.Random, shape: str, depth: int) -> str:
    """A term of this shape with so many levels."""
    if depth == 0:
        return draw.choice(LEAVES[shape])
    pattern = draw.choice(OF_ANY_SHAPE) if draw.random() < 0.72 else draw.choice(OF_SHAPE[shape])
    pattern = pattern.replace("{x}", f"{{{shape if shape != '1' else 'one'}}}").replace("{f}", draw.choice(FUNCTIONS))
    while "{" in pattern:
        found = pattern[pattern.index("{") + 1 : pattern.index("}")]
        pattern = pattern.replace(f"{{{found}}}", drawn(draw, "1" if found == "one" else found, depth - 1), 1)
    return pattern


def spec(seed: int) -> str:
    """Four states that read one another, three outputs."""
    draw = random.Random(seed)
    term = lambda shape, depth: drawn(draw, shape, depth)  # noqa: E731
    lines = (
        f"S[t] = 0.3 * S[t-1] + 0.3 * tanh({term('KV', 3)}) + q @ v^T",
        f"R[t] = tanh({term('KV', 2)})^T + 0.1 * v @ (W @ p)^T",
        f"n[t] = 0.5 * n[t-1] + tanh({term('K', 3)}) * (1 + 0.1 * m[t]) + p",
        f"m[t] = tanh({term('1', 3)}) + 0 * (scale + B + a)",
        f"o = {term('V', 2)} + S[t]^T @ n[t]",
        f"u = {term('K', 2)} * m[t] + R[t]^T @ v",
        f"w = {term('1', 2)} * (1 if flag else 2)",
        "output o, u, w",
    )
    return HEAD + "".join(f"    {line}\n" for line in lines)


@pytest.mark.parametrize("seed", range(24))
def test_random_equations(seed: int) -> None:
    found = compile_text(spec(seed), f"drawn {seed}")
    for flag in (False, True):
        report = reproduce(found, "recurrent", "float64", tokens=4, key_heads=1, heads=2, flags=(("flag", flag),), seed=seed)
        assert report.ok, f"{report}\n{spec(seed)}"
