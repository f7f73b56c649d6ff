"""The scan form: recurrences whose states decay and are written entry by entry.

For every state, with ∘ the entrywise product,

    S_t = α_t ∘ S_{t-1} + X_t        α and X free of S; they may read the states that are scanned before it

and outputs that are any functions of the states and of the token's inputs. Pairs (α, X) compose, (α₂, X₂) after (α₁, X₁) is
(α₂ ∘ α₁, α₂ ∘ X₁ + X₂), so a state needs no other entry of itself and its entries can be worked on apart.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from recgen.analysis.recurrent import token_form
from recgen.analysis.refusal import Refusal
from recgen.analysis.rewriting import one_step
from recgen.analysis.token_form import Reason, TokenForm
from recgen.lang.domains import interval
from recgen.lang.recurrence import Recurrence, StateInfo
from recgen.lang.terms import ROW_FUNCTIONS, Apply, Constant, Eye, State, Term, walk


@dataclass(frozen=True)
class ScanState:
    """One state: its multiplier `decay` α and what is written, `write` X (None for nothing), terms whose shapes fit into the state's.

    `bounded`: α is proved to lie in [-1, 1], so that the state forgets.
    """

    info: StateInfo
    decay: Term
    write: Term | None
    bounded: bool


@dataclass(frozen=True)
class ScanForm:
    """A recurrence of the scan class: its states in the order in which they are scanned.

    `token`: the same as equations of one token, of which steps and the recurrent form are made. `axes` are all axes, those of the states
    last, and of these the ones that nothing sums over: the last is the one that stays contiguous. `notes`: the structure that was
    recognised, one sentence each.
    """

    token: TokenForm
    states: tuple[ScanState, ...]
    axes: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def recurrence(self) -> Recurrence:
        """The checked spec."""
        return self.token.recurrence

    @property
    def terms(self) -> tuple[Term, ...]:
        """Every term: of the states and of the outputs."""
        states = (t for s in self.states for t in (s.decay, s.write) if t is not None)
        return (*states, *(self.recurrence.definition(name) for name in self.recurrence.outputs))


def analyze_scan(recurrence: Recurrence, reasons: tuple[Reason, ...]) -> ScanForm:
    """The scan form; `reasons`: why it is no normal form.

    Raises `Refusal` with the reason in the user's terms and the span of the term that breaks it.
    """
    recurrence = one_step(recurrence)
    token = replace(token_form(recurrence, reasons), kind="scan")
    order = _order(recurrence)
    states = tuple(_state(info, recurrence) for info in order)
    terms = [t for s in states for t in (s.decay, s.write) if t is not None]
    terms += [recurrence.definition(name) for name in recurrence.outputs]
    for term in terms:
        _refuse_shapes(term)
    summed = {axis for term in terms for x in walk(term) for axis in _summed(x)}
    owners = (*(info.axes for info in recurrence.states), *(info.axes for info in recurrence.arguments))
    carried = {axis for info in recurrence.states for axis in info.axes}
    declared = tuple(dict.fromkeys(axis for owner in owners for axis in owner))
    axes = tuple(sorted(declared, key=lambda axis: (axis in carried, axis not in summed)))
    return ScanForm(token, states, axes, _notes(states))


def _refuse_shapes(term: Term) -> None:
    """Values of a scan have axes without an order: no axis stands twice."""
    for x in walk(term):
        if isinstance(x, Eye):
            raise Refusal("the identity matrix stands where a scan needs a multiplier for each entry of the state", x.span or term.span)
        if x.shape[0] == x.shape[1] != "1":
            raise Refusal(
                f"a square matrix [{x.shape[0]}, {x.shape[1]}]: a scan tells the two sides apart by their names", x.span or term.span
            )


def _summed(term: Term) -> tuple[str, ...]:
    """The axes that an operation sums over."""
    if isinstance(term, Apply) and term.op == "matmul":
        return (term.args[0].shape[1],)
    if isinstance(term, Apply) and term.op in ROW_FUNCTIONS:
        return term.args[0].shape
    return ()


def _notes(states: tuple[ScanState, ...]) -> tuple[str, ...]:
    notes = []
    for s in states:
        axes = [axis for axis in s.decay.shape if axis != "1"]
        per = f"one decay per entry of {' and '.join(axes)}" if axes else "no decay" if s.decay == Constant(1.0) else "one decay"
        notes.append(f"{s.info.name}: {per}")
    return tuple(notes)


def _order(recurrence: Recurrence) -> tuple[StateInfo, ...]:
    """The states, each after those that its equation reads; raises Refusal where two need each other."""
    waiting, done = list(recurrence.states), []
    while waiting:
        names = {s.name for s in waiting}
        ready = next((s for s in waiting if not (_states_read(s.equation) - {s.name}) & names), None)
        if ready is None:
            one, other = waiting[0], next(s for s in waiting if s.name in _states_read(waiting[0].equation) - {waiting[0].name})
            raise Refusal(f"states `{one.name}` and `{other.name}` read each other: neither can be scanned first", one.equation.span)
        waiting.remove(ready)
        done.append(ready)
    return tuple(done)


def _states_read(term: Term) -> set[str]:
    return {x.name for x in walk(term) if isinstance(x, State)}


def _state(info: StateInfo, recurrence: Recurrence) -> ScanState:
    """One state's equation taken apart."""
    decay, write = _Affine(info).split(info.equation)
    if decay is None and len(recurrence.states) > 1:  # it hands something on to the next token, for another state to read
        return ScanState(info, Constant(0.0), write, True)
    if decay is None:
        raise Refusal(f"{info.name}[t] does not carry {info.name}[t-1] on: every step starts afresh", info.span)
    return ScanState(info, decay, write, interval(decay, recurrence.arguments).within(-1.0, 1.0))


