"""The read-out in the chunkwise Triton kernels: outputs from what was read, gradients of the reads from the outputs'."""

from __future__ import annotations

from recgen.codegen.chunk_kernels import ChunkKernels
from recgen.codegen.tile_printer import tile_mask
from recgen.codegen.triton_token import output_axis
from recgen.derive.gradient import differentiate
from recgen.derive.program import Program, Value, mentioned


def store_output_lines(k: ChunkKernels) -> tuple[str, ...]:
    """Writes the outputs [B, T, HV, *axes]; those not over the value axis by the first value block alone."""
    lines = []
    for o in k.form.outputs:
        axis = output_axis(o.value)
        names = k.printer.axes[axis] if axis else None
        text = k.printer.operand_tile(k.readout.result(o.name), axis)
        row = f"p_{o.name} + o_row"
        if names is None:
            lines.append(f"tl.store({row}, {text}.to(p_{o.name}.dtype.element_ty), mask=tl.where(i_v == 0, m_t, False))")
            continue
        mask = tile_mask(names.mask) if axis == k.form.value_axis else f"tl.where(i_v == 0, {tile_mask(names.mask)}, False)"
        address = f"{row}[:, None] * {names.size} + {names.offsets}[None, :]"
        lines += [f"b_out = {text}", f"tl.store({address}, b_out.to(p_{o.name}.dtype.element_ty), mask={mask})"]
    return tuple(lines)


def cotangent_lines(k: ChunkKernels, again: tuple[str, ...]) -> tuple[str, ...]:
    """The reads' gradients from the outputs'; `again` computes the reads where they are needed."""
    program, cotangents = _readout_gradient(k, tuple(k.reads))
    loads = [line for role, value in cotangents for line in load_cotangent(k, role, value)]
    used = mentioned(program.statements)
    arguments = [line for a in k.arguments if a.value.name in used for line in k.load(a)]
    lines = [*(again if used & {r.name for r in k.reads} else ()), *arguments, *loads, *k.printer.lines(program.statements)]
    lines += read_gradients(k, program)
    return tuple(lines)


def read_gradients(k: ChunkKernels, program: Program) -> tuple[str, ...]:
    """The reads' gradients, as tiles, from the results of the read-out's adjoint."""
    found, lines = dict(program.results), []
    for value in k.reads:
        operand = found.get(value.name)
        empty = f"tl.zeros((BC, {k.printer.axes[value.axis].block}), ACC)" if value.axis else "tl.zeros((BC,), ACC)"
        lines.append(f"b_d_{value.name} = {empty if operand is None else k.printer.operand_tile(operand, value.axis)}")
    return tuple(lines)


def _readout_gradient(k: ChunkKernels, wanted: tuple[Value, ...]) -> tuple[Program, tuple[tuple[str, Value], ...]]:
    """The adjoint of the read-out for some of its inputs."""
    return differentiate(k.readout, wanted, k.reserved)


def load_cotangent(k: ChunkKernels, role: str, value: Value) -> tuple[str, ...]:
    """Loads an output's gradient; one that is not over the value axis for the first value block alone."""
    output = next(o for o in k.form.outputs if o.name == role)
    axis = output_axis(output.value)
    name = f"b_{value.name}"
    if not axis:
        return (f"{name} = tl.load(pd_{role} + o_t * sd_{role}[1], mask=tl.where(i_v == 0, m_t, False), other=0.0).to(ACC)",)
    names = k.printer.axes[axis]
    address = f"pd_{role} + o_t[:, None] * sd_{role}[1] + {names.offsets}[None, :] * sd_{role}[3]"
    mask = tile_mask(names.mask) if axis == k.form.value_axis else f"tl.where(i_v == 0, {tile_mask(names.mask)}, False)"
    return (f"{name} = tl.load({address}, mask={mask}, other=0.0).to(ACC)",)


def rereads(k: ChunkKernels) -> bool:
    """Whether a gradient through the read-out depends on what was read."""
    program, _ = _readout_gradient(k, (*k.reads, *(a.value for a in k.arguments)))
    return bool(mentioned(program.statements) & {r.name for r in k.reads})
