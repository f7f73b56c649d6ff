"""Prints programs and chunk steps as PyTorch."""

from __future__ import annotations

from dataclasses import dataclass

from recgen.codegen.bordered_printer import CALLS, bordered_text
from recgen.derive.chunk_ir import (
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
    Step,
    Substitution,
    Sum,
    Sym,
    Symmetric,
    Through,
    nodes,
)
from recgen.derive.program import Assign, Literal, Operand, Statement, Value

INDENT = "    "


# ------------------------------------------------------------------ programs


def program_lines(statements: tuple[Statement, ...], like: str, indent: str = "") -> tuple[str, ...]:
    """One line of Python for every statement, branches as if/else; `like` is a tensor that is always there."""
    lines: list[str] = []
    for s in statements:
        if isinstance(s, Assign):
            lines.append(f"{indent}{s.target.name} = {_number(s, like) or assignment(s)}")
            continue
        lines += [f"{indent}if {s.option}:", *program_lines(s.then, like, indent + INDENT)]
        lines += [f"{indent}else:", *program_lines(s.otherwise, like, indent + INDENT)]
    return tuple(lines)


def operand_text(operand: Operand) -> str:
    """A value's name, or a number; infinity by its Python name."""
    if isinstance(operand, Value):
        return operand.name
    return {"inf": "math.inf", "-inf": "-math.inf", "(-inf)": "-math.inf"}.get(operand.text, operand.text)


def _number(s: Assign, like: str) -> str | None:
    """A number that stands where another branch has a value of every token."""
    if s.op != "copy" or not isinstance(s.args[0], Literal):
        return None
    return f"{like}.new_full((*sizes.lead, sizes.heads), {operand_text(s.args[0])})"


def assignment(s: Assign) -> str:
    """The right-hand side of one statement."""
    names = [operand_text(a) for a in s.args]
    if s.op in _FORMULAS:
        return _FORMULAS[s.op].format(*names, axis=-2 if s.target.axis else -1)
    if s.op in ("min", "max"):
        return _extremum(s, names)
    if s.op.startswith("where"):
        return _where(s, names)
    raise AssertionError(f"no PyTorch form of {s.op}")


def _where(s: Assign, names: list[str]) -> str:
    """A choice by comparison; a choice between two numbers keeps the precision of what is compared."""
    left, right, then, otherwise = s.args
    if isinstance(left, Literal) and isinstance(right, Literal):
        like = names[2] if isinstance(then, Value) else names[3]
        chosen = [f"torch.full_like({like}, {x})" if isinstance(a, Literal) else x for a, x in zip(s.args[2:], names[2:], strict=True)]
        return f"{chosen[0]} if {names[0]} {s.op[5:]} {names[1]} else {chosen[1]}"
    if isinstance(then, Literal) and isinstance(otherwise, Literal):
        names[2] = f"torch.full_like({names[0] if isinstance(left, Value) else names[1]}, {names[2]})"
    return f"torch.where({names[0]} {s.op[5:]} {names[1]}, {names[2]}, {names[3]})"


def _extremum(s: Assign, names: list[str]) -> str:
    left, right = s.args
    if isinstance(left, Literal):
        names = names[::-1]
    if isinstance(left, Literal) or isinstance(right, Literal):
        return f"{names[0]}.clamp({'max' if s.op == 'min' else 'min'}={names[1]})"
    return f"torch.{'minimum' if s.op == 'min' else 'maximum'}({names[0]}, {names[1]})"


_FORMULAS = {
    **{
        op: f"torch.{op}({{0}})"
        for op in ("exp", "log", "log1p", "expm1", "sqrt", "rsqrt", "sigmoid", "relu", "tanh", "sin", "cos", "abs", "sign")
    },
    "logsigmoid": "F.logsigmoid({0})",
    "softplus": "_softplus({0})",
    "silu": "F.silu({0})",
    "neg": "-{0}",
    "add": "{0} + {1}",
    "sub": "{0} - {1}",
    "mul": "{0} * {1}",
    "div": "{0} / {1}",
    "pow": "{0} ** {1}",
    "sum": "{0}.sum(-1)",
    "dot": "({0} * {1}).sum(-1)",
    "spread": "{0}.unsqueeze(-1)",
    "tokens": "_per_token({0}, sizes)",
    "heads": "_per_value_head({0}, sizes.heads, {axis})",
    "sum_heads": "_per_key_head({0}, sizes.key_heads, {axis})",
    "sum_tokens": "_over_tokens({0}, sizes)",
    "copy": "{0}",
    "zeros": "_zeros_like({0})",
    "l2norm": "_l2norm({0})",
    "l2norm_grad": "_l2norm_gradient({0}, {1})",
    "rmsnorm": "_rmsnorm({0})",
    "rmsnorm_grad": "_rmsnorm_gradient({0}, {1})",
    "log_floor": "torch.log(_floored({0}).abs())",
    "sign_of": "torch.where({0} < 0, -1.0, 1.0).to({0}.dtype)",
    "floored": "_floored({0})",
}

