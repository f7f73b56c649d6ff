"""Outputs named like what launchers and kernels call their own things: every kernel against the float64 loop, in the interpreter."""

from __future__ import annotations

import pytest

from recgen.pipeline import compile_text
from recgen.verify import reproduce

SPEC = """language 1

recurrence names
    input q : [K]
    input k : [K]
    input v : [V]
    input g : [] log_decay
    state S : [K, V]
    {body}
    {output} = S[t]^T @ q
"""
BODIES = {
    "chunk": "S[t] = exp(g) * (S[t-1] - k @ (k^T @ S[t-1])) + k @ v^T",
    "scan": "plan scan\n    S[t] = exp(g) * S[t-1] + k @ v^T",
    "recurrent": "plan recurrent\n    S[t] = exp(g) * S[t-1] + tanh(k) @ v^T",
}
OUTPUTS = ["torch", "tl", "triton", "float", "final", "initial", "saved", "work", "indices", "final_S", "_B", "_save", "_wide", "_final_S"]


@pytest.mark.parametrize("body", BODIES)
@pytest.mark.parametrize("name", OUTPUTS)
def test_outputs(name: str, body: str) -> None:
    result = compile_text(SPEC.format(body=BODIES[body], output=name), "names.rec")
    for form in ("recurrent", "step", *["chunk 16"] * (body != "recurrent")):
        report = reproduce(result, form, "float32", tokens=5, key_heads=1, heads=1)
        assert report.ok, str(report)
