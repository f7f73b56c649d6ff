"""The PyTorch form of a scan, cut into tiles and panels of few tokens as for states that fill the caches, against the float64 loop."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from recgen.pipeline import ScanCompiled
from tests.numerics.helpers import ALL_CASES, Case, Sample, assert_close, compiled, cotangents, draw, evaluate, reference
from tests.numerics.helpers import _cases as cases_of

WIDER = sorted((Path(__file__).parents[1] / "specs" / "scans").glob("*.rec"))
SCANS = [*(c for c in ALL_CASES if isinstance(c.compiled, ScanCompiled)), *(c for path in WIDER for c in cases_of(path))]
TOKENS = 41

each_scan = pytest.mark.parametrize("case", SCANS, ids=str)


def cut(case: Case, patch: pytest.MonkeyPatch, tile: int, panel: int) -> None:
    """Tiles of so many tokens of a row, panels of so many tiles, a row at a time."""
    module, sample = case.module, draw(case, 1)
    entries = sample.state[0].numel()
    widest = max(sample.inputs[a.name][0, 0].numel() for a in case.arguments if a.role == "input")
    patch.setattr(module, "_TOGETHER", 1)
    patch.setattr(module, "_TILE", tile * entries)
    patch.setattr(module, "_PANEL", panel * tile * widest)


def side_by_side(x: torch.Tensor) -> torch.Tensor:
    """The tokens of every number contiguous."""
    return x.movedim(1, -1).contiguous().movedim(-1, 1)


@pytest.mark.parametrize(("tile", "panel"), [(1, 1), (3, 2), (5, 100), (20, 1)])
@each_scan
def test_tiles_and_panels(case: Case, tile: int, panel: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Outputs, states and the gradients that start from the kept states, whatever the borders of chunks and tiles."""
    cut(case, monkeypatch, tile, panel)
    for bounds in (None, (0, 18, 18, TOKENS)):
        sample = draw(case, TOKENS, batch=2 if bounds is None else 1, bounds=bounds)
        incoming = cotangents(case, sample)
        expected = reference(case, sample, incoming)
        for chunk in (16, 32):
            assert_close(case, evaluate(case, ("chunk_", chunk), sample, incoming), expected, torch.float64)


@each_scan
def test_kept_states_are_those_before_every_chunk(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same as from whole chunks, to rounding: a backward that starts from others would be wrong."""
    passed = (*(draw(case, TOKENS).inputs.get(a.name) for a in case.compiled.recurrence.declared),)
    options = (*(1.0 for _ in case.module._NUMBERS), *(dict(case.flags)[name] for name in case.module._FLAGS))
    initial = (None,) * len(case.states)
    whole = case.module._torch_chunk_forward(passed, options, initial, None, 16, True)[-1]
    cut(case, monkeypatch, 7, 2)
    pieces = case.module._torch_chunk_forward(passed, options, initial, None, 16, True)[-1]
    assert whole.shape[0] == 2 * TOKENS // 16 + 2 and whole[1:3].any()
    torch.testing.assert_close(pieces, whole, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("panel", [3, 100])
@each_scan
def test_tokens_side_by_side(case: Case, panel: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Inputs with their tokens contiguous, as convolutions leave them, are turned by panels, or in one, to the same numbers."""
    cut(case, monkeypatch, 4, panel)
    sample = draw(case, TOKENS, batch=3).to(torch.float32)
    incoming = cotangents(case, sample)
    turned = {k: side_by_side(x) if x.dim() > 1 and x.shape[1] == TOKENS else x for k, x in sample.inputs.items()}
    expected = evaluate(case, ("chunk_", 16), sample, incoming)
    assert_close(case, evaluate(case, ("chunk_", 16), Sample(turned, sample.state), incoming), expected, torch.float32, 1e-6)


@pytest.mark.parametrize("path", [c.path for c in SCANS], ids=lambda p: p.stem)
def test_tiles_hold_what_is_wide(path: Path) -> None:
    """Vectors that no state is read for are computed outside the loop over tiles."""
    text = compiled(path).module.text.split("def _scan_tokens(")[1].split("def _scan_chunk_gradient(")[0]
    before, loop = text.split(") in _tiles(")
    assert "_scan(" in loop and "_scan(" not in before
