"""Compilers known to be wrong: the emitted module refuses exactly what `recgen doctor` warns of."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from recgen.compilers import COMPILER_FAULTS, faults_of, version_of
from recgen.environment import judge_ptxas
from recgen.kernels import delta_rule as module

triton = pytest.importorskip("triton")
BANNER = "ptxas: NVIDIA (R) Ptx optimizing assembler\nCuda compilation tools, release {0}, V{0}.93\n"


@pytest.fixture
def fault(monkeypatch: pytest.MonkeyPatch):
    """What the module says of a release on a GPU."""

    def ask(release: str, generation: str, dtype: torch.dtype = torch.bfloat16) -> str:
        tool = SimpleNamespace(version=release, path="/x/ptxas")
        monkeypatch.setattr(triton, "knobs", SimpleNamespace(nvidia=SimpleNamespace(ptxas=tool)))
        monkeypatch.setattr(module, "_gpu", lambda device: (generation, 227 * 1024))
        module._compiler_fault.cache_clear()
        return module._compiler_fault(torch.device("cpu"), dtype)

    yield ask
    module._compiler_fault.cache_clear()


@pytest.mark.parametrize("release", ["12.4", "12.8", "12.9", "13.0", "13.1"])
@pytest.mark.parametrize("generation", ["sm_80", "sm_90", "sm_120"])
def test_module_and_doctor_agree(fault, release: str, generation: str) -> None:
    refused = bool(fault(release, generation))
    assert refused == (judge_ptxas("/x/ptxas", BANNER.format(release), generation).status == "warning")
    assert refused == (generation == "sm_90" and release.startswith("12."))


def test_the_words_and_the_cure(fault) -> None:
    words = fault("12.8", "sm_90")
    assert words.startswith("ptxas 12.8 (/x/ptxas) makes wrong gradients without any message")
    assert words.endswith(
        "for torch.bfloat16 on sm_90; set TRITON_PTXAS_PATH to the ptxas of a CUDA toolkit 13.0 or newer before Triton is imported"
    )


def test_float32_and_other_machines_are_not_affected(fault) -> None:
    assert fault("12.8", "sm_90", torch.float32) == ""
    assert fault("12.8", "gfx942") == ""


def test_the_version_is_looked_up_once(fault, monkeypatch: pytest.MonkeyPatch) -> None:
    assert fault("12.8", "sm_90")
    monkeypatch.setattr(triton, "knobs", None)
    assert module._compiler_fault(torch.device("cpu"), torch.bfloat16)


def test_the_backward_refuses_before_it_launches(fault, monkeypatch: pytest.MonkeyPatch) -> None:
    fault("12.8", "sm_90")
    monkeypatch.setattr(module, "_launch", lambda *_: pytest.fail("launched"))
    arguments = (*(torch.zeros(1, 16, 1, 16, dtype=torch.bfloat16) for _ in range(3)), torch.zeros(1, 16, 1))
    options = (1.0, *(False for _ in module._FLAGS))
    with pytest.raises(RuntimeError, match=r"^delta_rule: ptxas 12\.8 .* makes wrong gradients"):
        module._triton_chunk_backward(arguments, options, (None,), None, 64, torch.zeros(1, 1, 16, 16), (None,), (None,))


def test_releases() -> None:
    assert version_of(BANNER.format("13.0")) == (13, 0)
    assert version_of("hello") is None
    assert faults_of((12, 8), "") == COMPILER_FAULTS
    assert faults_of((13, 0), "") == ()
