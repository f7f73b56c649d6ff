"""The self-test of `recgen doctor`: a small recurrence from text to numbers."""

from __future__ import annotations

from typing import Final

LIMIT: Final = 1e-10
"""The relative RMS error allowed between two forms in float64."""

SPEC: Final = """\
language 1

recurrence recgen_selftest
    "A gated delta rule, small: scalar decay and a correction."

    input q    : [K]
    input k    : [K]
    input v    : [V]
    input g    : []  log_decay
    input beta : []  in(0, 1)
    state S    : [K, V]

    kn   = l2norm(k)
    S[t] = exp(g) * (I - beta * kn @ kn^T) @ S[t-1] + beta * kn @ v^T
    o    = S[t]^T @ q
"""


def discrepancy() -> float:
    """The larger relative RMS error of output and final state, chunkwise against token by token, over a few chunks in float64."""
    import torch

    import recgen

    module = recgen.load(SPEC)
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(1, 150, 2, size, generator=generator, dtype=torch.float64) for size in (8, 8, 5))
    g, beta = (torch.rand(1, 150, 2, generator=generator, dtype=torch.float64) for _ in range(2))
    naive = module.naive_recurrent_recgen_selftest(q, k, v, -g, beta, output_final_state=True)
    chunk = module.chunk_recgen_selftest(q, k, v, -g, beta, output_final_state=True)
    pairs = zip(chunk, naive, strict=True)
    return max(float((x - reference).norm() / reference.norm()) for x, reference in pairs)
