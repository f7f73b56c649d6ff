"""The helper functions that the PyTorch chunk form calls."""

from __future__ import annotations

from dataclasses import dataclass
from types import UnionType

from recgen.codegen.decay_names import Links, stretches
from recgen.codegen.torch_printer import Line
from recgen.derive.bordered_nodes import Crossing, Kept
from recgen.derive.chunk_ir import ChunkForm, nodes
from recgen.derive.chunk_nodes import DecayedProduct, Gamma, GateGradient, Inverse, Node, Score, ScoreGradients, Substitution


@dataclass(frozen=True)
class ChunkHelpers:
    """Which helpers and parts of helpers a module has."""

    decays: bool
    spans: bool
    all_kept: bool
    exclusive: bool
    gamma: bool
    inverse: bool
    block_inverse: bool
    adds_products: bool
    substitution: bool
    blocks: bool
    anchored: bool
    score: bool
    decayed_product: bool
    score_gradients: bool
    sum_after: bool
    crossing: bool
    earlier_rows: bool


def chunk_helpers(chunk: ChunkForm, printed: tuple[Line, ...]) -> ChunkHelpers:
    """The helpers for the steps of a chunk form, of which `printed` are the lines."""
    steps = (*chunk.prepare, *chunk.scan, *chunk.finish, *chunk.adjoint_prepare, *chunk.adjoint_scan, *chunk.adjoint_finish)
    found = [n for s in steps for n in nodes(s.value)]

    def has(kind: type | UnionType) -> bool:
        return any(isinstance(n, kind) for n in found)

    spans = chunk.decay in ("scalar", "vector") or chunk.value_decay != "none"
    kept = {n.kind for n in found if isinstance(n, Kept)}
    gates = [n for n in found if isinstance(n, GateGradient)]
    return ChunkHelpers(
        decays=spans or "scalar" in kept,
        spans=spans,
        all_kept="none" in kept,
        exclusive=_exclusive(found) or not stretches(steps).isdisjoint(("from_start_before", "value_from_start_before")),
        gamma=not chunk.stabilized and (has(Gamma) or "scalar" in kept),
        inverse=has(Inverse),
        block_inverse=any(isinstance(n, Inverse) and len(n.blocks) > 1 for n in found),
        adds_products=any("_add_product(" in line.code for line in printed),
        substitution=has(Substitution),
        blocks=has(Links | Substitution),
        anchored=has(Links),
        score=has(Score),
        decayed_product=has(DecayedProduct),
        score_gradients=has(ScoreGradients),
        sum_after=has(ScoreGradients) or any(n.before for n in gates),
        crossing=has(Crossing) or any(n.links or n.links_before for n in gates),
        earlier_rows=any(n.links_before for n in gates),
    )


def _exclusive(found: list[Node]) -> bool:
    """Whether some links end before their token."""
    return any((isinstance(n, Gamma | Links) or (isinstance(n, Substitution) and n.decays)) and n.exclusive for n in found)