HELPERS = {
    "softplus": "softplus",
    "l2norm": "l2norm",
    "l2norm_grad": "l2norm_gradient",
    "rmsnorm": "rmsnorm",
    "rmsnorm_grad": "rmsnorm_gradient",
    "log_floor": "floored",
    "floored": "floored",
    "heads": "per_value_head",
    "sum_heads": "per_key_head",
    "tokens": "per_token",
    "sum_tokens": "per_token",
    "zeros": "zeros_like",
}
"""Operations that call a helper of the module, and its name."""


def operations(statements: tuple[Statement, ...]) -> set[str]:
    """Every operation that the statements use."""
    found: set[str] = set()
    for s in statements:
        found |= {s.op} if isinstance(s, Assign) else operations(s.then) | operations(s.otherwise)
    return found


# --------------------------------------------------------------- chunk steps


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
            case DecayColumn(stretch):
                return self.name(_STRETCHES[stretch])
            case Hadamard(left, right):
                return self._times(left, self.text(right) if isinstance(left, MatMul) else self.factor(right))
            case Causal(matrix, strict):
                return f"{self.factor(matrix)}.tril{'' if isinstance(matrix, Sym) else '_'}({'-1' if strict else ''})"
            case Gamma() if self.stabilized:
                return "scaled.gamma"
            case Gamma(exclusive):
                return f"_gamma({self.name('before' if exclusive else 'cumulated')}, cumulated)"
            case Score(left, right, exclusive, strict):
                return f"_score({self.text(left)}, {self.text(right)}, {self._sums(node)}, diagonal={not strict})"
            case DecayedProduct(weights, right, exclusive, strict):
                return f"_decayed_product({self.text(weights)}, {self.text(right)}, {self._sums(node)}, diagonal={not strict})"
            case ScoreGradients(weights, left, right, exclusive, strict):
                arguments = f"{self.text(weights)}, {self.text(left)}, {self.text(right)}, {self._sums(node)}"
                return f"_score_gradients({arguments}, diagonal={not strict}, inclusive={not exclusive})"
            case Decayed(matrix):
                return self._times(matrix, self.name(_stretch(node)))
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
            case Beside(matrix, columns):
                first = self.text(matrix)
                beside = (f"torch.zeros_like({first}[..., :1])" if c is None else self.text(c) for c in columns)
                return f"torch.cat(({', '.join((first, *beside))}), -1)"
            case Part(matrix, column, count):
                return f"{self.factor(matrix)}[..., {column_slice(column, count)}]"
            case RowSum(matrix):
                return f"{self.factor(matrix)}.sum(-1, keepdim=True)"
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

    @staticmethod
    def _sums(node: Links) -> str:
        """The cumulated decays up to the rows and up to the columns."""
        side = "value_" * node.values
        return f"{side}before, {side}cumulated" if node.exclusive else f"{side}cumulated, {side}cumulated"

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


Links = Score | DecayedProduct | ScoreGradients
"""What a decay by channel scales link by link."""


def column_slice(column: int | None, count: int) -> str:
    """Where the values (None) or one of `count` further columns lie in the last axis."""
    if column is None:
        return f":-{count}"
    return f"{column - count}:{column - count + 1 or ''}"


_STRETCHES = {"start": "from_start", "before": "from_start_before", "end": "to_end"}


VALUE_STRETCHES = frozenset(f"value_{name}" for name in (*_STRETCHES.values(), "through"))


def _stretch(node: Decayed | DecayColumn) -> str:
    return "value_" * (isinstance(node, Decayed) and node.values) + _STRETCHES[node.stretch]


def through_name(node: Through) -> str:
    """The decay of a side over the whole chunk."""
    return "value_" * node.values + "through"


def stretches(steps: tuple[Step, ...]) -> set[str]:
    """Which cumulated decays the steps use: names of `_STRETCHES`, "through", "before"; those of the value side with "value_" before."""
    found: set[str] = set()
    for step in steps:
        for node in nodes(step.value):
            if isinstance(node, Decayed | DecayColumn):
                found.add(_stretch(node))
            elif isinstance(node, Through | GateGradient):
                found.add("value_" * node.values + "through")
            elif isinstance(node, Gamma | Links) and node.exclusive:
                found.add("value_" * (not isinstance(node, Gamma) and node.values) + "before")
            elif isinstance(node, Substitution) and node.decays and node.exclusive:
                found.add("value_before")
    return found
