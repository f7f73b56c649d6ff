"""Emits the module of a spec, makes inputs for it, and compares it with the float64 loop."""

from __future__ import annotations

import importlib.util
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from types import ModuleType

import torch

from recgen.analysis.coupled_form import CoupledForm
from recgen.analysis.normal_form import NormalForm
from recgen.lang.recurrence import ArgumentInfo, Recurrence, StateInfo
from recgen.lang.terms import Apply, AxisSize, Constant, Term
from recgen.pipeline import AnyCompiled, Compiled, CoupledCompiled, compile_text
from recgen.plan import KernelPlan
from recgen.resources import resource
from tests.triton.reference import Loop

Tensor = torch.Tensor
FOLDER = Path(tempfile.mkdtemp(prefix="recgen-triton-"))


def spec_path(name: str) -> Path:
    """A spec of the project, or one of the tests' own."""
    here = Path(__file__).parent
    tests = here.parent / "specs"
    folders = (here / "specs", tests, tests / "coupled", tests / "strangers", resource("specs"))
    return next(folder / f"{name}.rec" for folder in folders if (folder / f"{name}.rec").exists())


def with_normal_form(*folders: Path) -> tuple[str, ...]:
    """The specs in these folders that have a normal form."""
    return tuple(name for name in with_products(*folders) if isinstance(compiled(name)[0], NormalForm))


def with_products(*folders: Path) -> tuple[str, ...]:
    """The specs in these folders whose chunks are made of products of matrices."""
    names = {path.stem for folder in folders for path in folder.glob("*.rec")}
    return tuple(sorted(name for name in names if isinstance(result(name), Compiled | CoupledCompiled)))


def printed_from_steps(*folders: Path) -> tuple[str, ...]:
    """Those of them whose chunkwise kernels are printed from the steps of their chunk form."""
    return tuple(name for name in with_products(*folders) if not isinstance(plan := result(name).plan, KernelPlan) or plan.phased)


def with_chunk_kernels(*folders: Path) -> tuple[str, ...]:
    """The others of them."""
    return tuple(name for name in with_products(*folders) if name not in printed_from_steps(*folders))


@cache
def result(name: str) -> AnyCompiled:
    """Every stage's result for a spec."""
    return compile_text(spec_path(name).read_text(encoding="utf-8"), name)


def compiled(name: str) -> tuple[NormalForm | CoupledForm, str]:
    """The form of a spec by products of matrices and the text of its module."""
    found = result(name)
    assert isinstance(found, Compiled | CoupledCompiled)
    return found.normal_form if isinstance(found, Compiled) else found.coupled_form, found.module.text


@cache
def module(name: str) -> ModuleType:
    """The rendered text as a module."""
    path = FOLDER / f"{name}_kernels.py"
    path.write_text(compiled(name)[1], encoding="utf-8")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = loaded
    spec.loader.exec_module(loaded)
    return loaded


@contextmanager
def tiled(functions: ModuleType, entries: int | None) -> Iterator[None]:
    """Tiles of another size than the module would choose."""
    chosen = functions._triton_tiles
    if entries is not None:
        functions._triton_tiles = lambda keys, values, _, whole: chosen(keys, values, entries, whole)
    try:
        yield
    finally:
        functions._triton_tiles = chosen


@contextmanager
def segmented(functions: ModuleType, chunks: int) -> Iterator[None]:
    """Segments of so many chunks, whatever the machine; 0 for whole sequences."""
    if not hasattr(functions, "_chunks_per_segment"):  # kernels that take sequences whole
        yield
        return
    chosen = functions._chunks_per_segment
    functions._chunks_per_segment = lambda *_: chunks
    try:
        yield
    finally:
        functions._chunks_per_segment = chosen


@dataclass(frozen=True)
class Case:
    """One comparison. `sizes` by axis name; `bounds` packs a batch of one."""

    spec: str
    sizes: dict[str, int]
    tokens: int = 17
    batch: int = 1
    heads: int = 2
    key_heads: int = 1
    bounds: tuple[int, ...] | None = None
    initial: bool = True
    options: dict[str, float | bool] = field(default_factory=dict)
    dtype: torch.dtype = torch.float32
    seed: int = 0
    entries: int | None = None  # of the state in one program; small ones make many value blocks
    chunk: int | None = None  # tokens per chunk: the chunkwise kernels instead of the recurrent ones
    segment: int = 0  # chunks per segment
    change: Callable[[dict[str, Tensor | None]], dict[str, Tensor | None]] | None = None

    def but(self, **changes: object) -> Case:
        """The case with some fields changed."""
        return replace(self, **changes)  # type: ignore[arg-type]


