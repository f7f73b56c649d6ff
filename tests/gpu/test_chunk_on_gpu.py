"""The chunkwise kernels on a GPU: what the interpreter cannot show. Skipped without one.

TRITON_PTXAS_PATH=/usr/local/cuda/bin/ptxas pytest tests/gpu
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch._dynamo.testing import CompileCounterWithBackend
from torch.utils.checkpoint import checkpoint

from tests.numerics.helpers import Case, Sample, assert_close, assert_equal, call, case_of, draw, evaluate, names

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")

CHUNK = ("chunk_", 64)
SIZES = {"K": 64, "V": 64, "P": 64, "N": 64}
CASES = [case_of(name) for name in ("gated_delta_rule", "kda", "gla", "mamba2")]
OF_TESTS = Path(__file__).parents[1] / "specs"
PHASED = [
    case_of(name) for name in ("momentum_delta", "two_memories", "value_forget", "value_forget_after", "value_strengths", "value_turns")
]
PHASED += [Case(OF_TESTS / f"{name}.rec", ()) for name in ("coupled/three_memories", "strangers/titans", "strangers/gated_delta_beta_v")]
each_case = pytest.mark.parametrize("case", CASES, ids=str)
HALF = torch.bfloat16


def sample_of(case: Case, tokens: int, dtype: torch.dtype = HALF, **options) -> Sample:
    """A sample on the GPU, log decays and params in float32."""
    drawn = draw(case, tokens, **{"heads": (2, 4), "sizes": SIZES, **options})
    wide = {a.name for a in case.arguments if a.role == "param" or case.is_log_decay(a)}
    inputs = {k: x.cuda().to(torch.promote_types(dtype, torch.float32) if k in wide else dtype) for k, x in drawn.inputs.items()}
    state = None if drawn.state is None else drawn.state.cuda().float()
    return Sample(inputs, state, None if drawn.bounds is None else drawn.bounds.cuda())


def incoming_of(case: Case, sample: Sample) -> list[Tensor]:
    """Gradients of the outputs and the final state."""
    with torch.no_grad():
        results = call(case, CHUNK, sample)
    draw_ = torch.Generator("cuda").manual_seed(1)
    return [torch.randn(x.shape, generator=draw_, device="cuda", dtype=torch.float32).to(x.dtype) for x in results]


def wide(case: Case, sample: Sample, incoming: list[Tensor]) -> dict[str, Tensor]:
    """The float64 chunkwise form on the same numbers, which the tests without a GPU compare with the recurrence."""
    return evaluate(case, CHUNK, sample.to(torch.float64), [d.double() for d in incoming])


@each_case
def test_more_than_65536_tokens(case: Case) -> None:
    sample = sample_of(case, 66_000, batch=1, heads=(1, 1))
    incoming = incoming_of(case, sample)
    assert_close(case, evaluate(case, CHUNK, sample, incoming), wide(case, sample, incoming), HALF)


@pytest.mark.parametrize("dtype", [HALF, torch.float32], ids=str)
@pytest.mark.parametrize("sizes", [(128, 96), (7, 5)], ids=str)
@pytest.mark.parametrize("name", ["value_error", "value_correction", "value_decay_read", "value_steps"])
def test_reads_across_the_state(name: str, sizes: tuple[int, int], dtype: torch.dtype) -> None:
    case = case_of(name)
    sample = sample_of(case, 200, dtype, sizes=dict(zip("KV", sizes, strict=True)))
    incoming = incoming_of(case, sample)
    found = evaluate(case, CHUNK, sample, incoming)
    assert_equal(evaluate(case, CHUNK, sample, incoming), found)
    assert_close(case, found, wide(case, sample, incoming), dtype)


@pytest.mark.parametrize("dtype", [HALF, torch.float16, torch.float32], ids=str)
@pytest.mark.parametrize("sizes", [(128, 128), (64, 64), (7, 5)], ids=str)
@pytest.mark.parametrize("case", PHASED, ids=str)
def test_kernels_printed_from_steps(case: Case, sizes: tuple[int, int], dtype: torch.dtype) -> None:
    """Coupled states, and systems that differ by value channel."""
    sample = sample_of(case, 200, dtype, sizes=dict(zip("KV", sizes, strict=True)))
    incoming = incoming_of(case, sample)
    found = evaluate(case, CHUNK, sample, incoming)
    assert_equal(evaluate(case, CHUNK, sample, incoming), found)
    assert_close(case, found, wide(case, sample, incoming), dtype)


@pytest.mark.parametrize("case", PHASED, ids=str)
def test_packed_sequences_in_kernels_printed_from_steps(case: Case) -> None:
    sample = sample_of(case, 100, torch.float32, batch=1, bounds=(0, 0, 33, 34, 100, 100))
    incoming = incoming_of(case, sample)
    assert_close(case, evaluate(case, CHUNK, sample, incoming), wide(case, sample, incoming), torch.float32)


@pytest.mark.parametrize("case", CASES[:2], ids=str)
def test_more_than_65535_programs(case: Case) -> None:
    sample = sample_of(case, 2, torch.float32, batch=33_000, heads=(2, 2), sizes=dict.fromkeys(SIZES, 16))
    incoming = incoming_of(case, sample)
    assert_close(case, evaluate(case, CHUNK, sample, incoming), wide(case, sample, incoming), torch.float32)


@each_case
def test_whole_sequences_and_segments(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    sample = sample_of(case, 1000, torch.float32, batch=1)
    incoming = incoming_of(case, sample)
    expected = wide(case, sample, incoming)
    for chunks in (0, 3):
        monkeypatch.setattr(case.module, "_chunks_per_segment", lambda *_, chunks=chunks: chunks)
        assert_close(case, evaluate(case, CHUNK, sample, incoming), expected, torch.float32)


@each_case
def test_run_to_run_and_prefixes_to_the_bit(case: Case) -> None:
    sample = sample_of(case, 300)
    incoming = incoming_of(case, sample)
    first = evaluate(case, CHUNK, sample, incoming)
    assert_equal(evaluate(case, CHUNK, sample, incoming), first)
    inputs = {k: x.clone() for k, x in sample.inputs.items()}
    per_token = [a.name for a in case.arguments if a.role == "input"]
    for name in per_token:
        inputs[name][:, 130:] = inputs[name][:, 130:].flip(1)
    changed = evaluate(case, CHUNK, Sample(inputs, sample.state), incoming)
    for name in names(case)[:-1]:
        assert torch.equal(changed[name][:, :130], first[name][:, :130]), name
    masked = [torch.cat((d[:, :130], torch.zeros_like(d[:, 130:])), 1) for d in incoming[:-1]]
    prefix, other = (evaluate(case, CHUNK, Sample(x, sample.state), [*masked, None]) for x in (sample.inputs, inputs))
    for name in per_token:
        assert torch.equal(prefix[f"d {name}"][:, :130], other[f"d {name}"][:, :130]), name


@each_case
def test_packed_sequences_equal_each_alone(case: Case) -> None:
    """To the bit: a chunk's numbers do not depend on what is packed beside it."""
    bounds = (0, 0, 1, 65, 200, 200, 390)
    sample = sample_of(case, 390, batch=1, bounds=bounds)
    incoming = incoming_of(case, sample)
    found = evaluate(case, CHUNK, sample, incoming)
    per_token = {a.name for a in case.arguments if a.role == "input"}
    for i, (start, end) in enumerate(pairwise(bounds)):
        alone = sample.tokens(case, slice(start, end), sample.state[i : i + 1])
        parts = evaluate(case, CHUNK, alone, [*(d[:, start:end] for d in incoming[:-1]), incoming[-1][i : i + 1]])
        for name in names(case)[:-1]:
            assert torch.equal(parts[name], found[name][:, start:end]), (name, i)
        assert torch.equal(parts["final state"], found["final state"][i : i + 1]), i
        for name in per_token:
            assert torch.equal(parts[f"d {name}"], found[f"d {name}"][:, start:end]), (name, i)


