"""Qwen3-Next, Kimi Linear, Mamba-1, Mamba-2 and hybrids of it on generated kernels, compared with transformers' own PyTorch path.

    python examples/transformers_models.py              # all
    python examples/transformers_models.py mamba2

Each model is small and has random weights, but every layer is transformers' own: attention and mixture-of-experts layers
between the recurrent ones, grouped heads, short convolutions, caches. Three questions are put to each:

1. The same model? Logits and the gradient of every parameter, generated kernels against transformers' functions.
2. The same with a cache? A prompt in two pieces, then one token at a time, against one pass over everything.
3. The same when packed? Several sequences in one row, as `DataCollatorWithFlattening` packs them, against each one alone,
   logits and gradients. transformers itself refuses this without a GPU package, and its Mamba-1 layers do not tell their scan.

Errors are max|a - b| / max|b|, in float32. `transformers_kernels.use_recgen` is the part to reuse.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import (
    AutoModelForCausalLM,
    BambaConfig,
    DataCollatorWithFlattening,
    DynamicCache,
    FalconMambaConfig,
    KimiLinearConfig,
    Mamba2Config,
    MambaConfig,
    NemotronHConfig,
    PreTrainedConfig,
    PreTrainedModel,
    Qwen3NextConfig,
)
from transformers.utils import logging
from transformers_kernels import FAMILY_OF_MODEL, Kernels, use_recgen

TOLERANCE = 1e-4
VOCABULARY = 96
TOKENS = 150  # two full chunks of 64 and a part
PACKED_LENGTHS = (37, 1, 66, 20)

# --- the models: sizes small, odd and unequal on purpose ------------------------------------------------------------------

_COMMON: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 64,
    "initializer_range": 0.15,
    "pad_token_id": 0,
    "bos_token_id": None,
    "eos_token_id": None,
}
_ATTENTION: dict[str, Any] = {"num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 96}


def qwen3_next() -> PreTrainedConfig:
    """Three Gated DeltaNet layers (2 key heads serve 4 value heads, K = 16, V = 24), one attention layer, experts."""
    heads: dict[str, Any] = {"linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 16, "linear_value_head_dim": 24}
    experts: dict[str, Any] = {
        "num_experts": 4,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 32,
        "shared_expert_intermediate_size": 32,
    }
    return Qwen3NextConfig(**_COMMON, **_ATTENTION, **heads, **experts, head_dim=16, num_hidden_layers=4)


def kimi_linear() -> PreTrainedConfig:
    """Three Kimi Delta Attention layers (a decay per key channel), one latent attention layer, experts."""
    latent: dict[str, Any] = {"kv_lora_rank": 16, "qk_rope_head_dim": 8, "qk_nope_head_dim": 16, "v_head_dim": 16}
    experts: dict[str, Any] = {"num_local_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
    kinds = ["linear_attention", "linear_attention", "full_attention", "linear_attention"]
    sizes: dict[str, Any] = {"linear_num_heads": 3, "linear_head_dim": 20, "num_hidden_layers": 4, "layer_types": kinds}
    attention = _ATTENTION | {"num_key_value_heads": 4}
    return KimiLinearConfig(**_COMMON, **attention, **latent, **experts, **sizes)


def mamba2() -> PreTrainedConfig:
    """Three Mamba-2 layers, 2 groups of B and C for 8 heads."""
    return Mamba2Config(**_COMMON, num_heads=8, head_dim=16, state_size=24, n_groups=2, num_hidden_layers=3, chunk_size=64)


def nemotron_h() -> PreTrainedConfig:
    """Mamba-2, feed-forward, attention, Mamba-2."""
    heads: dict[str, Any] = {"mamba_num_heads": 8, "mamba_head_dim": 16, "ssm_state_size": 24, "n_groups": 4, "chunk_size": 64}
    kinds = ["linear_attention", "mlp", "full_attention", "linear_attention"]
    sizes: dict[str, Any] = {"head_dim": 16, "layer_types": kinds}
    return NemotronHConfig(**_COMMON, **_ATTENTION, **heads, **sizes)


def bamba() -> PreTrainedConfig:
    """Mamba-2 layers around one attention layer."""
    heads: dict[str, Any] = {"mamba_n_heads": 8, "mamba_d_head": 16, "mamba_d_state": 24, "mamba_n_groups": 1, "mamba_chunk_size": 64}
    return BambaConfig(**_COMMON, **_ATTENTION, **heads, num_hidden_layers=3, attn_layer_indices=[1])


def mamba() -> PreTrainedConfig:
    """Three Mamba-1 layers of 80 channels."""
    return MambaConfig(**_COMMON, intermediate_size=80, expand=2, state_size=12, num_hidden_layers=3)


def falcon_mamba() -> PreTrainedConfig:
    """The same with normalised B, C and step sizes."""
    return FalconMambaConfig(**_COMMON, intermediate_size=80, expand=2, state_size=12, num_hidden_layers=3)


CONFIGS: dict[str, Callable[[], PreTrainedConfig]] = {
    "qwen3_next": qwen3_next,
    "kimi_linear": kimi_linear,
    "mamba2": mamba2,
    "nemotron_h": nemotron_h,
    "bamba": bamba,
    "mamba": mamba,
    "falcon_mamba": falcon_mamba,
}
ONE_PROMPT = ("mamba", "falcon_mamba")
"""Models whose layers begin every scan of several tokens with an empty state, and know nothing of packing."""


def build(name: str, seed: int = 0) -> PreTrainedModel:
    """A float32 model with random weights, and gates that remember for tens of tokens, so that chunk borders matter."""
    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_config(CONFIGS[name](), dtype=torch.float32)
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            if key.endswith(("dt_bias", "dt_proj.bias")):
                parameter.uniform_(-5.0, -2.0)
    return model


def recurrent_layers(model: PreTrainedModel) -> int:
    """How many layers of the model call a generated kernel in one forward pass."""
    return sum(hasattr(module, "A_log") for module in model.modules())


# --- running a model -------------------------------------------------------------------------------------------------------


def forward(
    model: PreTrainedModel, ids: Tensor, position_ids: Tensor | None = None, cache: DynamicCache | None = None, **packing: Any
) -> Tensor:
    """Logits [B, T, vocabulary]. Through the base model, because Mamba-2's head does not hand `seq_idx` down."""
    argument = "cache_params" if model.config.model_type in ("mamba2", *ONE_PROMPT) else "past_key_values"
    positions = {} if model.config.model_type in ONE_PROMPT else {"position_ids": position_ids}
    hidden = model.base_model(ids, **positions, use_cache=cache is not None, **{argument: cache}, **packing)[0]
    return model.lm_head(hidden)


