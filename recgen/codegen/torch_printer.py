"""Prints chunk steps as PyTorch."""

from __future__ import annotations

from dataclasses import dataclass

from recgen.codegen.bordered_printer import CALLS, bordered_text
from recgen.codegen.decay_names import link_sums, stretch_name, through_name
from recgen.derive.chunk_ir import Step
from recgen.derive.chunk_nodes import (
    Beside,
    Causal,
    DecayColumn,
    Decayed,
    DecayedProduct,
    Gamma,
    GateGradient,
    Hadamard,
    Inverse,
    MatMul,
    Negative,
    Node,
    Part,
    RowSum,
    Scaled,
    ScaledColumns,
    Score,
    ScoreGradients,
    Solved,
    Substitution,
    Sum,
    Sym,
    Symmetric,
    Through,
)

WIDTH = 130
"""Columns of a statement."""


@dataclass(frozen=True)
class Line:
    """One printed step: the formula it implements, as a comment, and its code."""

    comment: str
    code: str


class ChunkPrinter:
    """Prints chunk steps; in a scan, every stacked name is indexed by the chunk."""

    def __init__(self, decay: str, stacked: frozenset[str] = frozenset(), index: str = "", stabilized: bool = False) -> None:
        self.decay = decay
        self.stabilized = stabilized
        self.stacked = stacked
        self.index = index

    def line(self, step: Step, target: str = "") -> Line:
        """The step as code, assigned to its own names or to `target`; a long sum of products one statement each."""
        code = f"{target or step.name} = {self.text(step.value)}"
        if len(code) > WIDTH and isinstance(step.value, Sum) and any(isinstance(t, MatMul) for t in step.value.terms):
            code = "\n    ".join(self._statements(target or step.name, step.value))
        return Line(f"{step.symbol}: {step.meaning}", code)

    def _statements(self, target: str, value: Sum) -> list[str]:
        """A sum whose products are added one after the other."""
        products = [t for t in value.terms if isinstance(t, MatMul)]
        rest = [t for t in value.terms if not isinstance(t, MatMul)]
        lines = [f"{target} = {self._sum((*rest, products[0]))}"]
        if len(lines[0]) > WIDTH and len(rest) > 1:
            lines = [f"{target} = {self._sum((*rest,))}", f"{target} = {self.accumulated(target, Sum((Sym(target), products[0])))}"]
        return lines + [f"{target} = {self.accumulated(target, Sum((Sym(target), p)))}" for p in products[1:]]

    def name(self, name: str) -> str:
        """A name, indexed where it is stacked."""
        return f"{name}[{self.index}]" if name in self.stacked else name

    def text(self, node: Node) -> str:
        """The node as an expression."""
        match node:
            case Sym(name):
                return self.name(name)
            case MatMul(left, right, turn_left, turn_right):
                return f"{self.factor(left, turn_left)} @ {self.factor(right, turn_right)}"
            case Sum(terms):
                return self._sum(terms)
            case Negative(matrix):
                return f"-{self.factor(matrix)}"
            case Symmetric(matrix):
                return f"{self.factor(matrix)} + {self.factor(matrix, turned=True)}"
            case Scaled(column, matrix):
                return f"{self.factor(column)} * {self.factor(matrix)}"
            case ScaledColumns(matrix, column):
                return f"{self.factor(matrix)} * {self.factor(column, turned=True)}"
            case Hadamard(left, right):
                return self._times(left, self.text(right) if isinstance(left, MatMul) else self.factor(right))
            case Beside(matrix, columns):
                first = self.text(matrix)
                beside = (f"torch.zeros_like({first}[..., :1])" if c is None else self.text(c) for c in columns)
                return f"torch.cat(({', '.join((first, *beside))}), -1)"
            case Part(matrix, column, count):
                return f"{self.factor(matrix)}[..., {column_slice(column, count)}]"
            case RowSum(matrix):
                return f"{self.factor(matrix)}.sum(-1, keepdim=True)"
            case _:
                return self._of_tokens(node)

    def _of_tokens(self, node: Node) -> str:
        """A node that goes by the order of tokens: links, decays, solves, and what only coupled states have."""
        match node:
            case DecayColumn():
                return self.name(stretch_name(node))
            case Causal(matrix, strict):
                return f"{self.factor(matrix)}.tril{'' if isinstance(matrix, Sym) else '_'}({'-1' if strict else ''})"
            case Gamma() if self.stabilized:
                return "scaled.gamma"
            case Gamma(exclusive):
                return f"_gamma({self.name('before' if exclusive else 'cumulated')}, cumulated)"
            case Score(left, right, exclusive, strict):
                return f"_score({self.text(left)}, {self.text(right)}, {link_sums(node)}, diagonal={not strict})"
            case DecayedProduct(weights, right, exclusive, strict):
                return f"_decayed_product({self.text(weights)}, {self.text(right)}, {link_sums(node)}, diagonal={not strict})"
            case ScoreGradients(weights, left, right, exclusive, strict):
                arguments = f"{self.text(weights)}, {self.text(left)}, {self.text(right)}, {link_sums(node)}"
                return f"_score_gradients({arguments}, diagonal={not strict}, inclusive={not exclusive})"
            case Decayed(matrix):
                return self._times(matrix, self.name(stretch_name(node)))
            case Through(matrix):
                return f"{self.factor(matrix)} * {self.name(through_name(node))}"
            case Inverse(blocks):
                return self._inverse(blocks)
            case Substitution(matrix, strength, exclusive, decays):
                sums = f", {'value_before' if exclusive else 'value_cumulated'}, value_cumulated" * decays
                return f"_substitution({self.text(matrix)}, {'None' if strength is None else self.text(strength)}{sums})"
            case Solved(substitution, right, turned):
                assert isinstance(substitution, Sym)
                name = substitution.name
                solver = f"_of_chunk({name}, {self.index})" if name in self.stacked else name
                return f"_solved{'_transposed' * turned}({solver}, {self.text(right)})"
            case GateGradient():
                return self._gate(node)
            case _:
                return bordered_text(node, self)

    def factor(self, node: Node, turned: bool = False) -> str:
        """The node as a factor: in brackets unless it is a name or a call."""
        text = self.text(node)
        if not isinstance(node, Sym | Score | Causal | RowSum | DecayColumn | CALLS):
            text = f"({text})"
        return f"{text}.mT" if turned else text

    def accumulated(self, target: str, value: Node) -> str:
        """The sum `value` with its first term already held by `target`: the rest is added there."""
        assert isinstance(value, Sum)
        for term in value.terms[1:]:
            assert isinstance(term, MatMul)
            target = f"_accumulate({target}, {self.factor(term.left, term.turn_left)}, {self.factor(term.right, term.turn_right)})"
        return target

    def _times(self, left: Node, right: str) -> str:
        """left * right; a product of matrices is scaled in its own memory."""
        if isinstance(left, MatMul):
            return f"{self.factor(left)}.mul_({right})"
        return f"{self.factor(left)} * {right}"

    def _sum(self, terms: tuple[Node, ...]) -> str:
        """A sum of products is accumulated in the memory of its first term, where that is nobody else's."""
        products = [t for t in terms if isinstance(t, MatMul)]
        rest = [t for t in terms if not isinstance(t, MatMul)]
        if not products:
            return " + ".join(self.text(t) for t in rest)
        total = " + ".join(self.text(t) for t in rest) if rest else self.text(products.pop(0))
        own = not rest or len(rest) > 1 or not isinstance(rest[0], Sym)
        for p in products:
            factors = f"{self.factor(p.left, p.turn_left)}, {self.factor(p.right, p.turn_right)}"
            total = f"{'_accumulate' if own else '_add_product'}({total}, {factors})"
            own = True
        return total

    def _inverse(self, blocks: tuple[tuple[Node, ...], ...]) -> str:
        if len(blocks) == 1:
            return f"_unit_inverse({self.text(blocks[0][0])})"
        rows = ", ".join("(" + ", ".join(self.text(b) for b in row) + ")" for row in blocks)
        return f"_block_inverse(({rows}))"

    def _gate(self, node: GateGradient) -> str:
        def total(parts: tuple[Node, ...]) -> str:
            return " + ".join(self.text(p) for p in parts)

        scalar = self.decay == "scalar" and not node.values
        keys = (lambda text: f"({text}).sum(-1, keepdim=True)") if scalar else (lambda text: text)
        parts = []
        if node.links:
            parts.append(f"_crossing({total(node.links)})")
        if node.links_before:
            parts.append(f"_crossing(_earlier_rows({total(node.links_before)}))")
        if node.between:
            parts.append(total(node.between))
        if node.start:
            parts.append(f"_sum_from({keys(total(node.start))})")
        if node.before:
            parts.append(f"_sum_after({keys(total(node.before))})")
        parts.append(f"_sum_before({keys(total(node.end))})")
        left, right = (self.text(x) for x in (node.state, node.gradient))
        entries = ".sum((-2, -1), keepdim=True)" if scalar else f".sum({-2 if node.values else -1})[..., None, :]"
        parts.append(f"({left} * {right}){entries} * {'value_' * node.values}from_start[..., -1:, :]")
        if len(parts) == 1:
            return parts[0]
        return "(\n        " + "\n        + ".join(parts) + "\n    )"


def column_slice(column: int | None, count: int) -> str:
    """Where the values (None) or one of `count` further columns lie in the last axis."""
    if column is None:
        return f":-{count}"
    return f"{column - count}:{column - count + 1 or ''}"
