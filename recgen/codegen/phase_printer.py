"""Prints steps of the chunk form as the body of a Triton kernel that works on the tiles of one chunk.

A name that a kernel mentions and has not made yet is made where it is first asked for: an operand is loaded, what a kernel before has
stored is loaded, and any other step is computed. So each kernel is printed from the steps that it is there for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from recgen.codegen.phase_inverse import inverse_lines
from recgen.codegen.phase_links import NamedLinks, crossing, fed, gathered, kept, of_feed, product, row_sums, sums_lines
from recgen.codegen.phase_values import Blocks, Links, Numbers, Rows, Tile, Value, dot, scaled, times, total, turned
from recgen.derive.bordered_nodes import (
    Block,
    Bordered,
    ColumnSum,
    Crossing,
    Cut,
    Empty,
    Entry,
    Gathered,
    Joined,
    Kept,
    Mixed,
    Pairings,
    Square,
)
from recgen.derive.chunk_ir import Step
from recgen.derive.chunk_nodes import Hadamard, Inverse, MatMul, Node, RowSum, Scaled, ScaledColumns, Sum, Sym, Symmetric


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
        if shape == "CC":
            return f"p_matrices + {slot} * BC * BC + o_cc"
        return f"p_columns + {slot} * BC" + " + o_c" * bool(shape)


@dataclass(frozen=True)
class Outer:
    """The product left @ right^T of rows over the values and of states: summed over the value blocks wherever it is used."""

    name: str
    left: Node
    right: Node


@dataclass(frozen=True)
class PhaseSteps:
    """All steps of a chunk form by name, and the sizes of its operands.

    `over_values`: names of what a kernel holds of one value block; `shapes`: of the first phase's matrices "CC" and columns "C".
    """

    steps: dict[str, Step]
    sizes: dict[str, str]
    over_values: frozenset[str]
    shapes: dict[str, str]
    bounded: bool
    signed: bool


class PhasePrinter:
    """Prints one kernel.

    `stores`: the kernel that fills the memory; `wants`: it takes from there whatever it needs of the first phase; `blocks`: it goes over
    the value blocks in a loop, with lines `before` and `after` it; the lines of any other are those of `body`.
    """

    def __init__(self, form: PhaseSteps, memory: Memory, *, stores: bool = False, wants: bool = False, blocks: bool = False) -> None:
        self.form, self.memory = form, memory
        self.stores, self.wants, self.blocks = stores, wants, blocks
        self.bounded, self.signed = form.bounded, form.signed
        self.hoisted: set[str] = set()
        self.stored: frozenset[str] = frozenset()  # rows over the values that a kernel before has made
        self.begin()

    def begin(self) -> None:
        """Forgets what was printed, but not what the loop was found to need."""
        self.lines: dict[str, list[str]] = {"before": [], "body": [], "after": []}
        self.known: dict[str, Value | Outer] = {}
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

    def _home(self, name: str, over_values: bool) -> str:
        """Where a name is made: before the loop where the loop needs it, and it is the same in all value blocks."""
        if not self.blocks or over_values:
            return "body"
        return "before" if name in self.hoisted or self.at != "after" else self.at

    def _seen(self, name: str) -> None:
        """Notes what the loop needs."""
        if self.at != "after" and name not in self.form.over_values:
            self.hoisted.add(name)

    def bind(self, name: str, tile: Tile, comment: str = "") -> Tile:
        """Assigns a tile to a variable."""
        self.emit(*([f"# {comment}"] * bool(comment)), f"b_{name} = {tile.text}")
        return Tile(f"b_{name}", tile.shape, tile.wide)

    # ------------------------------------------------------------------- names

    def use(self, name: str) -> Value | Outer:
        """What a name stands for, made where that has not been done."""
        self._seen(name)
        if name not in self.known:
            over_values = name in self.form.over_values
            with self.place(self._home(name, over_values)):
                found = self._operand(name) if name in self.form.sizes else self._loaded(name)
                if found is None:
                    self.step(self.form.steps[name])
                else:
                    self.known[name] = found
        return self.known[name]

    def tile(self, node: Node) -> Tile:
        """The tile that a node is."""
        found = self.value(node)
        assert isinstance(found, Tile), node
        return found

    def links(self, node: Node) -> Links:
        """The links that a node is."""
        found = self.value(node)
        assert not isinstance(found, Tile | Blocks | Numbers | Rows), node
        return found

    def _operand(self, name: str) -> Tile:
        size = self.form.sizes[name]
        if size == "1":
            return self.bind(name, Tile(f"tl.load(p_{name} + row + o_c, mask=m_t, other=0.0)", "C"))
        axis = size.lower()
        text = f"tl.load(p_{name} + row * {size} + o_c{axis}, mask=m_t{axis}, other=0.0)"
        return self.bind(name, Tile(text, f"C{size}"))

    def _loaded(self, name: str) -> Tile | None:
        """What a kernel before has made, from memory; None for what is computed."""
        if name in self.stored:
            return self.bind(name, Tile(f"tl.load(w_{name} + row * V + o_cv, mask=m_tv, other=0.0)", "CV"))
        shape = self.form.shapes.get(name)
        if self.stores or shape is None:
            return None
        place = self.memory.place(name, shape, self.wants)
        return self.bind(name, Tile(f"tl.load({place})", shape, isinstance(self.form.steps[name].value, Inverse))) if place else None

    def part(self, name: str, shape: str, symbol: str, compute: Callable[[], Tile | None]) -> Tile | None:
        """A part of links, computed or loaded once."""
        self._seen(name)
        if name not in self.known:
            with self.place(self._home(name, False)):
                place = "" if self.stores else self.memory.place(name, shape, self.wants)
                made = Tile(f"tl.load({place})", shape) if place else compute()
                if made is None:
                    return None
                self.known[name] = self.bind(name, made, "" if place else symbol)
        found = self.known[name]
        assert isinstance(found, Tile)
        return found

    def sums(self, tag: str) -> None:
        """The sums of a state's log decays."""
        name = f"sums{tag}"
        self.use(f"log_decay{tag}")
        if self.signed:
            self.use(f"sign{tag}")
        self._seen(name)
        if name not in self.known:
            with self.place(self._home(name, False)):
                self.emit(*sums_lines(tag, self.signed))
            self.known[name] = Tile(name, "C")

    # ------------------------------------------------------------------- steps

    def step(self, step: Step) -> None:
        """Makes what a step defines."""
        comment, value = f"{step.symbol}: {step.meaning}", step.value
        if isinstance(value, Inverse):
            self._inverse(step, value)
            return
        if self._contracts(value):
            assert isinstance(value, MatMul)
            self.known[step.name] = self._contracted(step.name, value)
            return
        if isinstance(value, Pairings):
            self.known[step.name] = Outer(step.name, value.gradient, value.state)
            return
        compute = self._as_links(value)
        if compute is not None:
            self.known[step.name] = NamedLinks(step.name, comment, self, compute)
            return
        found = self.value(value)
        if isinstance(found, Tile):
            self.known[step.name] = self.assign(f"b_{step.name}", found, comment)
        elif isinstance(found, Blocks):
            tiles = enumerate(found.tiles)
            self.emit(f"# {comment}")
            self.known[step.name] = Blocks(tuple(t and self.assign(f"b_{step.name}_{i + 1}", t) for i, t in tiles))
        else:
            self.known[step.name] = found

    def assign(self, target: str, tile: Tile, comment: str = "") -> Tile:
        """Assigns a sum: its products of tiles one after the other, after all else, which may mention the target itself."""
        products = [term for term in tile.terms if term.startswith("_tl_dot(")]
        rest = " + ".join(term for term in tile.terms if term not in products) or (tile.text if not products else "")
        parts = [rest] * bool(rest) + products
        self.emit(*([f"# {comment}"] * bool(comment)), *(f"{target} {'+' * bool(i)}= {part}" for i, part in enumerate(parts)))
        return Tile(target, tile.shape, tile.wide)

    def _as_links(self, value: Node) -> Callable[[str, str], Tile | None] | None:
        """How the parts of a value are computed, where it is a matrix of links."""
        match value:
            case Kept():
                return kept(value, self)
            case Gathered(parts):
                return gathered(parts, self)
            case Bordered():
                return fed(value, self)
            case Sum(terms) if isinstance(terms[0], Bordered):
                return fed(value, self)
            case MatMul(Sym(left), Sym(right), turn_left) if left.startswith("gamma_"):
                own, other = self.links(Sym(left)), self.links(Sym(right))
                return of_feed(own, other) if turn_left else product(own, other)
            case _:
                return None

    def _inverse(self, step: Step, value: Inverse) -> None:
        names = {(i, j): step.names[i * len(value.blocks) + j] for i in range(len(value.blocks)) for j in range(len(value.blocks))}
        links = {(i, j): self.tile(node).text for i, row in enumerate(value.blocks) for j, node in enumerate(row)}
        self.emit(f"# {step.symbol}: {step.meaning}", *inverse_lines(len(value.blocks), names, links))
        self.known |= {name: Tile(f"b_{name}", "CC", True) for name in step.names}

    # ------------------------------------------------------------------- nodes

    def value(self, node: Node) -> Value:
        """What a node is."""
        match node:
            case Sym(name):
                found = self.use(name)
                assert not isinstance(found, Outer)
                return found
            case MatMul():
                return self._product(node)
            case Sum(terms):
                return self._sum(terms)
            case Hadamard(left, right):
                return times(self.tile(left), self.tile(right))
            case Scaled(column, matrix):
                return self._scaled(column, matrix)
            case ScaledColumns(matrix, column):
                return Tile(f"{self.tile(matrix).factor} * {self.tile(column).over_columns}", "CC")
            case Symmetric(matrix):
                tile = self.tile(matrix)
                return total([tile, turned(tile)])
            case RowSum(matrix):
                return self._row_sum(matrix)
            case ColumnSum(matrix):
                return Tile(f"tl.sum({self.tile(matrix).text}, 0)", "C")
            case _:
                return self._bordered(node)

    def _bordered(self, node: Node) -> Value:
        """What coupled states add."""
        match node:
            case Cut(matrix, rows, "all"):
                return Rows(self.links(matrix), rows)
            case Cut(matrix, rows, columns):
                found = self.links(matrix).part(rows, columns)
                assert found is not None
                return found
            case Empty():
                return Tile("tl.zeros((BC, BC), ACC)", "CC")
            case Joined(parts):
                return Blocks(tuple(None if p is None else self.tile(p) for p in parts))
            case Square(entries):
                return Numbers(tuple(tuple(None if e is None else self.tile(e) for e in row) for row in entries))
            case Mixed(square, state, turned):
                return self._mixed(square, state, turned)
            case Entry(Sym(name), row, column):
                return self._pairing(name, row, column)
            case Crossing(Hadamard(left, right)):
                return crossing(self.links(left), self.links(right))
        raise AssertionError(node)

    def _product(self, node: MatMul) -> Value:
        left, right = self.value(node.left), self.value(node.right)
        if isinstance(left, Tile) and isinstance(right, Tile):
            return dot(left, right, node.turn_left, node.turn_right)
        assert isinstance(left, Blocks)
        if isinstance(right, Tile):
            return Blocks(tuple(t and dot(t, right, node.turn_left, node.turn_right) for t in left.tiles))
        assert isinstance(right, Blocks)
        return total([dot(x, y) for x, y in zip(left.tiles, right.tiles, strict=True) if x is not None and y is not None])

    def _sum(self, terms: tuple[Node, ...]) -> Value:
        outer = [t for t in terms if isinstance(t, Scaled) and isinstance(t.matrix, Block)]
        found: list[Value] = [self._accumulated(outer)] if outer else []
        found += [self.value(t) for t in terms if t not in outer]
        if isinstance(found[0], Blocks):
            columns = zip(*(x.tiles for x in found if isinstance(x, Blocks)), strict=True)
            return Blocks(tuple(total([t for t in column if t is not None]) for column in columns))
        return total([t for t in found if isinstance(t, Tile)])

    def _scaled(self, column: Node, matrix: Node) -> Value:
        if isinstance(matrix, Block):
            return self._accumulated([Scaled(column, matrix)])
        scale, found = self.tile(column), self.value(matrix)
        if isinstance(found, Rows):
            return Rows(found.links, found.rows, scale)
        assert isinstance(found, Tile)
        return scaled(scale, found)

    def _row_sum(self, matrix: Node) -> Tile:
        match matrix:
            case Hadamard(left, Block(Sym(name), index)):
                return self._column_sum(left, name, index)
            case Hadamard(left, right):
                x, y = self.value(left), self.value(right)
                if isinstance(x, Rows) and isinstance(y, Rows):
                    return row_sums(x, y)
        return Tile(f"tl.sum({self.tile(matrix).text}, 1)", "C")

    def _mixed(self, square: Node, state: Node, turned: bool) -> Blocks:
        numbers, states = self.value(square), self.value(state)
        assert isinstance(numbers, Numbers) and isinstance(states, Blocks)
        rows = tuple(zip(*numbers.entries, strict=True)) if turned else numbers.entries
        found = [[times(n, s) for n, s in zip(row, states.tiles, strict=True) if n is not None and s is not None] for row in rows]
        return Blocks(tuple(total(tiles) if tiles else None for tiles in found))

    # ------------------------------------------------- sums over the value blocks

    def _contracts(self, value: Node) -> bool:
        """Whether a value is a product over the values, which the kernel has in blocks."""
        return isinstance(value, MatMul) and value.turn_right and isinstance(value.left, Sym) and value.left.name in self.form.over_values

    def _accumulator(self, name: str, shape: str) -> str:
        sizes = ", ".join(f"B{letter}" for letter in shape)
        comma = "," * (len(shape) == 1)
        zeros = f"tl.zeros(({sizes}{comma}), tl.float32)" if shape else "tl.full((), 0.0, tl.float32)"
        self.lines["before"].append(f"b_{name} = {zeros}")
        return f"b_{name}"

    def _contracted(self, name: str, value: MatMul) -> Value | Outer:
        if value.right in (Sym("S"), Sym("dS")):
            return Outer(name, value.left, value.right)
        target = self._accumulator(name, "CC")
        with self.place("body"):
            self.emit(f"{target} += {dot(self.tile(value.left), self.tile(value.right), turn_right=True).text}")
        return Tile(target, "CC")

    def _outer(self, name: str, index: int) -> str:
        """A block of a product of rows and states, within the loop."""
        key = f"{name}_{index + 1}"
        if key not in self.known:
            outer = self.known[name]
            assert isinstance(outer, Outer)
            states = self.value(outer.right)
            assert isinstance(states, Blocks)
            state = states.tiles[index]
            assert state is not None
            self.known[key] = self.bind(key, dot(self.tile(outer.left), state, turn_right=True))
        found = self.known[key]
        assert isinstance(found, Tile)
        return found.text

    def _accumulated(self, terms: list[Scaled]) -> Tile:
        """The sum over the value blocks of rows of such products, each times its number."""
        self.summed += 1
        target = self._accumulator(f"sum_{self.summed}", "CK")
        for term in terms:
            assert isinstance(term.matrix, Block) and isinstance(term.matrix.matrix, Sym)
            self.use(term.matrix.matrix.name)
            with self.place("body"):
                column, text = self.tile(term.column), self._outer(term.matrix.matrix.name, term.matrix.index)
                self.emit(f"{target} += {column.over_rows} * {text}")
        return Tile(target, "CK")

    def _column_sum(self, left: Node, name: str, index: int) -> Tile:
        """The row sums of left * such a product."""
        self.summed += 1
        target = self._accumulator(f"sum_{self.summed}", "C")
        self.use(name)
        with self.place("body"):
            tile, text = self.tile(left), self._outer(name, index)
            self.emit(f"{target} += tl.sum({tile.factor} * {text}, 1)")
        return Tile(target, "C")

    def _pairing(self, name: str, row: int, column: int) -> Tile:
        """The sum of the products of a state's gradient and a state."""
        self.use(name)
        key = f"{name}_{row + 1}_{column + 1}"
        outer = self.known[name]
        if key not in self.known:
            assert isinstance(outer, Outer)
            target = self._accumulator(key, "")
            with self.place("body"):
                gradients, states = self.value(outer.left), self.value(outer.right)
                assert isinstance(gradients, Blocks) and isinstance(states, Blocks)
                x, y = gradients.tiles[row], states.tiles[column]
                assert x is not None and y is not None
                self.emit(f"{target} += tl.sum({times(x, y).text})")
            self.known[key] = Tile(target, "")
        found = self.known[key]
        assert isinstance(found, Tile)
        return found
