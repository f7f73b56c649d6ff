"""What this machine offers: versions, GPUs, the assembler that Triton would call, and compilers known to be wrong."""

from __future__ import annotations

import importlib.metadata
import platform
import re
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, Literal

from recgen.compilers import COMPILER_FAULTS, faults_of, version_of

Status = Literal["ok", "warning", "failure"]


@dataclass(frozen=True)
class Check:
    """One line of the report: what was looked at, what was found, and what to do about it if anything."""

    name: str
    status: Status
    found: str
    advice: str = ""


def examine() -> Iterator[Check]:
    """Every check, one at a time, as each takes a moment."""
    yield Check("python", "ok", f"{platform.python_version()} on {platform.system()} {platform.machine()}")
    yield from (_guarded(name, check) for name, check in _CHECKS)
    yield from _gpus()
    yield _guarded("self-test", _self_test)


def _guarded(name: str, check: Callable[[], Check]) -> Check:
    """The check's result; a check that breaks is a finding, not the end of the report."""
    try:
        return check()
    except Exception as error:
        return Check(name, "failure", f"{type(error).__name__}: {error}", f"`{name}` could not be examined; the message says why.")


def _version(package: str) -> str | None:
    """The installed version of a package, without importing it."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _torch() -> Check:
    import torch

    build = f"CUDA {torch.version.cuda}" if torch.version.cuda else f"ROCm {torch.version.hip}" if torch.version.hip else "CPU build"
    return Check("torch", "ok", f"{torch.__version__} ({build})")


def _triton() -> Check:
    version = _version("triton")
    if version is None:
        return Check("triton", "warning", "not installed", "Only the PyTorch forms can run. For GPU kernels: pip install 'recgen[triton]'.")
    if _numbers(version) < (3, 6):
        return Check("triton", "warning", version, "The kernels are written for Triton 3.6 or newer: pip install -U 'triton>=3.6'.")
    return Check("triton", "ok", version)


def _interpreter() -> Check:
    numpy, triton = _version("numpy"), _version("triton")
    found = f"numpy {numpy or 'not installed'}"
    if triton is not None and _numbers(triton) < (3, 7) and numpy is not None and _numbers(numpy) >= (2, 4):
        advice = f"The interpreter of Triton {triton} (TRITON_INTERPRET=1) needs numpy < 2.4; compiled kernels do not care."
        return Check("interpreter", "warning", found, advice)
    return Check("interpreter", "ok", found)


def _ptxas() -> Check:
    """The assembler that Triton would call for this GPU; it keeps a second one for Blackwell."""
    if _version("triton") is None:
        return Check("ptxas", "ok", "not needed without Triton")
    import torch
    import triton.knobs

    capability = torch.cuda.get_device_capability() if torch.cuda.is_available() and not torch.version.hip else None
    blackwell = capability is not None and capability >= (10, 0)
    tool = triton.knobs.nvidia.ptxas_blackwell if blackwell else triton.knobs.nvidia.ptxas
    generation = "" if capability is None else "sm_{}{}".format(*capability)
    return judge_ptxas(tool.path, subprocess.run([tool.path, "--version"], capture_output=True, text=True, check=True).stdout, generation)


def judge_ptxas(path: str, banner: str, generation: str = "") -> Check:
    """What the assembler's own banner says about it, for a GPU such as "sm_90", for any where that is ""."""
    version = version_of(banner)
    if version is None:
        cures = "; ".join(dict.fromkeys(fault.cure for fault in COMPILER_FAULTS))
        return Check("ptxas", "warning", f"{path}, of unknown version", f"If in doubt, {cures}.")
    match = re.search(r"V([\d.]+)", banner)
    assert match is not None
    found = f"{match[1]} ({path})"
    faults = faults_of(version, generation)
    if not faults:
        return Check("ptxas", "ok", found)
    advice = [f"For {f.generation} it {f.effect} ({f.kernels}{' in half precision' if f.half else ''}): {f.cure}." for f in faults]
    return Check("ptxas", "warning", found, " ".join(advice))


def _gpus() -> Iterator[Check]:
    """One line a GPU."""
    import torch

    if not torch.cuda.is_available():
        yield Check("gpu", "ok", "none; the PyTorch forms run on the CPU")
    for index in range(torch.cuda.device_count()):
        gpu = torch.cuda.get_device_properties(index)
        yield Check(f"gpu {index}", "ok", f"{gpu.name}, capability {gpu.major}.{gpu.minor}, {gpu.total_memory / 2**30:.0f} GiB")


def _self_test() -> Check:
    """Compile a small recurrence and compare its forms in float64."""
    from recgen.selftest import LIMIT, discrepancy

    worst = discrepancy()
    found = f"chunkwise against step by step in float64: relative RMS error {worst:.1e} (limit {LIMIT:.0e})"
    advice = "A compiled recurrence gives wrong results here. Please report this with the whole output of `recgen doctor --format json`."
    return Check("self-test", "ok", found) if worst <= LIMIT else Check("self-test", "failure", found, advice)


def _numbers(version: str) -> tuple[int, ...]:
    """The leading numbers of a version, to compare."""
    return tuple(int(part) for part in re.findall(r"\d+", version.split("+")[0])[:3])


_CHECKS: Final[tuple[tuple[str, Callable[[], Check]], ...]] = (
    ("torch", _torch),
    ("triton", _triton),
    ("interpreter", _interpreter),
    ("ptxas", _ptxas),
)
