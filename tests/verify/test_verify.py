"""Verification passes for every spec, finds planted bugs, and gives a line that shows them again."""

import itertools
import json
import re
from dataclasses import replace

import pytest
import torch

from recgen.derive.chunk_nodes import Negative, Sum
from recgen.pipeline import compile_text
from recgen.verify import reproduce, verify
from recgen.verify.cases import TOKENS, Case, cases, flag_combinations, pairwise
from recgen.verify.forms import state_names
from recgen.verify.inputs import LIMIT, draw, roles
from recgen.verify.report import Tally, error
from tests.verify.helpers import ROOT, SPECS, arguments_of, compiled, with_chunk_form, with_text


def name_of(path):
    return str(path.relative_to(ROOT).with_suffix(""))


@pytest.mark.parametrize("path", SPECS, ids=lambda p: p.stem)
def test_every_spec_verifies(path):
    report = verify(compiled(name_of(path)))
    assert report.ok, str(report)
    assert report.failure is None
    checks = {row.check for row in report.rows}
    assert checks == {"forms", "packed", "split", "strides", "causality", "run to run"}
    assert {row.form for row in report.rows} == {"naive", "chunk", "recurrent", "step"}
    arguments = {f"d {a.name}" for a in compiled(name_of(path)).recurrence.arguments}
    count = len(compiled(name_of(path)).recurrence.states)
    states = {*(f"d {name}" for name in state_names("initial", count)), *state_names("final", count)}
    assert arguments | states <= {row.tensor for row in report.rows}
    assert json.loads(json.dumps(report.to_json()))["ok"] is True


def test_a_planted_sign_is_found_and_reproduced():
    c = compiled("specs/gated_delta_rule")
    text, count = re.subn(r"(?m)^(    \w+ = )-(\w+)$", r"\1+\2", c.module.text)  # the strength of the correction: -beta
    assert count
    broken = with_text(c, text, "planted")
    report = verify(broken)
    assert not report.ok
    wrong = {(row.form, row.tensor) for row in report.rows if not row.ok}
    assert ("chunk", "o") in wrong
    assert not any(form == "naive" for form, _ in wrong)
    positional, keywords = arguments_of(report.failure)
    assert positional[0].endswith("specs/gated_delta_rule.rec")
    assert not reproduce(broken, *positional[1:], **keywords).ok
    assert reproduce(*positional, **keywords).ok  # the line as it is compiles the spec afresh, without the bug


def test_a_module_that_raises_is_a_finding():
    c = compiled("specs/linear_attention")
    broken = with_text(c, c.module.text.replace("def _forward_chunks(", "def _gone("), "raises")
    report = verify(broken)
    assert not report.ok
    assert any(row.tensor.startswith("raises NameError") for row in report.rows)


PHASES = ("adjoint_prepare", "adjoint_scan", "adjoint_finish")


@pytest.mark.parametrize("spec", ["specs/gated_delta_rule", "specs/kda"])
@pytest.mark.parametrize("phase", PHASES)
def test_every_step_of_the_adjoint_counts(spec, phase):
    """What the proof covers in the forward form, verification covers in the adjoint: a sign turned over, a term left out."""
    c = compiled(spec)
    flags = flag_combinations(c.recurrence)[-1]
    case = {"tokens": 40, "key_heads": 1, "heads": 2, "flags": flags, "seed": 3}
    assert reproduce(c, "chunk 16", "float64", **case).ok
    steps = getattr(c.chunk_form, phase)
    for i, step in enumerate(steps):
        if "," in step.name or step.name == "d_log_decay":  # several results, or no matrix expression
            continue
        value = Sum(step.value.terms[:-1]) if isinstance(step.value, Sum) and len(step.value.terms) > 1 else Negative(step.value)
        changed = (*steps[:i], replace(step, value=value), *steps[i + 1 :])
        broken = with_chunk_form(c, replace(c.chunk_form, **{phase: changed}), f"{phase}_{i}")
        assert not reproduce(broken, "chunk 16", "float64", **case).ok, step.name


