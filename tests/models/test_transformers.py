"""Transformers' own models give the same logits and gradients on generated kernels: trained, decoded with a cache, packed."""

from __future__ import annotations

import functools
import importlib
import sys
from collections import Counter
from pathlib import Path

import pytest
import torch
from torch import Tensor

pytest.importorskip("transformers")
sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))

import transformers_adapters as adapters
import transformers_models as models
from transformers_kernels import FAMILY_OF_MODEL, Family, Kernels, use_recgen

MODELS = list(models.CONFIGS)
ONE_TOKEN_CALLS = models.TOKENS - 136  # compare_decoding: two pieces of 70 and 66 tokens, then single ones


def generated(family: str) -> Kernels:
    """The generated functions of one recurrence."""
    pytest.importorskip(f"recgen.kernels.{family}")
    return Kernels.from_recgen(family)


def original(model: str, name: str):
    """A kernel function of transformers, with its own Python body."""
    return getattr(importlib.import_module(f"transformers.models.{model}.modeling_{model}"), name)


def layers_of(name: str) -> int:
    return models.recurrent_layers(models.build(name))


# --- whole models ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", MODELS)
def test_logits_and_every_gradient(name: str) -> None:
    logits, gradient, where, calls = models.compare_models(name, generated(FAMILY_OF_MODEL[name]))
    assert logits <= models.TOLERANCE
    assert gradient <= models.TOLERANCE, where
    assert calls == Counter({f"chunk_{FAMILY_OF_MODEL[name]}": layers_of(name)})


@pytest.mark.parametrize("name", MODELS)
def test_prefill_and_decode_equal_one_pass(name: str) -> None:
    logits, calls = models.compare_decoding(name, generated(FAMILY_OF_MODEL[name]))
    family, layers = FAMILY_OF_MODEL[name], layers_of(name)
    assert logits <= models.TOLERANCE
    prompts = 1 if name in models.ONE_PROMPT else 2
    assert calls == Counter({f"chunk_{family}": prompts * layers, f"fused_recurrent_{family}": ONE_TOKEN_CALLS * layers})


@pytest.mark.parametrize("name", [name for name in MODELS if name not in models.ONE_PROMPT])
def test_packed_sequences_equal_each_alone(name: str) -> None:
    logits, gradient, where, calls = models.compare_packing(name, generated(FAMILY_OF_MODEL[name]))
    assert logits <= models.TOLERANCE
    assert gradient <= models.TOLERANCE, where
    assert calls == Counter({f"chunk_{FAMILY_OF_MODEL[name]}": layers_of(name)})


@pytest.mark.parametrize("name", ["qwen3_next", "kimi_linear", "mamba2"])
def test_comparison_notices_a_kernel_that_is_slightly_off(name: str) -> None:
    """The models depend on their kernels enough for an error of one percent to show in every comparison."""

    def off(function):
        @functools.wraps(function)
        def wrong(**arguments):
            output, state = function(**arguments)
            return output * torch.linspace(0.99, 1.01, output.shape[-1]), state  # a common factor would be normalised away

        return wrong

    family = FAMILY_OF_MODEL[name]
    right: Family = getattr(generated(family), family)
    wrong = Kernels(**{family: Family(off(right.chunk), off(right.recurrent))})
    errors = [models.compare_models(name, wrong)[1], models.compare_decoding(name, wrong)[0], models.compare_packing(name, wrong)[1]]
    assert min(errors) > models.TOLERANCE


# --- the calls that Mamba-2 layers make ----------------------------------------------------------------------------------------


def mamba_inputs(tokens: int) -> dict[str, Tensor]:
    """B = 2, H = 4, P = 8, G = 2, N = 12, in the names of transformers."""
    torch.manual_seed(0)
    heads = {"A": -torch.rand(4) - 0.1, "D": torch.randn(4), "dt_bias": torch.randn(4)}
    groups = {"B": torch.randn(2, tokens, 2, 12), "C": torch.randn(2, tokens, 2, 12)}
    return {"hidden_states": torch.randn(2, tokens, 4, 8), "dt": torch.randn(2, tokens, 4), **heads, **groups}


