"""The language's reference: every example compiles, every word is in it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from recgen.lang import Source, format_spec
from recgen.lang.declarations import DIRECTIVES, DOMAINS
from recgen.lang.functions import ARITY, CONTRACT_ARGUMENTS, LEADING_AXES
from recgen.lang.lexer import KEYWORDS
from recgen.pipeline import compile_text

PAGE = (Path(__file__).parents[2] / "specs" / "README.md").read_text(encoding="utf-8")


def blocks(kind: str) -> list[str]:
    return re.findall(rf"^```{kind}\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)


WHOLE, SHORT = blocks("rec"), blocks("rec lines")
(DECLARATIONS,) = blocks("rec declarations")


def completed(lines: str) -> str:
    """A short example between the page's declarations and equations, as far as it does not bring its own."""
    own = {_defined(line) for line in lines.splitlines()}
    given = [line for line in DECLARATIONS.splitlines() if line.strip() and _defined(line) not in own]
    equations = [line for line in given if "=" in line]
    words = set(re.findall(r"\w+", lines + "".join(equations)))
    declarations = [line for line in given if line not in equations and line.split()[1] in words]
    return "\n".join(["language 1", "recurrence example", *declarations, lines, *equations, ""])


def _defined(line: str) -> str:
    """What a line declares or defines, `S` and `S[t]` being two things."""
    words = line.split()
    return words[1] if words and words[0] in KEYWORDS else line.split("=")[0].strip()


@pytest.mark.parametrize("text", [*WHOLE, *map(completed, SHORT)])
def test_example_compiles(text):
    assert compile_text(text).warnings == ()


@pytest.mark.parametrize("text", WHOLE)
def test_whole_example_is_canonical(text):
    assert format_spec(Source("page", text)) == text


@pytest.mark.parametrize("word", sorted({*ARITY, *DOMAINS, *DIRECTIVES, *KEYWORDS, *CONTRACT_ARGUMENTS, *LEADING_AXES, "grouped"}))
def test_word_is_described(word):
    assert re.search(rf"`[^`\n]*\b{word}\b[^`\n]*`", PAGE), word


def test_every_block_is_of_a_known_kind():
    kinds = re.findall(r"^```([^\n]+)$", PAGE, re.MULTILINE)
    assert set(kinds) == {"rec", "rec lines", "rec declarations", "rec wrong", "python", "text"}
    assert len(SHORT) > 5
