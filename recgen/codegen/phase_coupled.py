"""What the kernels of coupled states print beside what all do: links with a border, and states side by side."""

from __future__ import annotations

from collections.abc import Callable

from recgen.codegen.phase_inverse import inverse_lines
from recgen.codegen.phase_links import (
    NamedLinks,
    crossing,
    fed,
    gathered,
    kept,
    of_feed,
    part_name,
    part_shape,
    product,
    row_sums,
    sums_lines,
)
from recgen.codegen.phase_printer import PhasePrinter
from recgen.codegen.phase_values import Blocks, Links, Numbers, Outer, Rows, Tile, Value, dot, scaled, times, total
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
from recgen.derive.chunk_nodes import Hadamard, Inverse, MatMul, Node, RowSum, Scaled, Sum, Sym


class CoupledPrinter(PhasePrinter):
    """Prints one kernel of coupled states."""

    def links(self, node: Node) -> Links:
        """The links that a node is."""
        found = self.value(node)
        assert isinstance(found, NamedLinks), node
        return found

    def part(self, name: str, rows: str, columns: str, compute: Callable[[], Tile | None]) -> Tile | None:
        """A part of links, loaded where the first kernel has stored it, else computed."""
        key, shape = part_name(name, rows, columns), part_shape(rows, columns)

        def found() -> Tile | None:
            stored = name in self.form.prepared and not self.stores
            place = self.memory.place(key, shape, self.wants) if stored else ""
            return Tile(f"tl.load({place})", shape) if place else compute()

        return self.made(key, shape, found)

    def sums(self, tag: str) -> None:
        """The sums of a state's log decays."""
        self.use(f"log_decay{tag}")
        if self.signed:
            self.use(f"sign{tag}")

        key = f"sums{tag}"
        self.seen(key, False)
        if key not in self.known:
            with self.home(key, False):
                self.emit(*sums_lines(tag, self.signed))
            self.known[key] = Tile(key, "C")

    # ------------------------------------------------------------------- steps

    def step(self, step: Step, name: str) -> None:
        """See `PhasePrinter`."""
        value = step.value
        if isinstance(value, Inverse):
            self._inverse(step, value)
        elif isinstance(value, Pairings):
            self.known[name] = Outer(name, value.gradient, value.state)
        elif self.blocks and isinstance(value, MatMul) and value.turn_right and value.right in (Sym("S"), Sym("dS")):
            self.known[name] = Outer(name, value.left, value.right)
        elif (compute := self._as_links(value)) is not None:
            self.known[name] = NamedLinks(name, self, compute)
        else:
            super().step(step, name)

    def _as_links(self, value: Node) -> Callable[[str, str], Tile | None] | None:
        """How the parts of a value are computed, where it is a matrix of links."""
        match value:
            case Kept():
                return kept(value, self)
            case Gathered(parts):
                return gathered(parts, self)
            case Bordered():
                return fed((value,), self)
            case Sum(terms) if isinstance(terms[0], Bordered):
                return fed(terms, self)
            case MatMul(left, right, turn_left) if not self.form.shape(left):
                own, other = self.links(left), self.links(right)
                return of_feed(own, other) if turn_left else product(own, other)
        return None

    def _inverse(self, step: Step, value: Inverse) -> None:
        count = len(value.blocks)
        names = {(i, j): step.names[i * count + j] for i in range(count) for j in range(count)}
        links = {(i, j): self.tile(node).text for i, row in enumerate(value.blocks) for j, node in enumerate(row)}
        self.emit(f"# {step.symbol}: {step.meaning}", *inverse_lines(count, names, links))
        self.known |= {name: Tile(f"b_{name}", "CC", True) for name in step.names}

    # ------------------------------------------------------------------- nodes

    def value(self, node: Node) -> Value:
        """See `PhasePrinter`."""
        match node:
            case Cut(matrix, rows, "all"):
                return Rows(self.links(matrix), rows)
            case Cut(matrix, rows, columns):
                part = self.links(matrix).part(rows, columns)
                assert part is not None
                return part
            case Scaled(_, Block()):
                return self._accumulated((node,))
            case Scaled(column, Cut(_, _, "all") as rows):
                found = self.value(rows)
                assert isinstance(found, Rows)
                return Rows(found.links, found.rows, self.tile(column))
            case RowSum(Hadamard(left, Block(Sym(name), index))):
                return self._column_sum(left, name, index)
            case RowSum(Hadamard(left, Cut(_, _, "all") as right)):
                x, y = self.value(left), self.value(right)
                assert isinstance(x, Rows) and isinstance(y, Rows)
                return row_sums(x, y)
            case ColumnSum(matrix):
                return Tile(f"tl.sum({self.tile(matrix).text}, 0)", "C")
            case Empty():
                return Tile("tl.zeros((BC, BC), ACC)", "CC")
            case Crossing(Hadamard(left, right)):
                return crossing(self.links(left), self.links(right))
            case Entry(Sym(name), row, column):
                return self._pairing(name, row, column)
            case Joined() | Square() | Mixed():
                return self._of_states(node)
        return super().value(node)

    def _of_states(self, node: Joined | Square | Mixed) -> Value:
        match node:
            case Joined(parts):
                return Blocks(tuple(None if p is None else self.tile(p) for p in parts))
            case Square(entries):
                return Numbers(tuple(tuple(None if e is None else self.tile(e) for e in row) for row in entries))
            case Mixed(square, state, turned):
                return self._mixed(square, state, turned)

    def _mixed(self, square: Node, state: Node, turned: bool) -> Blocks:
        numbers, states = self.value(square), self.value(state)
        assert isinstance(numbers, Numbers) and isinstance(states, Blocks)
        rows = tuple(zip(*numbers.entries, strict=True)) if turned else numbers.entries
        found = [[times(n, s) for n, s in zip(row, states.tiles, strict=True) if n is not None and s is not None] for row in rows]
        return Blocks(tuple(total(tiles) if tiles else None for tiles in found))

    # ------------------------------------------------- sums over the value blocks

    def sum(self, terms: tuple[Node, ...]) -> Value:
        """See `PhasePrinter`; rows of products with states are summed up in one variable, each times its number."""
        outer = tuple(t for t in terms if isinstance(t, Scaled) and isinstance(t.matrix, Block))
        if not outer:
            return super().sum(terms)
        return total([self._accumulated(outer), *(self.tile(t) for t in terms if t not in outer)])

    def _block(self, name: str, index: int) -> Tile:
        """A block of a product of rows and states, within the loop."""
        outer = self.known[name]
        assert isinstance(outer, Outer)

        def compute() -> Tile:
            states = self.value(outer.right)
            assert isinstance(states, Blocks)
            state = states.tiles[index]
            assert state is not None
            product = dot(self.tile(outer.left), state, turn_right=True)
            return Tile(product.text, "CK")

        key = f"{name}_{index + 1}"
        if key not in self.known:
            self.known[key] = self.bind(key, compute())
        found = self.known[key]
        assert isinstance(found, Tile)
        return found

    def _accumulated(self, terms: tuple[Scaled, ...]) -> Tile:
        """The sum over the value blocks of rows of such products, each times its number."""
        target = self.accumulator("CK")
        for term in terms:
            assert isinstance(term.matrix, Block) and isinstance(term.matrix.matrix, Sym)
            name = term.matrix.matrix.name
            self.use(name)
            with self.place("body"):
                column = self.tile(term.column)
                self.emit(f"{target} += {scaled(column, self._block(name, term.matrix.index)).text}")
        return Tile(target, "CK")

    def _column_sum(self, left: Node, name: str, index: int) -> Tile:
        """The row sums of left * such a product."""
        self.use(name)
        target = self.accumulator("C")
        with self.place("body"):
            self.emit(f"{target} += tl.sum({times(self.tile(left), self._block(name, index)).text}, 1)")
        return Tile(target, "C")

    def _pairing(self, name: str, row: int, column: int) -> Tile:
        """The sum of the products of a state's gradient and a state."""
        outer = self.use(name)
        assert isinstance(outer, Outer)
        target = self.accumulator("")
        with self.place("body"):
            gradients, states = self.value(outer.left), self.value(outer.right)
            assert isinstance(gradients, Blocks) and isinstance(states, Blocks)
            x, y = gradients.tiles[row], states.tiles[column]
            assert x is not None and y is not None
            self.emit(f"{target} += tl.sum({times(x, y).text})")
        return Tile(target, "")
