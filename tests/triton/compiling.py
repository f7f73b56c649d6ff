"""Compiles launches for GPUs that need not be there, in processes that a fault of the compiler may take down.

`python -m tests.triton.compiling` is such a process: a line of JSON in, one job; a line out, its result.
"""

from __future__ import annotations

import json
import os
import queue
import re
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable
from contextlib import closing, suppress
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import IO, Any

import triton

from tests.triton.launches import TARGETS, Point, launches

Result = list[int] | str
"""Bytes of shared memory of a program, registers and bytes of spilled memory of a thread; or the compiler's message."""
ROOT = Path(__file__).parents[2]
VARIABLES = ("TRITON_INTERPRET", "TRITON_PTXAS_PATH", "TRITON_PTXAS_BLACKWELL_PATH")
"""What would turn the compiler off or exchange a part of it."""


@dataclass(frozen=True)
class Job:
    """One launch of a point, by its digest."""

    point: Point
    digest: str


def compile_launch(job: Job) -> Result:
    """The figures of a launch."""
    launch = next((x for x in launches(job.point) if x.digest == job.digest), None)
    if launch is None:
        return "the kernel changed meanwhile"
    try:
        compiled = triton.compile(launch.source, target=TARGETS[job.point.target], options=launch.options)
    except Exception as error:  # of any kind: it is the result
        return f"{type(error).__name__}: {str(error).strip().splitlines()[-1] if str(error).strip() else ''}"
    if "cubin" in compiled.asm:
        return [compiled.metadata.shared, *cuda_usage(compiled.asm["cubin"])]
    return [compiled.metadata.shared, *hip_usage(compiled.asm["amdgcn"])]


def cuda_usage(cubin: bytes) -> list[int]:
    """Registers and stack of a thread, according to the CUDA tools that come with Triton."""
    tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        found = subprocess.run([tool, "-res-usage", file.name], capture_output=True, text=True, check=True).stdout
    usage = {name: int(value) for name, value in re.findall(r"(REG|STACK):(\d+)", found)}
    return [usage["REG"], usage["STACK"]]


def hip_usage(assembly: str) -> list[int]:
    """Vector registers and private memory of a thread, from the metadata of the code object."""
    usage = {name: int(value) for name, value in re.findall(r"\.(vgpr_count|private_segment_fixed_size): +(\d+)", assembly)}
    return [usage["vgpr_count"], usage["private_segment_fixed_size"]]


class Worker:
    """A process that compiles, started again when it dies."""

    def __init__(self, folder: str) -> None:
        self.environment = {k: v for k, v in os.environ.items() if k not in VARIABLES}
        # What 3.9 does by default, and says that 3.10 will not.
        self.environment |= {"TRITON_CACHE_DIR": folder, "TRITON_DEFAULT_FP_FUSION": "1"}
        self.process: subprocess.Popen[str] | None = None
        self.messages: IO[str] = tempfile.TemporaryFile("w+")  # noqa: SIM115  # closed with the worker

    def __call__(self, job: Job) -> Result:
        """The result of a job, with what the compiler printed where it failed."""
        if self.process is None or self.process.poll() is not None:
            command = [sys.executable, "-m", "tests.triton.compiling"]
            pipe = subprocess.PIPE
            self.process = subprocess.Popen(
                command, cwd=ROOT, env=self.environment, stdin=pipe, stdout=pipe, stderr=self.messages, text=True, bufsize=1
            )
        assert self.process.stdin is not None and self.process.stdout is not None
        start = self.messages.seek(0, os.SEEK_END)
        self.process.stdin.write(json.dumps([astuple(job.point), job.digest]) + "\n")
        line = self.process.stdout.readline()
        result: Result = json.loads(line) if line else f"the compiler died, exit status {self.process.wait()}"
        return result if isinstance(result, list) else "; ".join(dict.fromkeys([result, *self.printed(start)]))

    def printed(self, start: int) -> list[str]:
        """The first of the compiler's own messages, without the paths of this machine."""
        self.messages.seek(start)
        found = re.findall(r"(?:error: |Assertion |LLVM ERROR: )(.+)", self.messages.read())
        return [re.sub(r"\S*/", "", text)[:120] for text in found[:1]]

    def close(self) -> None:
        """Ends the process."""
        if self.process is not None:
            self.process.communicate()
        self.messages.close()


def compile_all(jobs: Iterable[Job], done: Callable[[Job, Result], None], count: int = 2) -> None:
    """Every job by one of `count` processes; `done` is called with one result at a time."""
    waiting: queue.SimpleQueue[Job] = queue.SimpleQueue()
    for job in jobs:
        waiting.put(job)
    lock = threading.Lock()

    def work(folder: str) -> None:
        worker = Worker(folder)
        with suppress(queue.Empty), closing(worker):
            while True:
                job = waiting.get_nowait()
                result = worker(job)
                with lock:
                    done(job, result)

    with tempfile.TemporaryDirectory() as folder:
        threads = [threading.Thread(target=work, args=(folder,)) for _ in range(count)]
        for thread in threads:
            thread.start()
        try:
            for thread in threads:
                thread.join()
        finally:  # after an interrupt, what is being compiled is the last
            with suppress(queue.Empty):
                while True:
                    waiting.get_nowait()
            for thread in threads:
                thread.join()


def serve(lines: Iterable[str], write: Callable[[str], Any]) -> None:
    """Answers jobs."""
    for line in lines:
        point, digest = json.loads(line)
        write(json.dumps(compile_launch(Job(Point(*point), digest))) + "\n")


if __name__ == "__main__":
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # whatever else is printed is no answer
    serve(sys.stdin, answers.write)
