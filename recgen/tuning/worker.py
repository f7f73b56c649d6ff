"""Measures candidates in a process of its own: `python -m recgen.tuning.worker`, with a job on standard input and a line per result.

A candidate that takes the process with it takes nothing else. A line that is a result starts with `MARK`; anything else is a kernel's or a
library's talk.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass, replace
from typing import Any, Final

import torch

from recgen import cache
from recgen.pipeline import Compiled, compile_text
from recgen.tiles import ChunkTiles
from recgen.tuning.inputs import Shape, draw_inputs
from recgen.tuning.isolation import MARK
from recgen.tuning.tilefile import row_of
from recgen.verify.inputs import roles
from recgen.verify.report import error
from recgen.verify.tolerances import VALUES, gradient_tolerance

_LOST: Final = 3
"""Exit status when the device no longer works."""

_BEFORE: Final = 64
"""Tokens that states come from."""

Tensors = dict[str, torch.Tensor]


@dataclass(frozen=True)
class Inputs:
    """Leaves, the states that come in, and the gradients that flow in, by name."""

    arguments: Tensors
    states: Tensors
    cotangents: Tensors


class Bench:
    """One operator, its inputs in every shape, and what the float64 form makes of the small ones."""

    def __init__(self, compiled: Compiled, shapes: list[Shape], dtype: torch.dtype, thorough: bool, device: str = "cuda") -> None:
        self.compiled, self.dtype, self.device = compiled, dtype, device
        self.module: Any = cache.load(compiled.module.name, compiled.module.text)
        self.form = getattr(self.module, f"chunk_{compiled.module.name}")
        self.timed = [self._inputs(shape, i) for i, shape in enumerate(shapes)]
        small = dict.fromkeys(s for shape in shapes for s in reduced(shape, thorough))
        self.small = [self._inputs(shape, 100 + i) for i, shape in enumerate(small)]
        self.wanted = [self._run(self._wide(x)) for x in self.small]

    def _inputs(self, shape: Shape, seed: int) -> Inputs:
        form, names = self.compiled.normal_form, [s.name for s in self.compiled.recurrence.states]
        arguments = draw_inputs(form, shape, self.dtype, self.device, seed)
        before = draw_inputs(form, replace(shape, tokens=_BEFORE), torch.float32, self.device, seed + 1000)
        reached = self._results(doubled(before), {})[len(self.compiled.recurrence.outputs) :]  # no random ones: they may divide by them
        states = {name: x.float() for name, x in zip(names, reached, strict=True)}
        found = zip(
            (*self.compiled.recurrence.outputs, *(f"final {name}" for name in names)), self._results(arguments, states), strict=True
        )
        cotangents = {name: torch.randn_like(y) for name, y in found}
        return Inputs(leaves(arguments), leaves(states), cotangents)

    def _wide(self, x: Inputs) -> Inputs:
        return Inputs(leaves(doubled(x.arguments)), leaves(doubled(x.states)), doubled(x.cotangents))

    def _results(self, arguments: Tensors, states: Tensors) -> list[torch.Tensor]:
        """Outputs and final states, without gradients."""
        with torch.no_grad():
            return self._call(arguments, states)

    def _call(self, arguments: Tensors, states: Tensors) -> list[torch.Tensor]:
        """Outputs and final states; without `states`, of sequences that start from nothing."""
        given = tuple(states.values())
        *outputs, final = self.form(
            **arguments, initial_state=given if len(given) > 1 else next(iter(given), None), output_final_state=True
        )
        return [*outputs, *(final if isinstance(final, tuple) else (final,))]

    def _run(self, x: Inputs) -> Tensors:
        """Outputs, final states, and every gradient, by name."""
        results = dict(zip(x.cotangents, self._call(x.arguments, x.states), strict=True))
        wanted = {f"d {k}": v for k, v in x.arguments.items()} | {f"d initial {k}": v for k, v in x.states.items()}
        roots = [name for name, y in results.items() if y.requires_grad]  # a running maximum is a choice of scale and has no gradient
        found = torch.autograd.grad([results[n] for n in roots], list(wanted.values()), [x.cotangents[n] for n in roots])
        return {k: y.detach() for k, y in results.items()} | dict(zip(wanted, found, strict=True))

    def measure(self, tiles: ChunkTiles) -> dict[str, Any]:
        """The fields of a measurement: numbers and repetition first, times only of what is right."""
        self._use(tiles)
        worst = 0.0
        for x, wanted in zip(self.small, self.wanted, strict=True):
            first, second = self._run(x), self._run(x)
            for name, y in first.items():
                rms, largest = error(y, wanted[name])
                found = max(rms, largest / 4)
                worst = max(worst, found)
                if not found <= self._tolerance(name):
                    return {"outcome": "wrong", "error": found, "detail": f"{name}: {found:.1e}"}
            if differing := [name for name, y in first.items() if not torch.equal(y, second[name])]:
                return {"outcome": "unequal", "detail": f"two runs differ: {', '.join(differing)}"}
        for x in self.timed:
            first, second = self._run(x), self._run(x)
            if differing := [name for name, y in first.items() if not torch.equal(y, second[name])]:
                return {"outcome": "unequal", "detail": f"two runs differ: {', '.join(differing)}"}
            del first, second
        return {"outcome": "ok", "error": worst, "shared": self._shared(), "times": [self._times(x) for x in self.timed]}

    def _use(self, tiles: ChunkTiles) -> None:
        """These tiles and no others; what was compiled before is forgotten (Triton's cache on disk has it)."""
        self.module._CHUNK_TILES = (self.module._ChunkTiles(**{f: getattr(tiles, f) for f in self.module._ChunkTiles._fields}),)
        self.module._BUILT.clear()
        for kernel in kernels(self.module):
            kernel.device_caches.clear()

    def _tolerance(self, name: str) -> float:
        if not name.startswith("d "):
            return VALUES[self.dtype]
        parts = roles(self.compiled.normal_form)
        info = next((a for a in self.compiled.recurrence.arguments if a.name == name[2:]), None)
        return gradient_tolerance(info, parts.gate | parts.strength, self.dtype)

    def _times(self, x: Inputs) -> tuple[float, float]:
        """Milliseconds of a forward, and of a forward with its backward."""
        from triton.testing import do_bench

        alone = do_bench(lambda: self._results(x.arguments, x.states), 10, 40, return_mode="median")
        both = do_bench(lambda: self._run(x), 10, 60, return_mode="median")
        return float(alone), float(both)

    def _shared(self) -> int:
        """Bytes of shared memory of the largest kernel of these tiles."""
        caches = [cache[0] for kernel in kernels(self.module) for cache in kernel.device_caches.values()]
        return max((int(built.metadata.shared) for compiled in caches for built in compiled.values()), default=0)


def leaves(tensors: Tensors) -> Tensors:
    """The same numbers, with their gradients recorded."""
    return {k: x.detach().requires_grad_() for k, x in tensors.items()}


def doubled(tensors: Tensors) -> Tensors:
    """In float64."""
    return {k: x.detach().double() for k, x in tensors.items()}


def kernels(module: Any) -> list[Any]:
    """The chunkwise kernels."""
    return [x for name, x in vars(module).items() if name.startswith("_chunk_") and hasattr(x, "device_caches")]


def reduced(shape: Shape, thorough: bool) -> tuple[Shape, ...]:
    """What numbers are compared on: fewer tokens, so that the same kernels run; if thorough, odd sizes of everything too."""
    small = replace(shape, batch=min(shape.batch, 2), tokens=min(shape.tokens, 517))
    key_heads = min(shape.key_heads, 2)
    heads = key_heads * (shape.heads // shape.key_heads)
    odd = Shape(small.batch, min(shape.tokens, 70), key_heads, heads, max(shape.keys - 5, 1), max(shape.values - 3, 1))
    return (small, odd) if thorough else (small,)


def main() -> None:
    """Reads the job, reports that it is ready, then one line a candidate."""
    job = json.load(sys.stdin)
    shapes = [Shape(*sizes) for sizes in job["shapes"]]
    compiled = compile_text(job["text"], job["name"])
    assert isinstance(compiled, Compiled), "only chunkwise kernels are tuned"
    bench = Bench(compiled, shapes, getattr(torch, job["dtype"]), job["thorough"])
    tell({"ready": True})
    for fields in job["candidates"]:
        try:
            tell(bench.measure(row_of(fields)))
        except Exception as failure:  # whatever a candidate raises is a finding about it
            words = f"{type(failure).__name__}: {str(failure).partition(chr(10))[0]}"
            lost = not alive()
            tell({"outcome": "crashed" if lost else "failed", "detail": words})
            if lost:
                os._exit(_LOST)


def alive() -> bool:
    """Whether the device still works: an illegal memory access ends its use for the process."""
    try:
        torch.cuda.synchronize()
        torch.zeros(1, device="cuda").item()
    except RuntimeError:
        return False
    return True


def tell(result: dict[str, Any]) -> None:
    """One line."""
    sys.stdout.write(f"{MARK}{json.dumps(result)}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
