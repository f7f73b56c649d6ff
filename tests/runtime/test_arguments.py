"""Wrong arguments: the error names the function's recurrence, the argument, what it should be and what it is."""

from __future__ import annotations

import inspect
import re
from collections import Counter

import pytest
import torch

from tests.numerics.helpers import ALL_CASES, DEFAULTS, Case, call, case_of, draw, each_case, each_combination, each_default, each_single

SEQUENCE_FORMS = ("naive_recurrent_", "fused_recurrent_", "chunk_", "")


def valid(case: Case, form: str) -> dict[str, object]:
    """Arguments that a form accepts: five tokens in two rows, or one token for a step."""
    sample = draw(case, 5).to(torch.float32)
    if form != "step_":
        return {**sample.inputs, **dict(case.flags), "initial_state": case.given(sample.state), "output_final_state": True}
    per_token = {a.name for a in case.arguments if a.role == "input"}
    return {
        **{k: x[:, 0] if k in per_token else x for k, x in sample.inputs.items()},
        **dict(case.flags),
        "state": case.given(sample.state),
    }


def refused(case: Case, form: str, name: str, value: object, expected: str = "", error=(ValueError, TypeError)) -> None:
    """The call with this value for this argument fails, and the message says so."""
    arguments = {**valid(case, form), name: value}
    with pytest.raises(error) as raised:
        case.emitted(form)(**arguments)
    message = str(raised.value)
    assert re.match(rf"{case.name}: (argument|option) `{re.escape(name)}` should be .+, but is .+", message), message
    assert expected in message


each_function = pytest.mark.parametrize("form", [*SEQUENCE_FORMS, "step_"], ids=["naive", "recurrent", "chunk", "plain", "step"])
each_sequence_function = pytest.mark.parametrize("form", SEQUENCE_FORMS, ids=["naive", "recurrent", "chunk", "plain"])


@each_function
@each_case
def test_valid_arguments_are_accepted(case: Case, form: str) -> None:
    case.emitted(form)(**valid(case, form))


@each_function
@each_case
def test_every_tensor_of_wrong_kind(case: Case, form: str) -> None:
    """Not a tensor, of another rank, of an integer or complex dtype, on another device."""
    anchor = next((a for a in case.arguments if a.role == "input" and not a.needed_if), case.arguments[0]).name
    for name in (a.name for a in case.arguments):
        x = valid(case, form)[name]
        layout = f"[{'HV' if next(a for a in case.arguments if a.name == name).role == 'param' else 'B'}"
        refused(case, form, name, None, layout)
        refused(case, form, name, x.tolist(), layout, TypeError)
        refused(case, form, name, x.unsqueeze(0), layout, ValueError)
        refused(case, form, name, x[0], layout, ValueError)
        for dtype in (torch.int64, torch.bool, torch.complex64):
            refused(case, form, name, x.to(dtype), "float64, float32, bfloat16 or float16", ValueError)
        if name != anchor:
            refused(case, form, name, x.to("meta"), f"on cpu like `{anchor}`", ValueError)


@each_function
@each_case
def test_every_axis_of_wrong_size(case: Case, form: str) -> None:
    """One element more along one axis that another argument has too: the message has that argument, its shape, or its size."""
    named = {a.name: ("H" if a.grouped else "HV", *a.axes) for a in case.arguments}
    found = Counter(axis for axes in named.values() for axis in axes)
    for a in case.arguments:
        x = valid(case, form)[a.name]
        for position in range(x.dim()):
            axis = named[a.name][position - x.dim()] if x.dim() - position <= len(named[a.name]) else ""
            if found[axis] == 1:
                continue
            wrong = torch.cat((x, x.narrow(position, 0, 1)), position)
            arguments = {**valid(case, form), a.name: wrong}
            with pytest.raises(ValueError, match=rf"{case.name}: argument `\w+(\[\d\])?` should be .*but is .*") as raised:
                case.emitted(form)(**arguments)
            told = str(raised.value)
            hints = (str(tuple(wrong.shape)), f"`{a.name}`", f" = {wrong.shape[position]}", "heads")
            assert any(hint in told for hint in hints), told


@each_function
@pytest.mark.parametrize("case", [case for case in DEFAULTS if any(a.grouped for a in case.arguments)], ids=str)
def test_heads_that_form_no_groups(case: Case, form: str) -> None:
    arguments = valid(case, form)
    for a in case.arguments:
        if a.grouped:
            x = arguments[a.name]
            arguments[a.name] = x.repeat_interleave(3, x.dim() - 1 - len(a.axes))  # 3 key heads for 2 value heads
    with pytest.raises(ValueError, match=r"should be of a number of heads that is a multiple of the 3 of `\w+`, but is of 2 heads"):
        case.emitted(form)(**arguments)


@each_function
@each_combination
def test_arguments_that_an_option_governs(case: Case, form: str) -> None:
    """Needed with it, refused without it."""
    heads = 2
    for a in case.compiled.recurrence.declared:
        if a.needed_if and a in case.arguments:
            refused(case, form, a.name, None, " with ", ValueError)
        elif a.needed_if:
            wide = draw(next(c for c in ALL_CASES if c.path == case.path and a in c.arguments), 5, heads=(1, heads)).inputs[a.name]
            refused(case, form, a.name, wide if form != "step_" or a.role == "param" else wide[:, 0], "left out", ValueError)


