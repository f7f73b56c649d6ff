"""Which of flash-linear-attention's tests are left out, and why; and how large a test is."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

FILES = (
    "test_gdn", "test_kda", "test_gla", "test_simple_gla", "test_delta", "test_linear_attn", "test_retention", "test_rwkv6", "test_rwkv7",
    "test_dplr_delta", "test_lightning_attn", "test_gdp", "test_delta_product",
)  # fmt: skip
"""The test modules of its operators that we generate, in `tests/ops`."""

_ROUTING = "tests which backend its dispatch chooses, not a result"
_GATE = "tests its stand-alone gate kernel; with us the gate is a part of the recurrence"
_LAYER = "tests a part of the layer around the recurrence"
_NAIVE = "compares two of its own PyTorch functions"

LEFT_OUT: dict[tuple[str, str], str] = {
    ("test_gdn", "test_chunk_gated_delta_rule_fwd_h_blackwell_triton_guard"): "reads the configurations of its autotuner",
    ("test_gdn", "test_gate"): _GATE,
    ("test_gdn", "test_prepare_wy_repr_bwd_no_g"): "tests one of its inner kernels",
    ("test_gdn", "test_flash_qla_*"): _ROUTING,
    ("test_kda", "test_naive_chunk"): _NAIVE,
    ("test_kda", "test_chunk_invalid_chunk_size"): "asserts the text of its own error; chunks of 16 tokens are allowed with us",
    ("test_kda", "test_gate"): _GATE,
    ("test_kda", "test_chunk_return_intermediate_states"): "`return_intermediate_states`: our functions do not return the chunks' states",
    ("test_kda", "test_flash_kda_*"): _ROUTING,
    ("test_kda", "test_triton_ascend_backend_routing"): _ROUTING,
    ("test_linear_attn", "test_naive_chunk"): _NAIVE,
    ("test_rwkv7", "test_channel_mixing_*"): _LAYER,
    ("test_rwkv7", "test_fused_rwkv7_addcmul"): _LAYER,
    ("test_rwkv7", "test_fused_k_update"): _LAYER,
    ("test_rwkv7", "test_gate_output_correction"): _LAYER,
    ("test_dplr_delta", "test_recurrent_fwd"): _NAIVE,
    ("test_dplr_delta", "test_chunk_safe_gate_multihead_gradients"): "tests one of its inner kernels",
}
"""The reason by test module and test; a name may end in a star."""


BOTH_SIDES = ("state_v_first", "gate_in_kernel", "sigmoid_in_kernel", "normalize_split_resume", "normalize_zinit_grad")
"""Parts of the names of tests that compare a function with itself: another layout, a gate outside the kernel, a sequence in two parts."""


def reason_left_out(module: str, test: str) -> str | None:
    """Why a test is left out, or None."""
    for (where, name), reason in LEFT_OUT.items():
        if where == module and (test == name or (name.endswith("*") and test.startswith(name[:-1]))):
            return reason
    return None


def size(parameters: Mapping[str, Any]) -> int:
    """Entries of the state times tokens times rows: what a test's PyTorch recurrence has to compute."""
    bounds = parameters.get("cu_seqlens")
    tokens = bounds[-1] if bounds else parameters.get("T", 1)
    heads = max(parameters.get("HV", 1), parameters.get("H", 1))
    keys = parameters.get("D", parameters.get("K", 1))
    return math.prod((parameters.get("B", 1), tokens, heads, keys, keys, parameters.get("expand_ratio", 1)))
