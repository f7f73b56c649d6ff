"""The forms of an emitted module, called as their users call them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import torch

from recgen.verify.inputs import Sample

Tensor = torch.Tensor


@dataclass(frozen=True)
class Call:
    """One call's tensors, as the form takes them; `cu_seqlens` on the same device."""

    arguments: dict[str, Tensor]
    initial: tuple[Tensor, ...] | None
    cu_seqlens: Tensor | None
    flags: dict[str, bool]


@dataclass(frozen=True)
class Results:
    """Outputs, the final states, and the gradients of arguments and of the initial states by name."""

    outputs: tuple[Tensor, ...]
    states: tuple[Tensor, ...]
    gradients: dict[str, Tensor]


Form = Callable[[Call], tuple[tuple[Tensor, ...], tuple[Tensor, ...]]]
"""Outputs and final states."""


def state_names(prefix: str, count: int) -> tuple[str, ...]:
    """What the states of a call are called: "initial state", or "initial state 1" and so on where there are several."""
    return (f"{prefix} state",) if count == 1 else tuple(f"{prefix} state {i + 1}" for i in range(count))


def leaves_of(arguments: dict[str, Tensor], initial: tuple[Tensor, ...] | None) -> dict[str, Tensor]:
    """What gradients are asked of, by name: the arguments and the initial states."""
    states = initial or ()
    return {**arguments, **dict(zip(state_names("initial", len(states)), states, strict=True))}


def _given(states: tuple[Tensor, ...]) -> Any:
    """States as a module takes them: one alone, several as a tuple."""
    return states[0] if len(states) == 1 else states


def whole(module: ModuleType, prefix: str, **keywords: Any) -> Form:
    """A form of the module over the whole call: `prefix` is "chunk_", "fused_recurrent_" or "naive_recurrent_"."""
    function = getattr(module, prefix + _name(module))

    def run(call: Call) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
        initial = None if call.initial is None else _given(call.initial)
        *outputs, states = function(
            **as_passed(module, call.arguments),
            **call.flags,
            initial_state=initial,
            output_final_state=True,
            cu_seqlens=call.cu_seqlens,
            **keywords,
        )
        return tuple(outputs), states if isinstance(states, tuple) else (states,)

    return run


def as_passed(module: ModuleType, arguments: dict[str, Tensor]) -> dict[str, Tensor]:
    """Arguments as the module's functions take them: the values of micro-steps are one tensor, their axis before those of each."""
    axes = {info.name: len(info.axes) for info in module._ARGUMENTS}
    packed: dict[str, tuple[str, ...]] = vars(module).get("_PACKED", {})  # a module without micro-steps has none
    joined = {name: torch.stack([arguments[m] for m in members], -1 - axes[members[0]]) for name, members in packed.items()}
    return {**{name: x for name, x in arguments.items() if not any(name in members for members in packed.values())}, **joined}


def split(form: Form, module: ModuleType, at: int) -> Form:
    """The form run up to token `at`, and on from the state that came out."""
    tokens = {info.name for info in module._ARGUMENTS if info.per_token}

    def run(call: Call) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
        parts, states = [], call.initial
        for piece in (slice(None, at), slice(at, None)):
            arguments = {name: x[:, piece] if name in tokens else x for name, x in call.arguments.items()}
            outputs, states = form(Call(arguments, states, None, call.flags))
            parts.append(outputs)
        assert states is not None
        return tuple(torch.cat(x, 1) for x in zip(*parts, strict=True)), states

    return run


def strided(form: Form) -> Form:
    """The form on inputs of the same values in other layouts: permuted, or a slice of something larger."""

    def run(call: Call) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
        arguments = {name: _permuted(x) if i % 2 else _sliced(x) for i, (name, x) in enumerate(call.arguments.items())}
        initial = None if call.initial is None else tuple(_permuted(x) for x in call.initial)
        outputs, states = form(Call(arguments, initial, call.cu_seqlens, call.flags))
        return tuple(_permuted(o) for o in outputs), states

    return run


def _permuted(x: Tensor) -> Tensor:
    """The same values, axes in reversed order in memory; incoming gradients come in that order too."""
    order = tuple(reversed(range(x.dim())))
    return x.permute(order).contiguous().permute(order)