@each_function
@each_case
def test_options_of_wrong_type(case: Case, form: str) -> None:
    for option in case.compiled.recurrence.options:
        if isinstance(option.default, bool):
            for value in (1, "yes", None, 0.0):
                refused(case, form, option.name, value, "True or False", TypeError)
        else:
            for value in ("x", True, torch.ones(()), [1.0]):
                refused(case, form, option.name, value, "a number", TypeError)
    if len(case.state_axes) == 2:
        refused(case, form, "state_v_first", 1, "True or False", TypeError)


@each_sequence_function
@each_default
def test_output_final_state_must_be_a_boolean(case: Case, form: str) -> None:
    refused(case, form, "output_final_state", 1, "True or False", TypeError)
    refused(case, form, "output_final_state", None, "True or False", TypeError)


@each_sequence_function
@each_single
def test_initial_state(case: Case, form: str) -> None:
    state = valid(case, form)["initial_state"]
    one_more = torch.cat((state, state[:1]))
    refused(case, form, "initial_state", one_more, "N = 2", ValueError)
    refused(case, form, "initial_state", state[:1], "N = 2", ValueError)
    refused(case, form, "initial_state", state[:, :1], "HV = 2", ValueError)
    refused(case, form, "initial_state", state[..., 1:], f"{case.state_axes[-1]} = {state.shape[-1]}", ValueError)
    if len(case.state_axes) == 2:
        refused(case, form, "initial_state", state.mT, f"{case.state_axes[0]} = {state.shape[2]}", ValueError)
    refused(case, form, "initial_state", state[0], "[N, HV, ", ValueError)
    refused(case, form, "initial_state", state.int(), "float32", ValueError)
    refused(case, form, "initial_state", state.to("meta"), "on cpu", ValueError)
    refused(case, form, "initial_state", "zeros", "a tensor", TypeError)


@each_sequence_function
@each_default
def test_boundaries(case: Case, form: str) -> None:
    sample = draw(case, 5, batch=1, state=False).to(torch.float32)
    function = case.emitted(form)

    def fails(bounds: object, expected: str) -> None:
        with pytest.raises(ValueError, match=rf"{case.name}: argument `cu_seqlens` should be {expected}.*, but is "):
            function(**sample.inputs, **dict(case.flags), cu_seqlens=bounds)

    values = r"boundaries that start at 0, never fall and end at T = 5"
    for bounds in ([1, 5], [0, 4], [0, 6], [0, 3, 2, 5], [-1, 5], [0], [5], [0, 7, 5]):
        fails(torch.tensor(bounds), values)
    kind = r"an int32 or int64 tensor \[N \+ 1\]"
    wrong = (torch.tensor([0.0, 5.0]), torch.tensor([[0, 5]]), torch.tensor(5), torch.tensor([0, 5], dtype=torch.int16))
    for bounds in ([0, 5], "0,5", *wrong):
        fails(bounds, kind)
    fails(torch.tensor([], dtype=torch.int64), r"a tensor \[N \+ 1\]")
    fails(torch.tensor([0, 5], device="meta"), r"a tensor \[N \+ 1\] on cpu")
    refused(case, form, "cu_seqlens", torch.tensor([0, 5]), "left out unless the batch is 1", ValueError)


@each_sequence_function
@each_default
def test_a_state_for_every_packed_sequence(case: Case, form: str) -> None:
    sample = draw(case, 5, batch=1, bounds=(0, 2, 5)).to(torch.float32)
    with pytest.raises(ValueError, match=r"argument `initial_state(\[0\])?` should be .* with N = 2, but is"):
        case.emitted(form)(**sample.inputs, **dict(case.flags), initial_state=case.given(sample.state[:1]), cu_seqlens=sample.bounds)


@each_default
def test_chunk_size(case: Case) -> None:
    for value in (48, 0, -16, 128, None, "64", 64.0, 1):
        refused(case, "chunk_", "chunk_size", value, "16, 32 or 64", ValueError)


@each_function
@each_default
def test_unknown_keywords(case: Case, form: str) -> None:
    for name in ("gatee", "use_qk_l2norm", "head_first"):
        with pytest.raises(TypeError, match=f"unexpected keyword argument '{name}'"):
            case.emitted(form)(**valid(case, form), **{name: True})
    assert not any(p.kind in (p.VAR_KEYWORD, p.VAR_POSITIONAL) for p in inspect.signature(case.emitted(form)).parameters.values())


@each_function
@each_default
def test_missing_arguments(case: Case, form: str) -> None:
    for a in case.arguments:
        arguments = valid(case, form)
        del arguments[a.name]
        with pytest.raises((TypeError, ValueError), match=a.name):
            case.emitted(form)(**arguments)


def test_signature_has_the_names_of_the_field() -> None:
    """Positional callers and callers that inspect find what they know."""
    common = ["q", "k", "v", "g", "beta", "scale", "initial_state", "output_final_state", "use_qk_l2norm_in_kernel"]
    for form in SEQUENCE_FORMS:
        names = list(inspect.signature(case_of("gated_delta_rule").function(form)).parameters)
        assert names[: len(common)] == common
        assert {"cu_seqlens", "state_v_first"} <= set(names)
        assert ("chunk_size" in names) == (form == "chunk_")


def test_numbers_and_defaults() -> None:
    """An int is a number; None is the default K^-0.5."""
    case = case_of("gla")
    sample = draw(case, 5)
    k = sample.inputs["k"].shape[-1]
    one = call(case, ("chunk_", 16), sample, scale=1)[0]
    assert torch.equal(one, call(case, ("chunk_", 16), sample, scale=1.0)[0])
    torch.testing.assert_close(call(case, ("chunk_", 16), sample)[0], one * k**-0.5)
    assert torch.equal(call(case, ("chunk_", 16), sample, scale=None)[0], call(case, ("chunk_", 16), sample)[0])
