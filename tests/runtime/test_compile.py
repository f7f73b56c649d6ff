"""torch.compile: one graph without breaks, one compilation for every length of two tokens and more, forward and backward."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest
import torch
from torch._dynamo.testing import CompileCounterWithBackend

from tests.numerics.helpers import (
    DEFAULTS,
    Case,
    Sample,
    assert_close,
    call,
    case_of,
    cotangents,
    draw,
    each_default,
    each_form,
    evaluate,
    names,
)

SOME = ("gated_delta_rule", "kda", "mamba2", "forget_after_correct", "two_reads")
some_specs = pytest.mark.parametrize("case", [case for case in DEFAULTS if case.name in SOME], ids=str)


@pytest.fixture(autouse=True)
def fresh_compiler() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def compiled_call(case: Case, form: tuple[str, int | None], backend) -> object:
    """A compiled function of tensors: products of the outputs, and the final state."""
    function, options = case.function(form[0]), dict(case.flags)
    if form[1] is not None:
        options["chunk_size"] = form[1]

    def run(inputs, state, bounds):
        *outputs, final = function(**inputs, **options, initial_state=state, output_final_state=True, cu_seqlens=bounds)
        return (*(2.0 * x for x in outputs), final)

    return torch.compile(run, fullgraph=True, dynamic=True, backend=backend)


def assert_like_eager(case: Case, form: tuple[str, int | None], run, sample: Sample) -> None:
    """Results and gradients of the compiled function equal those without compiling."""
    incoming = cotangents(case, sample)
    leaves = {k: x.clone().requires_grad_() for k, x in sample.inputs.items()}
    state = sample.state.clone().requires_grad_()
    results = run(leaves, state, sample.bounds)
    wanted = {**leaves, "initial state": state}
    gradients = torch.autograd.grad(results, list(wanted.values()), incoming, allow_unused=True)
    found = dict(zip((*names(case), *(f"d {k}" for k in wanted)), (*(x.detach() for x in results), *gradients), strict=True))
    scaled = [*(2.0 * d for d in incoming[:-1]), incoming[-1]]
    expected = evaluate(case, form, sample, scaled)
    for name in names(case)[:-1]:
        expected[name] = 2.0 * expected[name]
    assert_close(case, {k: x for k, x in found.items() if x is not None}, expected, torch.float32, 1e-6)


def assert_one_graph(case: Case, form: tuple[str, int | None], samples: list[Sample]) -> None:
    """The first sample compiles (twice where torch itself starts again, for a float); the others run what it compiled."""
    counter = CompileCounterWithBackend("aot_eager")
    run = compiled_call(case, form, counter)
    compilations = []
    for sample in samples:
        assert_like_eager(case, form, run, sample.to(torch.float32))
        compilations.append(counter.frame_count)
    assert compilations[0] >= 1
    assert set(compilations) == {compilations[0]}, compilations


# Sizes that are equal in the first call are taken to be equal always: all of them differ there.


@each_form
@each_default
def test_every_length_shares_one_graph(case: Case, form: tuple[str, int | None]) -> None:
    assert_one_graph(case, form, [draw(case, tokens, batch=3, heads=(2, 4)) for tokens in (20, 2, 70)])


@some_specs
def test_sizes_of_batch_and_heads_share_it_too(case: Case) -> None:
    sizes = ((20, 3, (2, 4)), (18, 6, (2, 4)), (31, 8, (3, 6)))
    assert_one_graph(case, ("chunk_", 32), [draw(case, tokens, batch=batch, heads=heads) for tokens, batch, heads in sizes])


@some_specs
def test_packed_sequences(case: Case) -> None:
    """Other boundaries, another number of sequences: the same graph."""
    bounds = ((0, 3, 9, 20), (0, 0, 8, 9, 31, 31, 40, 44), (0, 1, 2))
    assert_one_graph(case, ("chunk_", 16), [draw(case, b[-1], batch=1, heads=(2, 8), bounds=b) for b in bounds])


@some_specs
def test_one_token_and_none(case: Case) -> None:
    """Specialisations of their own, right all the same; the form is chosen while tracing."""
    run = compiled_call(case, ("", None), "aot_eager")
    for tokens in (20, 1, 0):
        assert_like_eager(case, ("", None), run, draw(case, tokens).to(torch.float32))


@some_specs
def test_graph_capture_alone(case: Case) -> None:
    """Backend `eager`: no break, forward and backward."""
    run = compiled_call(case, ("chunk_", 16), "eager")
    for tokens in (20, 35):
        assert_like_eager(case, ("chunk_", 16), run, draw(case, tokens).to(torch.float32))


@each_default
def test_step_is_compiled_with_its_mutation(case: Case) -> None:
    sample = draw(case, 1).to(torch.float32)
    per_token = {a.name for a in case.arguments if a.role == "input"}
    token = {k: x[:, 0] if k in per_token else x for k, x in sample.inputs.items()}

    function, flags = case.function("step_"), dict(case.flags)

    def run(values, state, indices):
        result = function(**values, **flags, state=state, state_indices=indices)
        return result if isinstance(result, tuple) else (result,)

    compiled = torch.compile(run, fullgraph=True, dynamic=True, backend="aot_eager")
    for indices in (None, torch.tensor([1, -1])):
        one, other = sample.state.clone(), sample.state.clone()
        for x, y in zip(compiled(token, one, indices), run(token, other, indices), strict=True):
            assert torch.equal(x, y)
        assert torch.equal(one, other)
        assert not torch.equal(one, sample.state)


@pytest.mark.parametrize("name", ["gated_delta_rule", "kda", "mamba2"])
def test_wrong_arguments_are_refused_while_compiling(name: str) -> None:
    case = case_of(name)
    run = torch.compile(case.function("chunk_"), fullgraph=True, backend="eager")
    sample = draw(case, 20).to(torch.float32)
    first = next(iter(sample.inputs))
    with pytest.raises(Exception, match=f"argument `{first}`"):
        run(**{**sample.inputs, first: sample.inputs[first][0]})


@pytest.mark.skipif(shutil.which("g++") is None and shutil.which("clang++") is None, reason="inductor needs a C++ compiler")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch's own modules
def test_inductor() -> None:
    case = case_of("gated_delta_rule")
    run = compiled_call(case, ("chunk_", 16), "inductor")
    for tokens in (20, 35):
        assert_like_eager(case, ("chunk_", 16), run, draw(case, tokens).to(torch.float32))


@some_specs
def test_export(case: Case) -> None:
    """torch.export with a symbolic length keeps the operator."""
    sample = draw(case, 20).to(torch.float32)
    per_token = {a.name for a in case.arguments if a.role == "input"}

    function, flags = case.function("chunk_"), dict(case.flags)

    class Module(torch.nn.Module):
        def forward(self, inputs):
            return function(**inputs, **flags, output_final_state=True, chunk_size=16)

    length = torch.export.Dim("T", min=2, max=4096)
    shapes = {k: {1: length} if k in per_token else None for k in sample.inputs}
    with torch.no_grad():
        program = torch.export.export(Module(), (sample.inputs,), dynamic_shapes=(shapes,))
        other = draw(case, 50, seed=2).to(torch.float32)
        for x, y in zip(program.module()(other.inputs), call(case, ("chunk_", 16), Sample(other.inputs, None)), strict=True):
            assert torch.equal(x, y)
