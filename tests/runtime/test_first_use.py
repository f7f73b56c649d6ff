"""Kernels are compiled together at first use: the host functions on CPU tensors, with a driver and a compiler that only keep records."""

from __future__ import annotations

import importlib.util
import sys
import threading
from collections.abc import Iterator
from types import ModuleType, SimpleNamespace

import pytest
import torch

from recgen.kernels import gated_delta_rule

triton = pytest.importorskip("triton")
if triton.knobs.runtime.interpret:
    pytest.skip("the interpreter compiles nothing", allow_module_level=True)

PREPARE, SCAN, REVERSE, GRADIENTS = (f"_chunk_{name}_kernel" for name in ("prepare", "scan", "reverse", "gradients"))
ALL = {PREPARE, SCAN, REVERSE, GRADIENTS}


class Machine:
    """A GPU that is not there. `events` in order; `together`: how many compilations wait for one another; `broken`: what fails."""

    def __init__(self) -> None:
        self.events: list[tuple[str, str]] = []
        self.threads: dict[str, int] = {}
        self.barrier: threading.Barrier | None = None
        self.broken: set[str] = set()

    def get_current_target(self) -> object:
        return triton.backends.compiler.GPUTarget("cuda", 90, 32)

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return 0

    def compile(self, source, **_: object) -> object:
        name = source.fn.fn.__name__
        self.events.append(("compile", name))
        self.threads[name] = threading.get_ident()
        if self.barrier is not None:
            self.barrier.wait(timeout=20)
        if name in self.broken:
            raise RuntimeError(f"{name} cannot be compiled")
        return Built(self, name)

    def of(self, kind: str) -> list[str]:
        """What happened of a kind since this was asked last; what is not of the kind is forgotten."""
        found = [name for event, name in self.events if event == kind]
        self.events.clear()
        return found


class Built:
    """A compiled kernel: loaded when `run` is read, launched when it is called."""

    function = packed_metadata = None

    def __init__(self, machine: Machine, name: str) -> None:
        self.machine, self.name = machine, name

    def launch_metadata(self, *_: object) -> None:
        return None

    @property
    def run(self):
        self.machine.events.append(("load", self.name))
        return lambda *_: self.machine.events.append(("launch", self.name))


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    stub = Machine()
    monkeypatch.setattr(triton.runtime.driver, "_active", stub)
    monkeypatch.setattr(triton.compiler, "compile", stub.compile)
    monkeypatch.setattr("os.cpu_count", lambda: 4)
    return stub


@pytest.fixture
def fresh() -> Iterator[ModuleType]:
    """The module anew: its kernels have been compiled for nothing yet."""
    spec = importlib.util.spec_from_file_location("first_use", gated_delta_rule.__file__)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


def inputs(tokens: int = 80, dtype: torch.dtype = torch.bfloat16) -> SimpleNamespace:
    q, k, v = (torch.zeros(1, tokens, 2, 32, dtype=dtype) for _ in range(3))
    gates = torch.zeros(1, tokens, 2, dtype=dtype)
    return SimpleNamespace(arguments=(q, k, v, gates, gates, None, None), options=(1.0, False, False, False))


def forward(module: ModuleType, x: SimpleNamespace, save: bool = True, initial: torch.Tensor | None = None) -> tuple[torch.Tensor, ...]:
    return module._triton_chunk_forward(x.arguments, x.options, (initial,), None, 64, save)


def backward(module: ModuleType, x: SimpleNamespace, found: tuple[torch.Tensor, ...], d_o: torch.Tensor, d_final=None) -> None:
    module._triton_chunk_backward(x.arguments, x.options, (None,), None, 64, found[-1], (d_o,), (d_final,))


def test_forward_and_backward_are_compiled_together_before_anything_is_launched(machine: Machine, fresh: ModuleType) -> None:
    machine.barrier = threading.Barrier(4)  # breaks unless all four are being compiled at once
    x = inputs()
    found = forward(fresh, x)
    assert not machine.barrier.broken
    kinds = [kind for kind, _ in machine.events]
    assert {name for kind, name in machine.events if kind == "compile"} == ALL == {n for kind, n in machine.events if kind == "load"}
    assert kinds.index("launch") > max(i for i, kind in enumerate(kinds) if kind == "compile")
    assert len(set(machine.threads.values())) == 4 and threading.get_ident() not in machine.threads.values()
    assert machine.of("launch") == [PREPARE, SCAN]

    backward(fresh, x, found, torch.zeros_like(found[0]))
    assert [name for kind, name in machine.events if kind == "compile"] == []
    assert machine.of("launch") == [PREPARE, REVERSE, GRADIENTS]


def test_without_a_gradient_the_forward_alone_is_compiled(machine: Machine, fresh: ModuleType) -> None:
    machine.barrier = threading.Barrier(2)
    forward(fresh, inputs(), save=False)
    assert set(machine.of("compile")) == {PREPARE, SCAN}


def test_a_configuration_is_prepared_once(machine: Machine, fresh: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    together = fresh._build_together
    monkeypatch.setattr(fresh, "_build_together", lambda launches, like: (calls.append(len(launches)), together(launches, like)))
    for tokens in (80, 80, 200):
        forward(fresh, inputs(tokens))
    assert calls == [4]
    assert len(machine.of("compile")) == 4
    forward(fresh, inputs(dtype=torch.float32))
    assert calls == [4, 4]
    assert set(machine.of("compile")) == ALL


def test_a_gradient_that_lies_otherwise_is_compiled_in_the_backward(machine: Machine, fresh: ModuleType) -> None:
    x = inputs()
    found = forward(fresh, x)
    machine.events.clear()
    machine.barrier = threading.Barrier(2)
    backward(fresh, x, found, torch.zeros(1, 1, 1, 1, dtype=torch.bfloat16).expand(found[0].shape))
    assert set(machine.of("compile")) == {REVERSE, GRADIENTS}


def test_the_final_state_s_gradient_is_expected_where_a_state_comes_in(machine: Machine, fresh: ModuleType) -> None:
    x, state = inputs(), torch.zeros(1, 2, 32, 32)
    *_, final, states = forward(fresh, x, initial=state)
    machine.events.clear()
    d_o = torch.zeros(1, 80, 2, 32, dtype=torch.bfloat16)
    fresh._triton_chunk_backward(x.arguments, x.options, (state,), None, 64, states, (d_o,), (torch.zeros_like(final),))
    assert machine.of("compile") == []


def test_what_is_not_launched_may_fail(machine: Machine, fresh: ModuleType) -> None:
    machine.broken = {GRADIENTS}
    x = inputs()
    found = forward(fresh, x)
    assert machine.of("launch") == [PREPARE, SCAN]
    with pytest.raises(RuntimeError, match="_chunk_gradients_kernel cannot be compiled"):
        backward(fresh, x, found, torch.zeros_like(found[0]))


def test_what_is_launched_fails_where_it_is_launched(machine: Machine, fresh: ModuleType) -> None:
    machine.broken = {SCAN}
    with pytest.raises(RuntimeError, match="_chunk_scan_kernel cannot be compiled"):
        forward(fresh, inputs())
    assert machine.threads[SCAN] == threading.get_ident()
