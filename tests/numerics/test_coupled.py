"""Matrix states that are compiled together: three that do all they may, and systems drawn at random, against the float64 loop."""

from __future__ import annotations

import random
from functools import cache
from pathlib import Path

import pytest

from recgen.pipeline import CoupledCompiled, compile_text
from recgen.verify import reproduce

THREE = Path(__file__).parents[1] / "specs" / "coupled" / "three_memories.rec"
HEAD = """\
language 1

recurrence drawn
    input q : [K] grouped
    input k : [K] grouped
    input e : [K]
    input v : [V]
    input u : [V]
    input g : [] log_decay
    input h : [] log_decay
    input a : [] in(0, 1)
    input b : [] in(-1, 1)
    param c : [] in(0, 0.5)
"""
DECAYS = ("exp(g) * ", "exp(g + h) * ", "a * ", "c * ", "0.7 * ", "b * ", "")
NUMBERS = ("", "a * ", "b * ", "c * ", "-0.5 * ", "(1 - a) * ", "a * b * ")
KEYS, VALUES = ("kn", "en"), ("v", "u", "(v + b * u)")
CASES = {
    "a rest": {"tokens": 37, "key_heads": 1, "heads": 2},
    "packed": {"tokens": 40, "packed": True, "seed": 3},
    "no state, a loss on the outputs": {"tokens": 20, "initial": False, "loss": "outputs", "small": True},
    "a loss on the states, resets": {"tokens": 33, "loss": "state", "gates": "resets"},
    "no token": {"tokens": 0},
}


@cache
def three() -> CoupledCompiled:
    found = compile_text(THREE.read_text(encoding="utf-8"), THREE.name)
    assert isinstance(found, CoupledCompiled)
    return found


def equation(draw: random.Random, names: list[str], i: int) -> str:
    """What a state becomes: it may take those before it after the token or before, and be corrected by any."""
    name = names[i]
    terms = [f"{draw.choice(DECAYS)}{name}[t-1]"] if draw.random() < 0.85 else []
    for other in names[:i]:
        terms += [f"{draw.choice(NUMBERS)}{other}[t{draw.choice(('', '-1'))}]"] * (draw.random() < 0.7)
    for key in KEYS:
        read = draw.choice([f"{n}[t-1]" for n in names] + [f"{n}[t]" for n in names[:i]])
        value, number = draw.choice(VALUES), draw.choice(NUMBERS)
        kind = draw.random()
        if kind < 0.35:
            terms.append(f"{number}{key} @ {value}^T")
        elif kind < 0.7:
            terms.append(f"0.3 * {number}{key} @ ({value} - {read}^T @ {draw.choice(KEYS)})^T")
    return f"    {name}[t] = {' + '.join(terms or [f'{KEYS[0]} @ v^T'])}"


def system(seed: int) -> str:
    """Two or three states, declared and written in another order than they feed each other."""
    draw = random.Random(seed)
    names = [f"S{i}" for i in range(draw.choice((2, 2, 3)))]
    lines = [equation(draw, names, i) for i in range(len(names))] + [f"    more[t] = more[t-1] + {KEYS[1]} @ u^T"]
    states = [f"    state {name} : [K, V]" for name in (*names, "more")]
    draw.shuffle(states), draw.shuffle(lines)
    reads = [f"{draw.choice(('', 'a * ', 'silu(v) * '))}({name}[t{draw.choice(('', '-1'))}]^T @ q)" for name in names]
    body = [*states, "    kn = l2norm(k)", "    en = l2norm(e)", *lines]
    uses = "0 * (sum(q) + sum(k) + sum(e) + sum(v) + sum(u) + g + h + a + b + c)"
    return HEAD + "\n".join([*body, f"    o = {' + '.join((*reads, f'more[t]^T @ q / 50 + {uses}'))}", ""])


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_three_states(case: dict[str, object]) -> None:
    for form in ("chunk 16", "chunk 64", "recurrent"):
        report = reproduce(three(), form, "float64", **case)
        assert report.ok, report
    report = reproduce(three(), "chunk 16", "float32", **case)
    assert report.ok, report


@pytest.mark.parametrize("seed", range(12))
def test_systems_drawn_at_random(seed: int) -> None:
    """The chunk form is proved as it is compiled; its gradients, and both in float32, are compared here."""
    text = system(seed)
    found = compile_text(text)
    assert isinstance(found, CoupledCompiled), text
    for dtype, case in (("float64", {"tokens": 37, "key_heads": 1, "heads": 2}), ("float32", {"tokens": 20, "packed": True})):
        report = reproduce(found, "chunk 16", dtype, **case)
        assert report.ok, f"{text}\n{report}"
