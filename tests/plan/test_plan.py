"""Decisions of the plan that a user can see."""

from pathlib import Path

import pytest

import recgen

SPECS = Path(__file__).parents[1] / "specs"


@pytest.mark.parametrize("spec", ["value_forget", "value_strengths", "strangers/gated_delta_beta_v", "momentum_delta", "strangers/titans"])
def test_chunks_of_every_form_by_products_have_kernels(spec: str) -> None:
    compiled = recgen.compile(SPECS / f"{spec}.rec")
    assert compiled.plan.chunk
    assert "Triton kernels on GPUs, PyTorch elsewhere and for float64 inputs." in compiled.module.text
    assert all(
        f"def {name}(" in compiled.module.text for name in ("_triton_recurrent_forward", "_triton_chunk_forward", "_chunk_on_triton")
    )


def test_programs_that_hold_all_values_have_rows_of_their_own() -> None:
    across, blocks = (recgen.compile(SPECS / f"{spec}.rec").plan.chunk for spec in ("value_strengths", "value_turns"))
    assert {t.scan_warps for t in across} == {8}
    assert {t.scan_warps for t in blocks} == {4}
    assert {t.chunk for t in (*across, *blocks)} == {16}
