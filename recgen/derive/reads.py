"""What the read-out takes from the state: vectors over the value axis, numbers of the further columns, the running maximum."""

from __future__ import annotations

from dataclasses import dataclass

from recgen.analysis.coupled_form import CoupledForm
from recgen.analysis.normal_form import NormalForm
from recgen.derive.operands import NamedOperands
from recgen.derive.program import Value
from recgen.lang.terms import SCALAR, Read, Term


@dataclass(frozen=True)
class ReadValues:
    """One read: what it finds in the matrix state, and in every further column; `tag` tells several reads apart."""

    tag: str
    values: Value
    columns: tuple[Value, ...]


@dataclass(frozen=True)
class ReadSet:
    """Every read, and the running maximum, None where nothing scales the state."""

    reads: tuple[ReadValues, ...]
    maximum: Value | None
    terms: tuple[Term, ...]

    @property
    def differentiable(self) -> tuple[Value, ...]:
        """Everything but the running maximum."""
        return tuple(v for r in self.reads for v in (r.values, *r.columns))

    @property
    def inputs(self) -> tuple[tuple[Term, Value], ...]:
        """The term and the value of everything that is read."""
        values = (*self.differentiable, *((self.maximum,) if self.maximum else ()))
        return tuple(zip(self.terms, values, strict=True))


def read_set(form: NormalForm | CoupledForm, operands: NamedOperands, name: str, maximum: str = "maximum") -> ReadSet:
    """The reads of a form, each named `name` and its tag, the columns' with the state's name behind it."""
    reads, terms = [], []
    for i, r in enumerate(operands.reads):
        columns = tuple(Value(f"{name}{r.tag}_{c.name}", "", False, True) for c in form.columns)
        axis = form.read_axes[i]
        reads.append(ReadValues(r.tag, Value(f"{name}{r.tag}", axis, False, True), columns))
        terms += [Read(i, (axis, "1")), *(Read(i, SCALAR, c.name) for c in form.columns)]
    scale = None
    if form.stabilizer is not None:
        scale = Value(maximum, "", False, True)
        terms.append(Read(0, SCALAR, form.stabilizer.state.name))
    return ReadSet(tuple(reads), scale, tuple(terms))
