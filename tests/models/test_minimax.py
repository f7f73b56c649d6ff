"""MiniMax of transformers gives the same logits and gradients with the generated lightning attention in its layers, and decodes alike."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import torch
from torch import Tensor

from recgen.kernels import lightning_attention as ours

minimax = pytest.importorskip("transformers.models.minimax.modeling_minimax")
TOKENS, TOLERANCE = 75, 2e-5
CALLS: Counter[str] = Counter()


def forward(self: Any, hidden_states: Tensor, position_embeddings: Any, attention_mask: Any, past_key_values: Any = None, **_: Any) -> Any:
    """The layer's own forward, with one call in place of its loops over blocks and tokens."""
    rows, tokens, _ = hidden_states.shape
    qkv = minimax.apply_mask_to_padding_states(self.act_fn(self.qkv_proj(hidden_states)), attention_mask)
    q, k, v = qkv.reshape(rows, tokens, self.num_attention_heads, -1).split(self.head_dim, -1)
    state = None if past_key_values is None else past_key_values.get_linear_cache(self.layer_idx)
    form = "fused_recurrent_lightning_attention" if tokens == 1 else "chunk_lightning_attention"
    CALLS[form] += 1
    call = {"scale": 1.0, "initial_state": state, "output_final_state": True}
    o, state = getattr(ours, form)(q, k, v, self.slope_rate.flatten(), **call)
    if past_key_values is not None:
        past_key_values.set_linear_cache(self.layer_idx, state)
    o = torch.sigmoid(self.output_gate(hidden_states)) * self.norm(o.flatten(2))
    return self.out_proj(o), state


@pytest.fixture
def model() -> Any:
    torch.manual_seed(0)
    config = minimax.MiniMaxConfig(
        vocab_size=61, hidden_size=32, intermediate_size=24, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2, head_dim=8,
        block_size=16, num_local_experts=2, num_experts_per_tok=2,  # all: no choice that rounding may turn
        max_position_embeddings=256,
        layer_types=["linear_attention", "full_attention", "linear_attention"],
    )  # fmt: skip
    CALLS.clear()
    return minimax.MiniMaxForCausalLM(config).eval()


def relative(x: Tensor, y: Tensor) -> float:
    return float((x - y).abs().max() / y.abs().max().clamp_min(1e-12))


def test_logits_and_every_gradient(model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    ids = torch.randint(0, 61, (2, TOKENS))

    def run() -> tuple[Tensor, dict[str, Tensor]]:
        model.zero_grad()
        logits = model(ids).logits
        logits.square().mean().backward()
        return logits.detach(), {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}

    expected, gradients = run()
    monkeypatch.setattr(minimax.MiniMaxLightningAttention, "forward", forward)
    found, ours_gradients = run()
    assert relative(found, expected) <= TOLERANCE
    assert ours_gradients.keys() == gradients.keys()
    largest = max(float(g.abs().max()) for g in gradients.values())
    assert max(float((ours_gradients[n] - g).abs().max()) for n, g in gradients.items()) <= TOLERANCE * largest
    assert CALLS == {"chunk_lightning_attention": 2}


def test_prefill_and_decode(model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Against the model's own decoding: it differs from its own single pass, where its attention counts other positions."""
    ids = torch.randint(0, 61, (2, TOKENS))

    def decoded() -> Tensor:
        cache = minimax.MiniMaxCache()
        pieces = ids.split([40, 30, 1, 1, 1, 1, 1], 1)
        return torch.cat([model(piece, past_key_values=cache, use_cache=True).logits for piece in pieces], 1)

    with torch.no_grad():
        expected = decoded()
        monkeypatch.setattr(minimax.MiniMaxLightningAttention, "forward", forward)
        assert relative(decoded(), expected) <= TOLERANCE
    assert CALLS == {"chunk_lightning_attention": 4, "fused_recurrent_lightning_attention": 10}
