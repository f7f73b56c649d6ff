"""Recurrences at the corners of what is compiled token by token: each says in a line what is odd about it."""

from __future__ import annotations

from functools import cache

from recgen.pipeline import TokenCompiled, compile_text

SPECS = {
    "a constant state": """
    input x : [D]
    state h : [D]
    state c : []
    plan recurrent
    c[t] = 2
    h[t] = c[t-1] * tanh(h[t-1]) + x
    y = h[t]
""",
    "states that change places": """
    input x : [D]
    state a : [D]
    state b : [D]
    plan recurrent
    a[t] = b[t-1] + x
    b[t] = a[t-1]
    y = a[t] * b[t]
""",
    "a state of params alone": """
    input x : [D]
    param p : [D]
    state h : [D]
    state g : [D]
    plan recurrent
    g[t] = p
    h[t] = tanh(h[t-1]) + x * g[t-1]
    y = h[t]
    z = 2 * p
    output y, z
""",
    "outputs without a state": """
    input x : [D]
    state h : [D]
    plan recurrent
    h[t] = tanh(h[t-1]) + x
    y = h[t]
    z = sum(h[t] * x)
    w = D^0.5 * 2
    output y, z, w
""",
    "products of the state with itself": """
    input k : [K]
    input v : [V]
    state S : [K, V]
    plan recurrent
    S[t] = 0.5 * S[t-1] - 0.01 * S[t-1] @ S[t-1]^T @ S[t-1] + k @ v^T
    o = S[t]^T @ k
    p = sum(S[t]^T @ k * v)
    output o, p
""",
    "a square state, transposed": """
    input k : [K]
    param W : [K, K]
    state S : [K, K]
    plan recurrent
    S[t] = 0.3 * tanh(S[t-1]^T + W) + k @ k^T
    o = S[t] @ k + S[t-1]^T @ k
""",
    "rows, functions of rows, choices by value": """
    input k : [K]
    input v : [V]
    input a : []
    state S : [K, V]
    plan recurrent
    r = l2norm(k^T @ S[t-1])
    S[t] = 0.5 * S[t-1] * sigmoid(r) + k @ rmsnorm(v^T + r)
    o = where(a < 0, S[t]^T @ k, v)
    p = max(a, 0)^2 + min(abs(a), 1)
    output o, p
""",
    "an identity on its own": """
    input k : [K]
    input a : []
    state S : [K, K]
    plan recurrent
    S[t] = 0.5 * S[t-1] + a * I
    o = S[t] @ k
""",
    "a choice between matrices": """
    input k : [K]
    input v : [V]
    input g : [K] log_decay
    option gated = true
    option other = false
    state S : [K, V]
    plan recurrent
    S[t] = (exp(g) * S[t-1] if gated else tanh(S[t-1])) + k @ v^T
    o = S[t]^T @ k if not other else v
""",
    "numbers alone": """
    input x : []
    param p : []
    state c : []
    plan recurrent
    c[t] = tanh(c[t-1] * p + x)
    y = c[t]
""",
    "an axis of params alone": """
    input x : []
    param B : [N]
    param C : [N]
    param A : [N, N]
    state h : [N]
    plan recurrent
    h[t] = tanh(A @ h[t-1] + B * x)
    y = sum(C * h[t])
""",
    "a matrix declared value first beside a vector": """
    input q : [K] grouped
    input k : [K] grouped
    input v : [V]
    input e : [V, K]
    state S : [V, K]
    state n : [K]
    plan recurrent
    n[t] = n[t-1] + k
    S[t] = S[t-1] * sigmoid(e) + v @ k^T
    o = S[t] @ q / (1 + abs(sum(n[t] * q)))
""",
    "names that emitted functions have too": """
    input before : [K]
    input after : [K]
    input chosen : [K]
    input F : [K]
    state S : [K]
    state S_before : [K]
    plan recurrent
    S[t] = tanh(S[t-1]) * before + after
    S_before[t] = S[t] + chosen * S_before[t-1] * 0.1
    d = S_before[t] + F
    o = d * 2
""",
    "micro-steps of a nonlinear state": """
    const n = 3
    input q : [K]
    input k : [n, K]
    input v : [n, V]
    state S : [K, V]
    plan recurrent
    S[t, 0] = 0.9 * S[t-1]
    S[t, j] = tanh(S[t, j-1]) + k[j] @ (v[j] - S[t, j-1]^T @ k[j])^T * 0.1 for j in 1..n
    o = S[t]^T @ q + S[t, 1]^T @ q
""",
}


@cache
def corner(name: str) -> TokenCompiled:
    """One of them, compiled."""
    found = compile_text(f"language 1\n\nrecurrence corner{SPECS[name]}", name)
    assert isinstance(found, TokenCompiled)
    return found


def options(name: str) -> tuple[tuple[tuple[str, bool], ...], ...]:
    """The boolean options as they are by default, and all of them the other way."""
    found = [o for o in corner(name).recurrence.options if isinstance(o.default, bool)]
    return tuple(tuple((o.name, o.default != turned) for o in found) for turned in ((False, True) if found else (False,)))
