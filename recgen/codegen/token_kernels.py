"""Everything that `templates/triton/token.py.j2` prints: the forward, the backward and the step of a token form as Triton kernels."""

from __future__ import annotations

from dataclasses import dataclass

from recgen.analysis.token_form import TokenForm
from recgen.codegen.token_adjoint import TokenAdjoint
from recgen.codegen.token_host import HostPrinter, StateText, TokenHost
from recgen.codegen.token_memory import Fetched, TokenMemory
from recgen.codegen.triton_context import GradientText, OutputText, equation_lines
from recgen.codegen.triton_printer import INDENT, functions
from recgen.derive.token_program import TokenProgram
from recgen.plan import RecurrentTiles


@dataclass(frozen=True)
class StepLines:
    """The step: from a row's slot of the pool and back."""

    advance: tuple[str, ...]
    take: tuple[str, ...]
    load: tuple[str, ...]
    store: tuple[str, ...]
    give: tuple[str, ...]


@dataclass(frozen=True)
class AdjointLines:
    """The backward: a stretch's states once more (`restore`, `keep`, `update`), then the adjoint, token before token."""

    restore: tuple[str, ...]
    keep: tuple[str, ...]
    update: tuple[str, ...]
    advance: tuple[str, ...]
    start: tuple[str, ...]
    fetch_next: tuple[str, ...]
    fetch: tuple[str, ...]
    arrive: tuple[str, ...]
    cotangents: tuple[str, ...]
    token: tuple[str, ...]
    store: tuple[str, ...]
    carry: tuple[str, ...]
    finish: tuple[str, ...]


@dataclass(frozen=True)
class TokenKernels:
    """Lines and names for the template; nothing is computed there."""

    functions: tuple[str, ...]
    equations: tuple[str, ...]
    unspecialized: str
    pointers: tuple[str, ...]
    numbers: tuple[str, ...]
    sizes: tuple[str, ...]
    outputs: tuple[OutputText, ...]
    gradients: tuple[GradientText, ...]
    states: tuple[StateText, ...]
    axes: tuple[str, ...]
    advance: tuple[str, ...]
    once: tuple[str, ...]
    start: tuple[str, ...]
    fetch_next: tuple[str, ...]
    fetch: tuple[str, ...]
    checkpoint: tuple[str, ...]
    arrive: tuple[str, ...]
    token: tuple[str, ...]
    store: tuple[str, ...]
    carry: tuple[str, ...]
    finish: tuple[str, ...]
    step: StepLines
    adjoint: AdjointLines
    host: TokenHost


def token_kernels(form: TokenForm, program: TokenProgram, tiles: RecurrentTiles) -> TokenKernels:
    """The context."""
    k = TokenMemory(form, program)
    host = HostPrinter(k)
    token, carry, store = k.printer.lines(program.forward.statements), k.carry(), k.store()
    step, adjoint = _step_lines(k), _adjoint_lines(k)
    once = tuple(line for a in k.arguments if not a.per_token for line in k.load(a, False))
    numbers = k.numbers.found
    scalars = [f"s_{a.info.name}" for a in k.arguments if not a.info.axes]
    options = [o.name for o in form.recurrence.options if isinstance(o.default, bool)]
    return TokenKernels(
        functions=functions(k.printer.functions),
        equations=equation_lines(form.recurrence),
        unspecialized=", ".join(f'"{name}"' for name in (*scalars, *(f"n_{name}" for name, _ in numbers))),
        pointers=tuple(f"p_{a.info.name}, s_{a.info.name}" for a in k.arguments),
        numbers=tuple(f"n_{name}: tl.float64" for name, _ in numbers),
        sizes=(*(f"{p}_{x}: tl.constexpr" for x in k.axes for p in ("size", "block")), *(f"opt_{o}: tl.constexpr" for o in options)),
        outputs=host.outputs(),
        gradients=host.gradients(),
        states=host.states(),
        axes=tuple(line for axis in k.axes for line in _axis_lines(axis, axis == form.split)),
        advance=tuple(line for a in k.arguments for line in a.advance(False)),
        once=(*(f"c_{name} = tl.full((), n_{name}, ACC)" for name, _ in numbers), *once),
        start=k.start(),
        fetch_next=_fetches(k.fetched, 1),
        fetch=_fetches(k.fetched, 2),
        checkpoint=k.checkpoint(),
        arrive=_arrivals(k.fetched),
        token=token,
        store=store,
        carry=carry,
        finish=k.finish(),
        step=step,
        adjoint=adjoint,
        host=host.host(tiles),
    )


def _step_lines(k: TokenMemory) -> StepLines:
    return StepLines(
        advance=tuple(line for a in k.arguments for line in a.advance(True)),
        take=k.take(),
        load=tuple(line for a in k.arguments if a.per_token for line in k.load(a, True)),
        store=k.store("here"),
        give=k.give(),
    )


def _adjoint_lines(k: TokenMemory) -> AdjointLines:
    """What goes into the adjoint of a token, kept states and gradients of outputs, is fetched as the forward's inputs are."""
    backward = TokenAdjoint(k)
    walked = (*k.kept, *k.fetched, *(x for x, _ in backward.fetched))
    return AdjointLines(
        restore=k.restore(),
        keep=k.keep(),
        update=k.printer.lines(k.program.update.statements),
        advance=_advance_cotangents(k.form),
        start=backward.start_adjoint(),
        fetch_next=_fetches(walked, 1),
        fetch=_fetches(walked, 2),
        arrive=(*_arrivals((*k.kept, *k.fetched)), *(line for x, missing in backward.fetched for line in x.arrive(missing))),
        cotangents=backward.cotangents(),
        token=k.printer.lines(k.program.adjoint.statements),
        store=backward.store_gradients(),
        carry=backward.carry_adjoint(),
        finish=backward.finish_adjoint(),
    )


def _arrivals(fetched: tuple[Fetched, ...]) -> tuple[str, ...]:
    """What was fetched, as this token's."""
    return tuple(line for x in fetched for line in x.arrive())


def _fetches(fetched: tuple[Fetched, ...], number: int) -> tuple[str, ...]:
    """Loads for the token that comes next (1), or for the one after it (2)."""
    return tuple(line for x in fetched for line in x.fetch(number))


def _axis_lines(axis: str, split: bool) -> tuple[str, ...]:
    """Offsets and mask of an axis: of the split one, of this program's block."""
    start = f"i_v * block_{axis} + " if split else ""
    return (
        f"loc_{axis} = tl.arange(0, block_{axis}).to(tl.int64)",
        f"off_{axis} = {start}loc_{axis}",
        f"mask_{axis} = off_{axis} < size_{axis}",
    )


def _advance_cotangents(form: TokenForm) -> tuple[str, ...]:
    """Moves the pointers of the outputs' gradients to this program's sequence and head."""
    lines: list[str] = []
    for o in form.outputs:
        lines += [f"if dp_{o.name} is not None:", f"{INDENT}dp_{o.name} += i_b * ds_{o.name}[0] + i_h * ds_{o.name}[2]"]
    return tuple(lines)
