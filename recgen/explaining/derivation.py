"""The stage derive: the chunk form and its adjoint as formulas, and what was proved."""

from __future__ import annotations

from typing import Any

from recgen.derive.chunk_ir import ChunkForm, Step, nodes
from recgen.derive.chunk_nodes import Decayed, DecayedProduct, Node, Score, ScoreGradients, Substitution
from recgen.derive.coupled_operands import CoupledOperands
from recgen.derive.operands import OperandSet
from recgen.derive.proof import Proof
from recgen.explaining.chunk import ChunkPrinter, operand_letter
from recgen.explaining.document import Block, Equations, Items, Paragraph, Stage
from recgen.explaining.styles import Formula

FORWARD = (
    ("prepare", "All chunks at once:"),
    ("scan", "Chunk after chunk:"),
    ("finish", "All chunks at once, with the state S before each:"),
)
ADJOINT = (
    ("adjoint_prepare", "All chunks at once, from the gradients dO of what was read:"),
    ("adjoint_scan", "Chunk after chunk, backwards:"),
    ("adjoint_finish", "All chunks at once, with the gradient dS of the state after each:"),
)


def explain_derive(chunk: ChunkForm, operands: OperandSet | CoupledOperands, proof: Proof) -> Stage:
    """Every step as a formula with its meaning, and the proof."""
    printer = ChunkPrinter(chunk, _corrections(operands))
    blocks: list[Block] = [Paragraph(_letters(chunk))]
    data: dict[str, Any] = {}
    for title, phases in (
        ("The chunk form.", FORWARD),
        ("The adjoint: the same solve transposed, the same scores, from the other end.", ADJOINT),
    ):
        blocks.append(Paragraph(title))
        for phase, heading in phases:
            steps: tuple[Step, ...] = getattr(chunk, phase)
            if not steps:
                continue
            rows = [(f, s.meaning if i == 0 else "") for s in steps for i, f in enumerate(printer.step(s))]
            blocks += [Paragraph(heading), Equations(tuple(rows))]
            data[phase] = [_step_data(s, printer) for s in steps]
    blocks += [Paragraph("Proved:"), Items((str(proof),))]
    blocks.append(Paragraph(_PROOF))
    facts = {
        "tokens": proof.tokens,
        "sizes": dict(proof.sizes),
        "identities": proof.identities,
        "symbols": proof.symbols,
        "statement": str(proof),
    }
    return Stage("derive", "the chunk form and its adjoint", tuple(blocks), {"steps": data, "proof": facts})


def _corrections(operands: OperandSet | CoupledOperands) -> dict[str, str]:
    """The operand along which each stream corrects, of several the first."""
    if isinstance(operands, OperandSet):
        return {s.tag: s.correct for s in operands.streams}
    return {s.tag: s.corrections[0].correct for s in operands.streams if s.corrections}


_PROOF = (
    "The outputs and the final state of the chunk form, expanded, equal those of the recurrence unrolled from the spec's own expressions, "
    "as polynomials over the rationals: an identity, not a comparison of numbers. The adjoint is compared with automatic differentiation "
    "of the recurrence in float64 (`recgen verify`)."
)


def _letters(chunk: ChunkForm) -> str:
    """Which matrix stacks which operand."""
    stacked = [
        f"{operand_letter(chunk, o.name)} stacks {_lower(chunk, o.name)}" for o in chunk.operands if o.symbol not in ("g", "u", "l", "sign")
    ]
    text = f"Rows are the C tokens of a chunk: {', '.join(stacked)}"
    if chunk.states > 1:
        text += _LINKS
    elif chunk.decay != "none":
        text += "; G sums the log decay g over the chunk's tokens up to and including each"
        if any("before" in repr(s.value) or "exclusive=True" in repr(s.value) for s in (*chunk.prepare, *chunk.finish)):
            text += ", H without it"
    if chunk.value_decay != "none":
        until = " over the chunk's tokens up to and including each" if chunk.decay == "none" else " likewise"
        text += f"; U sums the value side's log decay u{until}"
        found = (n for phase, _ in (*FORWARD, *ADJOINT) for s in getattr(chunk, phase) for n in nodes(s.value))
        text += ", U^< without the token" * any(excludes_token(n) for n in found)
    if chunk.stabilized:
        text += "; l is the log weight of what is written, m the running maximum of G + m_0 and of G_i - G_j + l_j over j ≤ i, m_0 that "
        text += "before the chunk"
    signed = dict.fromkeys("u" if o.name == "value_sign" else "g" for o in chunk.operands if o.symbol == "sign")
    if signed:
        text += f"; here {' and '.join(signed)} is the logarithm of the multiplier's magnitude, and every decay over a stretch carries the "
        text += "product of its signs"
    start = "; S has the states at the chunk's start side by side" if chunk.states > 1 else "; S is the state at the chunk's start"
    return text + start + "."


_LINKS = (
    "; G_a sums the log decay g_a of state a over the chunk's tokens up to and including each. A matrix of links has a row and a column 0 "
    "for the chunk's start: its part (i,j) goes from the tokens to after each of them, (i-1,j) to before each, (C,j) to the chunk's end, "
    "and (i,0), (i-1,0) and (C,0) go there from its start; [A](i,j) is the matrix that has A there and is 0 elsewhere, [A]_a what of A is "
    "state a's"
)


def excludes_token(node: Node) -> bool:
    """Whether a node takes the value side's decay up to just before a token."""
    if isinstance(node, Decayed):
        return node.values and node.stretch == "before"
    if isinstance(node, Substitution):
        return node.decays and node.exclusive
    return isinstance(node, Score | DecayedProduct | ScoreGradients) and node.values and node.exclusive


def _lower(chunk: ChunkForm, name: str) -> str:
    operand = next(o for o in chunk.operands if o.name == name)
    same = [o.name for o in chunk.operands if o.symbol == operand.symbol]
    return operand.symbol + (str(same.index(name) + 1) if len(same) > 1 else "")


def _step_data(step: Step, printer: ChunkPrinter) -> dict[str, Any]:
    formulas: tuple[Formula, ...] = printer.step(step)
    return {
        "names": list(step.names),
        "symbol": step.symbol,
        "meaning": step.meaning,
        "text": [f.text for f in formulas],
        "latex": [f.latex for f in formulas],
    }