@pytest.mark.filterwarnings("ignore:Synchronization debug mode is a prototype")
@each_case
def test_nothing_waits_for_the_gpu(case: Case) -> None:
    sample = sample_of(case, 390, batch=1, bounds=(0, 0, 1, 65, 200, 200, 390))
    incoming = incoming_of(case, sample)
    evaluate(case, CHUNK, sample, incoming)
    torch.cuda.set_sync_debug_mode("error")
    try:
        evaluate(case, CHUNK, sample, incoming)
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize(("dtype", "limit"), [(HALF, 1e-3), (torch.float32, 1e-6)], ids=str)
@each_case
def test_strides(case: Case, dtype: torch.dtype, limit: float) -> None:
    """To rounding: a kernel knows which strides are 1, and is compiled anew where they are not."""
    sample = sample_of(case, 150, dtype)
    incoming = incoming_of(case, sample)
    spread = {k: x.repeat_interleave(2, -1)[..., ::2] if x.dim() > 1 else x for k, x in sample.inputs.items()}
    turned = [d.transpose(1, 2).contiguous().transpose(1, 2) for d in incoming]
    expected = evaluate(case, CHUNK, sample, incoming)
    assert_close(case, evaluate(case, CHUNK, Sample(spread, sample.state), turned), expected, dtype, limit)


@each_case
def test_state_with_values_first(case: Case) -> None:
    sample = sample_of(case, 150)
    declared = case.module._STATES[0].turned
    turned = Sample(sample.inputs, sample.state.mT.contiguous())
    *outputs, final = call(case, CHUNK, sample)
    *others, other = call(case, CHUNK, turned, state_v_first=not declared)
    assert all(torch.equal(x, y) for x, y in zip((*outputs, final.mT), (*others, other), strict=True))


