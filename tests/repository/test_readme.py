"""The README's example runs as it stands."""

import re
from pathlib import Path

from recgen.lang import Source, format_spec

README = (Path(__file__).resolve().parents[2] / "README.md").read_text(encoding="utf-8")


def block(language: str) -> str:
    """The first fenced block of this language."""
    match = re.search(rf"```{language}\n(.*?)```", README, re.DOTALL)
    assert match is not None
    return match[1]


def test_the_example_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RECGEN_CACHE_DIR", str(tmp_path / "cache"))
    Path("gated_delta_rule.rec").write_text(block("text"), encoding="utf-8")
    names: dict[str, object] = {}
    exec(compile(block("python"), "README.md", "exec"), names)
    assert tuple(names["o"].shape) == (2, 512, 4, 64)
    assert tuple(names["state"].shape) == (2, 4, 64, 64)


def test_the_example_is_in_canonical_form():
    text = block("text")
    assert format_spec(Source("README.md", text)) == text


def test_every_command_is_listed():
    from recgen.cli import main

    for command in main.commands:
        assert f"    recgen {command}" in README
