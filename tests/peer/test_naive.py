"""Our functions against flash-linear-attention's PyTorch recurrences, where its package can be imported."""

from __future__ import annotations

import importlib
import warnings
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from recgen.kernels import gated_delta_product, hgrn2, linear_attention_normalized
from tests.peer.fla_adapters_wider import product_of

pytest.importorskip("einops")
pytest.importorskip("fla")

B, T, H, K, V = 2, 37, 2, 6, 5


def naive(operator: str) -> Any:
    """The peer's PyTorch module of an operator; importing its package warns of what a machine without a GPU lacks."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return importlib.import_module(f"fla.ops.{operator}.naive")


def leaves(*tensors: Tensor) -> tuple[Tensor, ...]:
    return tuple(x.requires_grad_() for x in tensors)


def compare(found: tuple[Tensor, ...], expected: tuple[Tensor, ...], inputs: tuple[Tensor, ...]) -> None:
    """Outputs, final states, and the gradients of a loss on both."""
    d = [torch.randn_like(x) for x in expected]
    for x, y in zip(found, expected, strict=True):
        torch.testing.assert_close(x, y, rtol=1e-4, atol=1e-5)
    gradients: list[Any] = [torch.autograd.grad(results, inputs, d, retain_graph=True) for results in (found, expected)]
    for x, y in zip(*gradients, strict=True):
        torch.testing.assert_close(x, y, rtol=1e-3, atol=2e-5)


@pytest.mark.parametrize("steps", [1, 2, 3])
def test_gated_delta_product(steps: int) -> None:
    torch.manual_seed(steps)
    q, k = (F.normalize(torch.randn(B, T * n, H, K), dim=-1) for n in (1, steps))
    v, beta = torch.randn(B, T * steps, H, V), 2 * torch.rand(B, T * steps, H)
    g, state = F.logsigmoid(torch.randn(B, T, H)), torch.randn(B, H, K, V)
    q, k, v, beta, g, state = leaves(q, k, v, beta, g, state)
    expected = naive("gated_delta_product").naive_recurrent_gated_delta_product(q, k, v, g, beta, K**-0.5, None, state, True, steps)
    apart = [x.unflatten(1, (T, steps)).transpose(2, 3) for x in (k, v, beta)]
    module = gated_delta_product if steps == 2 else product_of(steps)
    for form in (module.chunk_gated_delta_product, module.fused_recurrent_gated_delta_product):
        found = form(q, *apart[:2], g, apart[2], initial_state=state, output_final_state=True)
        compare(found, expected, (q, k, v, beta, g, state))


def test_hgrn2_is_gla_with_keys_tied_to_the_gate() -> None:
    torch.manual_seed(0)
    q, i, g, state = leaves(
        torch.randn(B, T, H, K), torch.randn(B, T, H, V), F.logsigmoid(torch.randn(B, T, H, K)), torch.randn(B, H, K, V)
    )
    expected = naive("gla").naive_recurrent_gla(q, 1 - g.exp(), i, g, state, output_final_state=True)
    found = hgrn2.chunk_hgrn2(q, g, i, initial_state=state, output_final_state=True)
    compare(found, expected, (q, i, g, state))


@pytest.mark.parametrize("given", [False, True], ids=["empty", "given"])
def test_linear_attention_normalized(given: bool) -> None:
    """Theirs takes keys and queries behind the feature map, its sum of keys is [B, 1, H, K] and its eps is 1e-10."""
    torch.manual_seed(given)
    inputs = leaves(torch.randn(B, T, H, K), torch.randn(B, T, H, K), torch.randn(B, T, H, V))
    states = leaves(torch.randn(B, H, K, V), 1 + torch.rand(B, 1, H, K)) if given else ()
    q, k, v = inputs
    reference = naive("linear_attn").naive_recurrent_linear_attn
    expected, last = reference(F.elu(q) + 1, F.elu(k) + 1, v, None, states or None, True, normalize=True)
    wanted = (expected, last[0], last[1].squeeze(1))
    initial = (states[0], states[1].squeeze(1)) if given else None
    module = linear_attention_normalized
    for form in (module.chunk_linear_attention_normalized, module.fused_recurrent_linear_attention_normalized):
        o, found = form(*inputs, eps=1e-10, initial_state=initial, output_final_state=True)
        compare((o, *found), wanted, inputs + states)
