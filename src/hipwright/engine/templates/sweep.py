"""A sweep: one loop along a row, over the reduced elements (`r`) or over columns of its own (`c`), a tile per thread.

Accesses that traverse memory element by element become vectors (hipwright/tile.h); the others are element by
element.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from hipwright.engine.fuse.groups import GroupMember
from hipwright.engine.ir.expr import STORAGE, E
from hipwright.engine.ir.index import Fn, Ind, Ix, Var, ix
from hipwright.engine.ir.index_text import to_c
from hipwright.engine.templates.access import linear, unconditional_loads
from hipwright.engine.templates.base import Body, depends
from hipwright.float8 import FLOAT8

VECTOR_LENGTH = {
    "float64": 2,
    "int64": 2,
    "float16": 8,
    "bfloat16": 8,
    "int16": 8,
    "int8": 16,
    "uint8": 16,
    "bool": 16,
} | dict.fromkeys(FLOAT8, 16)
"""Elements in 16 bytes; 4 of every other type."""
MAX_UNALIGNED = 3
"""Unaligned vectors that a loop may have: their loads cost less than the memory behind them."""


@dataclass(frozen=True)
class Threads:
    """How a row's elements are distributed: a thread's number, how many threads share the row, and which are active."""

    lane: str
    count: str
    guard: str = ""
    columns: bool = False  # neighbouring threads on neighbouring rows


@dataclass(frozen=True)
class ThreadTile:
    """A thread's elements of one tile, as arguments of device functions.

    width: of a vector of columns, else empty. full: a condition under which no tile is cut, or "". max_bound: an upper
    limit of `bound` that sizes alone give, or "".
    """

    shape: str  # ITEMS, N
    base: str
    step: str
    bound: str
    width: str = ""
    full: str = ""
    max_bound: str = ""

    def arguments(self, body: Body, access: VectorAccess, tile: str = "", guard: str = "") -> str:
        """The arguments behind the pointer; tile: the tile that is stored."""
        bound = f"{guard} ? {self.bound} : 0" if guard else self.bound
        full = f"{guard} && {self.full}" if guard and self.full else self.full
        across = [body.as_index(access.stride), self.width] if self.width else []
        runs = [body.as_index(access.outer), body.as_index(access.run)] if access.run else []
        return ", ".join([self.base, self.step, bound, *across, *runs, *filter(None, (tile, full, self.max_bound))])


@dataclass(frozen=True)
class VectorAccess:
    """An access by vectors: where its first element lies, the stride of rows (columns only), and its runs if any.

    turned: the elements of a column lie side by side, and the block turns its columns around in LDS.
    """

    start: str
    stride: str = ""
    outer: str = ""  # from one run to the next
    run: str = ""  # elements of a run
    reversed: bool = False  # the row is traversed from its end
    turned: bool = False

    def function(self, verb: str, columns: bool) -> str:
        """The device function that moves a tile; verb: load, store or cp_async."""
        if self.turned:
            return f"{verb}_turned_columns"
        if self.run:
            return f"{verb}_strided_{'columns' if columns else 'row'}"
        return f"{verb}_columns" if columns else f"{verb}_{'reversed' if self.reversed else 'tile'}"


@dataclass(frozen=True)
class TurnedColumns:
    """Where a block's columns are stored as rows: the position of an element, and as text the threads of the block,
    those side by side, the columns of a line, and the lines."""

    position: Ix
    block: str
    columns: str
    width: str
    lines: str


@dataclass(eq=False)
class Sweep:
    """The loop's variable, its length as text and number, and the statements that split its index.

    inner: variables that change along the row. run: the length of the inner of two reduced dimensions `j0` and `j1`
    whose accesses may be strided rows, else empty. max_length: an upper limit of a `length` that is known only at run
    time. offset: elements from the row's beginning to the loop's. row_starts: {position: where its row begins}. turned:
    where blocks may turn columns around.
    """

    variable: str
    length: str
    width: Ix
    inner: set[str]
    splits: Sequence[str] = ()
    run: str = ""
    unaligned: bool = False  # rows begin at any address
    max_length: str = ""
    offset: str = ""
    row_starts: dict[str, str] = field(default_factory=dict)
    tiles: dict[tuple[str, str], str] = field(default_factory=dict)  # (buffer, position) -> a loaded tile
    turned: TurnedColumns | None = None
    stores: dict[str, tuple[str, str, VectorAccess]] = field(default_factory=dict)  # item -> (tile, pointer, access)

    @property
    def known_length(self) -> str:
        """The length, or its upper limit, from sizes alone."""
        return self.max_length or self.length

    # ------------------------------------------------------------ accesses

    def access(self, position: Ix, columns: bool) -> VectorAccess | None:
        """The access at a position if it goes by vectors, else None."""
        if columns:
            return self._column_access(position) or self._strided_access(position, columns)
        start = self._start(position)
        if start is not None:
            return VectorAccess(start)
        return self._strided_access(position, columns) or self._reversed_access(position)

    def _start(self, position: Ix) -> str | None:
        """The first element of an access that traverses the row element by element, else None."""
        if position.key in self.row_starts:
            return offset(self.row_starts[position.key], self.offset)
        found = linear(position, self.variable)
        if found is None or found[0] != ix(1) or self.varies(found[1]):
            return None
        return self.row_starts.get(found[1].key) or to_c(found[1])

    def _column_access(self, position: Ix) -> VectorAccess | None:
        """The access of neighbouring columns in rows of an even stride."""
        across = linear(position, "col")
        if across is None or across[0] != ix(1):
            return None
        down = linear(across[1], self.variable)
        if down is None or down[0] == ix(0) or self.varies(down[1]) or any(isinstance(a, Ind) for a in down[0].atoms()):
            return None
        return VectorAccess(to_c(down[1] + ix(Var("column"))), to_c(down[0]))

    def _strided_access(self, position: Ix, columns: bool) -> VectorAccess | None:
        """The access that traverses both reduced dimensions with even strides, the inner one of 1 along a row."""
        inner = linear(position, "j1") if self.run else None
        outer = linear(inner[1], "j0") if inner else None
        if inner is None or outer is None or inner[0] == ix(0):
            return None
        across = linear(outer[1], "col") if columns else (ix(1), outer[1])
        strides = [inner[0], outer[0]]
        if across is None or across[0] != ix(1) or self.varies(across[1]) or any(map(self.varies, strides)):
            return None
        if not columns:
            return VectorAccess(to_c(across[1]), "", to_c(outer[0]), self.run) if inner[0] == ix(1) else None
        return VectorAccess(to_c(across[1] + ix(Var("column"))), to_c(inner[0]), to_c(outer[0]), self.run)

    def _reversed_access(self, position: Ix) -> VectorAccess | None:
        """The access that traverses the row element by element from its end."""
        found = linear(position, self.variable)
        if found is None or found[0] != ix(-1) or self.varies(found[1]):
            return None
        return VectorAccess(to_c(found[1]), reversed=True)

    def varies(self, position: Ix) -> bool:
        """Whether a position may change along the row."""
        return any(isinstance(a, Ind) or (isinstance(a, Var) and a.name in self.inner) for a in position.atoms())

    def indexed_row(self, position: Ix) -> Ix | None:
        """The position of element 0 of an access along a row that an index selects, else None."""
        found = linear(position, self.variable)
        if self.run or found is None or found[0] != ix(1):
            return None
        atoms, memo = found[1].atoms(), dict[int, bool]()
        if any(isinstance(a, Var) and a.name in self.inner for a in atoms):
            return None
        if any(isinstance(a, Ind) and depends(a.value, self.inner, memo) for a in atoms):
            return None
        nested = (b for a in atoms if isinstance(a, Fn) for b in a.a.atoms() | a.b.atoms())
        return None if any(isinstance(b, Ind) for b in nested) else found[1]

    def _indexed_columns(self, position: Ix) -> Ix | None:
        """The position of column 0 of an access of neighbouring columns in rows that an index selects, else None."""
        across = linear(position, "col")
        if across is None or across[0] != ix(1):
            return None
        atoms, memo = across[1].atoms(), dict[int, bool]()
        selected = [a for a in atoms if isinstance(a, Ind)]
        if not selected or any(depends(a.value, {"col", "v"}, memo) for a in selected):
            return None
        if not any(isinstance(a, Var) and a.name in self.inner for a in atoms):
            along = dict[int, bool]()
            if not any(depends(a.value, self.inner, along) for a in selected):  # the same in every row: read once
                return None
        nested = (b for a in atoms if isinstance(a, Fn) for b in a.a.atoms() | a.b.atoms())
        return None if any(isinstance(b, Ind) for b in nested) else across[1]

    def vectorises(self, values: Sequence[E], members: Sequence[GroupMember], columns: bool = False) -> bool:
        """Whether the loop loads or stores vectors, most of them aligned.

        NVIDIA loads an unaligned vector element by element, with lanes 16 bytes apart: each such load occupies the
        first-level cache four times as long as one of neighbours. Stencils of shifted slices are bound by them.
        """
        accesses = [(e.attr[1], e.attr[2]) for e in unconditional_loads(values)]
        accesses += [(m.position, m.item.dtype) for m in members]
        found = [(p, dtype) for p, dtype in accesses if self.access(p, columns) is not None]
        unaligned = len({p.key for p, dtype in found if p.terms.get((), 0) % VECTOR_LENGTH.get(dtype, 4)})
        most = len({p.key for p, _ in found})
        return bool(found) and (columns or unaligned < MAX_UNALIGNED or 2 * unaligned <= most)

    # ------------------------------------------------------------ statements

    def load_tiles(self, body: Body, values: Sequence[E], known: set[int], tile: ThreadTile) -> None:
        """Emits loads of the tiles that the values need, except below the expressions in `known`."""
        for e in unconditional_loads(values, known):
            buffer, position, _ = e.attr
            access = self.access(position, bool(tile.width))
            if (buffer, position.key) in self.tiles:
                continue
            if access is None and not tile.width and (first := self.indexed_row(position)) is not None:
                access = VectorAccess(body.emit.position(first))
            if access is None:
                if tile.width and (first := self._indexed_columns(position)) is not None:
                    self._load_indexed_columns(body, e, first, tile)
                continue
            self.tiles[buffer, position.key] = self.load_tile(body, e, access, tile)

    def load_tile(self, body: Body, e: E, access: VectorAccess, tile: ThreadTile) -> str:
        """Emits the load of one tile; returns its name."""
        pointer = body.pointers[e.attr[0]]
        name, function = body.emit.fresh(f"{pointer}_tile"), access.function("load", bool(tile.width))
        function = "load_unaligned_tile" if self.unaligned and function == "load_tile" else function
        function = "load_row_interior" if self.offset else function
        body.emit.used.add(function)
        arguments = tile.arguments(body, access, guard=body.reading_guard(e.attr[0]))
        body.emit.line(f"const auto {name} = {function}<{tile.shape}>({offset(pointer, access.start)}, {arguments});")
        return name

    def _load_indexed_columns(self, body: Body, e: E, first: Ix, tile: ThreadTile) -> None:
        """Emits loads of vectors of columns in rows that an index selects: all indices first, then all rows."""
        buffer, position, dtype = e.attr
        emit, pointer, items = body.emit, body.pointers[buffer], tile.shape.split(", ")[0]
        rows, name = emit.fresh(f"{pointer}_rows"), emit.fresh(f"{pointer}_tile")
        memo: dict[int, bool] = {}
        selected = [a.value for a in sorted(first.atoms(), key=lambda a: a.key) if isinstance(a, Ind)]
        varying = {v.id: (v, emit.fresh(f"{pointer}_index")) for v in selected if depends(v, self.inner, memo)}
        emit.line(f"const {STORAGE[dtype]}* {rows}[{items}];")
        for value, array in varying.values():
            emit.line(f"{value.ctype} {array}[{items}];")
        emit.open("if (count > 0)")
        emit.line("#pragma unroll")
        emit.open(f"for (int k = 0; k < {items}; ++k)")
        last = "(k < count ? k : count - 1)"
        emit.line_if_used(f"const {body.index_type} {self.variable} = {tile.base} + {last} * {tile.step};")
        for line in self.splits:
            emit.line_if_used(line)
        for value, array in varying.values():
            emit.line(f"{array}[k] = {emit.text(value)[0]};")
            emit.name(value, f"{array}[k]")
        emit.line(f"{rows}[k] = {pointer} + ({emit.position(first + ix(Var('column')))});")
        emit.close()
        emit.close()
        for value, array in varying.values():
            emit.name(value, f"{array}[k]")
        emit.used.add("load_gathered_columns")
        emit.line(f"const auto {name} = load_gathered_columns<{tile.shape}>({rows}, count, {tile.width});")
        self.tiles[buffer, position.key] = name

    def declare_stores(self, body: Body, members: Sequence[GroupMember], size: str, columns: bool) -> None:
        """Declares tiles for the members that are stored by vectors."""
        for member in members:
            access = self._stored_access(body, member, columns)
            if access is not None:
                buffer, _ = body.need.stores[member.item.name]
                name = body.emit.fresh(f"{body.pointers[buffer]}_out")
                body.emit.used.add(self._store_function(access, columns))
                body.emit.line(f"Tile<{body.tile_type(member)}, {size}> {name};")
                self.stores[member.item.name] = (name, offset(body.pointers[buffer], access.start), access)

    def _stored_access(self, body: Body, member: GroupMember, columns: bool) -> VectorAccess | None:
        """The access of a member that is stored by vectors, also where an index tensor says where its row lies."""
        access = self.access(member.position, columns)
        if access is None and self.turned and member.position.key == self.turned.position.key:
            return None if member.item.place else VectorAccess("", turned=True)
        if access is None and member.item.place and not columns and not self.offset:
            first = self.indexed_row(member.position)
            return None if first is None else VectorAccess(body.emit.position(first))
        return access

    def store_tiles(self, body: Body, tile: ThreadTile, guard: str) -> None:
        """Emits the stores of the declared tiles."""
        for name, pointer, access in self.stores.values():
            arguments, shape = tile.arguments(body, access, name, guard), tile.shape
            function = self._store_function(access, bool(tile.width))
            if access.turned and self.turned:
                to = self.turned
                shape = f"{to.block}, {to.columns}, {shape}"
                arguments = ", ".join([tile.base, tile.bound, *map(body.as_index, (to.width, to.lines)), name])
            body.emit.line(f"{function}<{shape}>({pointer}, {arguments});")

    def _store_function(self, access: VectorAccess, columns: bool) -> str:
        return "store_row_interior" if self.offset else access.function("store", columns)


def offset(pointer: str, start: str) -> str:
    """The text of pointer + start."""
    return pointer if start in ("", "0") else start if pointer == "0" else f"{pointer} + {start}"
