"""The states of a form in the PyTorch chunk form: how they become one, how they decay, and the recurrent form of one token."""

from __future__ import annotations

from dataclasses import dataclass

from recgen.analysis.coupled_form import CoupledForm
from recgen.analysis.normal_form import NormalForm
from recgen.codegen.joined_states import apart_lines, joined_lines, stacked_lines, unstacked_lines
from recgen.codegen.torch_printer import Line
from recgen.derive.operands import OperandSet, ReadNames, StreamNames


@dataclass(frozen=True)
class StatesText:
    """What the PyTorch forms say of a form's states.

    `scale`: the running maximum among them, "" for none; `joined`: lines that make one state of all, `apart` their inverse; `signed`: a
    decay may be negative; `bounded`: all decays forget; `token`: the recurrent form of one token, where it is made of operands.
    """

    plural: str
    scale: str
    joined: tuple[str, ...]
    apart: tuple[str, ...]
    signed: bool
    bounded: bool
    token: tuple[Line, ...]


def states_text(form: NormalForm, operands: OperandSet) -> StatesText:
    """Of a normal form."""
    several = len(form.recurrence.states) > 1
    return StatesText(
        plural="s" if several else "",
        scale="" if form.stabilizer is None else str(form.recurrence.states.index(form.stabilizer.state)),
        joined=joined_lines(form) if several else (),
        apart=apart_lines(form),
        signed=form.decay.signed is not None or form.value_decay.signed is not None,
        bounded=form.decay.bounded and form.value_decay.bounded,
        token=_token(form, operands),
    )


def stacked_states_text(form: CoupledForm) -> StatesText:
    """Of a coupled form, whose tokens are those of its token form."""
    signed, bounded = any(d.signed is not None for d in form.decays), all(d.bounded for d in form.decays)
    return StatesText("s", "", stacked_lines(form), unstacked_lines(form), signed, bounded, ())


def _token(form: NormalForm, operands: OperandSet) -> tuple[Line, ...]:
    """The recurrent form of one token, operands as rows."""
    lines = []
    for s in operands.streams:
        if s.columns and s.value:
            beside = ", ".join((s.value, *(c or f"torch.zeros_like({s.value}[..., :1])" for c in s.columns)))
            lines.append(Line("what is written, with the further columns", f"written{s.tag} = torch.cat(({beside}), -1)"))
    before = [read for read in operands.reads if read.lag == 1]
    lines += [Line(f"reads before the write: {_read_text(read)}", _read_line(read, "S")) for read in before]
    decayed = "S"
    if form.decay.kind != "none":
        sign = " * sign.mT" if form.decay.signed is not None else ""
        decay = f"torch.exp(log_decay).mT{sign}"
        if operands.stabilized:
            lines.append(Line("the running maximum", "maximum = torch.maximum(log_decay + scale, log_weight)"))
            decay = "torch.exp((scale - maximum) + log_decay)"
        lines.append(Line("the state forgets", f"D = S * {decay}"))
        decayed = "D"
    if form.value_decay.kind != "none":
        sign = " * value_sign" if form.value_decay.signed is not None else ""
        lines.append(Line("its values forget", f"D = {decayed} * torch.exp(value_log_decay){sign}"))
        decayed = "D"
    slots = sorted({s.slot for s in operands.streams})
    early = [r for r in operands.reads if r.lag == 0 and r.slot < slots[0]]
    lines += [Line("reads before the first write", _read_line(r, decayed)) for r in early]
    for slot, following in zip(slots, [*slots[1:], None], strict=True):
        streams = tuple(s for s in operands.streams if s.slot == slot)
        lines += _resolved(streams, decayed, "S" if slot == slots[0] else decayed)
        writes = [f"{s.write}.mT * {f'E{s.tag}' if s.correct else _weighted(s, operands.stabilized)}" for s in streams]
        after = "S" if following is None else "D"
        meaning = "the new state: decay, then write w E^T" if len(slots) == 1 else "the state after a micro-step"
        lines.append(Line(meaning, f"{after} = {decayed} + {' + '.join(writes)}"))
        seeing = [r for r in operands.reads if r.lag == 0 and slot <= r.slot and (following is None or r.slot < following)]
        lines += [Line(f"reads after the write: {_read_text(r)}", _read_line(r, after)) for r in seeing]
        decayed = after
    return tuple(lines)


def _resolved(streams: tuple[StreamNames, ...], decayed: str, before: str) -> list[Line]:
    """What the correcting streams of one micro-step write, from the state `decayed`, or from that before its decay."""
    lines = []
    for s in streams:
        if s.correct:
            found = f"({s.correct} @ {decayed if s.decayed else before})"
            answer = f"{s.strength} * {found}" if s.strength else found
            lines.append(
                Line("what is written: X + c S^T a", f"E{s.tag} = {_written(s)} + {answer}" if s.value else f"E{s.tag} = {answer}")
            )
    return lines


def _read_text(read: ReadNames) -> str:
    return f"S_{'{t-1}' if read.lag else 't'}{'' if read.across else '^T'} q"


def _read_line(read: ReadNames, state: str) -> str:
    """A read of a state [K, V] by a row."""
    return f"read{read.tag} = {read.query} @ {state}{'.mT' * read.across}"


def _written(s: StreamNames) -> str:
    """The values of a stream, with the further columns beside them."""
    return f"written{s.tag}" if s.columns else s.value


def _weighted(s: StreamNames, stabilized: bool) -> str:
    """What a plain stream writes, scaled by its weight."""
    return f"({_written(s)} * torch.exp(log_weight - maximum))" if stabilized else _written(s)
