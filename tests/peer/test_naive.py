"""Our functions against flash-linear-attention's PyTorch recurrences, where its package can be imported."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from recgen.kernels import gated_delta_product, hgrn2
from tests.peer.fla_adapters_wider import product_of

pytest.importorskip("einops")
pytest.importorskip("fla")

B, T, H, K, V = 2, 37, 2, 6, 5


def leaves(*tensors: Tensor) -> tuple[Tensor, ...]:
    return tuple(x.requires_grad_() for x in tensors)


def compare(found: tuple[Tensor, Tensor], expected: tuple[Tensor, Tensor], inputs: tuple[Tensor, ...]) -> None:
    """Outputs, final states, and the gradients of a loss on both."""
    d = [torch.randn_like(x) for x in expected]
    for x, y in zip(found, expected, strict=True):
        torch.testing.assert_close(x, y, rtol=1e-4, atol=1e-5)
    gradients: list[Any] = [torch.autograd.grad(results, inputs, d, retain_graph=True) for results in (found, expected)]
    for x, y in zip(*gradients, strict=True):
        torch.testing.assert_close(x, y, rtol=1e-3, atol=2e-5)


@pytest.mark.parametrize("steps", [1, 2, 3])
def test_gated_delta_product(steps: int) -> None:
    from fla.ops.gated_delta_product.naive import naive_recurrent_gated_delta_product

    torch.manual_seed(steps)
    q, k = (F.normalize(torch.randn(B, T * n, H, K), dim=-1) for n in (1, steps))
    v, beta = torch.randn(B, T * steps, H, V), 2 * torch.rand(B, T * steps, H)
    g, state = F.logsigmoid(torch.randn(B, T, H)), torch.randn(B, H, K, V)
    q, k, v, beta, g, state = leaves(q, k, v, beta, g, state)
    expected = naive_recurrent_gated_delta_product(q, k, v, g, beta, K**-0.5, None, state, True, steps)
    apart = [x.unflatten(1, (T, steps)).transpose(2, 3) for x in (k, v, beta)]
    module = gated_delta_product if steps == 2 else product_of(steps)
    for form in (module.chunk_gated_delta_product, module.fused_recurrent_gated_delta_product):
        found = form(q, *apart[:2], g, apart[2], initial_state=state, output_final_state=True)
        compare(found, expected, (q, k, v, beta, g, state))


def test_hgrn2_is_gla_with_keys_tied_to_the_gate() -> None:
    from fla.ops.gla.naive import naive_recurrent_gla

    torch.manual_seed(0)
    q, i, g, state = leaves(
        torch.randn(B, T, H, K), torch.randn(B, T, H, V), F.logsigmoid(torch.randn(B, T, H, K)), torch.randn(B, H, K, V)
    )
    expected = naive_recurrent_gla(q, 1 - g.exp(), i, g, state, output_final_state=True)
    found = hgrn2.chunk_hgrn2(q, g, i, initial_state=state, output_final_state=True)
    compare(found, expected, (q, i, g, state))
