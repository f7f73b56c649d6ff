"""The cumulated decays of a chunk, of either side, as lines of PyTorch."""

from __future__ import annotations

from recgen.codegen.decay_names import Links, stretches
from recgen.derive.bordered_nodes import Bordered, Kept
from recgen.derive.chunk_ir import ChunkForm, Step, nodes
from recgen.derive.chunk_nodes import Gamma


def decay_lines(chunk: ChunkForm, steps: tuple[Step, ...], signed: bool) -> tuple[str, ...]:
    """The cumulated decays that the steps use."""
    used = stretches(steps)
    if chunk.states > 1:
        return _bordered_lines(steps, signed)
    if chunk.stabilized:
        names = sorted(used)
        return ("scaled = _scaled(log_decay, log_weight, scales)", *(f"{name} = scaled.{name}" for name in names))
    every = [n for s in steps for n in nodes(s.value)]
    of_values = {name.removeprefix("value_") for name in used if name.startswith("value_")}
    of_keys = {name for name in used if not name.startswith("value_")}
    lines: list[str] = []
    if of_keys or any(isinstance(n, Gamma) or (isinstance(n, Links) and not n.values) for n in every):
        lines += _side_lines(of_keys, "", _sign_argument("sign", "log_decay", chunk) * signed)
    if of_values or any(isinstance(n, Links) and n.values for n in every):
        lines += _side_lines(of_values, "value_", _sign_argument("value_sign", "value_log_decay", chunk) * signed)
    return tuple(lines)


def _sign_argument(name: str, log_decay: str, chunk: ChunkForm) -> str:
    """The signs of a side, of which only the other may have some."""
    known = any(o.name == name for o in chunk.operands)
    return f", {name if known else f'torch.ones_like({log_decay})'}"


def _side_lines(used: set[str], side: str, sign: str) -> list[str]:
    """The cumulated decays of the key side (no prefix) or of the value side."""
    sums = f"{side}cumulated"
    lines = [f"{sums} = _cumulate({side}log_decay{sign})"]
    if "before" in used or "from_start_before" in used:
        lines.append(f"{side}before = _exclude({sums})")
    if used & {"from_start", "through"}:
        lines.append(f"{side}from_start = _decay_between({sums}, _at_start({sums}))")
    if "from_start_before" in used:
        lines.append(f"{side}from_start_before = _decay_between({side}before, _at_start({sums}))")
    if "to_end" in used:
        lines.append(f"{side}to_end = _decay_between(_at({sums}, slice(-1, None)), {sums})")
    if "through" in used:
        lines.append(f"{side}through = {side}from_start[..., -1:, :]{'' if side else '.mT'}")
    return lines


def _bordered_lines(steps: tuple[Step, ...], signed: bool) -> tuple[str, ...]:
    """The cumulated decays of coupled states, from the chunk's start; and how many tokens a chunk has."""
    found = [n for s in steps for n in nodes(s.value)]
    at_borders = any(isinstance(n, Bordered) and (n.rows == "end" or n.columns == "start") for n in found)
    lines = ["tokens = write.shape[-2]"] * at_borders
    for tag in dict.fromkeys(n.tag for n in found if isinstance(n, Kept) and n.kind == "scalar"):
        sign = f", F.pad(sign{tag}, (0, 0, 1, 0), value=1.0)" if signed else ""
        lines.append(f"cumulated{tag} = _cumulate(F.pad(log_decay{tag}, (0, 0, 1, 0)){sign})")
    return tuple(lines)
