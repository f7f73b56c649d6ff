"""What the compiler makes of every kernel of every spec, for GPUs that need not be there: `python -m tests.triton.matrix --help`.

The results are kept in matrix.json by the digest of what was compiled, so that a kernel that is the same needs no compiler.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
from dataclasses import dataclass
from functools import cache
from itertools import count
from pathlib import Path

import triton

from recgen.analysis.normal_form import NormalForm
from recgen.resources import resource
from tests.triton.compiling import Job, Result, compile_all
from tests.triton.harness import compiled, with_normal_form
from tests.triton.launches import TARGETS, Point, launches

FILE = Path(__file__).with_name("matrix.json")
TRITONS = ("3.6.0", "3.9.0")
"""The oldest that is supported, with which everything is tested, and the newest."""
SLACK = (1.1, 64)
"""Factor and bytes of spilled memory that another build of the same compiler may take more."""
EVERYWHERE, ONCE = tuple(TARGETS), ("sm_90",)
EITHER = ("sm_90", "gfx942")
"""A GPU of either maker."""
SHAPES = (
    ("bfloat16", 128, "plain", EVERYWHERE),
    ("bfloat16", 128, "packed", ONCE),
    ("float32", 128, "plain", ONCE),
)
"""Of every spec that is shipped: dtype, size of the keys and values, variant, targets."""
MORE_SHAPES = (
    ("float32", 128, "packed", ONCE),
    ("float16", 128, "plain", ONCE),
    ("float64", 128, "plain", ONCE),
    ("bfloat16", 32, "plain", ONCE),
    ("bfloat16", 64, "plain", ONCE),
    ("bfloat16", 256, "plain", ONCE),
    ("float32", 256, "plain", ONCE),
    ("bfloat16", 512, "plain", ONCE),
)
"""Of one spec of every class."""
PHASED = ("gated_delta_beta_v", "momentum_delta", "three_memories")
"""Specs of the tests whose chunkwise kernels are printed from steps: by value channel, and coupled states."""
PHASED_SHAPES = (*SHAPES[:2], ("float32", 64, "plain", ONCE), ("float32", 128, "plain", ONCE))
WHOLE = ("value_forget",)
"""One whose programs hold the whole value axis."""
WHOLE_SHAPES = (("bfloat16", 64, "plain", EVERYWHERE), ("bfloat16", 128, "plain", EITHER), ("float32", 64, "packed", ONCE))

Record = dict[str, dict[str, Result | str]]
"""digest -> {"is": what was compiled, "TARGET TRITON": result}."""


@dataclass(frozen=True)
class Entry:
    """One launch on one target."""

    job: Job
    name: str

    @property
    def target(self) -> str:
        """Where it would run."""
        return self.job.point.target


@cache
def specs() -> tuple[str, ...]:
    """The specs that are shipped, of those that have a normal form."""
    return with_normal_form(resource("specs"))


def class_of(spec: str) -> tuple[str, tuple[str, ...]]:
    """The class of a spec's operands: how it decays, and for every write whether and of what state it corrects."""
    form = compiled(spec)[0]
    assert isinstance(form, NormalForm)
    return form.decay.kind, tuple(("decayed" if s.decayed else "old") if s.correct else "" for s in form.streams)


def representatives() -> tuple[str, ...]:
    """The first spec of every class."""
    return tuple(sorted({class_of(spec): spec for spec in reversed(specs())}.values()))


def points(version: str) -> list[Point]:
    """What is compiled with a Triton: with the oldest the whole matrix, with the newest one spec of each class for every target."""
    sets = ((SHAPES, specs()), (MORE_SHAPES, representatives()), (PHASED_SHAPES, PHASED), (WHOLE_SHAPES, WHOLE))
    shipped = [Point(spec, *shape, target) for shapes, some in sets for *shape, targets in shapes for spec in some for target in targets]
    return shipped if version == TRITONS[0] else [p for p in shipped if representative(p)]


def representative(point: Point) -> bool:
    """Whether a point stands for its class."""
    usual = (point.dtype, point.keys, point.variant) == ("bfloat16", 128, "plain")
    return usual and point.spec in (*representatives(), *PHASED, *WHOLE)


def verified(point: Point) -> bool:
    """Whether continuous integration compiles a point.

    With the oldest Triton each spec once and one of each class everywhere, with the newest one of each class for a GPU of either maker.
    """
    if triton.__version__ != TRITONS[0]:
        return representative(point) and point.target in EITHER
    usual = (point.dtype, point.keys, point.variant) == ("bfloat16", 128, "plain")
    return (usual and point.target in ONCE) or representative(point)


def entries(chosen: list[Point]) -> dict[tuple[str, str], Entry]:
    """Every launch of some points, by digest and target."""
    found: dict[tuple[str, str], Entry] = {}
    for point in chosen:
        for launch in launches(point):
            name = f"{point.spec} {launch.name.strip('_')} {point.dtype} {point.keys} {point.variant}"
            found.setdefault((launch.digest, point.target), Entry(Job(point, launch.digest), name))
    return found


def load(file: Path = FILE) -> Record:
    """The record as it is kept."""
    record: Record = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    return record


def save(record: Record, file: Path) -> None:
    """One line a launch, sorted by what it is."""
    ordered = sorted(record, key=lambda digest: (record[digest]["is"], digest))
    lines = [f"{json.dumps(digest)}: {json.dumps(dict(sorted(record[digest].items())))}" for digest in ordered]
    file.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


