"""Check: micro-steps are written out, so that every later stage sees one equation for each and an argument for each of its values.

`S[t, j] = ... for j in 1..n` becomes n equations, the last of which is that of `S[t]`; `k : [n, K]` becomes `k_1 : [K]`, `k_2 : [K]`, and
so on, and `k[1]` the name `k_1`; so do definitions `x[j] = ...`. A const is known when a spec is compiled: nothing is padded.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from recgen.lang import syntax
from recgen.lang.diagnostics import Label, Reporter
from recgen.lang.source import Span
from recgen.lang.suggest import quote
from recgen.lang.syntax import Expr, Micro
from recgen.lang.traverse import rewrite, walk

MOST = 8
"""Micro-steps of one token at most: each is code of its own."""


@dataclass(frozen=True)
class Unrolled:
    """The spec with its micro-steps written out; `packed`: for arguments and definitions with micro-steps the names of their values."""

    spec: syntax.Spec
    packed: dict[str, tuple[str, ...]]

    def shown(self, name: str) -> str:
        """A name as the user wrote it: `k[1]` for `k_1`."""
        return next((f"{whole}[{names.index(name) + 1}]" for whole, names in self.packed.items() if name in names), name)


def unroll(spec: syntax.Spec, reporter: Reporter) -> Unrolled | None:
    """The spec without micro-steps, as it is where it has none; None if one of them is at fault, which is reported."""
    if not any(_micro_spans(spec)):
        return Unrolled(spec, {})
    unroller = _Unroller(spec, reporter)
    statements = unroller.statements()
    if reporter.failed():
        return None
    return Unrolled(replace(spec, statements=statements), {n: tuple(f"{n}_{i}" for i in family) for n, family in unroller.families.items()})


def _micro_spans(spec: syntax.Spec) -> Iterator[Span]:
    """Where a spec uses micro-steps."""
    consts = {s.name.name for s in spec.statements if isinstance(s, syntax.ConstDecl)}
    for s in spec.statements:
        if isinstance(s, syntax.ArgumentDecl | syntax.StateDecl):
            yield from (a.span for a in s.axes if a.name in consts)
        elif isinstance(s, syntax.Equation):
            yield from (s.loop.span,) if s.loop is not None else ()
            for node in (*walk(s.value), s.target):
                if isinstance(node, syntax.Index) or (isinstance(node, syntax.StateRef) and node.micro is not None):
                    yield node.span


@dataclass
class _Line:
    """One equation of a loop, with the loop's variable bound."""

    equation: syntax.Equation
    bound: dict[str, int]
    index: int | None  # of the micro-step or value that it defines


