"""Decisions of the plan that a user can see."""

from pathlib import Path

import pytest

import recgen

SPECS = Path(__file__).parents[1] / "specs"


@pytest.mark.parametrize("spec", ["value_forget", "value_strengths", "strangers/gated_delta_beta_v"])
def test_a_form_that_differs_by_value_channel_has_recurrent_kernels_alone(spec: str) -> None:
    compiled = recgen.compile(SPECS / f"{spec}.rec")
    assert (compiled.plan.kernels, compiled.plan.chunk) == (False, ())
    assert "PyTorch on every device: it has no kernels." in compiled.module.text
    assert "def _triton_recurrent_forward(" in compiled.module.text
    assert "_triton_chunk" not in compiled.module.text and "_chunk_on_triton" not in compiled.module.text
