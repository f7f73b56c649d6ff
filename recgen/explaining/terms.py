"""Terms as formulas: in the language's own words, and as LaTeX.

The text of a term reads back as the same term (but `a + -b` is written `a - b`); brackets stand only where the precedence of the
language needs them.
"""

from __future__ import annotations

from recgen.explaining.styles import LATEX, TEXT, Formula, Style, escaped
from recgen.lang.recurrence import Recurrence
from recgen.lang.terms import SCALAR, Apply, Argument, AxisSize, Constant, Eye, OptionValue, Read, State, Term, reads_state

CHOICE, SUM, PRODUCT, NEGATION, POWER, ATOM = range(6)
_SYMBOLS = {"add": " + ", "sub": " - ", "mul": " * ", "div": " / ", "matmul": " @ "}
_LEVELS = {"add": SUM, "sub": SUM, "mul": PRODUCT, "div": PRODUCT, "matmul": PRODUCT}


class TermPrinter:
    """Prints terms of one recurrence; what a definition stands for is printed as its name."""

    def __init__(self, recurrence: Recurrence, reads: int = 1) -> None:
        self.names = {d.value: d.name for d in reversed(recurrence.definitions) if not reads_state(d.value) and isinstance(d.value, Apply)}
        self.reads = reads
        self.scales = {s.name for s in recurrence.scales}

    def formula(self, term: Term, whole: bool = False) -> Formula:
        """The term in both notations; `whole`: the outermost term in full even if it has a name."""
        return Formula(self._text(term, whole)[0], self._latex(term, whole)[0])

    def _read(self, index: int, state: str, style: Style) -> str:
        """What an output calls what it reads: a vector of the matrix, a number of a vector state, or the running maximum."""
        if state in self.scales:
            return style.symbol(state, sub="t")
        return style.symbol("r", state, str(index + 1) if self.reads > 1 else "")

    # ---------------------------------------------------------------- text

    def text(self, term: Term, level: int = CHOICE) -> str:
        """The term in the language's notation, in brackets where it binds more loosely than `level`."""
        piece, own = self._text(term)
        return f"({piece})" if own < level else piece

    def _text(self, term: Term, whole: bool = False) -> tuple[str, int]:
        if term in self.names and not whole:
            return self.names[term], ATOM
        match term:
            case Constant(value):
                return f"{value:g}" if float(f"{value:g}") == value else repr(value), ATOM if value >= 0 else NEGATION
            case AxisSize(name) | Argument(name) | OptionValue(name):
                return name, ATOM
            case State(name, lag, micro=micro):
                return f"{name}[t{'-1' if lag else '' if micro is None else f', {micro}'}]", ATOM
            case Eye():
                return "I", ATOM
            case Read(index, _, state):
                return self._read(index, state, TEXT), ATOM
            case Apply():
                return self._text_of(term)

    def _text_of(self, term: Apply) -> tuple[str, int]:
        op, args = term.op, term.args
        if op in _SYMBOLS:
            level = _LEVELS[op]
            if op == "add" and (right := self.text(args[1], level + 1)).startswith("-"):
                return f"{self.text(args[0], level)} - {right[1:]}", level
            # Operators of one level are read from the left: the right operand needs brackets at the same level.
            return f"{self.text(args[0], level)}{_SYMBOLS[op]}{self.text(args[1], level + 1)}", level
        if op == "neg":
            return f"-{self.text(args[0], NEGATION)}", NEGATION
        if op == "pow":
            return f"{self.text(args[0], ATOM)}^{self.text(args[1], NEGATION)}", POWER
        if op == "transpose":
            return f"{self.text(args[0], ATOM)}^T", POWER
        if op == "select":
            return f"{self.text(args[0], SUM)} if {term.option} else {self.text(args[1])}", CHOICE
        if op.startswith("where"):
            return f"where({self.text(args[0])} {op[5:]} {self.text(args[1])}, {self.text(args[2])}, {self.text(args[3])})", ATOM
        name = {"log_floor": "log"}.get(op, op)
        return f"{name}({', '.join(self.text(a) for a in args)})", ATOM

    # ---------------------------------------------------------------- LaTeX

    def latex(self, term: Term, level: int = CHOICE) -> str:
        """The term as LaTeX, in brackets where it binds more loosely than `level`."""
        piece, own = self._latex(term)
        return LATEX.brackets(piece) if own < level else piece

    def _latex(self, term: Term, whole: bool = False) -> tuple[str, int]:
        if term in self.names and not whole:
            return LATEX.symbol(self.names[term]), ATOM
        match term:
            case Constant(value):
                return r"\infty" if value == float("inf") else f"{value:g}", ATOM if value >= 0 else NEGATION
            case AxisSize(name) | Argument(name) | OptionValue(name):
                return LATEX.symbol(name), ATOM
            case State(name, lag, micro=micro):
                return LATEX.symbol(name, sub="t-1" if lag else "t" if micro is None else f"t,{micro}"), ATOM
            case Eye():
                return "I", ATOM
            case Read(index, _, state):
                return self._read(index, state, LATEX), ATOM
            case Apply():
                return self._latex_of(term)

    def _latex_of(self, term: Apply) -> tuple[str, int]:
        op, args = term.op, term.args
        if op in ("add", "sub"):
            right = self.latex(args[1], PRODUCT)
            if op == "add" and right.startswith("-"):
                return f"{self.latex(args[0], SUM)} - {right[1:]}", SUM
            return f"{self.latex(args[0], SUM)} {'+' if op == 'add' else '-'} {right}", SUM
        if op in ("mul", "matmul"):
            elementwise = op == "mul" and SCALAR not in (args[0].shape, args[1].shape)
            sign = r" \odot " if elementwise else r" \, "
            return f"{self.latex(args[0], PRODUCT)}{sign}{self.latex(args[1], NEGATION)}", PRODUCT
        if op == "div":
            return rf"\frac{{{self.latex(args[0])}}}{{{self.latex(args[1])}}}", ATOM
        if op == "neg":
            return f"-{self.latex(args[0], NEGATION)}", NEGATION
        if op == "pow":
            return f"{self.latex(args[0], ATOM)}^{{{self.latex(args[1])}}}", POWER
        if op == "transpose":
            return LATEX.transposed(self.latex(args[0], ATOM)), POWER
        return self._latex_call(term), ATOM

    def _latex_call(self, term: Apply) -> str:
        op, pieces = term.op, [self.latex(a) for a in term.args]
        if op == "select":
            condition = rf"\texttt{{{escaped(term.option)}}}"
            return rf"\begin{{cases}} {pieces[0]} & \text{{if {condition}}} \\ {pieces[1]} & \text{{otherwise}} \end{{cases}}"
        if op.startswith("where"):
            sign = r"\le" if op.endswith("=") else "<"
            return rf"\begin{{cases}} {pieces[2]} & {pieces[0]} {sign} {pieces[1]} \\ {pieces[3]} & \text{{otherwise}} \end{{cases}}"
        if op in ("exp", "log", "log_floor", "min", "max", "sin", "cos", "tanh"):
            return rf"\{op.removesuffix('_floor')}\left( {', '.join(pieces)} \right)"
        if op == "sqrt":
            return rf"\sqrt{{{pieces[0]}}}"
        if op == "abs":
            return rf"\left| {pieces[0]} \right|"
        return LATEX.call("\\sigma" if op == "sigmoid" else op, *pieces) if op != "sigmoid" else rf"\sigma\left( {pieces[0]} \right)"