@dataclass
class _Unroller:
    spec: syntax.Spec
    reporter: Reporter
    roles: dict[str, syntax.Name] = field(default_factory=dict)
    consts: dict[str, int] = field(default_factory=dict)
    unbound: set[str] = field(default_factory=set)  # names of micro-steps that were reported
    families: dict[str, tuple[int, ...]] = field(default_factory=dict)  # values 1.. of an argument or a definition
    steps: dict[str, int] = field(default_factory=dict)  # the last micro-step of a state

    def statements(self) -> tuple[syntax.Statement, ...]:
        """Every statement, written out."""
        self._names()
        declared = [d for s in self.spec.statements for d in self._declaration(s)]
        lines = [x for s in self.spec.statements if isinstance(s, syntax.Equation) for x in self._lines(s)]
        self._families(lines)
        self._states(lines)
        return (*declared, *(self._written(line) for line in lines))

    # ---------------------------------------------------------- declarations

    def _names(self) -> None:
        """Names by what declares them; consts with their values."""
        for s in self.spec.statements:
            if isinstance(s, syntax.ArgumentDecl | syntax.StateDecl | syntax.OptionDecl | syntax.ConstDecl):
                self.roles.setdefault(s.name.name, s.name)
            if isinstance(s, syntax.ConstDecl):
                self.consts[s.name.name] = s.value
        for s in self.spec.statements:
            if isinstance(s, syntax.ArgumentDecl | syntax.StateDecl):
                for axis in s.axes:
                    self.roles.setdefault(axis.name, syntax.Name(axis.name, axis.span))

    def _declaration(self, s: syntax.Statement) -> tuple[syntax.Statement, ...]:
        """A declaration, or one for every value of an argument with a leading const axis."""
        if isinstance(s, syntax.Equation):
            return ()
        if not isinstance(s, syntax.ArgumentDecl | syntax.StateDecl):
            return (s,)
        counted = [(i, a) for i, a in enumerate(s.axes) if a.name in self.consts]
        if not counted:
            return (s,)
        place, axis = counted[-1]
        if isinstance(s, syntax.StateDecl) or place > 0:
            self.families[s.name.name] = tuple(range(1, min(self.consts[axis.name], MOST) + 1))  # no further errors because of this one
            advice = f"write `{s.name.name}[t, {axis.name}]` for its micro-states" if isinstance(s, syntax.StateDecl) else "put it first"
            self.reporter.report("E224", axis.span, help=advice, name=axis.name)
            return ()
        if len(s.axes) > 3:
            span = s.axes[1].span.to(s.axes[-1].span)
            self.reporter.report("E310", span, help="token and head axes are not written", name=s.name.name, count=len(s.axes) - 1)
        first = self.roles[s.name.name]
        if first is not s.name:
            self._twice(s.name.name, s.name.span, first.span, "give one of them another name")
        count = self._counted(self.consts[axis.name], axis.span)
        self.families[s.name.name] = tuple(range(1, count + 1))
        names = (replace(s.name, name=f"{s.name.name}_{i}") for i in self.families[s.name.name])
        return tuple(replace(s, name=name, axes=s.axes[1:]) for name in names)

    def _counted(self, count: int, span: Span) -> int:
        """A number of micro-steps, as many as there may be."""
        if count > MOST:
            self.reporter.report("E227", span, help="each micro-step is code of its own", count=count, limit=MOST)
        return min(count, MOST)

    def _twice(self, name: str, span: Span, first: Span, advice: str) -> None:
        self.reporter.report("E202", span, secondary=Label(first, "the first one is here"), help=advice, name=name)

    # ------------------------------------------------------------- equations

    def _lines(self, s: syntax.Equation) -> list[_Line]:
        """The equations of a line, one for every value of its loop."""
        if s.loop is None:
            return [_Line(s, {}, self._target_index(s.target, {}))]
        variable, target = s.loop.variable, s.target
        named = not isinstance(target, syntax.Name) and target.micro is not None and target.micro.variable == variable
        if not named:
            text = quote(self.reporter.source, target.span)
            head = target.name + ("[t, " if isinstance(target, syntax.StateRef) else "[")
            self.reporter.report("E226", s.loop.span, help=f"write `{head}{variable}] = ...`", target=text, variable=variable)
            return []
        if variable in self.roles:
            self._twice(variable, s.loop.span, self.roles[variable].span, "call the loop's variable otherwise")
            return []
        last = self._end(s.loop)
        if last is None:
            return []
        if last < s.loop.first:
            self.reporter.report("E228", s.loop.span, help="a loop runs upwards, as in `for j in 1..n`", loop=f"{s.loop.first}..{last}")
            return []
        count = self._counted(last - s.loop.first + 1, s.loop.span)
        bound = [{variable: s.loop.first + i} for i in range(count)]
        return [_Line(s, b, self._target_index(s.target, b)) for b in bound]

    def _end(self, loop: syntax.Loop) -> int | None:
        """The last value of a loop's variable."""
        if isinstance(loop.last, int):
            return loop.last
        if loop.last not in self.consts:
            advice = f"write a number, or declare `const {loop.last} = 2`"
            if loop.last in self.roles:
                advice = "a loop ends at a number or at a const"
            self.reporter.report("E201" if loop.last not in self.roles else "E229", loop.span, help=advice, name=loop.last)
        return self.consts.get(loop.last)

    def _target_index(self, target: syntax.Name | syntax.StateRef | syntax.Index, bound: dict[str, int]) -> int | None:
        return None if isinstance(target, syntax.Name) or target.micro is None else self._value(target.micro, bound)

    def _value(self, micro: Micro, bound: dict[str, int]) -> int | None:
        """The number of a micro-step; None where its name is unknown, which is reported."""
        if micro.variable is None:
            return micro.value
        known = {**self.consts, **bound}
        if micro.variable not in known:
            advice = f"bind it at the end of the line, as in `for {micro.variable} in 1..n`"
            if micro.variable not in self.unbound:
                self.reporter.report("E201", micro.span, help=advice, name=micro.variable)
            self.unbound.add(micro.variable)
            return None
        return known[micro.variable] - micro.value

    def _families(self, lines: list[_Line]) -> None:
        """The indices of every definition that has them."""
        found: dict[str, dict[int, Span]] = {}
        for line in lines:
            target = line.equation.target
            if isinstance(target, syntax.StateRef):
                continue
            other = self.roles.get(target.name)
            if isinstance(target, syntax.Name):
                if target.name in self.families:
                    self._twice(target.name, target.span, self.roles[target.name].span, "give one of them another name")
            elif other is not None:
                self._twice(target.name, target.span, other.span, "give one of them another name")
            elif line.index is not None:
                self._enter(found.setdefault(target.name, {}), line, target, f"{target.name}[{line.index}]")
        for name, spans in found.items():
            self._gapless(name, spans, 1, f"{name}[{{}}]")
            self.families[name] = tuple(range(1, len(spans) + 1))

    def _states(self, lines: list[_Line]) -> None:
        """The micro-steps of every state that has them: 0, 1, ..., and nothing beside them."""
        found: dict[str, dict[int, Span]] = {}
        for line in lines:
            target = line.equation.target
            if isinstance(target, syntax.StateRef) and line.index is not None:
                self._enter(found.setdefault(target.name, {}), line, target, f"{target.name}[t, {line.index}]")
        for line in lines:
            target = line.equation.target
            if isinstance(target, syntax.StateRef) and target.micro is None and target.name in found:
                last = max(found[target.name])
                advice = f"it is the state after the last micro-step, `{target.name}[t, {last}]`"
                self._twice(f"{target.name}[t]", target.span, found[target.name][last], advice)
        for name, spans in found.items():
            self._gapless(name, spans, 0, f"{name}[t, {{}}]")
            self.steps[name] = max(spans)

    def _enter(self, found: dict[int, Span], line: _Line, target: syntax.StateRef | syntax.Index, text: str) -> None:
        assert line.index is not None
        if line.index in found:
            self._twice(text, target.span, found[line.index], "each has one equation")
        found.setdefault(line.index, target.span)

    def _gapless(self, name: str, spans: dict[int, Span], first: int, text: str) -> None:
        """Reports the first index that is missing, or one before the first."""
        low = min(spans)
        if low < first:
            self.reporter.report("E223", spans[low], help=f"the first is `{text.format(first)}`", index=text.format(low))
            return
        missing = next((i for i in range(first, max(spans)) if i not in spans), None)
        missing = first if missing is None and max(spans) < first else missing
        if missing is not None:
            advice = f"add a line `{text.format(missing)} = ...`"
            if first == 0 and missing == 0:
                advice = f"begin with the token before, as in `{name}[t, 0] = {name}[t-1]`"
            self.reporter.report("E225", min(spans.values(), key=lambda s: (s.line, s.column)), help=advice, index=text.format(missing))

    # ----------------------------------------------------------- expressions

    def _written(self, line: _Line) -> syntax.Equation:
        """The equation with every index resolved."""
        equation, target = line.equation, line.equation.target
        value = rewrite(equation.value, lambda node: self._resolved(node, line.bound))
        if isinstance(target, syntax.Index):
            target = syntax.Name(f"{target.name}_{line.index}", target.span)
        elif isinstance(target, syntax.StateRef) and line.index is not None:
            target = self._micro_state(target, line.index)
        return syntax.Equation(target, value, None, equation.span)

    def _resolved(self, node: Expr, bound: dict[str, int]) -> Expr:
        """A node with its index as a number, or as a part of its name."""
        match node:
            case syntax.Name(name=name) if name in bound:
                return syntax.Number(float(bound[name]), str(bound[name]), node.span)
            case syntax.Name(name=name) if name in self.families:
                advice = f"write `{name}[j]` in a line that ends with `for j in 1..{len(self.families[name])}`, or `{name}[1]`"
                self.reporter.report("E221", node.span, help=advice, name=name)
            case syntax.Index():
                return self._indexed(node, bound)
            case syntax.StateRef(micro=micro) if micro is not None:
                index = self._value(micro, bound)
                return node if index is None else self._state(node, index)
        return node

    def _indexed(self, node: syntax.Index, bound: dict[str, int]) -> Expr:
        index, family = self._value(node.micro, bound), self.families.get(node.name)
        if family is None:
            role = f"a value of its own for each micro-step, as in `input {node.name} : [n, K]`"
            advice = f"remove the index, or declare {role}" if node.name in self.roles else f"declare it with {role}"
            self.reporter.report("E222", node.span, help=advice, name=node.name)
        elif index is not None and index not in family:
            self.reporter.report(
                "E223", node.span, help=f"`{node.name}` has {len(family)}, 1 to {len(family)}", index=f"{node.name}[{index}]"
            )
        return syntax.Name(f"{node.name}_{index}", node.span)

    def _state(self, node: syntax.StateRef, index: int) -> syntax.StateRef:
        """A micro-state that is read."""
        last, text = self.steps.get(node.name), f"{node.name}[t, {index}]"
        if node.lag == 1:
            advice = f"`{node.name}[t-1]` is the state after the last micro-step of the token before; the others are not kept"
            self.reporter.report("E110", node.span, help=advice, index=quote(self.reporter.source, node.span))
        elif last is None or not 0 <= index <= last:
            advice = f"`{node.name}` has no micro-steps" if last is None else f"the micro-steps of `{node.name}` are 0 to {last}"
            self.reporter.report("E223", node.span, help=advice, index=text)
        return self._micro_state(node, index)

    def _micro_state(self, node: syntax.StateRef, index: int) -> syntax.StateRef:
        """The state after a micro-step; after the last one it is `S[t]`."""
        micro = None if index == self.steps.get(node.name) else Micro(None, index, node.span)
        return replace(node, micro=micro)
