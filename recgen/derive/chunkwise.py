"""The chunk form and its adjoint from the normal form."""

from __future__ import annotations

from recgen.analysis.normal_form import NormalForm
from recgen.derive.adjoint import add_adjoint
from recgen.derive.by_value import ByValueBuilder
from recgen.derive.by_value_adjoint import add_adjoint_by_value
from recgen.derive.chunk_ir import ChunkForm, needed
from recgen.derive.coupled_adjoint import add_coupled_adjoint
from recgen.derive.coupled_forward import CoupledBuilder
from recgen.derive.coupled_operands import CoupledOperands
from recgen.derive.forward import Builder
from recgen.derive.operands import OperandSet


def _built(form: NormalForm, operands: OperandSet) -> Builder:
    b = Builder(form.decay.kind, operands)
    b.forward()
    add_adjoint(b)
    return b


def _built_by_value(form: NormalForm, operands: OperandSet) -> Builder:
    b = ByValueBuilder(form.decay.kind, operands, value_decay=form.value_decay.kind != "none")
    b.forward()
    add_adjoint_by_value(b)
    return b


def derive(form: NormalForm, operands: OperandSet) -> ChunkForm:
    """The chunk form of a normal form whose operands have been named."""
    b = _built_by_value(form, operands) if form.by_value else _built(form, operands)
    return ChunkForm(
        form.decay.kind,
        operands.columns,
        operands.stabilized,
        operands.operands,
        tuple(b.prepare),
        tuple(b.scan),
        tuple(b.finish),
        tuple(f"read{read.tag}" for read in operands.reads),
        tuple(b.adjoint_prepare),
        tuple(b.adjoint_scan),
        tuple(b.adjoint_finish),
        tuple((o.name, f"d_{o.name}") for o in operands.operands if o.name not in operands.signs),
        value_decay=form.value_decay.kind,
    )


def derive_coupled(operands: CoupledOperands) -> ChunkForm:
    """The chunk form of coupled states whose operands have been named."""
    b = CoupledBuilder(operands)
    b.forward()
    add_coupled_adjoint(b)
    gradients = tuple((o.name, f"d_{o.name}") for o in operands.operands if o.name not in operands.signs)
    return ChunkForm(
        "coupled",
        0,
        False,
        operands.operands,
        tuple(b.prepare),
        tuple(b.scan),
        tuple(b.finish),
        tuple(f"read{read.tag}" for read in operands.reads),
        tuple(b.adjoint_prepare),
        tuple(b.adjoint_scan),
        needed(tuple(b.adjoint_finish), {name for _, name in gradients}),
        gradients,
        states=operands.count,
    )
