"""The kernels of recurrences that are compiled token by token: against the float64 loop in the interpreter, and compiled for GPUs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from recgen import cache
from recgen.pipeline import ScanCompiled
from recgen.verify import reproduce
from tests.numerics.corners import SPECS as SPECS_AT_CORNERS
from tests.numerics.corners import corner, options
from tests.triton.launches import SHARED, TARGETS
from tests.triton.token_launches import compiled, specs

ROOT = Path(__file__).parents[2]
NAMES = sorted(specs())
SHIPPED = [name for name in NAMES if (ROOT / "specs" / f"{name}.rec").is_file()]
SCANS = [name for name in NAMES if isinstance(compiled(name), ScanCompiled)]
CASES = {
    "a group of heads": {"tokens": 9, "key_heads": 1, "heads": 2},
    "a loss on the outputs, no initial state": {"tokens": 5, "initial": False, "loss": "outputs", "small": True},
    "a loss on the state": {"tokens": 5, "loss": "state", "gates": "strong"},
    "packed": {"tokens": 20, "packed": True, "seed": 3},
    "over a checkpoint": {"tokens": 66, "heads": 1},
    "one token": {"tokens": 1},
    "no token": {"tokens": 0},
}


def flags(spec: str, turned: bool) -> tuple[tuple[str, bool], ...]:
    """The boolean options as they are by default, or all of them the other way."""
    options = compiled(spec).recurrence.options
    return tuple((o.name, o.default != turned) for o in options if isinstance(o.default, bool))


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
@pytest.mark.parametrize("spec", NAMES)
def test_recurrent(spec: str, case: dict[str, object]) -> None:
    for dtype in ("float64", "float32") if case["tokens"] < 20 else ("float32",):
        report = reproduce(compiled(spec), "recurrent", dtype, **case, flags=flags(spec, case["tokens"] == 9))
        assert report.ok, report


@pytest.mark.parametrize("spec", ["slstm", "fed_key"])
def test_packed_over_checkpoints(spec: str) -> None:
    """Of two sequences one has a single segment, the other two."""
    report = reproduce(compiled(spec), "recurrent", tokens=140, heads=1, packed=True, small=True, flags=flags(spec, False))
    assert report.ok, report


@pytest.mark.parametrize("variation", ["recurrent, split at 3", "recurrent, strided", "recurrent, to the bit"])
@pytest.mark.parametrize("spec", NAMES)
def test_variations(spec: str, variation: str) -> None:
    report = reproduce(compiled(spec), variation, tokens=8, key_heads=1, heads=2, flags=flags(spec, False))
    assert report.ok, report


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("spec", NAMES)
def test_steps(spec: str, turned: bool) -> None:
    """On a pool of slots in another order, each state in its own tensor."""
    for dtype in ("float64", "float32"):
        report = reproduce(compiled(spec), "step", dtype, tokens=4, key_heads=1, heads=2, flags=flags(spec, turned))
        assert report.ok, report


@pytest.mark.parametrize("spec", [name for name in NAMES if compiled(name).token_form.split])
def test_several_blocks(spec: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs that share an axis: partial gradients of what all of them have, and states that only the first one stores."""
    found = compiled(spec)
    module = cache.load(found.module.name, found.module.text)
    chosen = module._triton_blocks
    programs = []

    def small(*sizes: int) -> tuple[int, ...]:
        blocks = chosen(*sizes[:-1], 1)
        programs.append(blocks[-3])
        return blocks

    monkeypatch.setattr(module, "_triton_blocks", small)
    for turned in (False, True):
        report = reproduce(found, "recurrent", tokens=7, key_heads=1, heads=2, small=True, flags=flags(spec, turned))
        assert report.ok, report
    assert min(programs) > 1, "one program had everything"


@pytest.mark.parametrize("name", SPECS_AT_CORNERS)
def test_corners(name: str) -> None:
    for form, dtype in (("recurrent", "float32"), ("step", "float64")):
        for chosen in options(name):
            report = reproduce(corner(name), form, dtype, tokens=4, key_heads=1, heads=2, flags=chosen)
            assert report.ok, report


def test_slots_that_are_not_there() -> None:
    """Negative, and beyond the pool: nothing is read or written, the outputs are 0."""
    found = compiled("slstm")
    module = cache.load(found.module.name, found.module.text)
    inputs = {a.name: torch.randn(3, 2, *(5 for _ in a.axes)) for a in found.recurrence.arguments}
    memory = [torch.randn(4, 2, *(5 for _ in s.axes)) for s in found.recurrence.states]
    before = [x.clone() for x in memory]
    pools = tuple(x[:3] for x in memory)
    output = module.step_slstm(**inputs, state=pools, state_indices=torch.tensor([1, -1, 3]))
    assert not output[1:].any()
    assert output[0].all()
    for x, y in zip(memory, before, strict=True):
        assert torch.equal(x[[0, 2, 3]], y[[0, 2, 3]])
        assert not torch.equal(x[1], y[1])


def test_large_factors_are_refused() -> None:
    found = compiled("lstm")
    assert "multiply matrices" not in found.module.text
    dense = compiled("dense")
    module = cache.load(dense.module.name, dense.module.text)
    with pytest.raises(ValueError, match="dense: the kernels multiply matrices over K up to 64, but it is 65"):
        module._triton_blocks(65, 16)


def segmented(spec: str) -> bool:
    """Whether a scan's sequences may be cut into segments."""
    return "SUMMARY" in compiled(spec).module.text


COMPILED = (
    *((name, "bfloat16", 16 if name in SCANS else 64, "sm_90") for name in NAMES),
    ("dense", "float64", 32, "sm_90"),
    *((name, "bfloat16", 16, target) for name in SHIPPED for target in TARGETS if target != "sm_90"),
)


@pytest.mark.parametrize(("spec", "dtype", "size", "target"), COMPILED)
def test_compiled_ahead_of_time(spec: str, dtype: str, size: int, target: str) -> None:
    """In a process of its own, since the interpreter is on in this one."""
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    command = [sys.executable, "-m", "tests.triton.token_launches", spec, dtype, str(size), target]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout)
    wanted = {"recurrent_forward_kernel", "recurrent_backward_kernel", "step_kernel"}
    if spec in SCANS:
        wanted |= {f"scan_{way}_kernel{of}" for way in ("forward", "backward") for of in ("", "_of_summaries")[: 1 + segmented(spec)]}
    assert set(figures) == wanted
    for kernel, (shared, *usage) in figures.items():
        assert shared <= SHARED[target], f"{kernel} takes {shared} bytes of shared memory"
        assert not usage or usage[1] <= 1024, f"{kernel} spills {usage[1]} bytes"
