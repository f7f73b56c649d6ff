"""The steps of a chunk form for its kernels: by name, with the axes of what they define."""

from __future__ import annotations

from dataclasses import dataclass, field

from recgen.derive.bordered_nodes import Block, ColumnSum, Crossing, Cut, Empty, Joined
from recgen.derive.chunk_ir import ChunkForm, Step
from recgen.derive.chunk_nodes import (
    Causal,
    Decayed,
    DecayedProduct,
    Gamma,
    GateGradient,
    Hadamard,
    Inverse,
    MatMul,
    Node,
    RowSum,
    Scaled,
    ScaledColumns,
    Score,
    ScoreGradients,
    Solved,
    Sum,
    Sym,
    Symmetric,
    Through,
)


@dataclass
class PhaseSteps:
    """All steps of a chunk form by name, and the sizes of its operands.

    `shapes`: the axes of what names stand for, a letter each; "" for links and what else is no tile. `prepared`: names that the first
    phase defines. `decay`: the kind of the (key side's) decay.
    """

    steps: dict[str, Step]
    sizes: dict[str, str]
    prepared: frozenset[str]
    decay: str
    bounded: bool
    signs: frozenset[str]
    shapes: dict[str, str] = field(default_factory=dict)

    def over_values(self, name: str) -> bool:
        """Whether what a name stands for is different for every block of values."""
        return "V" in self.named(name)

    def named(self, name: str) -> str:
        """The axes of what a name stands for."""
        if name not in self.shapes:
            size = self.sizes.get(name)
            self.shapes[name] = self._of_step(name) if size is None else "C" if size == "1" else f"C{size}"
        return self.shapes[name]

    def _of_step(self, name: str) -> str:
        step = self.steps.get(name)
        if step is None:
            return ""
        if isinstance(step.value, ScoreGradients):
            return self.shape(step.value.right if name == step.names[1] else step.value.left)
        return self.shape(step.value)

    def shape(self, node: Node) -> str:
        """The axes of a node."""
        match node:
            case Sym(name):
                return self.named(name)
            case MatMul(left, right, turn_left, turn_right):
                rows, columns = self.shape(left), self.shape(right)
                return rows[-1 if turn_left else 0] + columns[0 if turn_right else -1] if rows and columns else ""
            case Sum(terms):
                return max((self.shape(t) for t in terms), key=len)
            case Scaled(_, x) | Hadamard(_, x) | DecayedProduct(_, x) | Solved(_, x) | Decayed(x) | Through(x) | Block(x):
                return self.shape(x)
            case Joined(parts):
                return next(self.shape(p) for p in parts if p is not None)
            case Causal() | Gamma() | Score() | Inverse() | Symmetric() | ScaledColumns() | Empty():
                return "CC"
            case Cut(_, rows, columns):
                return {"tokens": "C" if rows == "end" else "CC", "start": "" if rows == "end" else "C"}.get(columns, "")
            case RowSum() | ColumnSum() | Crossing():
                return "C"
            case GateGradient():
                return "CV" if node.values else "C" if self.decay == "scalar" else "CK"
        return ""


def phase_steps(chunk: ChunkForm, sizes: dict[str, str], signs: frozenset[str], across: frozenset[str], *, bounded: bool) -> PhaseSteps:
    """The steps of a chunk form; `across`: its reads over the keys.

    What corrections resolve is taken from the adjoint, which solves with the right-hand side as it is.
    """
    phases = (chunk.prepare, chunk.finish, chunk.adjoint_prepare, chunk.adjoint_scan, chunk.adjoint_finish)
    steps = {name: step for phase in phases for step in phase for name in step.names if name not in ("S", "dS")}
    prepared = frozenset(name for step in chunk.prepare for name in step.names)
    reads = {f"d_{name}": "CK" if name in across else "CV" for name in chunk.reads}
    return PhaseSteps(steps, sizes, prepared, chunk.decay, bounded, signs, {"S": "KV", "dS": "KV"} | reads)