def never_launched() -> list[str]:
    """Kernels that no point reaches."""
    every = (*specs(), *PHASED, *WHOLE)
    reached = {(point.spec, launch.name.strip("_")) for point in points(TRITONS[0]) for launch in launches(point)}
    defined = {(spec, name) for spec in every for name in re.findall(r"@_triton_kernel\(.*\)\ndef _(\w+)\(", compiled(spec)[1])}
    return [" ".join(pair) for pair in sorted(defined - reached)]


def check(file: Path) -> int:
    """Whether the record is of the kernels as they are; says of which it is not."""
    record, wanted = load(file), {}
    for version in TRITONS:
        found = entries(points(version))
        wanted |= {(digest, f"{target} {version}"): f"{e.name}, {target}, triton {version}" for (digest, target), e in found.items()}
    held = {(digest, key): f"{row['is']}, {key}" for digest, row in record.items() for key in row.keys() - {"is"}}
    findings = {
        "never launched": never_launched(),
        "not in the record": [name for key, name in wanted.items() if key not in held],
        "in the record, but no kernel any more": [name for key, name in held.items() if key not in wanted],
    }
    for what, names in findings.items():
        for name in names[:20]:
            print(f"{what}: {name}")
        if len(names) > 20:
            print(f"{what}: {len(names) - 20} more")
    if any(findings.values()):
        print(f"{file.name} is out of date: run `bash scripts/matrix.sh`, which compiles what changed, and commit the result")
    return int(any(findings.values()))


def update(file: Path, only: str, everything: bool, processes: int) -> int:
    """Compiles with this Triton what the record lacks, drops what is no more, and keeps the results as they come."""
    record, version = load(file), triton.__version__
    every = {v: entries(points(v)) for v in TRITONS}
    found, known = every[version], {(digest, f"{target} {v}") for v in TRITONS for digest, target in every[v]}
    record = {digest: {key: x for key, x in row.items() if (digest, key) in known} for digest, row in record.items()}
    lacking = [e for (digest, target), e in found.items() if not isinstance(record.get(digest, {}).get(f"{target} {version}"), list)]
    todo = list(found.values()) if everything else lacking  # a failure is tried again
    jobs = {e.job: e for e in todo if re.search(only, f"{e.name} {e.target}")}
    start, numbers = time.monotonic(), count(1)

    def write() -> None:
        names = {digest: entry.name for (digest, _), entry in reversed(every[TRITONS[0]].items())}
        save({digest: {"is": names[digest]} | row for digest, row in record.items() if row}, file)

    def keep(job: Job, result: Result) -> None:
        record.setdefault(job.digest, {})[f"{job.point.target} {version}"] = result
        number, seconds = next(numbers), time.monotonic() - start
        print(f"{number}/{len(jobs)} {seconds:.0f}s {jobs[job].name} {job.point.target}: {result}", flush=True)
        if number % 50 == 0:
            write()

    try:
        compile_all(jobs, keep, processes)
    finally:
        write()
    return 0


def worse(result: Result, recorded: Result | None) -> str:
    """What is wrong with a result, "" if nothing is: no more shared memory than recorded, and hardly more spilled memory."""
    if recorded is None or isinstance(recorded, str):
        return "" if result == recorded else f"{result} instead of {recorded}"
    if isinstance(result, str):
        return result
    (shared, _, spilled), (most, _, before) = result, recorded
    return f"{result} instead of {recorded}" if shared > most or spilled > before * SLACK[0] + SLACK[1] else ""


def verify(file: Path, processes: int) -> int:
    """Compiles anew what continuous integration does, and compares with the record."""
    record, version, start, faults = load(file), triton.__version__, time.monotonic(), []
    jobs = {entry.job: entry for entry in entries([p for p in points(version) if verified(p)]).values()}

    def keep(job: Job, result: Result) -> None:
        fault = worse(result, record.get(job.digest, {}).get(f"{job.point.target} {version}"))
        faults.extend([f"{jobs[job].name} {job.point.target}: {fault}"] if fault else [])

    compile_all(jobs, keep, processes)
    print("\n".join([f"{len(jobs)} launches compiled with triton {version} in {time.monotonic() - start:.0f} s", *faults]))
    return int(bool(faults))


def main(arguments: list[str]) -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m tests.triton.matrix", description="Compile what the record lacks, with this Triton.")
    parser.add_argument("--check", action="store_true", help="compile nothing: fail where the record is not of the kernels as they are")
    parser.add_argument("--verify", action="store_true", help="compile a part anew and compare: what continuous integration runs")
    parser.add_argument("--all", action="store_true", help="compile what the record has, too")
    parser.add_argument("--only", default="", metavar="REGEX", help="of 'SPEC KERNEL DTYPE KEYS VARIANT TARGET'")
    parser.add_argument("--file", type=Path, default=FILE, help="the record, %(default)s")
    parser.add_argument("--jobs", type=int, default=2, metavar="N", help="processes, %(default)s")
    given = parser.parse_args(arguments)
    if given.check:
        return check(given.file)
    if triton.__version__ not in TRITONS:
        print(f"this is triton {triton.__version__}; the record is of {' and '.join(TRITONS)}")
        return 2
    return verify(given.file, given.jobs) if given.verify else update(given.file, given.only, given.all, given.jobs)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