@dataclass(frozen=True)
class _Affine:
    """Splits terms into (multiplier of the state, what does not depend on it), either None for nothing."""

    info: StateInfo

    def split(self, term: Term) -> tuple[Term | None, Term | None]:
        """The two parts of a term that is affine in every entry of the state; raises Refusal at what is not."""
        if not any(isinstance(x, State) and x.name == self.info.name for x in walk(term)):
            return None, term
        match term:
            case State(_, 1):
                return Constant(1.0), None
            case State():
                raise Refusal(f"the equation of {self.info.name}[t] reads {self.info.name}[t]", term.span)
            case Apply("neg", (arg,)):
                decay, write = self.split(arg)
                return _negated(decay), _negated(write)
            case Apply("add" | "sub", (left, right)):
                return self._sum(term, left, right)
            case Apply("mul", (left, right)):
                return self._product(term, left, right)
            case Apply("div", (numerator, divisor)):
                self._free(divisor, "the state stands in a divisor")
                inverse = Apply("div", (Constant(1.0), divisor), divisor.shape, "", divisor.span)
                decay, write = self.split(numerator)
                return _scaled(inverse, decay), None if write is None else Apply("div", (write, divisor), term.shape, "", term.span)
            case Apply("matmul", (left, right)) if isinstance(left, Eye) or isinstance(right, Eye):
                return self.split(right if isinstance(left, Eye) else left)
        if isinstance(term, Apply):
            for arg in term.args:  # the innermost term that does not fit is the one to show
                self.split(arg)
        raise Refusal(self._reason(term), term.span)

    def _reason(self, term: Term) -> str:
        op = term.op if isinstance(term, Apply) else ""
        if isinstance(term, Apply) and op == "select":
            return f"option `{term.option}` chooses between terms that read the state: let it choose what multiplies them"
        if op.startswith("where"):
            return "`where` chooses between terms that read the state: let it choose what multiplies them"
        if op in ("matmul", *ROW_FUNCTIONS):
            return "different entries of the state meet here, and a scan works on each entry alone"
        if op == "transpose":
            return "the equation mixes the state with its transpose"
        return f"the state enters `{op}` which is not linear"

    def _free(self, term: Term, reason: str) -> None:
        if any(isinstance(x, State) and x.name == self.info.name for x in walk(term)):
            raise Refusal(reason, term.span)

    def _sum(self, term: Apply, left: Term, right: Term) -> tuple[Term | None, Term | None]:
        (a, x), (b, y) = self.split(left), self.split(right)
        if term.op == "sub":
            b, y = _negated(b), _negated(y)
        return _added(a, b), _added(x, y)

    def _product(self, term: Apply, left: Term, right: Term) -> tuple[Term | None, Term | None]:
        if self.split(left)[0] is not None and self.split(right)[0] is not None:
            raise Refusal("two factors of this product both depend on the state", term.span)
        state_side, free = (left, right) if self.split(left)[0] is not None else (right, left)
        decay, write = self.split(state_side)
        return _scaled(free, decay), _scaled(free, write)


def _negated(term: Term | None) -> Term | None:
    return None if term is None else Apply("neg", (term,), term.shape, "", term.span)


def _scaled(factor: Term, term: Term | None) -> Term | None:
    return None if term is None else _joined("mul", factor, term)


def _added(left: Term | None, right: Term | None) -> Term | None:
    if left is None or right is None:
        return left if right is None else right
    return _joined("add", left, right)


def _joined(op: str, left: Term, right: Term) -> Term:
    """left op right, over all the axes of both."""
    if op == "mul" and Constant(1.0) in (left, right):
        return right if left == Constant(1.0) else left
    shape = tuple(a if a != "1" else b for a, b in zip(left.shape, right.shape, strict=True))
    return Apply(op, (left, right), (shape[0], shape[1]), "", left.span or right.span)
