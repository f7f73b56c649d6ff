"""Runs flash-linear-attention's own operator tests on our functions and summarises them.

    python tests/peer/run_fla_tests.py FOLDER cpu|cuda [--wheels WHEEL...] [--out results] [--files test_gla ...]

FOLDER is a checkout's `tests`, with `ops/test_gdn.py` and so on. Its package `fla` is taken from the wheels (unpacked into a temporary
folder), or from the interpreter's own packages. Every part of a file runs in a process of its own, which is started again after a crash; a
run that ends early, by `--budget`, goes on with the same `--out`.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import zipfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.peer.fla_left_out import BOTH_SIDES, FILES  # noqa: E402  (after the path is set)

OUTCOMES = ("passed", "failed", "skipped", "not ours", "left out", "too large", "not run")
ASIDE = {"left out": "Left out", "too large": "Too large for this machine", "skipped": "Skipped by themselves", "not ours": "Not ours"}
PTXAS = Path("/usr/local/cuda/bin/ptxas")

Line = dict[str, Any]


def environment(wheels: list[Path], folder: Path, device: str) -> dict[str, str]:
    """The variables of a test process; unpacks the wheels into the folder."""
    for wheel in wheels:
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(folder)
    path = os.pathsep.join(filter(None, (str(ROOT), str(folder), os.environ.get("PYTHONPATH", ""))))
    variables = {**os.environ, "PYTHONPATH": path, "FLA_DISABLE_BACKEND_DISPATCH": "1"}
    if device == "cuda" and PTXAS.exists():
        variables.setdefault("TRITON_PTXAS_PATH", str(PTXAS))
    variables.pop("FLA_CI_ENV", None)  # it turns failures into warnings
    return variables


def command(options: argparse.Namespace, name: str, shard: int, log: Path, settings: Path) -> list[str]:
    """The call of pytest for one part of a file."""
    test = options.folder / "ops" / f"{name}.py"
    fixed = ["-c", str(settings), f"--rootdir={options.folder}", "-p", "tests.peer.fla_plugin", "-p", "no:cacheprovider", "-q", "--tb=no"]
    peer = [f"--peer-log={log}", f"--peer-device={options.device}", f"--peer-seconds={options.seconds}", f"--peer-size={options.size}"]
    peer += [f"--peer-reference={options.reference}", f"--peer-shard={shard}", f"--peer-shards={options.shards}"]
    return [sys.executable, "-m", "pytest", *fixed, *peer, str(test)]


def lines_of(log: Path) -> list[Line]:
    """What a log holds."""
    return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []


def results(log: Path) -> dict[str, Line]:
    """The outcome of every collected test."""
    found: dict[str, Line] = {}
    for line in lines_of(log):
        if "outcome" in line:
            found[line["id"]] = line
        elif "collected" in line:
            found[line["id"]] = {"id": line["id"], "outcome": "not run", "message": "not reached"}
    return found


def run_part(options: argparse.Namespace, name: str, shard: int, variables: dict[str, str], settings: Path, deadline: float) -> Path:
    """Runs one part of a file to its end, to the deadline, or until a process ends without having finished a test."""
    part = options.out / f"{options.device}_{name}_{shard}of{options.shards}"
    log, text = part.with_suffix(".jsonl"), part.with_suffix(".txt")
    while time.monotonic() < deadline:
        before = len(lines_of(log))
        with text.open("a") as output:
            process = subprocess.Popen(command(options, name, shard, log, settings), cwd=ROOT, env=variables, stdout=output, stderr=output)
            try:
                code = process.wait(max(deadline - time.monotonic(), 1))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                break
        lines = lines_of(log)
        if not lines:
            raise SystemExit(f"{name}: no test was collected; see {text}")
        done = {line["id"] for line in lines if "outcome" in line}
        pending = [line["id"] for line in lines if "started" in line and line["id"] not in done]
        with log.open("a") as file:
            for test in dict.fromkeys(pending):
                file.write(json.dumps({"id": test, "outcome": "failed", "message": f"the process ended with code {code}"}) + "\n")
        if len(lines) == before or (code in (0, 1, 5) and not pending):
            break
    return log


def versions(variables: dict[str, str]) -> dict[str, str]:
    """What was tested with what."""
    code = "import json, fla, torch, triton; print(json.dumps({m.__name__: m.__version__ for m in (fla, torch, triton)}))"
    output = subprocess.run([sys.executable, "-c", code], env=variables, capture_output=True, text=True, check=False)
    return json.loads(output.stdout.splitlines()[-1]) if output.returncode == 0 else {"error": output.stderr.splitlines()[-1]}


def summary(files: dict[str, dict[str, Line]], about: dict[str, str]) -> dict[str, Any]:
    """Counts by file, every test that did not pass, and how often our functions were called by tests that did."""
    counts = {name: {o: Counter(line["outcome"] for line in tests.values())[o] for o in OUTCOMES} for name, tests in files.items()}
    calls: Counter[str] = Counter()
    for tests in files.values():
        for line in tests.values():
            calls.update(line.get("calls", {}) if line["outcome"] == "passed" else {})
    passed = [line["id"].split("[")[0] for tests in files.values() for line in tests.values() if line["outcome"] == "passed"]
    itself = sum(any(part in test for part in BOTH_SIDES) for test in passed)
    others = [line for tests in files.values() for line in tests.values() if line["outcome"] != "passed"]
    return {"about": about, "counts": counts, "calls": dict(sorted(calls.items())), "itself": itself, "others": others}


def markdown(found: dict[str, Any]) -> str:
    """The summary as text."""
    rows = [f"| {name} | {' | '.join(str(counts[o]) for o in OUTCOMES)} |" for name, counts in found["counts"].items()]
    total = [sum(counts[o] for counts in found["counts"].values()) for o in OUTCOMES]
    head = f"| file | {' | '.join(OUTCOMES)} |\n{'|---' * (len(OUTCOMES) + 1)}|"
    text = [
        "# flash-linear-attention's tests on our functions",
        ", ".join(f"{name} {value}" for name, value in found["about"].items()),
        "\n".join([head, *rows, f"| all | {' | '.join(map(str, total))} |"]),
        "Calls of our functions in the tests that passed: " + (", ".join(f"{n} {c}" for n, c in found["calls"].items()) or "none"),
    ]
    if found["itself"]:
        text.append(f"Of the tests that passed, {found['itself']} compare a function with itself, as they are written.")
    failures = [line for line in found["others"] if line["outcome"] == "failed"]
    if failures:
        text.append("\n".join(["## Failed", "", *(f"- `{line['id']}`: {line['message'].splitlines()[0]}" for line in failures)]))
    for outcome, title in ASIDE.items():
        groups = Counter((line["id"].split("[")[0], line["message"]) for line in found["others"] if line["outcome"] == outcome)
        if groups and outcome != "too large":
            text.append("\n".join([f"## {title}", "", *(f"- `{test}` ({n}): {reason}" for (test, reason), n in groups.items())]))
        elif groups:
            tests = Counter(test for test, _ in groups)
            text.append("\n".join([f"## {title}", "", *(f"- `{test}`: {n}" for test, n in tests.items())]))
    return "\n\n".join(text) + "\n"


def main() -> None:
    """Runs the files and writes `<device>_summary.json` and `.md`."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("device", choices=("cpu", "cuda"))
    parser.add_argument("--wheels", type=Path, nargs="*", default=[], help="of fla-core and einops")
    parser.add_argument("--out", type=Path, default=Path("fla_tests"), help="folder of the logs and the summary")
    parser.add_argument("--files", nargs="*", default=FILES, choices=FILES, metavar="FILE", help=", ".join(FILES))
    parser.add_argument("--reference", choices=("naive", "triton"), help="of tests whose reference is a Triton function of fla's")
    parser.add_argument("--size", type=float, help="largest test: state entries times tokens (1.4e8 on a CPU)")
    parser.add_argument("--seconds", type=int, default=120, help="per test")
    parser.add_argument("--jobs", type=int, default=1, help="processes at a time")
    parser.add_argument("--shards", type=int, default=1, help="parts of every file; the same for every run with the same --out")
    parser.add_argument("--budget", type=float, default=float("inf"), help="seconds in all")
    options = parser.parse_args()
    options.folder, options.out = options.folder.resolve(), options.out.resolve()
    on_cpu = options.device == "cpu"
    options.reference = options.reference or ("naive" if on_cpu else "triton")
    options.size = options.size if options.size is not None else (1.4e8 if on_cpu else float("inf"))
    options.out.mkdir(parents=True, exist_ok=True)
    deadline = time.monotonic() + options.budget
    with tempfile.TemporaryDirectory() as folder:
        settings = Path(folder, "pytest.ini")
        settings.write_text("[pytest]\n")
        variables = environment(options.wheels, Path(folder, "packages"), options.device)
        about = {"device": options.device, "reference": options.reference, **versions(variables)}
        parts = [(name, shard) for name in options.files for shard in range(options.shards)]
        with ThreadPoolExecutor(options.jobs) as pool:
            logs = list(pool.map(lambda part: run_part(options, *part, variables, settings, deadline), parts))
    if unseen := sum(not log.exists() for log in logs):
        about["parts never started, and not counted"] = str(unseen)
    files: dict[str, dict[str, Line]] = {name: {} for name in options.files}
    for (name, _), log in zip(parts, logs, strict=True):
        files[name].update(results(log))
    found = summary(files, about)
    (options.out / f"{options.device}_summary.json").write_text(json.dumps(found, indent=1) + "\n")
    (options.out / f"{options.device}_summary.md").write_text(markdown(found))
    sys.stdout.write(markdown(found))


if __name__ == "__main__":
    main()
