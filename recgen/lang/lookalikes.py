"""Spellings from papers and other languages that mean something here: what was written -> what to write."""

from __future__ import annotations

import re
import unicodedata

SUPERSCRIPTS = "ᵀ²³¹⁻"
"""Letters and digits to Python's eyes, but never part of a name."""

_EXACT = {
    "**": "^",
    ".T": "^T",
    "'": "^T",
    "ᵀ": "^T",
    "⊤": "^T",
    "²": "^2",
    "³": "^3",
    "⁻¹": "^-1",
    "==": "=",
    ":=": "=",
    "×": "*",
    "·": "*",
    "⋅": "*",
    "∙": "*",
    "∗": "*",
    "∘": "*",
    "⊙": "*",
    "÷": "/",
    "−": "-",
    "–": "-",
    "—": "-",
    "≤": "<=",
    "≥": ">=",
    "∞": "inf",
    "\N{NO-BREAK SPACE}": " ",
}

_TRANSPOSE = r"\^[ \t]*\{[ \t]*\\?(?:T|top)[ \t]*\}|\^[ \t]*\\top|\^[ \t]*[⊤ᵀ]"
_LATEX_STATE = r"[A-Za-z]\w*_\{[ \t]*t[ \t]*(?:-[ \t]*1)?[ \t]*\}|[A-Za-z][A-Za-z0-9_]*ₜ(?:₋₁)?"

_SYMBOLS = "|".join(re.escape(k) for k in sorted(_EXACT, key=len, reverse=True) if k != ".T")

PATTERN = rf"{_LATEX_STATE}|{_TRANSPOSE}|{_SYMBOLS}|\.T(?!\w)"
"""Matches every look-alike that is not a name."""

# Python's own keyword `lambda` cannot be an argument name.
_GREEK_SHORT = {"lamda": "lam", "lambda": "lam"}


def replacement(found: str) -> str:
    """What to write instead of a text that `PATTERN` matched."""
    if found in _EXACT:
        return _EXACT[found]
    if "ₜ" in found:
        name = found.split("ₜ")[0]
        return f"{name}[t-1]" if found.endswith("₋₁") else f"{name}[t]"
    if "_{" in found:
        name, index = found.rstrip("}").split("_{")
        return f"{name}[{''.join(index.split())}]"
    return "^T"


def ascii_name(name: str) -> str | None:
    """A name in ASCII for one that is not: Greek letters spelled, other letters folded; None where there is no good one."""
    parts = []
    for char in name:
        described = unicodedata.name(char, "")
        if described.startswith("GREEK ") and " LETTER " in described:
            letter = described.split(" LETTER ")[1].split()[0].lower()
            parts.append(_GREEK_SHORT.get(letter, letter))
        else:
            parts.append("".join(c for c in unicodedata.normalize("NFKD", char) if c.isascii()))
    folded = "".join(parts)
    return folded if re.fullmatch(r"[A-Za-z_]\w*", folded, re.ASCII) else None
