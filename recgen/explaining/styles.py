"""How formulas are written: as Unicode text, and as LaTeX.

Printers of terms and of chunk steps are written once over these two; a `Formula` holds both results.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class Formula:
    """One formula in both notations."""

    text: str
    latex: str


class Style(Protocol):
    """The marks of one notation; every method takes and gives finished pieces."""

    hadamard: str
    kronecker: str
    times: str
    becomes: str

    def symbol(self, base: str, sup: str = "", sub: str = "") -> str:
        """A letter with its indices."""

    def indexed(self, piece: str, sub: str) -> str:
        """An entry or a row of a piece that needs no brackets."""

    def part(self, piece: str, entries: str) -> str:
        """The part of a piece with these entries; the piece needs no brackets."""

    def transposed(self, piece: str) -> str:
        """The transpose of a piece that needs no brackets."""

    def brackets(self, piece: str) -> str:
        """The piece in round brackets."""

    def exp(self, piece: str) -> str:
        """e to the piece."""

    def diag(self, piece: str) -> str:
        """The diagonal matrix of a vector."""

    def inverse(self, piece: str) -> str:
        """The inverse of a piece that needs no brackets."""

    def call(self, name: str, *pieces: str) -> str:
        """A function by name."""

    def total(self, under: str, piece: str) -> str:
        """The sum over the indices `under` of the piece."""

    def words(self, text: str) -> str:
        """Plain words inside a formula."""


_DIGITS = str.maketrans("₀₁₂₃₄₅₆₇₈₉", "0123456789")
_SUBSCRIPTS = str.maketrans("0123456789ijktv-", "₀₁₂₃₄₅₆₇₈₉ᵢⱼₖₜᵥ₋")


class Text:
    """Unicode, one line."""

    hadamard = " ∘ "
    kronecker = " ⊗ "
    times = " "
    becomes = "←"

    def symbol(self, base: str, sup: str = "", sub: str = "") -> str:
        """A^qk₁₂, Gᵢ, Γ."""
        return self.indexed(f"{base}{'^' + sup if sup else ''}", sub)

    def indexed(self, piece: str, sub: str) -> str:
        """Small indices after the piece, or an underscore where Unicode has none."""
        lower = sub.translate(_SUBSCRIPTS)
        return piece + (lower if not set(lower) & {*sub} - {","} else f"_{sub}")

    def part(self, piece: str, entries: str) -> str:
        """Γ(i-1,j)."""
        return f"{piece}({entries})"

    def transposed(self, piece: str) -> str:
        """Kᵀ, (A^qk)ᵀ."""
        plain = len(piece) == 1 or (piece[0] != "(" and "^" not in piece and " " not in piece) or _closed(piece)
        return f"{piece}ᵀ" if plain and not piece.endswith(("ᵀ", "¹")) else f"({piece})ᵀ"

    def brackets(self, piece: str) -> str:
        """(a + b)."""
        return f"({piece})"

    def exp(self, piece: str) -> str:
        """e^G, e^(G_C - G)."""
        return f"e^{piece}" if len(piece) == 1 else f"e^({piece})"

    def diag(self, piece: str) -> str:
        """A diagonal matrix."""
        return f"diag({piece})"

    def inverse(self, piece: str) -> str:
        """(I - L)⁻¹."""
        return f"{piece}⁻¹"

    def call(self, name: str, *pieces: str) -> str:
        """tril(A, -1)."""
        return f"{name}({', '.join(pieces)})"

    def total(self, under: str, piece: str) -> str:
        """Σ_k a b."""
        return f"{self.indexed('Σ', under)} {piece}" if " " not in under else f"Σ_({under}) {piece}"

    def words(self, text: str) -> str:
        """As they are."""
        return text


class Latex:
    """LaTeX with amsmath."""

    hadamard = r" \odot "
    kronecker = r" \otimes "
    times = r" \, "
    becomes = r"\leftarrow"

    def symbol(self, base: str, sup: str = "", sub: str = "") -> str:
        r"""A^{\mathrm{qk}}_{12}."""
        name = _LETTERS.get(base, base if len(base) == 1 else _differential(base))
        upper = f"^{{{_superscript(sup)}}}" if sup else ""
        return f"{name}{upper}{f'_{{{sub}}}' if sub else ''}"

    def indexed(self, piece: str, sub: str) -> str:
        r"""\left( A \odot B \right)_{ij}."""
        return f"{piece}_{{{sub}}}" if sub else piece

    def part(self, piece: str, entries: str) -> str:
        """Γ(i-1,j)."""
        return f"{piece}({entries})"

    def transposed(self, piece: str) -> str:
        r"""K^\top, {A^{qk}}^\top."""
        return f"{piece}^\\top" if "^" not in piece or piece.endswith(r"\right)") else f"{{{piece}}}^\\top"

    def brackets(self, piece: str) -> str:
        r"""\left( a + b \right)."""
        return rf"\left( {piece} \right)"

    def exp(self, piece: str) -> str:
        """e^{G}."""
        return f"e^{{{piece}}}"

    def diag(self, piece: str) -> str:
        r"""\operatorname{diag}(c)."""
        return rf"\operatorname{{diag}}\left( {piece} \right)"

    def inverse(self, piece: str) -> str:
        r"""\left( I - L \right)^{-1}."""
        return f"{piece}^{{-1}}"

    def call(self, name: str, *pieces: str) -> str:
        r"""\operatorname{tril}(A, -1)."""
        return rf"\operatorname{{{name}}}\left( {', '.join(pieces)} \right)"

    def total(self, under: str, piece: str) -> str:
        r"""\sum_{k} a b."""
        relations = under.replace("≤", r"\le ").replace("≥", r"\ge ")
        return rf"\sum_{{{relations}}} {piece}"

    def words(self, text: str) -> str:
        r"""\text{...}, comparisons as mathematics."""
        return escaped(text).join((r"\text{", "}"))


TEXT = Text()
LATEX = Latex()


def formula(write: Callable[[Style], str]) -> Formula:
    """Writes a formula in both notations."""
    return Formula(write(TEXT), write(LATEX))


_LETTERS = {
    "Γ": r"\Gamma", "Φ": r"\Phi", "α": r"\alpha", "γ": r"\gamma", "alpha": r"\alpha", "beta": r"\beta", "gamma": r"\gamma",
    "delta": r"\delta", "eta": r"\eta", "kappa": r"\kappa", "lambda": r"\lambda", "mu": r"\mu", "sigma": r"\sigma", "tau": r"\tau",
    "theta": r"\theta",
}  # fmt: skip


def _differential(base: str) -> str:
    """dA as a differential, any other longer name upright."""
    if base.startswith("d") and base[1:] in {*_LETTERS, *"ABCDEGHKLMOPQRSUVWXYZacgqw"}:
        return f"d{_LETTERS.get(base[1:], base[1:])}"
    return rf"\mathrm{{{escaped(base)}}}"


def _superscript(sup: str) -> str:
    return sup if len(sup) == 1 and not sup.isalpha() else rf"\mathrm{{{sup}}}"


def _closed(piece: str) -> bool:
    """Whether one pair of brackets holds the whole piece."""
    if not (piece.startswith("(") and piece.endswith(")")):
        return False
    depth = 0
    for i, c in enumerate(piece):
        depth += (c == "(") - (c == ")")
        if depth == 0:
            return i == len(piece) - 1
    return False


_ESCAPES = {
    "\\": r"\textbackslash{}", "_": r"\_", "%": r"\%", "&": r"\&", "#": r"\#", "$": r"\$", "{": r"\{", "}": r"\}", "^": r"\^{}",
    "~": r"\~{}", "<": "$<$", ">": "$>$", "≤": r"$\le$", "≥": r"$\ge$", "Γ": r"$\Gamma$", "∘": r"$\odot$", "ᵀ": r"$^\top$",
    "α": r"$\alpha$", "β": r"$\beta$", "×": r"$\times$", "→": r"$\to$", "−": "$-$", "·": r"$\cdot$",
}  # fmt: skip


def escaped(text: str) -> str:
    """Text for LaTeX's text mode."""
    return "".join(_ESCAPES.get(c) or (f"$_{c.translate(_DIGITS)}$" if c in "₀₁₂₃₄₅₆₇₈₉" else c) for c in text)
