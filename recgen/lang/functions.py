"""The functions of the language, and the words that no name may take."""

from __future__ import annotations

import builtins
import keyword

from recgen.lang.terms import ELEMENTWISE, ROW_FUNCTIONS

ARITY: dict[str, int] = {**dict.fromkeys(ELEMENTWISE, 1), **dict.fromkeys(ROW_FUNCTIONS, 1), "min": 2, "max": 2, "where": 3}
"""Function -> number of arguments."""

CONTRACT_ARGUMENTS = ("initial_state", "output_final_state", "cu_seqlens", "chunk_size", "state_v_first", "state", "state_indices")
"""Arguments that generated functions add to those of the spec."""

USED_BY_GENERATED = frozenset({
    "RuntimeError", "advice", "any", "arguments", "bool", "bounds", "chunk", "device", "dict", "final", "flags", "float", "form",
    "indices", "initial", "int", "isinstance", "len", "numbers", "options", "outputs", "results", "rows", "saved",
    "single", "sizes", "slots", "states", "tl", "tokens", "torch", "triton", "tuple", "v_first", "work", "zip",
})  # fmt: skip
"""Names that generated functions use themselves: no argument of theirs can have them."""

IMPORTED_BY_GENERATED = frozenset({
    "Any", "Callable", "F", "Iterator", "NamedTuple", "ThreadPoolExecutor", "functools", "math", "os", "pairwise", "threading", "tl",
    "torch", "triton", "wait",
})  # fmt: skip
"""Names that generated modules import: a function of one of these names would stand in its place."""

LEADING_AXES = ("B", "T", "H", "HV")
"""Axes that generated functions put before those of the spec: rows, tokens, heads of grouped inputs, value heads."""

_WORDS = {
    "t": "it is the time index",
    "T": "`^T` is the transpose",
    "I": "it is the identity matrix",
    "true": "it is a value of options",
    "false": "it is a value of options",
    "inf": "it is a number",
}


def argument_reason(name: str) -> str | None:
    """Why an input, a param or an option cannot have a name, beyond what holds for every name; None if it can."""
    if name.startswith("_"):
        return "arguments of generated functions begin with a letter"
    return "generated functions use it" if name in USED_BY_GENERATED else None


def recurrence_reason(name: str) -> str | None:
    """Why a recurrence, and with it a function of its module, cannot have a name, beyond what holds for every name; None if it can."""
    if name.startswith("_"):
        return "public functions of generated modules begin with a letter"
    if name in IMPORTED_BY_GENERATED:
        return "generated modules import it"
    return "it is a builtin of Python, where generated code runs" if hasattr(builtins, name) else None


def reserved_reason(name: str) -> str | None:
    """Why a name cannot be defined, or None if it can."""
    if name in _WORDS:
        return _WORDS[name]
    if keyword.iskeyword(name):
        return "it is a keyword of Python, where generated code runs"
    if name in CONTRACT_ARGUMENTS:
        return "generated functions have an argument of this name"
    if name in ARITY:
        return "it is a function"
    return None
