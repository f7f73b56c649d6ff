"""The loops over chunks of the PyTorch chunk form and of its adjoint."""

from __future__ import annotations

from recgen.codegen.decay_names import VALUE_STRETCHES, through_name
from recgen.codegen.torch_printer import ChunkPrinter, Line
from recgen.derive.bordered_nodes import Mixed
from recgen.derive.chunk_ir import ChunkForm, Step, nodes, used_names
from recgen.derive.chunk_nodes import MatMul, Node, Sum, Sym, Through


class ChunkLoop:
    """One loop over chunks: it carries `state`, keeps every chunk's in `store`, and stacks its other results.

    A stacked result that starts from a prepared one takes over its memory, where nothing else reads that.
    """

    def __init__(self, chunk: ChunkForm, steps: tuple[Step, ...], prepared: tuple[Step, ...], later: tuple[Step, ...], state: str) -> None:
        self.steps, self.state = steps, state
        self.own = [s.name for s in steps if s.name != state]
        names = {n for s in prepared for n in s.names} | {o.name for o in chunk.operands} | set(self.own) | {"through"}
        self.printer = ChunkPrinter(chunk.decay, frozenset(names) | VALUE_STRETCHES, "i")
        self.kept = used_names(later)

    def _base(self, step: Step) -> str:
        """The prepared result whose memory the step's result takes over; "" if there is none."""
        value = step.value
        if not isinstance(value, Sum) or not all(isinstance(t, MatMul) for t in value.terms[1:]):
            return ""
        first = value.terms[0]
        return first.name if isinstance(first, Sym) and first.name not in self.kept else ""

    def memory(self, like: str) -> tuple[str, ...]:
        """Memory for the stacked results, [chunks, B * HV, C, V]."""
        lines = []
        for s in self.steps:
            if s.name != self.state:
                base = self._base(s)
                lines.append(f"{s.name} = {base or f'{like}.new_empty(*{like}.shape[:-1], S.shape[-1])'}")
        return tuple(lines)

    def lines(self, store: str) -> tuple[Line, ...]:
        """The loop's body for chunk i; the state is written into `store`."""
        out = []
        for s in self.steps:
            comment = f"{s.symbol}: {s.meaning}"
            if s.name == self.state:
                out.append(Line(comment, f"{s.name} = {self._carried(s, store)}"))
            elif self._base(s):
                out.append(Line(comment, self.printer.accumulated(f"{s.name}[i]", s.value)))
            else:
                out.append(self.printer.line(s, f"{s.name}[i]"))
        return tuple(out)

    def _carried(self, step: Step, store: str) -> str:
        """The next state, computed where it is kept."""
        assert isinstance(step.value, Sum)
        mixed = next((t for t in step.value.terms if isinstance(t, Mixed)), None)
        if mixed is not None:
            first = f"_mixed({self.printer.factor(mixed.square, mixed.turned)}, {self.state}, {store})"
            return self._added(first, tuple(t for t in step.value.terms if t is not mixed))
        first = f"{store}.copy_({self.state})"
        factors = [f"{through_name(n)}[i]" for t in step.value.terms for n in nodes(t) if isinstance(n, Through)]
        if factors:
            first = f"torch.mul({self.state}, {factors[0]}, out={store})" + "".join(f".mul_({f})" for f in factors[1:])
        return self._added(first, tuple(t for t in step.value.terms if not isinstance(t, Through) and t != Sym(self.state)))

    def _added(self, first: str, rest: tuple[Node, ...]) -> str:
        """What else goes into the next state, added where it is kept."""
        for t in rest:
            first += f".add_({self.printer.text(t)})" if not isinstance(t, MatMul) else ""
        return self.printer.accumulated(first, Sum((Sym(self.state), *(t for t in rest if isinstance(t, MatMul)))))
