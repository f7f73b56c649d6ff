"""Runs every form over every case and gathers the errors."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any

import torch

from recgen import cache
from recgen.analysis.coupled_form import CoupledForm
from recgen.analysis.normal_form import NormalForm
from recgen.analysis.token_form import TokenForm
from recgen.lang.recurrence import Recurrence
from recgen.pipeline import AnyCompiled, Compiled, CoupledCompiled, ScanCompiled
from recgen.verify.cases import Case, cases, long_cases, packed_cases
from recgen.verify.exact import causality_errors, repetition_errors
from recgen.verify.forms import Call, Form, Results, call_of, differentiate, split, stepwise, strided, whole
from recgen.verify.inputs import LIMIT, GrowthError, NotFiniteError, Roles, Sample, VerifiedForm, draw, multipliers, roles
from recgen.verify.loop import Conditioning, named, results
from recgen.verify.report import Report, Tally, error
from recgen.verify.tolerances import VALUES, gradient_tolerance

Tensor = torch.Tensor
Progress = Callable[[int, int, str], None]

CHUNKS = ("chunk 16", "chunk 32", "chunk 64")
INTERPRETED = os.environ.get("TRITON_INTERPRET", "0") == "1"
DTYPES = {"float64": torch.float64, "float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
_LONGEST_NAIVE = 17
_LONGEST_STEPS = 64


@dataclass(frozen=True)
class _Task:
    """One sample and the forms that run on it."""

    case: Case
    dtype: str
    forms: tuple[str, ...]
    check: str


def verify(compiled: AnyCompiled, device: str = "cpu", progress: Progress | None = None) -> Report:
    """Compares every form of the emitted module with the float64 loop of the spec, values and gradients, and tests what holds to the bit.

    Args:
        compiled: every stage's result; the module's text is imported as users import it.
        device: "cpu", or "cuda" to run the Triton kernels.
        progress: called with what is done, the total, and what is next.
    """
    run = _Verification(compiled, device)
    tasks, exact = run.tasks(), long_cases(compiled.recurrence)
    tell = progress or (lambda *_: None)
    with _one_thread():
        for done, task in enumerate(tasks):
            tell(done, len(tasks) + len(exact), f"{task.dtype}, T = {task.case.tokens}")
            run.compare(task)
        for done, case in enumerate(exact):
            tell(len(tasks) + done, len(tasks) + len(exact), "what holds to the bit")
            run.exact(case)
    tell(len(tasks) + len(exact), len(tasks) + len(exact), "done")
    return run.report()


@contextmanager
def _one_thread() -> Iterator[None]:
    """These tensors are small: handing them to several threads costs ten times what it gains."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def reproduce(spec: str | AnyCompiled, form: str, dtype: str = "float32", device: str = "cpu", limit: float = LIMIT, **case: Any) -> Report:
    """Runs one form on one input again: the line that a failed verification prints.

    Args:
        spec: the path of a spec, or what its compilation gave.
        form: as in the line, such as "chunk 16" or "recurrent, split at 37".
        dtype: "float64", "float32", "bfloat16" or "float16".
        device: "cpu" or "cuda".
        limit: no value of the loop is larger.
        case: the fields of `recgen.verify.cases.Case`.
    """
    if isinstance(spec, str):
        from recgen import compile as compile_spec

        spec = compile_spec(spec)
    run = _Verification(spec, device, limit)
    with _one_thread():
        if form.endswith("to the bit"):
            run.exact(Case(**case))
        else:
            run.compare(_Task(Case(**case), dtype, (form,), "again"))
    return run.report()


def form_of(compiled: AnyCompiled) -> VerifiedForm:
    """What the compiler found the recurrence to be."""
    if isinstance(compiled, Compiled):
        return compiled.normal_form
    if isinstance(compiled, CoupledCompiled):
        return compiled.coupled_form
    return compiled.scan_form if isinstance(compiled, ScanCompiled) else compiled.token_form


