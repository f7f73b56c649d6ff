"""Check: every name, function and test inside the expressions exists and is used as what it is."""

from __future__ import annotations

import re

from recgen.lang import syntax
from recgen.lang.diagnostics import Label, Reporter
from recgen.lang.functions import ARITY, reserved_reason
from recgen.lang.scope import ROLES, Scope
from recgen.lang.source import Span
from recgen.lang.suggest import did_you_mean, quote
from recgen.lang.syntax import Expr
from recgen.lang.traverse import children


def resolve(expr: Expr, scope: Scope, reporter: Reporter) -> bool:
    """Report every misuse of a name in an expression; whether there was none."""
    names = _Names(scope, reporter)
    names.visit(expr)
    return names.sound


class _Names:
    def __init__(self, scope: Scope, reporter: Reporter) -> None:
        self.scope, self.reporter = scope, reporter
        self.sound = True

    def _report(self, code: str, span: Span, *, secondary: Label | None = None, help: str | None = None, **values: object) -> None:
        self.sound = False
        self.reporter.report(code, span, secondary=secondary, help=help, **values)

    def visit(self, expr: Expr) -> None:
        below = children(expr)
        match expr:
            case syntax.Name():
                self._name(expr)
            case syntax.StateRef() | syntax.Index():
                self._indexed(expr)
            case syntax.Compare():
                self._report("E218", expr.span, help="write `where(a < b, x, y)`, or test an option with `x if option else y`")
            case syntax.Conditional():
                self._test(expr)
                below = (expr.then, expr.otherwise)
            case syntax.Call():
                below = self._call(expr)
        for child in below:
            self.visit(child)

    def _name(self, expr: syntax.Name) -> None:
        symbol = self.scope.symbols.get(expr.name)
        if symbol is None:
            self._unknown(expr)
        elif symbol.role == "state":
            advice = f"write `{expr.name}[t-1]` for the state before this token, `{expr.name}[t]` for the one after it"
            self._report("E205", expr.span, secondary=Label(symbol.span, "it is declared here"), help=advice, name=expr.name)
        elif symbol.boolean:
            label = Label(symbol.span, "it is declared here")
            self._report("E216", expr.span, secondary=label, help=f"write `... if {expr.name} else ...`", name=expr.name)

    def _unknown(self, expr: syntax.Name | syntax.StateRef | syntax.Index) -> None:
        self.sound = False
        if expr.name in self.scope.unknown:
            return
        self.scope.unknown.add(expr.name)
        reason = reserved_reason(expr.name)
        if isinstance(expr, syntax.Name) and reason is not None:
            self._report("E203", expr.span, help=self._reserved_advice(expr.name), name=expr.name, reason=reason)
            return
        # Papers' spellings of a state at a time: S_t, S_prev, S_tm1.
        found = re.fullmatch(r"(\w+?)_?(t|prev|old|last|tm1|t1)", expr.name)
        advice = did_you_mean(expr.name, self.scope.symbols)
        if found is not None and self.scope.role(found[1]) == "state":
            advice = f"write `{found[1]}[{'t' if found[2] == 't' else 't-1'}]`"
        example = f"input {expr.name} : [K]" if isinstance(expr, syntax.Name) else f"state {expr.name} : [K, V]"
        self._report("E201", expr.span, help=advice or f"declare it, as in `{example}`", name=expr.name)

    def _reserved_advice(self, name: str) -> str:
        if name in ("t", "T"):
            return "the position of a token is not a value: make it an input"
        if name in ARITY:
            return f"write its arguments in brackets, as in `{name}({', '.join('xyz'[: ARITY[name]])})`"
        return "it cannot be a value here"

    def _indexed(self, expr: syntax.StateRef | syntax.Index) -> None:
        symbol = self.scope.symbols.get(expr.name)
        if symbol is None:
            self._unknown(expr)
        elif isinstance(expr, syntax.StateRef) and symbol.role != "state":
            advice = f"write `{expr.name}`: it is always at t" if symbol.role in ("input", "definition") else f"write `{expr.name}`"
            if expr.lag == 1:
                advice = "only states remember: carry the value in a state of its own"
            label = Label(symbol.span, "it is declared here")
            self._report("E206", expr.span, secondary=label, help=advice, name=expr.name, role=ROLES[symbol.role])

    def _test(self, expr: syntax.Conditional) -> None:
        test = expr.test
        name = test.name if isinstance(test, syntax.Name) else None
        symbol = self.scope.symbols.get(name) if name is not None else None
        if symbol is not None and symbol.boolean:
            return
        text = quote(self.reporter.source, test.span)
        options = [s.name for s in self.scope.named("option") if s.boolean]
        if isinstance(test, syntax.Compare):
            then, otherwise = quote(self.reporter.source, expr.then.span), quote(self.reporter.source, expr.otherwise.span)
            advice: str | None = f"choose between values with `where({text}, {then}, {otherwise})`"
        elif symbol is None and name is not None:
            advice = did_you_mean(name, options) or f"declare it, as in `option {name} = false`"
        else:
            advice = "declare one, as in `option use_gate = false`"
        self._report("E215", test.span, help=advice)

    def _call(self, expr: syntax.Call) -> tuple[Expr, ...]:
        """Check a call; returns the arguments that are still to be visited."""
        count = ARITY.get(expr.function)
        if count is None:
            self._not_a_function(expr)
        elif len(expr.arguments) != count:
            found = f"{len(expr.arguments)}" if expr.arguments else "none"
            advice = "write `where(a < b, x, y)`" if expr.function == "where" else f"write `{expr.function}({', '.join('xyz'[:count])})`"
            expected = "one argument" if count == 1 else f"{count} arguments"
            self._report("E208", expr.span, help=advice, name=expr.function, expected=expected, found=found)
        elif expr.function == "where":
            test, *rest = expr.arguments
            if isinstance(test, syntax.Compare):
                return (test.left, test.right, *rest)
            self._report("E219", test.span, help=f"write `where({quote(self.reporter.source, test.span)} > 0, x, y)`")
        return expr.arguments

    def _not_a_function(self, expr: syntax.Call) -> None:
        symbol = self.scope.symbols.get(expr.function)
        if symbol is None:
            advice = did_you_mean(expr.function, ARITY) or f"the functions are {', '.join(sorted(ARITY))}"
            self._report("E207", expr.function_span, help=advice, name=expr.function)
            return
        inner = ", ".join(quote(self.reporter.source, a.span) for a in expr.arguments)
        name = f"{expr.function}[t]" if symbol.role == "state" else expr.function
        advice = f"write `{name} * ({inner})`"
        self._report("E209", expr.function_span, help=advice, name=expr.function, role=ROLES[symbol.role])
