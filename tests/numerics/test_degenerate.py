"""Recurrences that forget at once, write nothing, or are made of constants: compiled right in every plan that takes them."""

from __future__ import annotations

import pytest

from recgen.pipeline import AnyCompiled, compile_text
from recgen.verify import reproduce
from recgen.verify.adjoint import check_adjoint

WRITE = "k @ v^T"
READ = "S[t]^T @ q"
BODIES = {
    "cancelled state": ("S[t-1] - S[t-1] + k @ v^T", READ),
    "cancelled multiple": ("b * S[t-1] - b * S[t-1] + k @ v^T", f"{READ} * b"),
    "half cancelled": ("2 * S[t-1] - S[t-1] + k @ v^T", READ),
    "state times 0": ("0 * S[t-1] + k @ v^T", READ),
    "nothing written": ("S[t-1]", f"{READ} + v * sum(k)"),
    "0 written": ("S[t-1] + 0 * k @ v^T", READ),
    "a number written": ("0.5 * S[t-1] + 1", f"{READ} + v * sum(k)"),
    "cancelled write": ("S[t-1] + (k - k) @ v^T", READ),
    "cancelled correction": ("S[t-1] - b * k @ (k^T @ S[t-1]) + b * k @ (k^T @ S[t-1]) + k @ v^T", READ),
    "correction times 0": ("S[t-1] - 0 * k @ (k^T @ S[t-1]) + k @ v^T", READ),
    "output times 0": ("S[t-1] + k @ v^T", f"0 * {READ}"),
    "read cancelled": ("S[t-1] + k @ v^T", "(S[t] - S[t])^T @ q"),
    "exp of -inf": ("exp(-inf) * S[t-1] + k @ v^T", READ),
    "bounded by inf": ("min(0.5, inf) * S[t-1] + min(k, inf) @ v^T", READ),
    "logistics of large numbers": ("sigmoid(-1000) * S[t-1] + softplus(1000) * 0.001 * k @ v^T", f"silu(-1000) * {READ}"),
    "sign of 0": ("S[t-1] + k @ v^T", f"{READ} + sign(0) * v"),
}
PLANS = ("", "plan scan", "plan recurrent")
NO_SCAN = {"cancelled correction", "correction times 0"}
"""In whose text entries of the state meet, though they cancel."""


def degenerate(name: str, plan: str) -> AnyCompiled:
    step, read = BODIES[name]
    strength = ["    input b : []"] if "b *" in step + read or "* b" in step + read else []
    lines = ["language 1", "recurrence degenerate", "    input q : [K]", "    input k : [K]", "    input v : [V]", *strength]
    lines += ["    state S : [K, V]", f"    {plan}", f"    S[t] = {step}", f"    o = {read}"]
    return compile_text("\n".join(lines) + "\n", "degenerate.rec")


@pytest.mark.parametrize("name", BODIES)
@pytest.mark.parametrize("plan", PLANS)
def test_every_form(name: str, plan: str) -> None:
    if plan == "plan scan" and name in NO_SCAN:
        pytest.skip("refused: entries of the state meet")
    compiled = degenerate(name, plan)
    assert check_adjoint(compiled) == ()
    forms = [form for form in ("chunk 16", "recurrent", "step") if form != "chunk 16" or plan != "plan recurrent"]
    for form in forms:
        report = reproduce(compiled, form, "float64", tokens=37, key_heads=2, heads=2)
        assert report.ok and report.rows, str(report)
