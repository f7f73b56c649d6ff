"""Run the linear-attention layers of Hugging Face transformers on generated kernels.

A transformers layer calls its kernel by a name that lives in the model's module, for example
`modeling_qwen3_next.torch_chunk_gated_delta_rule`. Replacing that name is all it takes:

    from transformers_kernels import use_recgen

    with use_recgen("qwen3_next") as calls:
        logits = model(input_ids).logits          # forward, backward, cache and packing all run on generated kernels
    print(calls)                                   # Counter({"chunk_gated_delta_rule": 36})

The names are restored when the block ends, and signatures are checked on both sides when it begins, so that a new
release of transformers is reported instead of being called wrongly.

The adapters themselves are in `transformers_adapters.py`.
"""

from __future__ import annotations

import importlib
import inspect
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import ModuleType

from transformers_adapters import (
    Function,
    conv_adapter,
    delta_rule_adapter,
    mamba_chunk_adapter,
    mamba_step_adapter,
    not_available,
    selective_scan_adapter,
    selective_step_adapter,
)

# Which generated module serves which transformers model (the models of a row share the layer's code).
FAMILY_OF_MODEL = {
    **dict.fromkeys(("qwen3_next", "qwen3_5", "qwen3_5_moe", "olmo_hybrid"), "gated_delta_rule"),
    **dict.fromkeys(("kimi_linear", "bailing_hybrid", "glm5_next"), "kda"),
    **dict.fromkeys(("mamba2", "nemotron_h", "bamba", "falcon_h1", "granitemoehybrid", "zamba2"), "mamba2"),
    **dict.fromkeys(("mamba", "falcon_mamba", "jamba"), "mamba1"),
}


@dataclass(frozen=True)
class Family:
    """The two forms that a layer calls: many tokens at once, and one token with a state."""

    chunk: Function
    recurrent: Function


@dataclass(frozen=True)
class Kernels:
    """One family per recurrence; `from_recgen` takes them from the generated modules."""

    gated_delta_rule: Family | None = None
    kda: Family | None = None
    mamba2: Family | None = None
    mamba1: Family | None = None

    @classmethod
    def from_recgen(cls, *names: str) -> Kernels:
        """Import the named generated modules and take their public functions."""
        families = {}
        for name in names:
            module = importlib.import_module(f"recgen.kernels.{name}")
            families[name] = Family(chunk=getattr(module, f"chunk_{name}"), recurrent=getattr(module, f"fused_recurrent_{name}"))
        return cls(**families)


# --- replacing and restoring ---------------------------------------------------------------------------------------------

_SEQUENCE = ("initial_state", "output_final_state", "cu_seqlens")
_DELTA = ("q", "k", "v", "g", "beta", "use_qk_l2norm_in_kernel", *_SEQUENCE)
_MAMBA = ("x", "dt", "A", "B", "C", "D", "dt_bias", "dt_softplus", "dt_min", "dt_max", *_SEQUENCE)
_SELECTIVE = ("u", "delta", "A", "B", "C", "D", "z", "delta_bias", "delta_softplus", "use_delta_bias", "use_z", *_SEQUENCE)
_WANTED = {"gated_delta_rule": _DELTA, "kda": _DELTA, "mamba2": _MAMBA, "mamba1": _SELECTIVE}
_DELTA_CALL = ("query", "key", "value", "g", "beta", "initial_state", "output_final_state", "use_qk_l2norm_in_kernel")
_SCAN_CALL = ("hidden_states", "dt", "A", "B", "C", "chunk_size", "D", "dt_bias", "initial_states", "dt_softplus", "dt_limit")
_STEP_CALL = ("state", "hidden_states", "dt", "A", "B", "C", "D", "dt_bias", "dt_softplus", "z")
_SELECTIVE_CALL = ("hidden_states", "dt", "A", "B", "C", "D", "z", "delta_bias", "delta_softplus", "return_last_state")

# module-level name -> (form, adapter, the parameters we rely on)
_REPLACED: dict[str, dict[str, tuple[str, Function, tuple[str, ...]]]] = {
    "gated_delta_rule": {
        "torch_chunk_gated_delta_rule": ("chunk", delta_rule_adapter, _DELTA_CALL),
        "torch_recurrent_gated_delta_rule": ("recurrent", delta_rule_adapter, _DELTA_CALL),
    },
    "kda": {
        "chunk_kimi_delta_attention": ("chunk", delta_rule_adapter, _DELTA_CALL),
        "recurrent_kimi_delta_attention": ("recurrent", delta_rule_adapter, _DELTA_CALL),
    },
    "mamba2": {
        "mamba2_chunk_scan": ("chunk", mamba_chunk_adapter, _SCAN_CALL),
        "mamba2_selective_state_update": ("recurrent", mamba_step_adapter, _STEP_CALL),
    },
    "mamba1": {
        "mamba_selective_scan": ("chunk", selective_scan_adapter, _SELECTIVE_CALL),
        "mamba_selective_state_update": ("recurrent", selective_step_adapter, _STEP_CALL),
    },
}


def check_signature(function: Function, wanted: tuple[str, ...], where: str) -> None:
    """Raise if `function` does not name every parameter in `wanted`."""
    missing = [name for name in wanted if name not in inspect.signature(function).parameters]
    if missing:
        raise TypeError(f"{where}: expected the parameters {', '.join(missing)}, found {inspect.signature(function)}")


def replacements(module: ModuleType, family: str, kernels: Kernels, calls: Counter[str]) -> dict[str, Function]:
    """The adapters for one modelling module, after checking both signatures."""
    forms: Family | None = getattr(kernels, family)
    if forms is None:
        raise ValueError(f"kernels: expected functions for {family}, got None")
    adapters: dict[str, Function] = {"causal_conv1d_fn": conv_adapter(module.causal_conv1d_fn)}
    for name, (form, make_adapter, wanted) in _REPLACED[family].items():
        check_signature(getattr(module, name), wanted, f"{module.__name__}.{name}")
        kernel = getattr(forms, form)
        label = {"chunk": f"chunk_{family}", "recurrent": f"fused_recurrent_{family}"}[form]
        check_signature(kernel, _WANTED[family], label)
        adapters[name] = make_adapter(kernel, label, calls)
    fused = {"mamba2": "mamba2_split_conv1d_scan_combined", "mamba1": "mamba_inner_fn"}
    if family in fused:
        adapters[fused[family]] = not_available
    return adapters


@contextmanager
def use_recgen(*models: str, kernels: Kernels | None = None) -> Iterator[Counter[str]]:
    """Run the named models (`"qwen3_next"`, `"kimi_linear"`, `"mamba2"`, ...) on generated kernels inside the block.

    Yields a counter of calls by function name. Affects every instance of the model in the process, like any replaced name.
    """
    for model in models:
        if model not in FAMILY_OF_MODEL:
            raise ValueError(f"use_recgen: expected one of {', '.join(sorted(FAMILY_OF_MODEL))}, got {model!r}")
    chosen = kernels if kernels is not None else Kernels.from_recgen(*{FAMILY_OF_MODEL[model] for model in models})
    calls: Counter[str] = Counter()
    saved: list[tuple[ModuleType, str, Function]] = []
    try:
        for model in models:
            module = importlib.import_module(f"transformers.models.{model}.modeling_{model}")
            for name, adapter in replacements(module, FAMILY_OF_MODEL[model], chosen, calls).items():
                saved.append((module, name, getattr(module, name)))
                setattr(module, name, adapter)
        yield calls
    finally:
        for module, name, original in reversed(saved):
            setattr(module, name, original)
