"""recgen compiles a linear-attention recurrence, written as on paper, to the PyTorch and Triton forms that train and serve it.

    import recgen
    rule = recgen.load("gated_delta_rule.rec")
    o, final_state = rule.gated_delta_rule(q, k, v, g, beta)

Importing this package imports neither torch nor the compiler; each function imports what it needs.
"""

from __future__ import annotations

from os import PathLike, fspath
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import ModuleType

    from recgen.pipeline import AnyCompiled

__version__ = "0.1.0"
__all__ = ["__version__", "compile", "explain", "load"]


def compile(spec: str | PathLike[str]) -> AnyCompiled:
    """Run every stage over a spec: parse, check, analyze, derive, plan, emit.

    Args:
        spec: the path of a `.rec` file, or the text itself (a string with a line break is text).

    Returns:
        every stage's result, the warnings, and the emitted module's text.

    Raises:
        recgen.lang.SpecErrors: when the spec is wrong; its text is what `recgen check` prints.
        OSError: when the file cannot be read.
    """
    name, text = _read(spec)
    from recgen.pipeline import compile_text

    return compile_text(text, name)


def load(spec: str | PathLike[str]) -> ModuleType:
    """Compile a spec and import the emitted module, which lies as a readable file in the cache (`module.__file__`).

    The same text gives the same module object for the life of the process.

    Args:
        spec: the path of a `.rec` file, or the text itself (a string with a line break is text).

    Raises:
        recgen.lang.SpecErrors: when the spec is wrong.
        OSError: when the file cannot be read.
        recgen.cache.CacheError: when the cached file has been edited or damaged, or the cache's folder cannot be written.
    """
    from recgen import cache

    module = compile(spec).module
    return cache.load(module.name, module.text)


def explain(spec: str | PathLike[str], stage: str | None = None, format: str = "text") -> str:
    """What the compiler found and derived: the class and the refusals with their reasons, the derivation, the proof, the kernels.

    Args:
        spec: the path of a `.rec` file, or the text itself (a string with a line break is text).
        stage: one stage of the compiler; all of them by default.
        format: `text`, `latex` or `json`.

    Raises:
        recgen.lang.SpecErrors: when the spec is wrong.
        OSError: when the file cannot be read.
    """
    compiled = compile(spec)
    from recgen.explanation import explain as explain_compiled

    return explain_compiled(compiled, stage, format)


def _read(spec: str | PathLike[str]) -> tuple[str, str]:
    """The name under which messages cite the spec, and its text."""
    path = fspath(spec)
    if "\n" in path:
        return "<text>", path
    from recgen.lang import read_source

    source = read_source(path)
    return source.name, source.text