def _sliced(x: Tensor) -> Tensor:
    """The same values, every second entry of a larger tensor."""
    return torch.stack((x, torch.full_like(x, torch.nan).detach()), -1)[..., 0]


def stepwise(module: ModuleType) -> Form:
    """One token after another through `step_<name>`, on a pool of states with a row that is skipped; no gradients."""
    function = getattr(module, "step_" + _name(module))
    tokens = {info.name for info in module._ARGUMENTS if info.per_token}

    def run(call: Call) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
        assert call.initial is not None
        rows, device = call.initial[0].shape[0], call.initial[0].device
        slots = torch.arange(rows, 0, -1, dtype=torch.int32, device=device)
        pools = tuple(torch.full((rows + 2, *x.shape[1:]), 7.0, dtype=x.dtype, device=device) for x in call.initial)
        for pool, x in zip(pools, call.initial, strict=True):
            pool[slots.long()] = x
        found = []
        with torch.no_grad():
            for t in range(next(x for name, x in call.arguments.items() if name in tokens).shape[1]):
                arguments = {name: x[:, t] if name in tokens else x for name, x in call.arguments.items()}
                outputs = function(**as_passed(module, arguments), **call.flags, state=_given(pools), state_indices=slots)
                found.append(outputs if isinstance(outputs, tuple) else (outputs,))
        assert all(bool((pool[[0, -1]] == 7.0).all()) for pool in pools), "a step touched the state of another sequence"
        return tuple(torch.stack(x, 1) for x in zip(*found, strict=True)), tuple(pool[slots.long()] for pool in pools)

    return run


def call_of(sample: Sample, dtype: torch.dtype, device: str) -> Call:
    """The sample as a form takes it: leaves of its own in this dtype; states in float32, in float64 where everything is."""
    state_dtype = torch.float64 if dtype == torch.float64 else torch.float32
    arguments = {name: x.detach().to(dtype).to(device).requires_grad_() for name, x in sample.arguments.items()}
    states = sample.initial
    initial = None if states is None else tuple(x.detach().to(state_dtype).to(device).requires_grad_() for x in states)
    boundaries = sample.case.boundaries
    packing = None if boundaries is None else torch.tensor(boundaries, dtype=torch.int32, device=device)
    return Call(arguments, initial, packing, dict(sample.case.flags))


def differentiate(form: Form, call: Call, sample: Sample) -> Results:
    """Runs the form and its backward for the sample's gradients of outputs and state."""
    outputs, states = form(call)
    found = list(outputs) if sample.d_outputs is not None else []
    cotangents = [d.to(o.dtype).to(o.device) for d, o in zip(sample.d_outputs or (), outputs, strict=False)]
    if sample.d_states is not None:
        found += states
        cotangents += [d.to(x.dtype).to(x.device) for d, x in zip(sample.d_states, states, strict=True)]
    gradients = gradients_of(found, cotangents, leaves_of(call.arguments, call.initial))
    return Results(tuple(o.detach() for o in outputs), tuple(x.detach() for x in states), gradients)


def gradients_of(found: list[Tensor], cotangents: list[Tensor], leaves: dict[str, Tensor]) -> dict[str, Tensor]:
    """The gradients of all leaves, zeros where nothing depends on one."""
    pairs = [(x, d) for x, d in zip(found, cotangents, strict=True) if x.requires_grad]
    if not pairs:
        return {name: torch.zeros_like(x) for name, x in leaves.items()}
    values, directions = zip(*pairs, strict=True)
    return gradients_or_zeros(values, directions, leaves)


def gradients_or_zeros(values: Sequence[Tensor], directions: Sequence[Tensor], leaves: dict[str, Tensor]) -> dict[str, Tensor]:
    """The gradients of all leaves, zeros for those that the values do not depend on."""
    gradients: tuple[Tensor | None, ...] = torch.autograd.grad(values, tuple(leaves.values()), directions, allow_unused=True)
    return {name: torch.zeros_like(x) if g is None else g for (name, x), g in zip(leaves.items(), gradients, strict=True)}


def _name(module: ModuleType) -> str:
    names: list[str] = module.__all__
    return next(n.removeprefix("step_") for n in names if n.startswith("step_"))