class _Verification:
    """The module, the roles of its arguments, and the errors so far."""

    def __init__(self, compiled: AnyCompiled, device: str, limit: float = LIMIT) -> None:
        self.compiled, self.device, self.limit = compiled, device, limit
        self.module = cache.load(compiled.module.name, compiled.module.text)
        self.form: VerifiedForm = form_of(compiled)
        self.roles: Roles = roles(self.form)
        self.tally = Tally()
        self.redrawn = self.excused = self.grown = 0

    @property
    def recurrence(self) -> Recurrence:
        """The checked spec."""
        return self.compiled.recurrence

    def offered(self, forms: tuple[str, ...]) -> tuple[str, ...]:
        """Of these forms those that the module has."""
        return tuple(f for f in forms if not isinstance(self.form, TokenForm) or not f.startswith("chunk"))

    def tasks(self) -> list[_Task]:
        """What is compared with the reference."""
        tasks = [replace(task, forms=self.offered(task.forms)) for task in self._all_tasks()]
        return [task for task in tasks if task.forms]

    def _all_tasks(self) -> list[_Task]:
        """What is compared where a module has every form."""
        found = []
        for i, case in enumerate(cases(self.recurrence, bool(self.roles.reset))):
            steps = ("step",) if 0 < case.tokens <= _LONGEST_STEPS else ()
            naive = ("naive",) if case.tokens <= _LONGEST_NAIVE else ()
            found.append(_Task(case, "float64", (*naive, *CHUNKS, "recurrent", *steps), "forms"))
            found.append(_Task(case, "float32", (CHUNKS[i % 3], CHUNKS[(i + 1) % 3], "recurrent", *steps), "forms"))
        for case in packed_cases(self.recurrence):
            found.append(_Task(case, "float64", ("naive", "chunk 16", "chunk 64", "recurrent"), "packed"))
            found.append(_Task(case, "float32", ("chunk 16", "chunk 64", "recurrent"), "packed"))
        for case in long_cases(self.recurrence):
            points = (1, 37, 64, case.tokens - 1)
            splits = tuple(f"{form}, split at {at}" for form in ("chunk 64", "recurrent") for at in points)
            found.append(_Task(case, "float32", splits, "split"))
            found.append(_Task(case, "float64", ("chunk 16, split at 50",), "split"))
            found.append(_Task(case, "float32", ("chunk 64, strided", "recurrent, strided"), "strides"))
            if not INTERPRETED:
                found += [_Task(case, half, ("chunk 64", "recurrent", "step"), "forms") for half in ("bfloat16", "float16")]
        return found

    def compare(self, task: _Task) -> None:
        """Every form of the task against the reference."""
        dtype = DTYPES[task.dtype]
        reference = self._reference(task.case, dtype, task.check, task.forms[0])
        if reference is None:
            return
        sample, wanted = reference
        floor = _resolution(sample, dtype)
        conditioning = Conditioning(self.recurrence, sample, wanted, self.roles.gate, floor)
        for name in task.forms:
            repro = self._line(name, task.dtype, task.case)
            call = call_of(sample, dtype, self.device)
            try:
                found = self._run(name, call, sample, wanted.states)
            except Exception as failure:  # whatever the module raises is a finding about it
                self.tally.add(_family(name), task.check, task.dtype, _raised(failure), (float("inf"), float("inf")), 0.0, repro)
                continue
            for tensor, errors, tolerance in self._errors(found, wanted, dtype, floor):
                if max(errors) > tolerance and conditioning.excuses(tensor, errors, dtype):
                    self.excused += 1
                    continue
                self.tally.add(_family(name), task.check, task.dtype, tensor, errors, tolerance, repro)

    def exact(self, case: Case) -> None:
        """What holds to the bit."""
        reference = self._reference(case, torch.float32, "causality", "chunk 64, to the bit")
        if reference is None:
            return
        sample, _ = reference
        other, _ = draw(self.form, self.roles, _reseeded(case), torch.float32)
        for name in self.offered(("chunk 64", "recurrent")):
            form = build_form(self.module, name)
            repro = self._line(f"{name}, to the bit", "float32", case)
            try:
                checks = {
                    "causality": causality_errors(form, self.module, sample, other, self.device),
                    "run to run": repetition_errors(form, sample, self.device),
                }
            except Exception as failure:  # whatever the module raises is a finding about it
                checks = {"to the bit": {_raised(failure): float("inf")}}
            for check, tensors in checks.items():
                tensor, worst = max(tensors.items(), key=lambda pair: pair[1])
                self.tally.add(_family(name), check, "float32", tensor if worst else "every result", (worst, worst), 0.0, repro)

    def report(self) -> Report:
        """What was found so far."""
        return Report(self.recurrence.name, self.device, self.tally.rows, self._notes(), self.tally.failure)

    def _notes(self) -> tuple[str, ...]:
        found = []
        if self.redrawn:
            found.append(f"samples drawn again because the loop grew beyond {LIMIT:g}, or was not finite: {self.redrawn}")
        if self.grown:
            found.append(f"inputs that were not compared because the loop grows beyond {LIMIT:g} whatever is drawn: {self.grown}")
        if any(row.form == "recurrence" for row in self.tally.rows):
            found.append("the recurrence as written is no number there: declare the domains of what it divides by or takes a root of")
        if self.excused:
            found.append(
                f"results that the loop itself cannot resolve in this precision, held to that loop instead of the tolerance: {self.excused}"
            )
        if isinstance(self.form, NormalForm | CoupledForm) and not self.roles.reset and multipliers(self.form):
            found.append("no single input can make the decay 0: no hard resets were tried")
        if INTERPRETED:
            found.append("under TRITON_INTERPRET=1, whose bfloat16 arithmetic is wrong: no inputs in half precision")
        if self.roles.unit:
            found.append(f"drawn with unit norm: {', '.join(sorted(self.roles.unit))}")
        return tuple(found)

    def _reference(self, case: Case, dtype: torch.dtype, check: str, form: str) -> tuple[Sample, Results] | None:
        """A sample and the loop's results and gradients for it; None, with a finding or a note, where nothing can be compared with it."""
        name = next(name for name, x in DTYPES.items() if x == dtype)
        try:
            sample, run = draw(self.form, self.roles, case, dtype, self.limit)
        except NotFiniteError:
            what = "the recurrence itself is not finite"
            self.tally.add("recurrence", check, name, what, (float("inf"), float("inf")), 0.0, self._line(form, name, case))
            return None
        except GrowthError:
            self.grown += 1
            return None
        self.redrawn += sample.redrawn
        return sample, results(sample, run)

    def _run(self, name: str, call: Call, sample: Sample, final: tuple[Tensor, ...]) -> Results:
        if name != "step":
            return differentiate(build_form(self.module, name), call, sample)
        outputs, states = stepwise(self.module)(call if call.initial is not None else _from_zero(call, final))
        return Results(outputs, states, {})

    def _errors(self, found: Results, wanted: Results, dtype: torch.dtype, floor: float) -> list[tuple[str, tuple[float, float], float]]:
        """Every tensor's errors and tolerance."""
        references = named(self.recurrence, wanted)
        rows = []
        for name, x in named(self.recurrence, found).items():
            tolerance, least = VALUES[dtype], 0.0
            if name.startswith("d "):
                info = next((a for a in self.recurrence.arguments if a.name == name[2:]), None)
                tolerance, least = gradient_tolerance(info, self.roles.gate | self.roles.strength, dtype), floor
            rows.append((name, error(x, references[name], least), tolerance))
        return rows

    def _line(self, form: str, dtype: str, case: Case) -> str:
        device = "" if self.device == "cpu" else f", device={self.device!r}"
        call = f"reproduce({self.recurrence.source.name!r}, {form!r}, {dtype!r}{device}, {case.arguments()})"
        interpreted = "TRITON_INTERPRET=1 " if INTERPRETED else ""
        return f'{interpreted}python -c "from recgen.verify import reproduce; print({call})"'


