"""Definitions named like what emitted functions call their own things: under names of their own there."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TypeVar

from recgen.analysis.coupled_form import CoupledForm
from recgen.analysis.normal_form import NormalForm, Output
from recgen.analysis.token_form import TokenForm
from recgen.lang.functions import argument_reason
from recgen.lang.recurrence import Definition, Recurrence

AnyForm = TypeVar("AnyForm", NormalForm, CoupledForm, TokenForm)
Named = TypeVar("Named", Definition, Output)


def emitted_name(name: str) -> str:
    """What emitted functions call a definition: what no argument may be called, or would be a state's there, is renamed.

    No two become the same, nor an argument's, which has no underscore at the front.
    """
    ours = argument_reason(name) is not None or re.match("(initial|final)_", name) is not None
    return f"_value_{name}" if ours else name


def with_emitted_names(form: AnyForm) -> AnyForm:
    """The form with every definition under the name that emitted functions know it by."""
    if isinstance(form, CoupledForm):
        return replace(form, token=with_emitted_names(form.token), outputs=_renamed(form.outputs))
    return replace(form, recurrence=_recurrence(form.recurrence), outputs=_renamed(form.outputs))


def _recurrence(r: Recurrence) -> Recurrence:
    return replace(r, definitions=_renamed(r.definitions), outputs=tuple(emitted_name(name) for name in r.outputs))


def _renamed(named: tuple[Named, ...]) -> tuple[Named, ...]:
    return tuple(replace(x, name=emitted_name(x.name)) for x in named)
