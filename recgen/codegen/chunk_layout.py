"""The operands' last step: from the layout of the inputs to that of the chunks, a product in the same pass."""

from __future__ import annotations

from dataclasses import dataclass

from recgen.codegen.torch_programs import operand_text
from recgen.derive.program import Assign, Literal, Operand, Program, Statement, Value, mentioned, needed


@dataclass(frozen=True)
class Laid:
    """The statements that are left, and the text of every result in the layout of the chunks."""

    statements: tuple[Statement, ...]
    results: tuple[str, ...]


def in_chunks(program: Program, sizes: dict[str, str], like: str) -> Laid:
    """Prints the results of an operand program; `sizes` are the operands' ("K", "V" or "1"), `like` names an input.

    A result that is a product of its own is made where it is needed: the product and the change of layout read and write memory once.
    """
    made = {s.target.name: s for s in program.statements if isinstance(s, Assign)}
    texts, wanted = [], set()
    for name, result in program.results:
        product = _own_product(result, made, program) if sizes[name] != "1" else None
        if isinstance(result, Literal):
            width = 1 if sizes[name] == "1" else f"sizes.{'keys' if sizes[name] == 'K' else 'values'}"
            full = f"{like}.new_full((*sizes.lead, sizes.heads, {width}), {operand_text(result)})"
            fill = ", -math.inf" if name == "log_weight" else ""
            texts.append(f"_to_chunks({full}, sizes, chunk{fill})")
        elif product is not None:
            vector, factor, spread = product
            texts.append(f"_product_to_chunks({_shared(vector, spread)}, {_shared(factor, spread)}, sizes, chunk)")
            wanted |= {x.name for x in (vector, factor) if isinstance(x, Value)}
        else:
            fill = ", -math.inf" if name == "log_weight" else ""  # tokens beyond the last write nothing
            texts.append(f"_to_chunks({result.name}{'.unsqueeze(-1)' if sizes[name] == '1' else ''}, sizes, chunk{fill})")
            wanted.add(result.name)
    return Laid(needed(program.statements, wanted), tuple(texts))


def _shared(operand: Operand, spread: bool) -> str:
    """The operand, repeated for value heads where the product was made for key heads."""
    text = operand_text(operand)
    return f"_per_value_head({text}, sizes.heads, -2)" if spread and isinstance(operand, Value) else text


def _own_product(result: Operand, made: dict[str, Assign], program: Program) -> tuple[Value, Operand, bool] | None:
    """The factors of a result that is a product which nothing else reads, vector first; and whether key heads are repeated after it."""
    if not isinstance(result, Value):
        return None
    last, spread = made.get(result.name), False
    if last is not None and last.op == "heads" and isinstance(last.args[0], Value):
        last, spread = made.get(last.args[0].name), True
    if last is None or last.op != "mul" or _reads(last.target.name, program) != 1:
        return None
    left, right = last.args
    vector, factor = (left, right) if isinstance(left, Value) and not _is_spread(left, made) else (right, left)
    return (vector, factor, spread) if isinstance(vector, Value) else None


def _is_spread(value: Value, made: dict[str, Assign]) -> bool:
    return value.name in made and made[value.name].op == "spread"


def _reads(name: str, program: Program) -> int:
    """How often a value is read, by statements and as a result."""
    by_statements = sum(name in mentioned((s,)) for s in program.statements)
    return by_statements + sum(isinstance(r, Value) and r.name == name for _, r in program.results)