@pytest.mark.parametrize("absent", [(), ("D",), ("dt_bias",)])
@pytest.mark.parametrize("softplus", [True, False])
def test_mamba_chunk_scan_call(absent: tuple[str, ...], softplus: bool) -> None:
    inputs = {key: value for key, value in mamba_inputs(50).items() if key not in absent}
    options = {"chunk_size": 16, "dt_softplus": softplus, "dt_limit": (0.1, 0.9), "initial_states": torch.randn(2, 4, 8, 12)}
    ours = adapters.mamba_chunk_adapter(generated("mamba2").mamba2.chunk, "chunk_mamba2", Counter())
    actual = ours(**inputs, **options, return_final_states=True, z=None)
    expected = original("mamba2", "mamba2_chunk_scan")(**inputs, **options, return_final_states=True)
    torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(ours(**inputs, **options), expected[0], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("gated", [False, True])
def test_mamba_step_call_updates_the_state_in_place(gated: bool) -> None:
    inputs = {key: value[:, 0] if value.ndim > 1 else value for key, value in mamba_inputs(1).items()}
    shapes = {"dt": (2, 4, 8), "A": (4, 8, 12), "D": (4, 8), "dt_bias": (4, 8)}
    for name, shape in shapes.items():
        inputs[name] = inputs[name].reshape(*inputs[name].shape, *[1] * (len(shape) - inputs[name].ndim)).expand(shape)
    inputs["z"] = torch.randn(2, 4, 8) if gated else None
    state = torch.randn(2, 4, 8, 12)
    ours = adapters.mamba_step_adapter(generated("mamba2").mamba2.recurrent, "fused_recurrent_mamba2", Counter())
    actual_state, expected_state = state.clone(), state.clone()
    actual = ours(actual_state, **inputs, dt_softplus=True)
    expected = original("mamba2", "mamba2_selective_state_update")(expected_state, **inputs, dt_softplus=True)
    torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(actual_state, expected_state, rtol=1e-4, atol=1e-5)
    assert not torch.equal(actual_state, state)


def test_mamba_step_refuses_values_that_differ_within_a_head() -> None:
    with pytest.raises(ValueError, match="dt_bias: Mamba-2 has one value per head"):
        adapters.per_head("dt_bias", torch.randn(4, 8), 1)


# --- adapters and replacing, without any kernel -----------------------------------------------------------------------------


def delta_kernel(
    q, k, v, g, beta, scale=None, use_qk_l2norm_in_kernel=False, initial_state=None, output_final_state=False, cu_seqlens=None
):
    """Takes the contract's arguments and returns the values."""
    return v, None


STUBS = Kernels(*(Family(delta_kernel, delta_kernel) for _ in range(3)))


def test_names_are_replaced_and_restored_even_after_an_error() -> None:
    module = importlib.import_module("transformers.models.qwen3_next.modeling_qwen3_next")
    names = ("torch_chunk_gated_delta_rule", "torch_recurrent_gated_delta_rule", "causal_conv1d_fn")
    before = [getattr(module, name) for name in names]

    def replace_and_fail() -> None:
        with use_recgen("qwen3_next", kernels=STUBS):
            assert all(getattr(module, name) is not old for name, old in zip(names, before, strict=True))
            raise RuntimeError("inside")

    with pytest.raises(RuntimeError, match="inside"):
        replace_and_fail()
    assert [getattr(module, name) for name in names] == before


def test_a_kernel_without_an_argument_is_refused_by_name() -> None:
    with pytest.raises(TypeError, match=r"chunk_mamba2: expected the parameters x, dt"), use_recgen("mamba2", kernels=STUBS):
        pass


def test_a_changed_transformers_function_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    module = importlib.import_module("transformers.models.kimi_linear.modeling_kimi_linear")
    monkeypatch.setattr(module, "chunk_kimi_delta_attention", lambda query, key, value, gate, beta: None)
    with (
        pytest.raises(TypeError, match=r"chunk_kimi_delta_attention: expected the parameters g,"),
        use_recgen("kimi_linear", kernels=STUBS),
    ):
        pass


def test_an_unknown_model_is_refused() -> None:
    with pytest.raises(ValueError, match="expected one of bailing_hybrid"), use_recgen("llama", kernels=STUBS):
        pass


def test_an_unknown_keyword_is_refused() -> None:
    call = adapters.delta_rule_adapter(delta_kernel, "chunk_kda", Counter())
    tensors = [torch.zeros(1)] * 5
    call(*tensors, position_ids=torch.zeros(1), max_length_q=3)  # handed to every layer, no business of a kernel
    with pytest.raises(TypeError, match="chunk_kda: transformers passes lower_bound"):
        call(*tensors, lower_bound=-5.0)


def test_both_descriptions_of_a_packed_batch_mean_the_same() -> None:
    bounds = torch.tensor([0, 3, 4, 9])
    index = torch.repeat_interleave(torch.arange(3, dtype=torch.int32), bounds.diff())[None]
    assert adapters.sequence_bounds(None, bounds.int(), None).equal(bounds)
    assert adapters.sequence_bounds(None, None, index).equal(bounds)
    assert adapters.sequence_bounds(None, None, None) is None
    with pytest.raises(ValueError, match="batch of 1"):
        adapters.sequence_bounds(None, None, index.expand(2, -1))


@pytest.mark.parametrize("biased", [False, True])
def test_packed_convolution_equals_each_sequence_alone(biased: bool) -> None:
    torch.manual_seed(0)
    lengths = [5, 1, 2, 9]
    x, weight, bias = torch.randn(1, 6, sum(lengths)), torch.randn(6, 4), torch.randn(6) if biased else None
    conv = original("qwen3_next", "causal_conv1d_fn")
    expected = torch.cat([conv(part, weight, bias, activation="silu") for part in x.split(lengths, dim=2)], dim=2)
    bounds = torch.tensor([0, *lengths]).cumsum(0)
    actual = adapters.conv_adapter(conv)(x, weight, bias, "silu", cu_seq_lens_q=bounds.int(), seq_idx=None)
    torch.testing.assert_close(actual, expected)


# --- the calls that Mamba-1 layers make ----------------------------------------------------------------------------------------


def selective_inputs(tokens: int) -> dict[str, Tensor]:
    """B = 2, D = 6, N = 5, in the names of transformers."""
    torch.manual_seed(0)
    channels = {name: torch.randn(2, 6, tokens) for name in ("hidden_states", "dt", "z")}
    per_token = {name: torch.randn(2, 5, tokens) for name in ("B", "C")}
    return {**channels, **per_token, "A": -torch.rand(6, 5) - 0.1, "D": torch.randn(6), "delta_bias": torch.randn(6)}


@pytest.mark.parametrize("absent", [(), ("D",), ("z",), ("delta_bias",), ("D", "z", "delta_bias")])
def test_selective_scan_call(absent: tuple[str, ...]) -> None:
    inputs = {key: value.requires_grad_() for key, value in selective_inputs(150).items() if key not in absent}
    ours = adapters.selective_scan_adapter(generated("mamba1").mamba1.chunk, "chunk_mamba1", Counter())
    theirs = original("mamba", "mamba_selective_scan")
    actual, expected = (f(**inputs, delta_softplus=True, return_last_state=True) for f in (ours, theirs))
    torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(ours(**inputs, delta_softplus=True), expected[0], rtol=1e-4, atol=1e-4)
    weights = [torch.randn_like(x) for x in expected]
    gradients = [torch.autograd.grad(results, list(inputs.values()), weights) for results in (actual, expected)]
    torch.testing.assert_close(*gradients, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("gated", [False, True])
def test_selective_step_call_updates_the_state_in_place(gated: bool) -> None:
    inputs = {key: value[..., 0] if value.ndim > 2 else value for key, value in selective_inputs(1).items()}
    inputs["dt_bias"] = inputs.pop("delta_bias")
    inputs["z"] = inputs["z"] if gated else None
    state = torch.randn(2, 6, 5)
    ours = adapters.selective_step_adapter(generated("mamba1").mamba1.recurrent, "fused_recurrent_mamba1", Counter())
    actual_state, expected_state = state.clone(), state.clone()
    actual = ours(actual_state, **inputs, dt_softplus=True)
    expected = original("mamba", "mamba_selective_state_update")(expected_state, **inputs, dt_softplus=True)
    torch.testing.assert_close((actual, actual_state), (expected, expected_state), rtol=1e-5, atol=1e-5)
