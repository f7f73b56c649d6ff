"""The kernels of the scan class, tiles of tokens: against the float64 loop in the interpreter."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

import pytest

from recgen import cache
from recgen.pipeline import ScanCompiled, compile_text
from recgen.verify import reproduce
from tests.triton.token_launches import compiled, specs

SCANS = sorted(name for name, found in specs().items() if isinstance(found, ScanCompiled))
CASES = {
    "a group of heads": {"tokens": 9, "key_heads": 1, "heads": 2},
    "a loss on the outputs, no initial state": {"tokens": 5, "initial": False, "loss": "outputs", "small": True},
    "a loss on the state": {"tokens": 5, "loss": "state", "gates": "strong"},
    "packed": {"tokens": 20, "packed": True, "seed": 3},
    "packed over what is kept": {"tokens": 140, "packed": True, "small": True, "seed": 3},
    "over what is kept": {"tokens": 131, "heads": 1},
    "one token": {"tokens": 1},
    "no token": {"tokens": 0},
}
SPECS = {
    "numbers": """language 1
recurrence numbers
    input a : [] decay
    input x : []
    state s : []
    plan scan
    s[t] = a * s[t-1] + x
    o    = s[t] * x
""",
    "normalised": """language 1
recurrence normalised
    input a : [D] decay
    input x : [D]
    state s : [D]
    plan scan
    s[t] = a * s[t-1] + x
    o    = rmsnorm(s[t]) + s[t-1]
""",
    "two_independent": """language 1
recurrence two_independent
    input f : [D] log_decay
    input i : [D]
    input x : [D]
    state c : [D]
    state n : [D]
    plan scan
    c[t] = exp(f) * c[t-1] + i * x
    n[t] = exp(f) * n[t-1] + i * i
    o    = c[t] / max(n[t-1], 1)
""",
}
"""A number as a state; nothing to share among programs; several states that may be cut into segments, one of them read before its token."""


def flags(found: ScanCompiled, turned: bool) -> tuple[tuple[str, bool], ...]:
    """The boolean options as they are by default, or all of them the other way."""
    return tuple((o.name, o.default != turned) for o in found.recurrence.options if isinstance(o.default, bool))


def scan(name: str) -> ScanCompiled:
    """One of the specs."""
    found = compile_text(SPECS[name], name) if name in SPECS else compiled(name)
    assert isinstance(found, ScanCompiled)
    return found


def kernels(found: ScanCompiled) -> ModuleType:
    """The module whose functions `reproduce` calls."""
    return cache.load(found.module.name, found.module.text)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
@pytest.mark.parametrize("spec", [*SCANS, *SPECS])
def test_chunks(spec: str, case: dict[str, object]) -> None:
    found = scan(spec)
    report = reproduce(found, "chunk 16", "float32", **case, flags=flags(found, case["tokens"] == 9))
    assert report.ok, report


@pytest.mark.parametrize("variation", ["chunk 16, split at 3", "chunk 16, strided", "chunk 16, to the bit"])
@pytest.mark.parametrize("spec", SCANS)
def test_variations(spec: str, variation: str) -> None:
    found = scan(spec)
    report = reproduce(found, variation, "float32", tokens=8, key_heads=1, heads=2, flags=flags(found, False))
    assert report.ok, report


def cut(span: int) -> Callable[..., tuple[int, int]]:
    """Segments of so many tokens."""
    return lambda tokens, *_: (max(-(-tokens // span), 1), span)


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("spec", [*SCANS, *SPECS])
def test_segments(spec: str, packed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sequences in segments of 64 tokens; packed, some have one segment, some three, some no token."""
    found = scan(spec)
    module = kernels(found)
    if "SUMMARY" not in found.module.text:
        assert len(found.recurrence.states) > 1, "only a state that waits for another is not summarised"
        return
    monkeypatch.setattr(module, "_triton_scan_span", cut(64))
    loss = "both" if packed else "outputs"
    report = reproduce(found, "chunk 16", "float32", tokens=150, heads=1, packed=packed, loss=loss, seed=7, flags=flags(found, True))
    assert report.ok, report


@pytest.mark.parametrize("spec", [name for name in SCANS if compiled(name).token_form.split])
def test_several_blocks(spec: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs that share an axis, with lanes and without: partial gradients of what all of them have."""
    found = scan(spec)
    module = kernels(found)
    chosen, programs = module._triton_scan_tiles, []

    for entries, lanes in ((64, 4), (16, 8)):

        def small(*sizes: int, entries: int = entries, lanes: int = lanes) -> tuple[int, ...]:
            tiles = chosen(*sizes[:-2], entries, lanes)
            programs.append(tiles[-4])
            return tiles

        monkeypatch.setattr(module, "_triton_scan_tiles", small)
        report = reproduce(found, "chunk 16", "float32", tokens=9, key_heads=1, heads=2, small=True, flags=flags(found, True))
        assert report.ok, report
    assert max(programs) > 1, "one program had everything"