def test_cases_cover_all_pairs():
    for spec in ("specs/kda", "specs/linear_attention"):
        recurrence = compiled(spec).recurrence
        found = cases(recurrence, resets=True)
        flags = flag_combinations(recurrence)
        assert {(c.tokens, c.flags) for c in found} == set(itertools.product(TOKENS, flags))
        assert len({(c.tokens, c.gates, c.loss) for c in found}) > 10
        assert {(c.loss, c.initial) for c in found} == set(itertools.product(("outputs", "state", "outputs and state"), (True, False)))
        assert {(c.key_heads, c.heads) for c in found} == {(1, 2), (2, 2)}


def test_pairwise_rows():
    factors = [range(4), range(3), range(2), range(2), range(2)]
    rows = pairwise(factors)
    for i, j in itertools.combinations(range(5), 2):
        assert {(row[i], row[j]) for row in rows} == set(itertools.product(factors[i], factors[j]))
    assert len(rows) <= 16
    assert rows == pairwise(factors)


def test_cases_are_reproducible_from_their_arguments():
    for case in cases(compiled("specs/kda").recurrence, resets=True):
        assert eval(f"Case({case.arguments()})", {"Case": Case}) == case


GROWING = """language 1

recurrence growing
    input q : [K]
    input k : [K]
    input v : [V]
    state S : [K, V]

    S[t] = S[t-1] + 12 * k @ (v - S[t-1]^T @ k)^T
    o    = S[t]^T @ q
"""


def test_a_growing_sample_is_drawn_again_and_the_report_says_so():
    c = compile_text(GROWING, "growing.rec")
    sample, run = draw(c.normal_form, roles(c.normal_form), Case(64), torch.float64)
    assert sample.redrawn > 0
    assert run.largest < LIMIT
    report = reproduce(c, "chunk 64", "float64", tokens=64)
    assert report.ok
    assert any(note.startswith("samples drawn again because the loop grew beyond 1000") for note in report.notes)


def test_inputs_obey_their_roles():
    c = compiled("tests/specs/two_corrections")
    parts = roles(c.normal_form)
    assert (parts.unit, parts.strength, parts.gate) == ({"a", "k"}, {"b"}, {"g"})
    assert parts.reset == (("g", float("-inf")),)
    sample, _ = draw(c.normal_form, parts, Case(150, 2, 2, gates="resets"), torch.float32)
    torch.testing.assert_close(sample.arguments["k"].norm(dim=-1), torch.ones(2, 150, 2, dtype=torch.float64), rtol=1e-6, atol=0)
    g, beta = sample.arguments["g"], sample.arguments["b"]
    assert bool((g <= 0).all())
    assert bool(g.isinf().any())
    assert bool(((beta >= 0) & (beta <= 1)).all())
    assert bool((beta == 0).any())


def test_errors_are_measured_both_ways():
    wanted = torch.tensor([1.0, 1.0, 1.0, 10.0], dtype=torch.float64)
    rms, largest = error(wanted + torch.tensor([0.0, 0.0, 0.0, 1.0]), wanted)
    assert rms == pytest.approx(0.5 / wanted.square().mean().sqrt().item())
    assert largest == pytest.approx(0.1)
    assert error(torch.zeros(2), torch.zeros(2)) == (0.0, 0.0)
    assert error(torch.ones(2), torch.zeros(2)) == (float("inf"), float("inf"))
    assert error(torch.full((2,), float("nan")), torch.ones(2)) == (float("inf"), float("inf"))
    assert error(torch.ones(3), torch.ones(2)) == (float("inf"), float("inf"))


def test_either_error_alone_fails_a_row():
    tally = Tally()
    tally.add("chunk", "forms", "float32", "o", (1e-6, 1e-4), 1e-5, "again")
    assert not tally.rows[0].ok
    assert tally.failure == "again"
