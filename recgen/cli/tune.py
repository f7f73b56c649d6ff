"""`recgen tune`: the fastest tiles that are right on this GPU, as a file that `recgen build --tiles` takes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from recgen.cli.group import Findings, Misuse
from recgen.cli.output import echo_json, format_option, progress
from recgen.cli.specs import compile_file, file_argument, require_readable

if TYPE_CHECKING:
    from recgen.pipeline import Compiled
    from recgen.tuning.inputs import Shape
    from recgen.tuning.search import Machine
    from recgen.tuning.tilefile import TileFile

_SHAPE: Final = "1,8192,32,32,128,128"


def _shapes(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> tuple[tuple[int, ...], ...]:
    """`B,T,H,HV,K,V`: six positive numbers, the value heads a multiple of the key heads."""
    found = []
    for value in values:
        try:
            sizes = tuple(int(part) for part in value.split(","))
        except ValueError:
            sizes = ()
        if len(sizes) != 6 or min(sizes) < 1:
            raise click.BadParameter(f"{value!r} is not six positive numbers B,T,H,HV,K,V", ctx, param)
        if sizes[3] % sizes[2]:
            raise click.BadParameter(f"{value!r}: {sizes[3]} value heads are no multiple of {sizes[2]} key heads", ctx, param)
        found.append(sizes)
    return tuple(found)


@click.command()
@file_argument
@click.option(
    "--shape",
    "shapes",
    metavar="B,T,H,HV,K,V",
    callback=_shapes,
    multiple=True,
    default=[_SHAPE],
    show_default=True,
    help="What is timed; repeatable.",
)
@click.option(
    "--dtype",
    "dtypes",
    type=click.Choice(["bfloat16", "float16", "float32"]),
    multiple=True,
    default=["bfloat16"],
    show_default=True,
    help="Of the inputs; repeatable. The two half precisions share their tiles: name one.",
)
@click.option("-o", "--output", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE", help="By default NAME.tiles.json.")
@click.option("--minutes", type=click.FloatRange(min=0), help="Take the best so far after this time.")
@click.option("--patience", type=click.FloatRange(min=1), default=60, show_default=True, help="Seconds that one candidate may take.")
@format_option
def tune(
    file: Path,
    shapes: tuple[tuple[int, ...], ...],
    dtypes: tuple[str, ...],
    output: Path | None,
    minutes: float | None,
    patience: float,
    format_: str,
) -> None:
    """Find fast tiles for the chunkwise kernels on this GPU.

    Candidates run in processes of their own. Each is compared with the float64 form, and its runs with one another, before it is timed.
    The file that is written goes into `recgen build --tiles`. FILE is a spec, or - for standard input.
    """
    require_readable([file])
    if {"bfloat16", "float16"} <= set(dtypes):
        raise Misuse("--dtype: bfloat16 and float16 share their tiles; name one of them")
    machine = _machine()
    compiled = compile_file(file, format_)
    from recgen.pipeline import Compiled, CoupledCompiled, ScanCompiled

    if isinstance(compiled, CoupledCompiled) or (isinstance(compiled, Compiled) and compiled.plan.phased):
        raise Misuse(f"{file}: its chunkwise kernels are printed from the steps of its chunk form, and have no tiles to tune")
    if isinstance(compiled, ScanCompiled):
        raise Misuse(f"{file}: the tiles of a scan follow from its sizes, and there are none to tune")
    if not isinstance(compiled, Compiled):
        raise Misuse(f"{file}: it has no chunkwise kernels, and only those have tiles to tune")
    _require_sound_compiler(compiled, dtypes)
    from recgen.tuning.inputs import Shape

    seconds = float("inf") if minutes is None else 60 * minutes
    found = _tune(compiled, tuple(Shape(*s) for s in shapes), tuple(dict.fromkeys(dtypes)), machine, seconds, patience)
    path = output or Path(f"{compiled.recurrence.name}.tiles.json")
    try:
        found.write(path)
    except OSError as error:
        raise Misuse(f"{path}: cannot be written: {error.strerror}") from None
    if format_ == "json":
        echo_json({"path": str(path), **found.to_json()})
    else:
        _print(found)
        click.echo(f"written    {path}; recgen build {file} --tiles {path}")


def _machine() -> Machine:
    """The GPU, or the end of the command."""
    from recgen.tuning.machine import this_machine

    machine = this_machine()
    if machine is None:
        raise Misuse("tuning needs a GPU and triton, and torch sees no GPU here or there is no triton; `recgen doctor` says more")
    return machine


def _require_sound_compiler(compiled: Compiled, dtypes: tuple[str, ...]) -> None:
    """The compiler is not known to make wrong kernels."""
    import torch

    from recgen import cache

    module = cache.load(compiled.module.name, compiled.module.text)
    device = torch.device("cuda", torch.cuda.current_device()) if torch.cuda.is_available() else torch.device("cpu")
    for dtype in dtypes:
        if fault := module._compiler_fault(device, getattr(torch, dtype)):
            raise Misuse(fault)


def _tune(
    compiled: Compiled, shapes: tuple[Shape, ...], dtypes: tuple[str, ...], machine: Machine, seconds: float, patience: float
) -> TileFile:
    """The search, behind a progress bar."""
    from recgen.tuning import isolation
    from recgen.tuning.search import NothingRightError, tune

    with progress() as bar:
        task = bar.add_task(f"tune {compiled.module.name}", total=None)

        def advance(done: int, total: int, label: str) -> None:
            bar.update(task, completed=done, total=total, description=f"tune {compiled.module.name}: {label}")

        try:
            return tune(compiled, shapes, dtypes, machine, lambda job: isolation.measured(job, patience), advance, seconds)
        except isolation.WorkerError as error:
            raise Findings(f"a worker failed: {error}") from None
        except NothingRightError as error:
            raise Findings(str(error)) from None


def _print(found: TileFile) -> None:
    """Two lines for each row: its tiles, and its times beside those of the row that the table has."""
    from recgen.tuning.measurement import SIZES

    for row in found.rows:
        kind = "half precision" if row.half else "float32"
        tiles = f"chunk {row.chunk}, scans {row.scan} x {row.scan_warps} warps x {row.stages} stages"
        click.echo(f"{kind}, keys to {row.keys}: {tiles}, gradients {row.gradients} x {row.gradient_warps} warps; {row.note}")
        group = [t for t in found.tried if t["keys"] == row.keys and (t["dtype"] != "float32") == row.half]
        mine = next(t for t in group if all(t[name] == getattr(row, name) for name in SIZES))
        click.echo(f"  forward, forward and backward: {_milliseconds(mine)}; the table's row: {_milliseconds(group[0])}")
    outcomes = [t["outcome"] for t in found.tried]
    click.echo(f"tried {', '.join(f'{outcomes.count(o)} {o}' for o in dict.fromkeys(outcomes))}", err=True)


def _milliseconds(tried: dict[str, Any]) -> str:
    """Of every shape, or why there are none."""
    times = "; ".join(f"{alone:.3f}, {both:.3f} ms" for alone, both in tried["times"])
    return times or f"{tried['outcome']} ({tried['detail']})"