@dataclass
class Result:
    """Logits, and the gradient of the language-modelling loss for every parameter that has one."""

    logits: Tensor
    gradients: dict[str, Tensor] = field(default_factory=dict)


def train_step(model: PreTrainedModel, ids: Tensor, labels: Tensor, **packing: Any) -> Result:
    """One forward and backward pass; the loss is a sum over tokens, so that packed and separate batches add up."""
    model.train()
    model.zero_grad(set_to_none=True)
    logits = forward(model, ids, **packing)
    loss = F.cross_entropy(logits[0, :-1], labels[0, 1:], reduction="sum", ignore_index=-100)
    loss.backward()
    gradients = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    return Result(logits.detach(), gradients)


def relative_error(actual: Tensor, expected: Tensor) -> float:
    """max|a - b| / max|b|; infinite if a value is not finite, or if something stands where nothing should."""
    difference, size = (actual - expected).abs().max().item(), expected.abs().max().item()
    if not torch.isfinite(actual).all():
        return float("inf")
    return difference / size if size > 0 else (0.0 if difference == 0 else float("inf"))


def worst_gradient(actual: dict[str, Tensor], expected: dict[str, Tensor]) -> tuple[float, str]:
    """Largest relative error over all parameters, and the parameter's name."""
    if actual.keys() != expected.keys():
        return float("inf"), f"only one side has {sorted(actual.keys() ^ expected.keys())}"
    return max((relative_error(actual[name], expected[name]), name) for name in expected)


