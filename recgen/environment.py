"""What this machine offers: versions, GPUs, the assembler that Triton would call, and compilers known to be wrong."""

from __future__ import annotations

import importlib.metadata
import platform
import re
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, Literal

Status = Literal["ok", "warning", "failure"]

FAULTY_PTXAS: Final = (12, 8)
"""The release of ptxas that miscompiles some Hopper kernels, silently or with an illegal memory access; it comes with Triton 3.6.0."""

PTXAS_ADVICE: Final = (
    "This release miscompiles some kernels for Hopper: results are wrong without any message, or the kernel stops with an illegal memory "
    "access. Install a CUDA toolkit 13.0 or newer and set TRITON_PTXAS_PATH to its bin/ptxas; then run `recgen doctor` again."
)


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

    blackwell = torch.cuda.is_available() and torch.cuda.get_device_capability() >= (10, 0)
    tool = triton.knobs.nvidia.ptxas_blackwell if blackwell else triton.knobs.nvidia.ptxas
    return judge_ptxas(tool.path, subprocess.run([tool.path, "--version"], capture_output=True, text=True, check=True).stdout)


def judge_ptxas(path: str, banner: str) -> Check:
    """What the assembler's own banner says about it."""
    match = re.search(r"V(\d+)\.(\d+)\.(\d+)", banner)
    if match is None:
        return Check(
            "ptxas", "warning", f"{path}, of unknown version", "Set TRITON_PTXAS_PATH to the ptxas of a CUDA toolkit 13.0 or newer."
        )
    found = f"{match[0][1:]} ({path})"
    if (int(match[1]), int(match[2])) == FAULTY_PTXAS:
        return Check("ptxas", "warning", found, PTXAS_ADVICE)
    return Check("ptxas", "ok", found)


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
