"""A pytest plugin that runs flash-linear-attention's own tests on our functions: `-p tests.peer.fla_plugin`.

Before the test modules are imported it puts our wrappers in place of the functions of `fla.ops`. A test's outcome is one JSON line; a test
that passed without calling one of our functions is "not ours". `run_fla_tests.py` starts it.
"""

from __future__ import annotations

import faulthandler
import importlib
import json
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import torch

from tests.peer.fla_adapters import table
from tests.peer.fla_left_out import reason_left_out, size
from tests.peer.fla_references import NAIVE, references_of
from tests.peer.translation import CALLS, Function

ORIGINALS: dict[str, Function] = {}
"""The functions that our wrappers replaced."""


class TooSlow(BaseException):
    """Raised by the alarm; not an Exception, so that no test catches it."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options that the runner passes."""
    group = parser.getgroup("peer")
    group.addoption("--peer-device", choices=("cpu", "cuda"), default="cpu")
    group.addoption("--peer-reference", choices=("naive", "triton"), default="naive")
    group.addoption("--peer-log", type=Path, required=True)
    group.addoption("--peer-seconds", type=int, default=120)
    group.addoption("--peer-size", type=float, default=float("inf"))
    group.addoption("--peer-shard", type=int, default=0, help="of --peer-shards: this process runs every so-manieth test")
    group.addoption("--peer-shards", type=int, default=1)


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Replaces the functions before the first conftest imports fla."""
    if early_config.known_args_namespace.peer_device == "cpu":
        utils = importlib.import_module("fla.utils")
        for module in [m for name, m in sys.modules.items() if name == "fla.utils" or name.startswith("fla.utils.")]:
            for name, value in {"device": "cpu", "device_torch_lib": torch.cpu, "device_name": "cpu"}.items():
                if hasattr(module, name):
                    setattr(module, name, value)
        assert utils.device == "cpu"
    for operator, functions in table().items():
        replace(operator, functions)


def replace(operator: str, functions: dict[str, Function]) -> None:
    """Puts our wrappers into the package `fla.ops.<operator>` and its modules, and nowhere else: references must stay what they are."""
    package = f"fla.ops.{operator}"
    importlib.import_module(package)
    modules = [module for name, module in sys.modules.items() if name == package or name.startswith(f"{package}.")]
    for name, wrapper in functions.items():
        homes = [module for module in modules if hasattr(module, name)]
        if not homes:
            raise LookupError(f"fla.ops.{operator} has no function {name}")
        ORIGINALS[name] = getattr(homes[0], name)
        for module in homes:
            setattr(module, name, wrapper)


def log(config: pytest.Config, **line: Any) -> None:
    """Appends one JSON line."""
    with config.getoption("--peer-log").open("a") as file:
        file.write(json.dumps(line) + "\n")


def recorded(config: pytest.Config) -> set[str]:
    """The tests that an earlier run of this log has finished; one that was too large may not be so now."""
    path: Path = config.getoption("--peer-log")
    lines = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    return {line["id"] for line in lines if line.get("outcome", "too large") != "too large"}


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Function]) -> None:
    """Takes out what is left out, too large, or done; every decision is recorded."""
    done, largest, kept = recorded(config), config.getoption("--peer-size"), []
    for item in items[config.getoption("--peer-shard") :: config.getoption("--peer-shards")]:
        if item.nodeid in done:
            continue
        log(config, id=item.nodeid, collected=True)
        reason = reason_left_out(item.module.__name__, item.originalname)
        entries = size(item.callspec.params) if hasattr(item, "callspec") else 0
        if reason is not None:
            log(config, id=item.nodeid, outcome="left out", message=reason)
        elif entries > largest:
            log(config, id=item.nodeid, outcome="too large", message=f"{entries:.1e} state entries times tokens, of {largest:.1e} allowed")
        else:
            kept.append(item)
    items[:] = kept


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Function) -> Iterator[None]:
    """Runs one test with its references in place and the alarm set."""
    log(item.config, id=item.nodeid, started=True)
    functions = NAIVE if item.config.getoption("--peer-reference") == "naive" else ORIGINALS
    kept = {name: getattr(item.module, name) for name in references_of(item.module.__name__, item.originalname)}
    for name in kept:
        setattr(item.module, name, functions[name])
    CALLS.clear()
    item.stash[STARTED] = time.perf_counter()
    try:
        return (yield)
    finally:
        for name, wrapper in kept.items():
            setattr(item.module, name, wrapper)


STARTED = pytest.StashKey[float]()


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Iterator[None]:
    """The alarm rings inside the test's own call; where nothing hears it, as inside a launch, the process ends a minute later."""
    seconds = pyfuncitem.config.getoption("--peer-seconds")

    def ring(number: int, frame: FrameType | None) -> None:
        raise TooSlow(f"more than {seconds} s")

    signal.signal(signal.SIGALRM, ring)
    signal.alarm(seconds)
    faulthandler.dump_traceback_later(seconds + 60, exit=True, file=sys.__stderr__)
    try:
        return (yield)
    except TooSlow as slow:
        raise TimeoutError(str(slow)) from slow
    finally:
        signal.alarm(0)
        faulthandler.cancel_dump_traceback_later()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Function, call: pytest.CallInfo[None]) -> Iterator[None]:
    """Records the outcome; a GPU that reports an error is lost to this process, which then ends for the runner to start another."""
    report: Any = yield
    if report.when == "call" or report.outcome != "passed":
        error = "" if call.excinfo is None else f"{call.excinfo.typename}: {call.excinfo.value}".strip()
        outcome = "not ours" if report.outcome == "passed" and not CALLS else report.outcome
        seconds = round(time.perf_counter() - item.stash[STARTED], 1)
        log(item.config, id=item.nodeid, outcome=outcome, message=error[:600], seconds=seconds, calls=dict(CALLS))
        if report.outcome == "failed" and any(word in error for word in ("CUDA error", "AcceleratorError", "device-side assert")):
            pytest.exit("the GPU reported an error", returncode=99)
    return report
