"""Assemblers that were seen to make wrong kernels: one table for the emitted modules and for `recgen doctor`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

Version = tuple[int, int]


@dataclass(frozen=True)
class CompilerFault:
    """Releases of ptxas that make wrong kernels for a GPU.

    `generation`: of the GPU; `since`, `before`: the first release that is refused and the first that was right again; `kernels` and `half`:
    which kernels, and whether only with half-precision inputs; `effect`: what they do, in words.
    """

    generation: str
    since: Version
    before: Version
    kernels: str
    half: bool
    effect: str

    def covers(self, version: Version) -> bool:
        """Whether a release is one of these."""
        return self.since <= version < self.before

    @property
    def cure(self) -> str:
        """What to do about it."""
        release = ".".join(map(str, self.before))
        return f"set TRITON_PTXAS_PATH to the ptxas of a CUDA toolkit {release} or newer before Triton is imported"


COMPILER_FAULTS: Final = (
    CompilerFault(
        "sm_90", (0, 0), (13, 0), "the chunkwise backward", True,
        "makes wrong gradients without any message, or a kernel that stops with an illegal memory access",
    ),
)  # fmt: skip
"""ptxas 12.8, which comes with Triton 3.6.0, miscompiles products of transposed tiles in half precision for Hopper; 13.0 was right in every
configuration that was compared with the float64 form (benchmarks/h200.md). Releases between the two, and older ones, were not tried."""


def version_of(banner: str) -> Version | None:
    """The release that ptxas names in what it prints for `--version`."""
    match = re.search(r"\bV(\d+)\.(\d+)\.", banner)
    return (int(match[1]), int(match[2])) if match else None


def faults_of(version: Version, generation: str) -> tuple[CompilerFault, ...]:
    """The faults of a release for a GPU's generation, for any GPU where that is ""."""
    return tuple(f for f in COMPILER_FAULTS if f.covers(version) and generation in ("", f.generation))