@pytest.mark.filterwarnings("ignore:`torch.jit.script_method` is deprecated:DeprecationWarning")
@each_case
def test_one_graph_for_every_length(case: Case) -> None:
    counter, function = CompileCounterWithBackend("aot_eager"), case.function("")

    def run(inputs: dict[str, Tensor], state: Tensor) -> tuple[Tensor, ...]:
        return tuple(2.0 * x for x in function(**inputs, initial_state=state, output_final_state=True))

    torch._dynamo.reset()
    compiled = torch.compile(run, fullgraph=True, dynamic=True, backend=counter)
    counts = []
    for tokens in (150, 2, 70):
        sample = sample_of(case, tokens, batch=3, heads=(2, 8))
        leaves = {k: x.clone().requires_grad_() for k, x in sample.inputs.items()}
        state = sample.state.clone().requires_grad_()
        results = [f(leaves, state) for f in (compiled, run)]
        counts.append(counter.frame_count)
        incoming = [torch.randn_like(x) for x in results[0]]
        both = [torch.autograd.grad(r, [*leaves.values(), state], incoming) for r in results]
        assert all(torch.equal(x, y) for x, y in zip((*results[0], *both[0]), (*results[1], *both[1]), strict=True))
    assert len(set(counts)) == 1, counts


@each_case
def test_autocast_changes_nothing(case: Case) -> None:
    sample = sample_of(case, 150, torch.float32)
    incoming = incoming_of(case, sample)
    with torch.autocast("cuda", torch.bfloat16):
        found = evaluate(case, CHUNK, sample, incoming)
    assert_equal(found, evaluate(case, CHUNK, sample, incoming))


@each_case
def test_activation_checkpointing(case: Case) -> None:
    sample = sample_of(case, 150)
    incoming = incoming_of(case, sample)
    leaves = {k: x.clone().requires_grad_() for k, x in sample.inputs.items()}

    def run(*values: Tensor) -> tuple[Tensor, ...]:
        return call(case, CHUNK, Sample(dict(zip(leaves, values, strict=True)), sample.state))

    found = torch.autograd.grad(checkpoint(run, *leaves.values(), use_reentrant=False), list(leaves.values()), incoming)
    expected = evaluate(case, CHUNK, sample, incoming)
    assert all(torch.equal(x, expected[f"d {k}"]) for k, x in zip(leaves, found, strict=True))


@each_case
def test_double_backward_says_that_it_is_missing(case: Case) -> None:
    sample = sample_of(case, 70)
    leaves = {k: x.clone().requires_grad_() for k, x in sample.inputs.items()}
    output = call(case, CHUNK, Sample(leaves, sample.state))[0]
    first = torch.autograd.grad(output.float().sum(), list(leaves.values()), create_graph=True, allow_unused=True)
    with pytest.raises(RuntimeError, match="gradient of a gradient"):
        torch.autograd.grad(first[0].float().sum(), list(leaves.values()), allow_unused=True)


@pytest.mark.parametrize("case", [c for c in CASES if c.gates], ids=str)
@pytest.mark.parametrize("gate", [-1e-4, -0.1, -1.0, -10.0, -60.0])
def test_gate_gradients_at_any_strength(case: Case, gate: float) -> None:
    """As exact as stated for weak and strong gates, and exactly 0 for the first gate without a state."""
    for dtype, limit in ((torch.float32, 2e-6), (HALF, 8e-3)):
        sample = sample_of(case, 300, dtype, state=False)
        for name in case.gates:
            sample.inputs[name] = gate * torch.rand_like(sample.inputs[name])
        incoming = incoming_of(case, sample)
        expected, found = wide(case, sample, incoming), evaluate(case, CHUNK, sample, incoming)
        for name in case.gates:
            key = f"d {name}"
            assert (found[key][:, 0] == 0).all()
            difference = (found[key].double() - expected[key]).square().mean().sqrt() / expected[key].square().mean().sqrt()
            assert difference <= limit, (dtype, gate, float(difference))


@each_case
def test_offsets_beyond_32_bits(case: Case) -> None:
    """The last head of inputs of more than 2^31 elements equals that head alone, to the bit."""
    tokens, heads = 35_000, 1024
    last = sample_of(case, tokens, batch=1, heads=(1, 1))
    per_token = {a.name for a in case.arguments if a.role == "input"}
    big = {
        k: x.expand(1, tokens, heads, *x.shape[3:]).contiguous() if k in per_token else x.expand(heads, *x.shape[1:])
        for k, x in last.inputs.items()
    }
    assert max(x.numel() for x in big.values()) > 2**31
    with torch.no_grad():
        alone = call(case, CHUNK, last)
        found = call(case, CHUNK, Sample(big, last.state.expand(1, heads, *last.state.shape[2:])))
    assert torch.equal(found[0][:, :, -1], alone[0][:, :, -1])
    assert torch.equal(found[-1][:, -1], alone[-1][:, -1])
