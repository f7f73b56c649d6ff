"""The function that picks a form: by the number of tokens, and for some recurrences by the device."""

from pathlib import Path

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

import recgen

SPECS = Path(__file__).parents[1] / "specs"


@pytest.mark.parametrize(("device", "tokens", "picked"), [("cpu", 9, "chunk"), ("cpu", 1, "recurrent"), ("cuda", 9, "recurrent")])
def test_values_that_differ_by_channel_are_recurrent_on_gpus(
    device: str, tokens: int, picked: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = recgen.load(SPECS / "value_strengths.rec")
    forms = {module._chunk_forward: "chunk", module._recurrent_forward: "recurrent"}
    monkeypatch.setattr(module, "_run", lambda form, *_: forms[form])
    with FakeTensorMode():
        x = torch.empty(1, tokens, 2, 16, device=device)
    assert module.value_strengths(**dict.fromkeys(("q", "k", "v", "u", "beta"), x)) == picked
    assert "on GPUs, where it is the faster one" in module.value_strengths.__doc__
