"""From the checked recurrence to its coupled form, by structure alone."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from recgen.analysis.algebra import expand
from recgen.analysis.arithmetic import plus, scalar_term
from recgen.analysis.coupled_form import CoupledForm, Feed
from recgen.analysis.coupled_streams import Part, streams_of, written
from recgen.analysis.decay import decay_of
from recgen.analysis.links import key_side_is_right, link, refuse_matrices, turned_over
from recgen.analysis.normal_form import Decay, Output
from recgen.analysis.order import within_a_token
from recgen.analysis.products import Product
from recgen.analysis.readout import Reads
from recgen.analysis.recurrent import token_form
from recgen.analysis.refusal import Refusal
from recgen.analysis.rewriting import one_step
from recgen.analysis.streams import Link
from recgen.lang.recurrence import Recurrence, StateInfo
from recgen.lang.source import Span
from recgen.lang.terms import State, Term


def is_system(recurrence: Recurrence) -> bool:
    """Whether all states, of which there are several, are matrices over the same axes."""
    axes = {s.axes for s in recurrence.states}
    return len(recurrence.states) > 1 and len(axes) == 1 and len(recurrence.states[0].axes) == 2


def analyze_coupled(recurrence: Recurrence) -> CoupledForm:
    """The coupled form of a system; raises `Refusal` with the reason in the user's terms and the span of the term that breaks it."""
    plain = one_step(recurrence)
    equations = {s.name: tuple(p for p in expand(s.equation) if p.coefficient != 0.0) for s in plain.states}
    outputs = [plain.definition(name) for name in recurrence.outputs]
    first = plain.states[0]
    transposed = key_side_is_right(tuple(p for products in equations.values() for p in products), outputs, first)
    if transposed:
        equations = {name: tuple(turned_over(p) for p in products) for name, products in equations.items()}
    axes = first.axes[::-1] if transposed else first.axes
    taken = [_Equation(s, equations[s.name], plain) for s in plain.states]
    states = _in_order(taken)
    names = [e.state.name for e in states]
    parts = tuple(e.parts(names) for e in states)
    streams, notes = streams_of(parts, names, [names.index(s.name) for s in within_a_token(plain)])
    if not streams:
        raise Refusal("nothing is ever written into the states", None)
    reads = Reads(first, transposed, 0, several=True)
    values = tuple(Output(name, reads.extract(term)) for name, term in zip(recurrence.outputs, outputs, strict=True))
    if not reads.found:
        raise Refusal("no output reads a state", None)
    token = token_form(recurrence, ())
    form = CoupledForm(
        replace(token, kind="coupled", states=tuple(replace(s, turned=transposed) for s in token.states)),
        tuple(recurrence.state(name) for name in names),
        axes[0],
        axes[1],
        transposed,
        tuple(e.decay for e in states),
        tuple(f for e in states for f in e.feeds(names)),
        streams,
        tuple(reads.found),
        values,
        (),
    )
    refuse_matrices(form.terms)
    return replace(form, notes=(*_describe(form), *notes))


class _Equation:
    """One state's equation taken apart: its own decay, the states that feed it, and what is written."""

    def __init__(self, state: StateInfo, products: tuple[Product, ...], recurrence: Recurrence) -> None:
        self.state = state
        self.links = [link(p) for p in products if p.state is not None]
        self.constants = [p for p in products if p.state is None]
        for x in self.links:
            if x.multiplier.diagonal is not None or x.multiplier.values is not None:
                channels = f"`{state.name}[t]` takes `{_written(x)}` by channel"
                raise Refusal(f"{channels}: states that are compiled together are scaled by numbers", x.product.span or state.span)
        own = [x.multiplier for x in self.links if x.write is None and _read(x).name == state.name]
        self.decay = decay_of(own, recurrence, state)[0] if own else Decay("nothing", None, True, None, True)

    @property
    def fed_by(self) -> list[Link]:
        """The products that take another state as it is."""
        return [x for x in self.links if x.write is None and _read(x).name != self.state.name]

    def feeds(self, names: list[str]) -> tuple[Feed, ...]:
        """What feeds this state, one for each state and lag."""
        totals: dict[tuple[int, int], Term] = {}
        for x in self.fed_by:
            key = (names.index(_read(x).name), _read(x).lag)
            weight = scalar_term(x.multiplier.coefficient, x.multiplier.scalars)
            totals[key] = plus(totals[key], weight) if key in totals else weight
        return tuple(Feed(names.index(self.state.name), source, lag, weight) for (source, lag), weight in totals.items())

    def parts(self, names: list[str]) -> dict[Term, list[Part]]:
        """What is written along every direction."""
        found: dict[Term, list[Part]] = {}
        for p in self.constants:
            direction, part = written(p)
            found.setdefault(direction, []).append(part)
        for x in self.links:
            if x.write is not None and x.correct is not None:
                at = (names.index(_read(x).name), _read(x).lag)
                found.setdefault(x.write, []).append(Part(x.multiplier.coefficient, x.multiplier.scalars, at, x.correct))
        return found


def _read(x: Link) -> State:
    """The state that a product carries on."""
    state = x.product.state
    assert state is not None
    return state


def _written(x: Link) -> str:
    return f"{_read(x).name}[t{'-1' if _read(x).lag else ''}]"


def _in_order(equations: Iterable[_Equation]) -> list[_Equation]:
    """The states, each after those that feed it; raises Refusal where two feed each other."""
    waiting, done = list(equations), list[_Equation]()
    while waiting:
        names = {e.state.name for e in waiting}
        ready = next((e for e in waiting if not any(_read(x).name in names for x in e.fed_by)), None)
        if ready is None:
            first = waiting[0]
            feed = next(x for x in first.fed_by if _read(x).name in names)
            raise Refusal(_mutual(first, feed, waiting), _span(feed))
        waiting.remove(ready)
        done.append(ready)
    return done


def _mutual(first: _Equation, feed: Link, waiting: list[_Equation]) -> str:
    """Two states that feed each other, or a longer circle, in the user's terms."""
    name, other = first.state.name, _read(feed).name
    back = next(e for e in waiting if e.state.name == other)
    returned = next((x for x in back.fed_by if _read(x).name == name), None)
    circle = f"and `{other}[t]` takes `{_written(returned)}`" if returned else f"which `{name}[t-1]` feeds in turn"
    advice = "states are compiled together where each feeds only later ones; a correction may read any of them"
    return f"`{name}[t]` takes `{_written(feed)}` {circle}: {advice}"


def _span(x: Link) -> Span | None:
    return _read(x).span or x.product.span


def _describe(form: CoupledForm) -> list[str]:
    kinds = {"none": "no decay", "scalar": "one decay for the whole state", "nothing": "does not carry itself on"}
    notes = [
        f"{s.name}: {kinds[d.kind]}" + ", constant in time" * (d.constant and d.kind == "scalar")
        for s, d in zip(form.states, form.decays, strict=True)
    ]
    for f in form.feeds:
        when = "after the token" if f.lag == 0 else "before the token"
        notes.append(f"{form.names[f.source]} feeds {form.names[f.target]}, with what it holds {when}")
    corrected = dict.fromkeys((c.state, c.lag) for s in form.streams for c in s.corrections)
    notes += [f"a correction reads {form.names[state]}[t{'-1' * lag}]" for state, lag in corrected]
    return notes + ["the states are declared [value, key]: read from the other side"] * form.transposed