class Inputs:
    """Arguments, options and initial state of a case, in the case's dtype."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.form = compiled(case.spec)[0]
        self.recurrence: Recurrence = self.form.recurrence
        self.options = {o.name: case.options.get(o.name, _default(o.default, case.sizes)) for o in self.recurrence.options}
        draw = torch.Generator().manual_seed(case.seed)
        self.arguments: dict[str, Tensor | None] = {a.name: self._draw(a, draw) for a in self.recurrence.arguments}
        if case.change is not None:
            self.arguments = case.change(self.arguments)
        self.sequences = len(case.bounds) - 1 if case.bounds else case.batch
        wide = torch.promote_types(case.dtype, torch.float32)
        shapes = [(self.sequences, case.heads, *(case.sizes[a] for a in s.axes)) for s in self.recurrence.states]
        states = tuple(torch.randn(shape, generator=draw).to(wide) for shape in shapes)
        self.initial = None if not case.initial else states[0] if len(states) == 1 else states

    def _draw(self, info: ArgumentInfo, draw: torch.Generator) -> Tensor | None:
        """Values within the domain; vectors at unit norm, so that corrections contract."""
        case = self.case
        if info.needed_if and not any(self.options[name] == value for name, value in info.needed_if):
            return None
        axes = [case.sizes[a] for a in info.axes]
        heads = case.key_heads if info.grouped else case.heads
        x = torch.randn([heads, *axes] if info.role == "param" else [case.batch, case.tokens, heads, *axes], generator=draw)
        low, high = max(info.interval.low, -3.0), min(info.interval.high, 3.0)
        if (info.interval.low, info.interval.high) != (-float("inf"), float("inf")):
            x = low + (high - low) * torch.sigmoid(1.5 * x)
        elif info.axes == (self.form.key_axis,):
            x = x / x.norm(dim=-1, keepdim=True)
        return x.to(case.dtype)

    @property
    def values(self) -> list[object]:
        """Arguments, numeric options, boolean options, as the emitted functions take them."""
        numeric = [v for v in self.options.values() if not isinstance(v, bool)]
        return [*self.arguments.values(), *numeric, *(v for v in self.options.values() if isinstance(v, bool))]

    @property
    def split(self) -> tuple[tuple[object, ...], tuple[object, ...]]:
        """Arguments, and options, as the chunkwise functions take them."""
        count = len(self.arguments)
        return tuple(self.values[:count]), tuple(self.values[count:])

    @property
    def bounds(self) -> Tensor | None:
        return torch.tensor(self.case.bounds, dtype=torch.int32) if self.case.bounds else None

    def oriented(self, state: Tensor | None) -> Tensor | None:
        """The matrix state as [key axis, value axis], a view."""
        return state.mT if state is not None and self.form.transposed else state

    @property
    def declared(self) -> tuple[Tensor | None, ...]:
        """The initial states as declared, None for each where there are none."""
        found = self.initial if isinstance(self.initial, tuple) else (self.initial,)
        return found if self.initial is not None else (None,) * len(self.recurrence.states)

    @property
    def states(self) -> tuple[Tensor | None, ...]:
        """The initial states as the kernels take them."""
        return self.turned(self.declared)

    def turned(self, states: tuple[Tensor | None, ...]) -> tuple[Tensor | None, ...]:
        """States with the matrix by its key axis."""
        infos = self.recurrence.states
        return tuple(self.oriented(x) if self.is_matrix(info) else x for x, info in zip(states, infos, strict=True))

    def is_matrix(self, info: StateInfo) -> bool:
        """Whether a state is a matrix by the key and the value axis."""
        return isinstance(self.form, CoupledForm) or info == self.form.state

    def names(self, prefix: str) -> tuple[str, ...]:
        """What the states are called."""
        infos = self.recurrence.states
        return (f"{prefix} state",) if len(infos) == 1 else tuple(f"{prefix} state {s.name}" for s in infos)

    def loop(self, arguments: dict[str, Tensor | None], initial: tuple[Tensor, ...] | None) -> tuple[Tensor, ...]:
        """The reference's outputs, and its final states, the matrix as [key axis, value axis]."""
        bounds = list(self.case.bounds) if self.case.bounds else None
        found = Loop(self.recurrence, self.case.sizes, self.options).run(arguments, initial, bounds)
        count = len(self.recurrence.outputs)
        return (*found[:count], *self.turned(found[count:]))


def _default(default: bool | Term, sizes: dict[str, int]) -> float | bool:
    if isinstance(default, bool):
        return default
    match default:
        case Constant(value):
            return value
        case AxisSize(axis):
            return float(sizes[axis])
        case Apply(op, args):
            values = [_default(a, sizes) for a in args]
            return {"pow": lambda a, b: a**b, "neg": lambda a: -a, "mul": lambda a, b: a * b, "div": lambda a, b: a / b}[op](*values)
    raise AssertionError(default)


