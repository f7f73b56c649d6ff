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
    advance_step: tuple[str, ...]
    once: tuple[str, ...]
    fetch_next: tuple[str, ...]
    fetch: tuple[str, ...]
    arrive: tuple[str, ...]
    fetch_adjoint_next: tuple[str, ...]
    fetch_adjoint: tuple[str, ...]
    arrive_adjoint: tuple[str, ...]
    load_step: tuple[str, ...]
    start: tuple[str, ...]
    checkpoint: tuple[str, ...]
    restore: tuple[str, ...]
    keep: tuple[str, ...]
    finish: tuple[str, ...]
    take: tuple[str, ...]
    give: tuple[str, ...]
    token: tuple[str, ...]
    store: tuple[str, ...]
    store_step: tuple[str, ...]
    update: tuple[str, ...]
    carry: tuple[str, ...]
    advance_cotangents: tuple[str, ...]
    start_adjoint: tuple[str, ...]
    cotangents: tuple[str, ...]
    adjoint: tuple[str, ...]
    store_gradients: tuple[str, ...]
    carry_adjoint: tuple[str, ...]
    finish_adjoint: tuple[str, ...]
    host: TokenHost


def token_kernels(form: TokenForm, program: TokenProgram, tiles: RecurrentTiles) -> TokenKernels:
    """The context."""
    k = TokenMemory(form, program)
    backward, host = TokenAdjoint(k), HostPrinter(k)
    token = k.printer.lines(program.forward.statements)
    update = k.printer.lines(program.update.statements)
    adjoint = k.printer.lines(program.adjoint.statements)
    carry, store, store_step = k.carry(), k.store(), k.store("here")
    lines = {
        "start_adjoint": backward.start_adjoint(),
        "cotangents": backward.cotangents(),
        "store_gradients": backward.store_gradients(),
        "carry_adjoint": backward.carry_adjoint(),
        "finish_adjoint": backward.finish_adjoint(),
    }
    walked = (*k.kept, *k.fetched, *(x for x, _ in backward.fetched))
    numbers = k.numbers.found
    scalars = [f"s_{a.info.name}" for a in k.arguments if not a.info.axes]
    options = [o.name for o in form.recurrence.options if isinstance(o.default, bool)]
    params = tuple(line for a in k.arguments if not a.per_token for line in k.load(a, False))
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
        advance_step=tuple(line for a in k.arguments for line in a.advance(True)),
        once=(*(f"c_{name} = tl.full((), n_{name}, ACC)" for name, _ in numbers), *params),
        fetch_next=_fetches(k.fetched, 1),
        fetch=_fetches(k.fetched, 2),
        arrive=tuple(line for x in k.fetched for line in x.arrive()),
        fetch_adjoint_next=_fetches(walked, 1),
        fetch_adjoint=_fetches(walked, 2),
        arrive_adjoint=(
            *(line for x in (*k.kept, *k.fetched) for line in x.arrive()),
            *(line for x, missing in backward.fetched for line in x.arrive(missing)),
        ),
        load_step=tuple(line for a in k.arguments if a.per_token for line in k.load(a, True)),
        start=k.start(),
        checkpoint=k.checkpoint(),
        restore=k.restore(),
        keep=k.keep(),
        finish=k.finish(),
        take=k.take(),
        give=k.give(),
        token=token,
        store=store,
        store_step=store_step,
        update=update,
        carry=carry,
        advance_cotangents=_advance_cotangents(form),
        adjoint=adjoint,
        host=host.host(tiles),
        **lines,
    )


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
