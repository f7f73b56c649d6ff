"""The proof is exact: a chunk form with any step changed is not proved."""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace
from pathlib import Path

import pytest

from recgen.derive.bordered_nodes import Cut, Kept
from recgen.derive.chunk_ir import Step
from recgen.derive.chunk_nodes import Causal, Decayed, DecayedProduct, Gamma, Inverse, Negative, Node, Score, Substitution, Sum, Through
from recgen.derive.coupled_proof import prove_coupled
from recgen.derive.normal_proof import prove
from recgen.derive.proof import Proof, ProofFailed
from recgen.pipeline import Compiled, CoupledCompiled, ScanCompiled, compile_text

ROOT = Path(__file__).resolve().parents[2]
SPECS = (
    "specs/gated_delta_rule",
    "specs/kda",
    "specs/mamba2",
    "tests/specs/two_corrections",
    "tests/specs/two_streams",
    "tests/specs/two_reads",
    "tests/specs/value_decay_read",
    "tests/specs/value_error",
    "tests/specs/momentum_delta",
    "tests/specs/two_memories",
    "tests/specs/value_forget",
    "tests/specs/value_forget_after",
    "tests/specs/value_strengths",
)
PHASES = ("prepare", "scan", "finish")


def compiled(name: str) -> Compiled | CoupledCompiled:
    path = ROOT / f"{name}.rec"
    return compile_text(path.read_text(encoding="utf-8"), path.name)


def turned_over(node: Node) -> Node:
    """The step's value with the other sign."""
    if isinstance(node, Inverse):
        return Inverse(tuple(tuple(Negative(b) for b in row) for row in node.blocks))
    if isinstance(node, Substitution):
        return replace(node, matrix=Negative(node.matrix))
    return Negative(node)


def replaced(node: Node, change) -> list[Node]:
    """The node with one node below it, or itself, changed; one result for every place where `change` gives another node."""
    found = [] if (other := change(node)) is None else [other]
    for field in fields(node):
        value = getattr(node, field.name)
        if is_dataclass(value):
            found += [replace(node, **{field.name: new}) for new in replaced(value, change)]
        elif isinstance(value, tuple):
            for i, item in enumerate(value):
                if is_dataclass(item):
                    found += [replace(node, **{field.name: (*value[:i], new, *value[i + 1 :])}) for new in replaced(item, change)]
    return found


def other_node(node: Node) -> Node | None:
    """A plausible slip: a mask that is off by one, a decay over the wrong stretch, a term left out."""
    match node:
        case Causal(matrix, strict):
            return Causal(matrix, not strict)
        case Gamma(exclusive):
            return Gamma(not exclusive)
        case DecayedProduct(strict=True, exclusive=False, values=True):
            return None  # the weights are strictly causal anyway
        case Score() | DecayedProduct():
            return replace(node, exclusive=False) if node.exclusive else replace(node, strict=not node.strict)
        case Decayed(stretch=stretch):
            return replace(node, stretch={"start": "before", "before": "start", "end": "start"}[stretch])
        case Kept(tag, "scalar"):
            return Kept(tag, "none")
        case Cut(matrix, "after" | "before" as rows, columns):
            return Cut(matrix, "before" if rows == "after" else "after", columns)
        case Substitution(decays=True):
            return replace(node, exclusive=not node.exclusive)
        case Substitution():
            return replace(node, strength=None)
        case Through(matrix, True):
            return matrix
        case Sum(terms) if len(terms) > 1:
            return Sum(terms[:-1])
    return None


def mutants(c: Compiled | CoupledCompiled, change) -> list[tuple[str, object]]:
    """Chunk forms with one forward step changed."""
    found = []
    for phase in PHASES:
        steps: tuple[Step, ...] = getattr(c.chunk_form, phase)
        for i, step in enumerate(steps):
            for value in change(step.value):
                new = (*steps[:i], replace(step, value=value), *steps[i + 1 :])
                found.append((f"{phase} {step.name}", replace(c.chunk_form, **{phase: new})))
    return found


def prove_again(c: Compiled | CoupledCompiled, chunk, tokens: int | None = None) -> Proof:
    if isinstance(c, CoupledCompiled):
        return prove_coupled(c.coupled_form, c.operands, chunk, tokens or 2)
    return prove(c.normal_form, c.operands, chunk, tokens)


def proved(c: Compiled | CoupledCompiled, chunk) -> bool:
    try:
        prove_again(c, chunk)
    except ProofFailed:
        return False
    return True


@pytest.mark.parametrize("name", SPECS)
def test_every_step_has_its_sign(name):
    c = compiled(name)
    for label, chunk in mutants(c, lambda value: [turned_over(value)]):
        assert not proved(c, chunk), label


@pytest.mark.parametrize("name", SPECS)
def test_slips_are_not_proved(name):
    c = compiled(name)
    changed = mutants(c, lambda value: replaced(value, other_node))
    assert changed
    for label, chunk in changed:
        assert not proved(c, chunk), label


@pytest.mark.parametrize("path", sorted([*ROOT.glob("specs/*.rec"), *ROOT.glob("tests/specs/*.rec")]), ids=lambda p: p.stem)
def test_every_spec_is_proved(path):
    c = compile_text(path.read_text(encoding="utf-8"), path.name)
    if isinstance(c, ScanCompiled):
        assert c.proof.identities > 0
        return
    proof = prove_again(c, c.chunk_form, tokens=2)  # 3 when compiled
    assert proof.identities > 0
    if isinstance(c, CoupledCompiled):
        few = sum(bool(s.corrections) for s in c.coupled_form.streams) <= 1
    else:
        few = len({s.slot for s in c.normal_form.streams}) <= 2
    assert str(c.proof).startswith(f"chunk of {3 if few else 2} tokens")


def test_the_proof_is_of_the_spec_not_of_the_normal_form():
    c, other = compiled("specs/gated_delta_rule"), compiled("specs/delta_rule")
    foreign = replace(c.normal_form, recurrence=replace(c.recurrence, states=other.recurrence.states), state=other.normal_form.state)
    with pytest.raises(ProofFailed):
        prove(foreign, c.operands, c.chunk_form)


NUMBERS = (
    "S[t] = S[t-1] / 3 + k @ v^T / 7",
    "S[t] = 0.1 * (0.7 * S[t-1] - 0.3 * k @ (k^T @ S[t-1])) + 0.1 * 0.3 * k @ v^T",
    "S[t] = 0.9 * (I / 3 - 0.3 * k @ k^T) @ S[t-1] / 5 + k @ v^T",
)


@pytest.mark.parametrize("equation", NUMBERS)
def test_numbers_that_floating_point_would_round(equation):
    lines = ("input q : [K]", "input k : [K]", "input v : [V]", "state S : [K, V]", equation, "o = 0.1 * S[t]^T @ (0.3 * q) / 3")
    compile_text("\n".join(("language 1", "recurrence r", *lines, "")))
