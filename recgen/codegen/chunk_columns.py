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
class CombineLines:
    """Columns in the kernel that combines segments: from where the sequences start, on through each segment as `b_passing` says."""

    load: tuple[str, ...]
    store: tuple[str, ...]
    carry: tuple[str, ...]


@dataclass(frozen=True)
class EdgeLines:
    """Lines at a sequence's, a segment's and a chunk's borders; `first`: the mask of what the first value block does for all.

    Every value block of a scan carries the columns, and the first stores them. Of their gradients each block carries the part that came
    through its own values, and stores that: memory has the value blocks (NV) before the keys, and whoever reads adds them up.

    Between segments each block has its own of both: in summaries and in the states at the borders, NV columns for each of them follow the
    matrix's V. `held` says how many these are, which stand before what passes a state on, `stride` the same as a factor.
    """

    count: int
    held: str
    stride: str
    combine: CombineLines
    summary: tuple[str, ...]
    summary_gradient: tuple[str, ...]
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


def edge_lines(columns: tuple[ColumnText, ...], corrects: bool) -> EdgeLines:
    """The lines of all columns; `corrects`: a segment passes a state on by a matrix, else by a decay for each key."""
    names = [c.name for c in columns]
    held = _behind(len(names))
    return EdgeLines(
        count=len(names),
        held=held,
        stride=f"({held})" if names else held,
        combine=CombineLines(
            load=_from_edges(columns),
            store=tuple(f"tl.store(w_starts + rows * ({held}) + {_own(c)}, b_S_{c.name}, mask=m_k)" for c in columns),
            carry=tuple(line for c in columns for line in _carried(c, corrects)),
        ),
        summary=tuple(_summarised(c, f"b_S_{c.name}") for c in columns),
        summary_gradient=tuple(_summarised(c, f"b_dS_{c.name}") for c in columns),
        first=("m_first = tl.where(i_v == 0, m_k, False)",) * bool(names),
        load=tuple(line for c in columns for line in _started(c, f"b_S_{c.name}", "initial", "m_k")),
        save=tuple(
            f"tl.store(w_states_{n} + ((slot + i_c) * HV + i_h) * K + o_k, b_S_{n}.to(w_states_{n}.dtype.element_ty), mask=m_first)"
            for n in names
        ),
        final=tuple(f"tl.store(w_final_{n} + (i_n * HV + i_h) * K + o_k, b_S_{n}, mask=m_first)" for n in names),
        load_gradient=(
            *(line for c in columns for line in _started(c, f"b_dS_{c.name}", "d_final", "m_first")),
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


def _behind(count: int) -> str:
    """The columns of the matrix and of so many further ones between segments."""
    return " + ".join(("V", *("NV" if count == 1 else f"{count} * NV",) * bool(count)))


def _own(c: ColumnText) -> str:
    """Which of the columns between segments a value block has of a further one."""
    return f"{_behind(c.number)} + i_v"


def _summarised(c: ColumnText, block: str) -> str:
    """Stores what a segment adds to a column; the identity's blocks find nothing."""
    return f"tl.store(w_summary + {_own(c)}, {block}, mask=tl.where(m_one, False, m_k))"


def _started(c: ColumnText, block: str, edge: str, mask: str) -> tuple[str, ...]:
    """A column where a scan starts: zeros for a summary, behind the matrix (whose pointer stands at its own) for a segment."""
    matrix = _edge_names(edge)
    pointer, strides = (f"{name}_{c.name}" for name in matrix)
    return (
        "if SUMMARY:",
        f"    {block} = tl.zeros((BK,), ACC)",
        "elif CUT:",
        f"    {block} = tl.load({matrix[0]} + o_k * {matrix[1]}[2] + {_own(c)}, mask=m_k, other=0.0)",
        f"elif {pointer} is not None:",
        f"    {block} = {_loaded(pointer, strides, mask)}",
        "else:",
        f"    {block} = tl.zeros((BK,), ACC)",
    )


def _edge_names(edge: str) -> tuple[str, str]:
    """The pointer to a state where sequences start, and its strides."""
    return ("wd_final", "wsd_final") if edge == "d_final" else (f"w_{edge}", f"ws_{edge}")


def _loaded(pointer: str, strides: str, mask: str) -> str:
    """A column where a sequence starts."""
    return f"tl.load({pointer} + i_n * {strides}[0] + i_h * {strides}[1] + o_k * {strides}[2], mask={mask}, other=0.0).to(ACC)"


def _from_edges(columns: tuple[ColumnText, ...]) -> tuple[str, ...]:
    """Columns where the sequences start; a gradient that comes in belongs to the first value block alone."""
    lines = ["m_edge = tl.where(i_v == 0, m_k, False) if BACKWARDS else m_k"] * bool(columns)
    for c in columns:
        pointer, strides = (f"{name}_{c.name}" for name in _edge_names("edge"))
        lines += [
            f"if {pointer} is not None:",
            f"    b_S_{c.name} = {_loaded(pointer, strides, 'm_edge')}",
            "else:",
            f"    b_S_{c.name} = tl.zeros((BK,), ACC)",
        ]
    return tuple(lines)


def _carried(c: ColumnText, corrects: bool) -> tuple[str, ...]:
    """A column through one segment."""
    block = f"b_S_{c.name}"
    passed = f"tl.sum(b_passing * {block}[None, :], 1)" if corrects else f"{block} * b_passing"
    return (f"{block} = {passed} + tl.load(w_summary + rows * WIDTH + {_own(c)}, mask=m_k, other=0.0)",)
