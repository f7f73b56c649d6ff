"""Explanations: expected texts, formulas that a reader of the literature knows, sound LaTeX, stable JSON."""

import json
import re

import pytest

from recgen.explaining.cost import Polynomial, backward_flops, forward_flops, monomial
from recgen.explanation import FORMATS, STAGES, explain
from tests.explain.helpers import EMBEDDED, GOLDEN, ROOT, SPECS, compiled, embedded, golden_text


@pytest.mark.parametrize("path", GOLDEN, ids=lambda p: p.name)
def test_expected_text(path):
    assert golden_text(*GOLDEN[path]) == path.read_text(encoding="utf-8"), "if this is meant: python -m tests.explain.accept"


@pytest.mark.parametrize("path", EMBEDDED, ids=lambda p: p.name)
def test_pages_show_real_output(path):
    page = path.read_text(encoding="utf-8")
    assert embedded(page, *EMBEDDED[path]) == page, "python -m tests.explain.accept"


@pytest.mark.parametrize("path", SPECS, ids=lambda p: p.stem)
@pytest.mark.parametrize("format", FORMATS)
def test_every_spec_in_every_format(path, format):
    whole = explain(compiled(path), None, format)
    if format == "json":
        assert json.loads(whole) == {stage: json.loads(explain(compiled(path), stage, format))[stage] for stage in STAGES}
    else:
        assert whole == "\n".join(explain(compiled(path), stage, format) for stage in STAGES)


@pytest.mark.parametrize("path", SPECS, ids=lambda p: p.stem)
def test_latex_is_balanced(path):
    text = re.sub(r"\\begin\{verbatim\}.*?\\end\{verbatim\}", "", explain(compiled(path), None, "latex"), flags=re.DOTALL)
    open_braces = 0
    for brace in re.findall(r"(?<!\\)[{}]", text):
        open_braces += 1 if brace == "{" else -1
        assert open_braces >= 0
    assert open_braces == 0
    assert text.count(r"\left") - text.count(r"\leftarrow") == text.count(r"\right")
    assert re.findall(r"\\begin\{(.*?)\}", text) != []
    environments: list[str] = []
    for kind, name in re.findall(r"\\(begin|end)\{(.*?)\}", text):
        if kind == "begin":
            environments.append(name)
        else:
            assert environments.pop() == name
    assert environments == []
    assert text.isascii(), sorted({c for c in text if not c.isascii()})
    for line in re.findall(r"\\begin\{align\*\}\n(.*?)\n\\end", text, flags=re.DOTALL):
        assert all(" &= " in row or r" &\leftarrow " in row for row in line.split(" \\\\\n")), line


def derivation(spec):
    lines = explain(compiled(ROOT / f"specs/{spec}.rec"), "derive", "text").split("\n")
    return {re.split(r"\s{3,}", line.strip())[0] for line in lines}


def test_linear_attention_is_the_masked_product_of_its_article():
    """H = S_0 Q + V (M ∘ KᵀQ), with tokens as rows: O = Q S + tril(Q Kᵀ) V."""
    assert {"A^qk = tril(Q Kᵀ)", "S ← S + (K^end)ᵀ X", "O = Q S + A^qk X"} <= derivation("linear_attention")


def test_mamba2_has_gamma():
    """H = S_0 Q D_γ + V (Γ ∘ KᵀQ)."""
    assert {
        "Γᵢⱼ = e^(Gᵢ - Gⱼ) for j ≤ i, else 0",
        "A^qk = (Q Kᵀ) ∘ Γ",
        "K^end = diag(e^(G_C - G)) K",
        "S ← e^(G_C) S + (K^end)ᵀ X",
        "O = diag(e^G) Q S + A^qk X",
    } <= derivation("mamba2")


def test_gated_delta_rule_has_the_wy_form():
    """W = K D_β (I + ..)⁻¹ and U = V D_β (I + Γ ∘ ..)⁻¹, with c = -β and X = β v."""
    assert {
        "A^kk = tril((K Kᵀ) ∘ Γ, -1)",
        "L = diag(c) A^kk",
        "U = (I - L)⁻¹ X",
        "W = (I - L)⁻¹ diag(c ∘ e^G) K",
        "E = U + W S",
        "S ← e^(G_C) S + (K^end)ᵀ E",
        "O = diag(e^G) Q S + A^qk E",
    } <= derivation("gated_delta_rule")


def test_kda_carries_the_decay_in_its_scores():
    """χ_ij = k_jᵀ D_{j+1:i} q_i, ρ_ij = β_i k_jᵀ D_{j+1:i} k_i, E = (I + R)⁻¹ Ē, S' = D S + K^endᵀ E."""
    assert {
        "A^qkᵢⱼ = Σₖ Qᵢₖ e^(Gᵢₖ - Gⱼₖ) Kⱼₖ for j ≤ i, else 0",
        "A^kkᵢⱼ = Σₖ Kᵢₖ e^(Gᵢₖ - Gⱼₖ) Kⱼₖ for j < i, else 0",
        "K^end = e^(G_C - G) ∘ K",
        "S ← diag(e^(G_C)) S + (K^end)ᵀ E",
        "O = Q^in S + A^qk E",
    } <= derivation("kda")


def test_documented_keys():
    found = json.loads(explain(compiled(ROOT / "specs/gated_delta_rule.rec"), None, "json"))
    documented = re.sub(r"\s+", " ", explain.__doc__)
    for stage, data in found.items():
        listed = re.search(rf"\b{stage} \(([^()]*)\)", documented)
        assert listed is not None, stage
        names = {name.split()[0] for name in re.split(r"[,;] ", listed[1]) if not name.startswith("each")}
        assert set(data) <= names | {"steps", "proof", "operands", "costs_for"}, stage


@pytest.mark.parametrize(("argument", "value"), [("stage", "link"), ("format", "pdf")])
def test_unknown_words_are_named(argument, value):
    with pytest.raises(ValueError, match=f"{argument} must be one of .*{value!r}"):
        explain(compiled(ROOT / "specs/gla.rec"), **{argument: value})


def test_flops_of_linear_attention():
    chunk = compiled(ROOT / "specs/linear_attention.rec").chunk_form
    # Q K^T, A X, Q S, K^T X
    assert forward_flops(chunk) == monomial(2, "C", "C", "K") + monomial(2, "C", "C", "V") + monomial(4, "C", "K", "V")
    assert backward_flops(chunk).at(64, 128, 128) > 2 * forward_flops(chunk).at(64, 128, 128)


def test_polynomials_read_well():
    assert (monomial(2, "C", "K") + monomial(4, "K", "V")).per_token().text("N", "P") == "2 N + 4 N P / C"
    assert Polynomial().text() == "0"
