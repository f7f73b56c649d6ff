"""The GPU that is tuned for."""

from __future__ import annotations

import torch

from recgen.tuning.search import Machine

_AMD_SHARED = 64 * 1024


def this_machine() -> Machine | None:
    """The current GPU, its compiler and the versions that matter; None without a GPU or without triton."""
    try:
        import triton
    except ModuleNotFoundError:
        return None
    if not torch.cuda.is_available():
        return None
    found = torch.cuda.get_device_properties(torch.cuda.current_device())
    versions = (("torch", torch.__version__), ("triton", triton.__version__))
    if torch.version.hip:
        generation = found.gcnArchName.partition(":")[0]
        return Machine(found.name, generation, f"ROCm {torch.version.hip}", _AMD_SHARED, found.warp_size, versions)
    tools = triton.knobs.nvidia
    tool = tools.ptxas_blackwell if found.major >= 10 else tools.ptxas
    shared = found.shared_memory_per_block_optin  # type: ignore[attr-defined]  # missing in torch's own stubs
    return Machine(found.name, f"sm_{found.major}{found.minor}", f"ptxas {tool.version}", shared, found.warp_size, versions)
