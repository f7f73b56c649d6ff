"""Further columns of the state at the borders of the chunkwise kernels: pointers, loads and stores beside those of the matrix."""

from __future__ import annotations

from dataclasses import dataclass

from recgen.analysis.normal_form import NormalForm


@dataclass(frozen=True)
class ColumnText:
    """A vector state: its name, its number among the declared states, among the columns, and among the matrix and the columns."""

    name: str
    index: int
    number: int
    place: int


@dataclass(frozen=True)
class EdgeLines:
    """Lines at a sequence's and a chunk's borders; `first`: the mask of what the first value block does for all.

    Every value block of a scan carries the columns, and the first stores them. Of their gradients each block carries the part that came
    through its own values, and stores that: memory has the value blocks (NV) before the keys, and whoever reads adds them up.
    """

    first: tuple[str, ...]
    load: tuple[str, ...]
    save: tuple[str, ...]
    final: tuple[str, ...]
    load_gradient: tuple[str, ...]
    back: tuple[str, ...]
    save_gradient: tuple[str, ...]
    initial_gradient: tuple[str, ...]
    chunk: tuple[str, ...]


def columns_of(form: NormalForm) -> tuple[ColumnText, ...]:
    """The vector states of a form, in the order of its columns."""
    declared = [s.name for s in form.recurrence.states]
    return tuple(ColumnText(c.name, declared.index(c.name), i, i + 1) for i, c in enumerate(form.columns))


def scale_index(form: NormalForm) -> str:
    """The number of the running maximum among the declared states; "" without one."""
    if form.stabilizer is None:
        return ""
    return str([s.name for s in form.recurrence.states].index(form.stabilizer.state.name))


def in_order(form: NormalForm, matrix: str, column: str, scale: str) -> str:
    """Texts for the states as they were declared: `matrix`, `column` with {name} and {number} filled in, `scale` for the maximum."""
    columns = {c.name: column.format(name=c.name, number=c.number) for c in columns_of(form)}
    if form.stabilizer is not None:
        columns[form.stabilizer.state.name] = scale
    texts = tuple(columns.get(s.name, matrix) for s in form.recurrence.states)
    return ", ".join(texts)


def edge_lines(columns: tuple[ColumnText, ...]) -> EdgeLines:
    """The lines of all columns."""
    names = [c.name for c in columns]
    first = "mask=m_first"
    return EdgeLines(
        first=("m_first = tl.where(i_v == 0, m_k, False)",) * bool(names),
        load=tuple(line for n in names for line in _edge(f"b_S_{n}", f"w_initial_{n}", f"ws_initial_{n}", "mask=m_k")),
        save=tuple(
            f"tl.store(w_states_{n} + ((slot + i_c) * HV + i_h) * K + o_k, b_S_{n}.to(w_states_{n}.dtype.element_ty), {first})"
            for n in names
        ),
        final=tuple(f"tl.store(w_final_{n} + (i_n * HV + i_h) * K + o_k, b_S_{n}, {first})" for n in names),
        load_gradient=(
            *(line for n in names for line in _edge(f"b_dS_{n}", f"wd_final_{n}", f"wsd_final_{n}", first)),
            *(f"w_states_{n} += ((slot + until) * HV + i_h) * K" for n in names),
            *(f"w_dstates_{n} += (((slot + until) * HV + i_h) * NV + i_v) * K" for n in names),
        ),
        back=tuple(line for n in names for line in (f"w_states_{n} -= HV * K", f"w_dstates_{n} -= HV * NV * K")),
        save_gradient=tuple(f"tl.store(w_dstates_{n} + o_k, b_dS_{n}, mask=m_k)" for n in names),
        initial_gradient=tuple(f"tl.store(wd_initial_{n} + ((i_n * HV + i_h) * NV + i_v) * K + o_k, b_dS_{n}, mask=m_k)" for n in names),
        chunk=tuple(
            line for n in names for line in (f"w_states_{n} += (i_p * HV + i_h) * K", f"w_dstates_{n} += (i_p * HV + i_h) * PARTS * K")
        ),
    )


def _edge(block: str, pointer: str, strides: str, mask: str) -> tuple[str, ...]:
    """A column where a sequence starts, zeros if nothing came."""
    address = f"{pointer} + i_n * {strides}[0] + i_h * {strides}[1] + o_k * {strides}[2]"
    return (
        f"if {pointer} is not None:",
        f"    {block} = tl.load({address}, {mask}, other=0.0).to(ACC)",
        "else:",
        f"    {block} = tl.zeros((BK,), ACC)",
    )
