"""Prints steps of the chunk form as the body of a Triton kernel that works on the tiles of one chunk.

A name that a kernel mentions and has not made yet is made where it is first asked for: an operand is loaded, what a kernel before has
stored is loaded, and any other step is computed. So each kernel is printed from the steps that it is there for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from recgen.codegen.phase_steps import PhaseSteps
from recgen.codegen.phase_values import Blocks, Tile, Value, dot, scaled, times, total, turned
from recgen.derive.chunk_ir import Step
from recgen.derive.chunk_nodes import Hadamard, Inverse, MatMul, Node, RowSum, Scaled, ScaledColumns, Sum, Sym, Symmetric
from recgen.derive.forward import S


@dataclass
class Memory:
    """What the first kernel stores of a chunk for the others: matrices [C, C], and columns [C] and numbers, in the order of their slots."""

    matrices: dict[str, int] = field(default_factory=dict)
    columns: dict[str, int] = field(default_factory=dict)

    def place(self, name: str, shape: str, wanted: bool) -> str:
        """The offsets of a name; "" for one that is not stored; with `wanted`, it is from now on."""
        among = self.matrices if shape == "CC" else self.columns
        if name not in among and not wanted:
            return ""
        slot = among.setdefault(name, len(among))
        return f"p_matrices + {slot} * BC * BC + o_cc" if shape == "CC" else f"p_columns + {slot} * BC" + " + o_c" * bool(shape)


class PhasePrinter:
    """Prints one kernel.

    `stores`: the kernel that fills the memory; `wants`: it takes from there whatever it needs of the first phase; `blocks`: it goes over
    the value blocks in a loop, with lines `before` and `after` it; the lines of any other are those of `body`. `given`: rows that a kernel
    before has made. `states`: which states it has, by name.
    """

    def __init__(
        self,
        form: PhaseSteps,
        memory: Memory,
        states: dict[str, Value],
        given: frozenset[str] = frozenset(),
        *,
        stores: bool = False,
        wants: bool = False,
        blocks: bool = False,
    ) -> None:
        self.form, self.memory, self.states, self.given = form, memory, states, given
        self.stores, self.wants, self.blocks = stores, wants, blocks
        self.bounded, self.signed = form.bounded, bool(form.signs)
        self.hoisted: set[str] = set()
        self.begin()

    def begin(self) -> None:
        """Forgets what was printed, but not what the loop was found to need."""
        self.lines: dict[str, list[str]] = {"before": [], "body": [], "after": []}
        self.known: dict[str, Value] = dict(self.states)
        self.at = "body"
        self.summed = 0

    # ------------------------------------------------------------------ places

    @contextmanager
    def place(self, where: str) -> Iterator[None]:
        """Prints there."""
        outside, self.at = self.at, where
        yield
        self.at = outside

    def emit(self, *lines: str) -> None:
        """Adds lines where the printer is."""
        self.lines[self.at] += lines

    @contextmanager
    def home(self, name: str, over_values: bool) -> Iterator[None]:
        """Prints where a name is made: before the loop where the loop needs it, and it is the same in all value blocks."""
        place = self.at
        if not self.blocks or over_values:
            place = "body"
        elif self.at != "after" or name in self.hoisted:
            place = "before"
        with self.place(place):
            yield

    def seen(self, name: str, over_values: bool) -> None:
        """Notes what the loop needs from before it."""
        if self.at != "after" and not over_values:
            self.hoisted.add(name)

    # ------------------------------------------------------------------- names

    def use(self, name: str) -> Value:
        """What a name stands for, made where that has not been done."""
        over_values = self.form.over_values(name)
        self.seen(name, over_values)
        if name not in self.known:
            with self.home(name, over_values):
                found = self._given(name)
                if found is None:
                    self.step(self.form.steps[name], name)
                else:
                    self.known[name] = self.bind(name, found)
        return self.known[name]

    def made(self, name: str, shape: str, compute: Callable[[], Tile | None], comment: str = "") -> Tile | None:
        """What no step defines, made once."""
        self.seen(name, "V" in shape)
        if name not in self.known:
            with self.home(name, "V" in shape):
                new = compute()
                if new is None:
                    return None
                self.known[name] = self.bind(name, new, comment)
        found = self.known[name]
        assert isinstance(found, Tile)
        return found

    def tile(self, node: Node) -> Tile:
        """The tile that a node is."""
        found = self.value(node)
        assert isinstance(found, Tile), node
        return found

    def bind(self, name: str, tile: Tile, comment: str = "") -> Tile:
        """Assigns a tile to a variable."""
        self.emit(*([f"# {comment}"] * bool(comment)), f"b_{name} = {tile.text}")
        return Tile(f"b_{name}", tile.shape, tile.wide)

    def assign(self, target: str, tile: Tile, comment: str = "") -> Tile:
        """Assigns a sum: its products of tiles one after the other, after all else, which may mention the target itself."""
        products = [term for term in tile.terms if term.startswith("_tl_dot")]
        rest = " + ".join(term for term in tile.terms if term not in products) or (tile.text if not products else "")
        parts = [rest] * bool(rest) + products
        self.emit(*([f"# {comment}"] * bool(comment)), *(f"{target} {'+' * bool(i)}= {part}" for i, part in enumerate(parts)))
        return Tile(target, tile.shape, tile.wide)

    def _given(self, name: str) -> Tile | None:
        """An operand, or what a kernel before has made, from memory; None for what is computed."""
        shape = self.form.named(name)
        if name in self.form.sizes or name in self.given:
            base = f"{'p' if name in self.form.sizes else 'w'}_{name}"
            if shape == "C":
                return Tile(f"tl.load({base} + row + o_c, mask=m_t, other=0.0)", shape)
            axis = shape[-1]
            return Tile(f"tl.load({base} + row * {axis} + o_c{axis.lower()}, mask=m_t{axis.lower()}, other=0.0)", shape)
        if self.stores or name not in self.form.prepared or shape not in ("CC", "C"):
            return None
        place = self.memory.place(name, shape, self.wants)
        return Tile(f"tl.load({place})", shape, isinstance(self.form.steps[name].value, Inverse)) if place else None

    def store(self, name: str, tile: Tile) -> None:
        """Stores rows of a chunk."""
        axis = tile.shape[1:]
        place = f"row * {axis} + o_c{axis.lower()}" if axis else "row + o_c"
        self.emit(f"tl.store(w_{name} + {place}, {tile.text}, mask=m_t{axis.lower()})")

    # ------------------------------------------------------------------- steps

    def step(self, step: Step, name: str) -> None:
        """Makes what a step defines, at least what it calls `name`."""
        found = self.value(step.value)
        comment = f"{step.symbol}: {step.meaning}"
        if isinstance(found, Tile):
            self.known[name] = self.assign(f"b_{name}", found, comment)
        elif isinstance(found, Blocks):
            self.emit(f"# {comment}")
            self.known[name] = Blocks(tuple(t and self.assign(f"b_{name}_{i + 1}", t) for i, t in enumerate(found.tiles)))
        else:
            self.known[name] = found

    def value(self, node: Node) -> Value:
        """What a node is."""
        match node:
            case Sym(name):
                return self.use(name)
            case MatMul() if self.blocks and self._over_values(node):
                return self.summed_up(self.form.shape(node), lambda: self._product(node))
            case MatMul():
                return self._product(node)
            case Sum(terms):
                return self.sum(terms)
            case Hadamard(left, right):
                return times(self.tile(left), self.tile(right))
            case Scaled(column, matrix):
                return scaled(self.tile(column), self.tile(matrix))
            case ScaledColumns(matrix, column):
                return Tile(f"{self.tile(matrix).factor} * {self.tile(column).over_columns}", "CC")
            case Symmetric(matrix):
                tile = self.tile(matrix)
                return total([tile, turned(tile)])
            case RowSum(matrix) if self.blocks and "V" in self.form.shape(matrix):
                return self.summed_up("C", lambda: self._row_sum(matrix))
            case RowSum(matrix):
                return self._row_sum(matrix)
        raise AssertionError(node)

    def sum(self, terms: tuple[Node, ...]) -> Value:
        """The sum of nodes, for every state by itself where they are of several."""
        found = [self.value(t) for t in terms]
        if isinstance(found[0], Blocks):
            columns = zip(*(x.tiles for x in found if isinstance(x, Blocks)), strict=True)
            return Blocks(tuple(total([t for t in column if t is not None]) for column in columns))
        return total([t for t in found if isinstance(t, Tile)])

    def _product(self, node: MatMul) -> Value:
        left, right = self.value(node.left), self.value(node.right)
        if isinstance(left, Tile) and isinstance(right, Tile):
            across = not self.blocks and node.turn_right and node.right == S  # sums over the values of all writes: in two parts
            return dot(left, right, node.turn_left, node.turn_right, split=across)
        assert isinstance(left, Blocks)
        if isinstance(right, Tile):
            return Blocks(tuple(t and dot(t, right, node.turn_left, node.turn_right) for t in left.tiles))
        assert isinstance(right, Blocks)
        return total([dot(x, y) for x, y in zip(left.tiles, right.tiles, strict=True) if x is not None and y is not None])

    def _row_sum(self, matrix: Node) -> Tile:
        return Tile(f"tl.sum({self.tile(matrix).text}, 1)", "C")

    # ------------------------------------------------- sums over the value blocks

    def _over_values(self, node: MatMul) -> bool:
        """Whether a product sums over the values, which the kernel has in blocks."""
        left = self.form.shape(node.left)
        return left[0 if node.turn_left else -1 :][:1] == "V"

    def accumulator(self, shape: str, name: str = "") -> str:
        """A variable that sums up over the value blocks."""
        if not name:
            self.summed += 1
            name = f"sum_{self.summed}"
        sizes = "".join(f"B{letter}, " for letter in shape).removesuffix(" ").removesuffix("," if len(shape) > 1 else " ")
        zeros = f"tl.zeros(({sizes}), tl.float32)" if shape else "tl.full((), 0.0, tl.float32)"
        self.lines["before"].append(f"b_{name} = {zeros}")
        return f"b_{name}"

    def summed_up(self, shape: str, compute: Callable[[], Value]) -> Tile:
        """The sum over the value blocks, which is known after the loop."""
        assert self.at == "after"
        target = self.accumulator(shape)
        with self.place("body"):
            found = compute()
            assert isinstance(found, Tile)
            self.emit(f"{target} += {found.text}")
        return Tile(target, shape)