# --- the three questions ----------------------------------------------------------------------------------------------------


def compare_models(name: str, kernels: Kernels | None = None) -> tuple[float, float, str, Counter[str]]:
    """1. Error of the logits, worst error of a gradient with its name, and the calls that our functions received."""
    model = build(name)
    ids = torch.randint(1, VOCABULARY, (1, TOKENS))
    expected = train_step(model, ids, ids)
    with use_recgen(name, kernels=kernels) as calls:
        actual = train_step(model, ids, ids)
    error, where = worst_gradient(actual.gradients, expected.gradients)
    return relative_error(actual.logits, expected.logits), error, where, calls


@torch.no_grad()
def compare_decoding(name: str, kernels: Kernels | None = None) -> tuple[float, Counter[str]]:
    """2. Two rows: a prompt of 70 tokens, 66 more at once, the rest one by one; against one pass of transformers' own."""
    model = build(name).eval()
    ids = torch.randint(1, VOCABULARY, (2, TOKENS))
    expected = forward(model, ids)
    pieces = ([136] if name in ONE_PROMPT else [70, 66]) + [1] * (TOKENS - 136)
    positions = torch.arange(TOKENS)[None].split(pieces, dim=1)  # Bamba does not count the cached tokens by itself
    cache = DynamicCache(config=model.config)
    with use_recgen(name, kernels=kernels) as calls:
        logits = [forward(model, *piece) for piece in zip(ids.split(pieces, dim=1), positions, [cache] * len(pieces), strict=True)]
    return relative_error(torch.cat(logits, dim=1), expected), calls


def compare_packing(name: str, kernels: Kernels | None = None) -> tuple[float, float, str, Counter[str]]:
    """3. Several sequences in one row against each alone on transformers' own functions; gradients of the summed loss."""
    model = build(name)
    sequences = [torch.randint(1, VOCABULARY, (length,)) for length in PACKED_LENGTHS]
    alone = [train_step(model, ids[None], ids[None]) for ids in sequences]
    names = alone[0].gradients
    gradients = {key: torch.stack([one.gradients[key] for one in alone if key in one.gradients]).sum(0) for key in names}

    collator = DataCollatorWithFlattening(return_flash_attn_kwargs=True, return_seq_idx=True)
    batch = collator([{"input_ids": ids} for ids in sequences])
    with use_recgen(name, kernels=kernels) as calls:
        packed = train_step(model, batch.pop("input_ids"), batch.pop("labels"), **batch)
    error, where = worst_gradient(packed.gradients, gradients)
    return relative_error(packed.logits, torch.cat([one.logits for one in alone], dim=1)), error, where, calls


def main(arguments: list[str] | None = None) -> int:
    """Print the three answers for each model; the exit status is 1 if an error is above the tolerance."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("models", nargs="*", help=f"any of {', '.join(CONFIGS)} (default: all)")
    names = parser.parse_args(arguments).models or list(CONFIGS)
    logging.set_verbosity_error()  # transformers warns that its own PyTorch functions are slow
    worst = 0.0
    for name in names:
        print(f"{name} on {FAMILY_OF_MODEL[name]}, {recurrent_layers(build(name))} recurrent layers")
        logits, gradient, where, calls = compare_models(name)
        print(f"  same model     logits {logits:.1e}   gradients {gradient:.1e} (largest: {where})   {dict(calls)}")
        decoded, calls = compare_decoding(name)
        print(f"  with a cache   logits {decoded:.1e}   {dict(calls)}")
        worst = max(worst, logits, gradient, decoded)
        if name not in ONE_PROMPT:
            packed, packed_gradient, where, calls = compare_packing(name)
            print(f"  packed         logits {packed:.1e}   gradients {packed_gradient:.1e} (largest: {where})   {dict(calls)}")
            worst = max(worst, packed, packed_gradient)
    print(f"largest relative error {worst:.1e}, tolerance {TOLERANCE:.0e}")
    return int(not worst <= TOLERANCE)


if __name__ == "__main__":
    sys.exit(main())
