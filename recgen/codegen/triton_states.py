"""The states in the recurrent kernels: the matrix block by block, vector states and the running maximum whole beside every block.

Every value block carries the vectors and the maximum, since its outputs may depend on them; the first block stores them. The gradient of a
vector state is a sum over value blocks, each of which knows the part that came through its own values.
"""

from __future__ import annotations

from dataclasses import dataclass

from recgen.analysis.normal_form import NormalForm


@dataclass(frozen=True)
class StatesText:
    """Lines of the kernels and of the host for every state; those of the matrix alone stand in the templates.

    `kernel`: pointers and strides in declaration order; `others`: the names of those beside the matrix. `record`: how many numbers the
    states of one head are, `work`: in the blocks of one program. `first`: the mask of what the first value block does for all. `before`:
    block names after a token become those before the next. `host`: of every state, what allots it and its gradient.
    """

    kernel: tuple[KernelState, ...]
    others: tuple[str, ...]
    record: str
    work: str
    first: tuple[str, ...]
    zeros: tuple[str, ...]
    load_initial: tuple[str, ...]
    save: tuple[str, ...]
    load_saved: tuple[str, ...]
    final: tuple[str, ...]
    before: tuple[str, ...]
    after: tuple[str, ...]
    store_work: tuple[str, ...]
    load_work: tuple[str, ...]
    load_gradient: tuple[str, ...]
    store_gradient: tuple[str, ...]
    load_step: tuple[str, ...]
    store_step: tuple[str, ...]
    work_pointers: tuple[str, ...]
    write_back: tuple[str, ...]
    host: tuple[HostState, ...]
    host_work: str
    scratch: tuple[ScratchState, ...]


@dataclass(frozen=True)
class KernelState:
    """The pointers and strides of one state in the kernels; those beside the matrix have names that no argument's pointer has."""

    initial: str
    s_initial: str
    final: str
    d_final: str
    ds_final: str
    d_initial: str
    state: str
    s_state: str


@dataclass(frozen=True)
class HostState:
    """One state on the host: names of the tensors that come and go, sizes of one head, and its gradient's memory and total."""

    initial: str
    final: str
    d_final: str
    d_initial: str
    state: str
    shape: str
    d_make: str
    d_total: str


@dataclass(frozen=True)
class ScratchState:
    """Where a step writes a state that all value blocks read, before another kernel puts it into the pool: name, and entries of a head."""

    name: str
    state: str
    entries: str


@dataclass(frozen=True)
class _Other:
    """A vector state or the running maximum in a kernel."""

    name: str
    block: str
    gradient: str
    zeros: str
    vector: bool
    at: str
    work: str

    @property
    def offsets(self) -> str:
        return " + o_k" if self.vector else ""

    @property
    def mask(self) -> str:
        return ", mask=m_k, other=0.0" if self.vector else ""

    @property
    def first(self) -> str:
        """The mask of what the first value block stores."""
        return ", mask=m_first" if self.vector else ", mask=i_v == 0"

    def strided(self, pointer: str, strides: str) -> str:
        return f"{pointer} + i_n * {strides}[0] + i_h * {strides}[1]" + (f" + o_k * {strides}[2]" if self.vector else "")

    def row(self, pointer: str) -> str:
        entries = " * K + o_k" if self.vector else ""
        return f"{pointer} + (i_n * HV + i_h){entries}"


def _others(form: NormalForm) -> tuple[_Other, ...]:
    found = []
    for i, column in enumerate(form.columns):
        name = column.name
        at, work = f" + K * (V + {i})", f" + 64 * BK * (BV + {i})"
        found.append(_Other(name, f"b_S_{name}", f"b_N_{name}", "tl.zeros((BK,), ACC)", True, at, work))
    if form.stabilizer is not None:
        count = len(form.columns)
        at, work = f" + K * (V + {count})", f" + 64 * BK * (BV + {count})"
        found.append(_Other(form.stabilizer.state.name, "b_scale", "", "tl.full((), 0.0, ACC)", False, at, work))
    return tuple(found)


