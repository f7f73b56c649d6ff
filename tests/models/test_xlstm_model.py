"""The whole xLSTM of transformers gives the same logits and gradients with the generated mLSTM in its layers, and decodes alike."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from recgen.kernels import mlstm as ours

xlstm = pytest.importorskip("transformers.models.xlstm.modeling_xlstm")
TOKENS, TOLERANCE = 75, 2e-5
CALLS: Counter[str] = Counter()


def forward(self: Any, *, c_initial: Any, n_initial: Any, m_initial: Any, **inputs: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
    """The backend's forward, from [B, H, T, ...] to the same; their maximum is [B, H, 1]. A token after a state is a step."""
    names = {"query": "q", "key": "k", "value": "v", "igate": "i", "fgate": "f"}
    call = {names[name]: x.transpose(1, 2) for name, x in inputs.items()}
    state = None if c_initial is None else (c_initial, n_initial, m_initial.squeeze(-1))
    if state is not None and call["q"].shape[1] == 1:
        CALLS["step_mlstm"] += 1
        o = ours.step_mlstm(**{name: x[:, 0] for name, x in call.items()}, state=state, eps=self.config.eps)
        return o.unsqueeze(2), (c_initial, n_initial, m_initial)
    CALLS["chunk_mlstm"] += 1
    o, (c, n, m) = ours.chunk_mlstm(**call, initial_state=state, output_final_state=True, eps=self.config.eps)
    return o.transpose(1, 2), (c, n, m.unsqueeze(-1))


def build(**options: Any) -> Any:
    """Gates that depend on the token. As transformers begins them they do not, and so low that exp(-m) is every denominator."""
    torch.manual_seed(0)
    sizes = {"vocab_size": 61, "hidden_size": 128, "num_hidden_layers": 3, "num_heads": 4, "chunk_size": 16, "ffn_proj_factor": 1.0}
    model = xlstm.xLSTMForCausalLM(xlstm.xLSTMConfig(**sizes, **options)).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "gate" in name:
                parameter.normal_(2.0 if name.endswith("fgate_preact.bias") else 0.0, 1.0 if name.endswith("bias") else 0.1)
    CALLS.clear()
    return model


def relative(x: Tensor, y: Tensor) -> float:
    return float((x - y).abs().max() / y.abs().max().clamp_min(1e-12))


def trained(model: Any, run: Callable[[], Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
    """What `run` gives, and the gradient of its mean square for every parameter that has one."""
    model.zero_grad()
    found = run()
    found.square().mean().backward()
    return found.detach(), {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


def test_logits_and_every_gradient(monkeypatch: pytest.MonkeyPatch) -> None:
    model, ids = build(), torch.randint(0, 61, (2, TOKENS))
    expected, gradients = trained(model, lambda: model(ids, use_cache=False).logits)
    monkeypatch.setattr(xlstm.xLSTMBackend, "forward", forward)
    found, ours_gradients = trained(model, lambda: model(ids, use_cache=False).logits)
    assert relative(found, expected) <= TOLERANCE
    assert ours_gradients.keys() == gradients.keys() == dict(model.named_parameters()).keys()
    largest = max(float(g.abs().max()) for g in gradients.values())
    assert max(float((ours_gradients[n] - g).abs().max()) for n, g in gradients.items()) <= TOLERANCE * largest
    assert CALLS == {"chunk_mlstm": 3}


def test_the_layers_in_float64(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every parameter by its own size, without the eps, which theirs sends through the maximum, and with whole chunks, after which
    their states are float32. The model's own head would round the logits to that too."""
    model, ids = build(eps=0.0, norm_reduction_force_float32=False).double(), torch.randint(0, 61, (2, 80))
    model.backbone.out_norm.force_float32_reductions = False
    expected, gradients = trained(model, lambda: model.lm_head(model.backbone(ids, use_cache=False)[0]))
    monkeypatch.setattr(xlstm.xLSTMBackend, "forward", forward)
    found, ours_gradients = trained(model, lambda: model.lm_head(model.backbone(ids, use_cache=False)[0]))
    assert relative(found, expected) <= 1e-12
    assert ours_gradients.keys() == gradients.keys() == dict(model.named_parameters()).keys()
    assert {name for name, g in gradients.items() if not relative(ours_gradients[name], g) <= 1e-11} == set()


def test_prefill_and_decode(monkeypatch: pytest.MonkeyPatch) -> None:
    """Logits and the states left in the cache, against the model's own decoding; logits against its own single pass."""
    model, ids = build(), torch.randint(0, 61, (2, TOKENS))

    def decoded() -> tuple[Tensor, dict[int, tuple[Tensor, ...]]]:
        cache = xlstm.xLSTMCache(model.config, 2, dtype=torch.float32)
        pieces = ids.split([40, 30, 1, 1, 1, 1, 1], 1)
        return torch.cat([model(piece, cache_params=cache, use_cache=True).logits for piece in pieces], 1), cache.rnn_state

    with torch.no_grad():
        whole, (expected, states) = model(ids).logits, decoded()
        monkeypatch.setattr(xlstm.xLSTMBackend, "forward", forward)
        found, left = decoded()
    assert relative(found, expected) <= TOLERANCE
    assert relative(found, whole) <= TOLERANCE
    for layer, wanted in states.items():
        assert max(relative(x, y) for x, y in zip(left[layer], wanted, strict=True)) <= TOLERANCE
    assert CALLS == {"chunk_mlstm": 6, "step_mlstm": 15}