def compare(name: str, found: Tensor, wanted: Tensor, limit: float) -> None:
    """Relative RMS and relative maximum, both within the limit."""
    assert found.shape == wanted.shape, f"{name}: {tuple(found.shape)} instead of {tuple(wanted.shape)}"
    if wanted.numel() == 0:
        return
    found, wanted = found.double(), wanted.double()
    assert torch.isfinite(found).all(), f"{name} is not finite"
    error = (found - wanted).abs()
    rms = (error.square().mean().sqrt() / wanted.square().mean().sqrt().clamp_min(1e-12)).item()
    top = (error.max() / wanted.abs().max().clamp_min(1e-12)).item()
    if wanted.abs().max() < 1e-12:
        rms, top = error.max().item(), error.max().item()
    assert rms <= limit and top <= 4 * limit, f"{name}: rms {rms:.2e}, max {top:.2e}, limit {limit:.0e}"


LIMITS = {torch.float64: (1e-10, 1e-9), torch.float32: (1e-5, 5e-5), torch.float16: (5e-3, 8e-3), torch.bfloat16: (2e-2, 4e-2)}
"""dtype -> limits of outputs and gradients; bfloat16 in the interpreter is a test of types, not of precision."""


def check(case: Case, backward: bool = True) -> None:
    """Forward, and every gradient, against the loop and its autograd."""
    inputs = Inputs(case)
    wide = {k: None if x is None else x.double().requires_grad_() for k, x in inputs.arguments.items()}
    initial = None if inputs.initial is None else tuple(x.double().requires_grad_() for x in inputs.declared)
    wanted = inputs.loop(wide, initial)
    found = forward(inputs, backward)
    for name, x, y in zip([*inputs.recurrence.outputs, *inputs.names("final")], found, wanted, strict=False):
        compare(name, x, y, LIMITS[case.dtype][0])
    if backward:
        draw = torch.Generator().manual_seed(case.seed + 1)
        cotangents = [torch.randn(y.shape, generator=draw).to(x.dtype) for x, y in zip(found, wanted, strict=False)]
        leaves = {**dict(zip(inputs.names("initial"), initial or (), strict=False)), **wide}
        leaves = {k: x for k, x in leaves.items() if x is not None}
        pairs = [(y, c.double()) for y, c in zip(wanted, cotangents, strict=False) if y.requires_grad]  # without tokens, outputs do not
        roots, seeds = [y for y, _ in pairs], [c for _, c in pairs]
        expected = torch.autograd.grad(roots, list(leaves.values()), seeds, allow_unused=True, materialize_grads=True)
        check_gradients(inputs, gradients(inputs, found[-1], cotangents), dict(zip(leaves, expected, strict=True)))


def forward(inputs: Inputs, save: bool = True) -> tuple[Tensor, ...]:
    """Outputs, final state, checkpoints."""
    functions = module(inputs.case.spec)
    if inputs.case.chunk is not None:
        with segmented(functions, inputs.case.segment):
            return functions._triton_chunk_forward(*inputs.split, inputs.states, inputs.bounds, inputs.case.chunk, save)
    with tiled(functions, inputs.case.entries):
        return functions._triton_recurrent_forward(*inputs.values, *inputs.states, inputs.bounds, save)


def gradients(inputs: Inputs, saved: Tensor, cotangents: list[Tensor | None]) -> dict[str, Tensor | None]:
    """The gradient of every argument by name, and of the initial states, oriented as the kernels have them."""
    functions = module(inputs.case.spec)
    if inputs.case.chunk is not None:
        count = len(inputs.recurrence.outputs)
        rest = (inputs.states, inputs.bounds, inputs.case.chunk, saved, tuple(cotangents[:count]), tuple(cotangents[count:]))
        with segmented(functions, inputs.case.segment):
            found = functions._triton_chunk_backward(*inputs.split, *rest)
        return dict(zip([*inputs.arguments, *inputs.names("initial")], found, strict=True))
    with tiled(functions, inputs.case.entries):
        found = functions._triton_recurrent_backward(*inputs.values, *inputs.states, inputs.bounds, saved, *cotangents)
    return dict(zip([*inputs.arguments, *inputs.names("initial")], found, strict=True))


def check_gradients(inputs: Inputs, found: dict[str, Tensor | None], expected: dict[str, Tensor]) -> None:
    """Values, dtypes, and None for what is None."""
    for name, x in found.items():
        wanted = expected.get(name)
        if wanted is None or x is None:
            assert wanted is None and x is None, f"the gradient of {name} is missing, or there is one too many"
            continue
        if name in inputs.names("initial"):
            info = inputs.recurrence.states[inputs.names("initial").index(name)]
            wanted = inputs.oriented(wanted) if inputs.is_matrix(info) else wanted
        else:
            assert x.dtype == inputs.arguments[name].dtype, f"the gradient of {name} is in another dtype"
        compare(f"gradient of {name}", x, wanted, LIMITS[inputs.case.dtype][1])