def states_text(form: NormalForm) -> StatesText:
    """The lines of a form; none but the names for one with a matrix state alone."""
    others = _others(form)
    by_name = {o.name: o for o in others}
    vectors = tuple(o for o in others if o.vector)
    columns = f"(V + {len(form.columns)})" if form.columns else "V"
    blocks = f"(BV + {len(form.columns)})" if form.columns else "BV"
    scaled = " + 1" if form.stabilizer is not None else ""
    saved = "p_saved + {} * (" + f"K * {columns}{scaled})"
    at_slot, at_start = saved.format("((slot + t // 64) * HV + i_h)"), saved.format("((slot + start // 64) * HV + i_h)")
    work = f"64 * (BK * {blocks}{scaled})" if others else "64 * BK * BV"
    return StatesText(
        kernel=tuple(_kernel(s.name if s.name in by_name else "") for s in form.recurrence.states),
        others=tuple(o.name for o in others),
        record=f"K * {columns}{scaled}",
        work=work,
        first=("m_first = tl.where(i_v == 0, m_k, False)",) * bool(vectors),
        zeros=tuple(f"{o.block} = {o.zeros}" for o in others),
        load_initial=tuple(
            f"{o.block} = tl.load({o.strided(f'w_initial_{o.name}', f'ws_initial_{o.name}')}{o.mask}).to(ACC)" for o in others
        ),
        save=tuple(f"tl.store({at_slot}{o.at}{o.offsets}, {o.block}{o.first})" for o in others),
        load_saved=tuple(f"{o.block} = tl.load({at_start}{o.at}{o.offsets}{o.mask})" for o in others),
        final=tuple(f"tl.store({o.row(f'w_final_{o.name}')}, {o.block}{o.first})" for o in others),
        before=tuple(f"b_M_{o.name} = {o.block}" for o in vectors),
        after=tuple("b_scale = b_maximum" for o in others if not o.vector),
        store_work=tuple(f"tl.store(w_work_{o.name} + j{_row_of_work(o)}, {o.block})" for o in others),
        load_work=tuple(
            f"{f'b_M_{o.name}' if o.vector else o.block} = tl.load(w_work_{o.name} + (count - 1 - j){_row_of_work(o)})" for o in others
        ),
        load_gradient=tuple(line for o in vectors for line in _load_gradient(o)),
        store_gradient=tuple(line for o in vectors for line in _store_gradient(o)),
        load_step=tuple(line for o in others for line in _load_step(o)),
        store_step=tuple(f"tl.store({o.row(f'w_new_{o.name}')}, {o.block if o.vector else 'b_maximum'}{o.first})" for o in others),
        work_pointers=tuple(f"w_work_{o.name} = p_work + tl.program_id(0).to(tl.int64) * ({work}){o.work}" for o in others),
        write_back=tuple(line for o in others for line in _write_back(o)),
        host_work=f"64 * (_BK * {blocks.replace('BV', '_BV')}{scaled})" if others else "64 * _BK * _BV",
        scratch=tuple(ScratchState(f"_new_{o.name}", f"_state_{o.name}", f"_size_{form.key_axis}" if o.vector else "1") for o in others),
        host=tuple(_host(form, s.name, by_name.get(s.name)) for s in form.recurrence.states),
    )


def _kernel(name: str) -> KernelState:
    """The names of a vector state or the running maximum; of the matrix for ""."""
    if not name:
        return KernelState("p_initial", "s_initial", "p_final", "dp_final", "ds_final", "dp_initial", "p_state", "s_state")
    stems = ("w_initial", "ws_initial", "w_final", "wd_final", "wsd_final", "wd_initial", "w_state", "ws_state")
    return KernelState(*(f"{stem}_{name}" for stem in stems))


def _row_of_work(o: _Other) -> str:
    return " * BK + tl.arange(0, BK)" if o.vector else ""


def _load_gradient(o: _Other) -> tuple[str, ...]:
    """The gradient of a final vector state, for the first value block."""
    pointer = o.strided(f"wd_final_{o.name}", f"wsd_final_{o.name}")
    return (
        f"{o.gradient} = {o.zeros}",
        f"if wd_final_{o.name} is not None:",
        f"    {o.gradient} += tl.load({pointer}, mask=m_first, other=0.0).to(ACC)",
    )


def _store_gradient(o: _Other) -> tuple[str, ...]:
    """This value block's part of the gradient of an initial vector state."""
    rows = "((i_v * sequences + i_n) * HV + i_h) * K + o_k"
    return (f"if wd_initial_{o.name} is not None:", f"    tl.store(wd_initial_{o.name} + {rows}, {o.gradient}, mask=m_k)")


def _load_step(o: _Other) -> tuple[str, ...]:
    pool = f"w_state_{o.name} += slot * ws_state_{o.name}[0] + i_h * ws_state_{o.name}[1]"
    if o.vector:
        load = f"tl.load(w_state_{o.name} + o_k * ws_state_{o.name}[2], mask=tl.where(here, m_k, False), other=0.0)"
        return (pool, f"b_M_{o.name} = {load}.to(ACC)")
    return (pool, f"b_scale = tl.load(w_state_{o.name}, mask=here, other=0.0).to(ACC)")


def _write_back(o: _Other) -> tuple[str, ...]:
    """From the scratch to the pool."""
    offsets, mask = (f" + o_k * ws_state_{o.name}[2]", "m_here") if o.vector else ("", "here")
    return (
        f"w_state_{o.name} += slot * ws_state_{o.name}[0] + i_h * ws_state_{o.name}[1]",
        f"b_{o.name} = tl.load({o.row(f'w_new_{o.name}')}{o.mask})",
        f"tl.store(w_state_{o.name}{offsets}, b_{o.name}.to(w_state_{o.name}.dtype.element_ty), mask={mask})",
    )


def _host(form: NormalForm, name: str, other: _Other | None) -> HostState:
    """A state's names on the host."""
    one = len(form.recurrence.states) == 1
    keys, values = f"_size_{form.key_axis}", f"_size_{form.value_axis}"
    shape = f"{keys}, {values}" if other is None else f"{keys}," if other.vector else ""
    tail = "" if one else f"_{name}"
    initial, pool = ("initial_state", "state") if one else (f"_initial{tail}", f"_state{tail}")
    make, total = f"empty({initial}.shape", f"_d_initial{tail}"
    if other is not None:
        make = f"empty((_NV, _N, _HV, {keys})" if other.vector else f"zeros({initial}.shape"
        total += ".sum(0)" * other.vector
    return HostState(
        initial=initial,
        final=f"_final{tail}",
        d_final=f"_d_final{tail}",
        d_initial=f"_d_initial{tail}",
        state=pool,
        shape=shape,
        d_make=make,
        d_total=total,
    )