def build_form(module: ModuleType, name: str) -> Form:
    """A form from its name: "naive", "chunk 16", "recurrent", with ", split at N" or ", strided" after it."""
    base, _, variation = name.partition(", ")
    kind, _, size = base.partition(" ")
    prefixes = {"naive": "naive_recurrent_", "chunk": "chunk_", "recurrent": "fused_recurrent_"}
    form = whole(module, prefixes[kind], **({"chunk_size": int(size)} if size else {}))
    if variation.startswith("split at "):
        return split(form, module, int(variation.removeprefix("split at ")))
    return strided(form) if variation == "strided" else form


def _raised(failure: Exception) -> str:
    """The failure in one line, where a tensor's name stands."""
    return f"raises {type(failure).__name__}: {str(failure).partition(chr(10))[0]}"


def _family(name: str) -> str:
    """The form without its chunk size and variation."""
    return name.partition(",")[0].partition(" ")[0]


def _resolution(sample: Sample, dtype: torch.dtype) -> float:
    """What the computing precision resolves beside the largest gradient that flows in."""
    incoming = max((float(d.abs().max()) for d in (*(sample.d_outputs or ()), *(sample.d_states or ())) if d.numel()), default=0.0)
    return incoming * torch.finfo(torch.float64 if dtype == torch.float64 else torch.float32).eps


def _reseeded(case: Case) -> Case:
    return replace(case, seed=case.seed + 1000)


def _from_zero(call: Call, like: tuple[Tensor, ...]) -> Call:
    """The call with the zero states that the other forms begin with."""
    first = next(iter(call.arguments.values()))
    wide = torch.float64 if first.dtype == torch.float64 else torch.float32
    return replace(call, initial=tuple(torch.zeros(x.shape, dtype=wide, device=first.device) for x in like))
