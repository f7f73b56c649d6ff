"""What holds to the bit: causality, equal results from run to run, inputs left as they were."""

from __future__ import annotations

from types import ModuleType

import torch

from recgen.verify.forms import Call, Form, call_of, differentiate, gradients_or_zeros, leaves_of, state_names
from recgen.verify.inputs import Sample

Tensor = torch.Tensor


def causality_errors(form: Form, module: ModuleType, sample: Sample, other: Sample, device: str) -> dict[str, float]:
    """Changes of outputs before a token, and of the gradients of a loss on them, when all inputs from that token on are exchanged.

    Args:
        form: the form.
        module: tells which arguments vary with the token.
        sample: the inputs.
        other: where the exchanged tokens come from; the same shapes.
        device: where to run.

    Returns:
        the largest change of every tensor, which should be 0; gradients of the exchanged tokens count whole, since they should be 0.
    """
    tokens = {info.name for info in module._ARGUMENTS if info.per_token}
    at = sample.sizes.tokens // 2 + 3
    call, source = call_of(sample, torch.float32, device), call_of(other, torch.float32, device)
    arguments = {}
    for name, x in call.arguments.items():
        joined = torch.cat((x[:, :at], source.arguments[name][:, at:]), 1) if name in tokens else x
        arguments[name] = joined.detach().requires_grad_()
    changed = Call(arguments, call.initial, None, call.flags)
    first, second = _until(form, call, sample, at), _until(form, changed, sample, at)
    found = {}
    for name, x in first.items():
        difference = _difference(x, second[name])
        if name.removeprefix("d ") in tokens and name.startswith("d "):
            difference = max(_difference(x[:, :at], second[name][:, :at]), _largest(x[:, at:]), _largest(second[name][:, at:]))
        found[name] = difference
    return found


def repetition_errors(form: Form, sample: Sample, device: str) -> dict[str, float]:
    """The largest change from one run to the next of every result, and of the inputs by running."""
    call = call_of(sample, torch.float32, device)
    before = {name: x.detach().clone() for name, x in call.arguments.items()}
    first, second = differentiate(form, call, sample), differentiate(form, call, sample)
    found = {f"output {i + 1}": _difference(x, y) for i, (x, y) in enumerate(zip(first.outputs, second.outputs, strict=True))}
    pairs = zip(state_names("final", len(first.states)), first.states, second.states, strict=True)
    found |= {name: _difference(x, y) for name, x, y in pairs}
    found |= {f"d {name}": _difference(x, second.gradients[name]) for name, x in first.gradients.items()}
    found["the inputs themselves"] = max(_difference(x, call.arguments[name]) for name, x in before.items())
    return found


def _until(form: Form, call: Call, sample: Sample, at: int) -> dict[str, Tensor]:
    """The outputs before token `at`, and all gradients of a loss on them."""
    outputs, _ = form(call)
    found = [o[:, :at] for o in outputs]
    assert sample.d_outputs is not None
    directions = [d[:, :at].to(o.dtype).to(o.device) for d, o in zip(sample.d_outputs, outputs, strict=True)]
    leaves = leaves_of(call.arguments, call.initial)
    results = {f"output {i + 1}": o.detach() for i, o in enumerate(found)}
    return results | {f"d {name}": g for name, g in gradients_or_zeros(found, directions, leaves).items()}


def _difference(x: Tensor, y: Tensor) -> float:
    """The largest difference; 0 only where the bits are equal, up to the sign of zero."""
    return 0.0 if torch.equal(x, y) else max(_largest(x.double() - y.double()), 1e-300)


def _largest(x: Tensor) -> float:
    return float(x.detach().abs().max()) if x.numel() else 0.0
