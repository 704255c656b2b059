"""One pass along a row: the reduced elements (`r`) or a part's columns (`c`), a tile per thread at a time.

Accesses that walk memory element by element become packs (engine/device/tile.h); the others are read one by one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from hipwright.engine.fuse.groups import GroupMember
from hipwright.engine.ir.expr import STORAGE, E
from hipwright.engine.ir.index import Atom, Fn, Ind, Ix, Var, ix
from hipwright.engine.ir.index_text import to_c
from hipwright.engine.templates.base import Body, depends

PACK = {"float64": 2, "int64": 2, "float16": 8, "bfloat16": 8, "int16": 8, "int8": 16, "uint8": 16, "bool": 16}
"""Elements in 16 bytes; 4 of every other type."""
OFF_BORDERS = 3
"""Packs off their borders that a loop may have: their reads cost less than the memory behind them."""


@dataclass(frozen=True)
class Threads:
    """How a row's elements are dealt out: this thread's number, how many share the row, and whether it has one."""

    lane: str
    count: str
    guard: str = ""
    columns: bool = False  # neighbouring threads on neighbouring rows


@dataclass(frozen=True)
class ThreadTile:
    """A thread's elements of one tile, as the device functions take them; width: of a pack of columns, else empty.

    most: what the bound does not exceed, where sizes tell that alone.
    """

    shape: str  # ITEMS, N
    base: str
    step: str
    bound: str
    width: str = ""
    full: str = ""  # is no tile cut short? or ""
    most: str = ""

    def arguments(self, body: Body, place: VectorAccess, tile: str = "", guard: str = "") -> str:
        """What follows the pointer; tile: what is stored."""
        bound = f"{guard} ? {self.bound} : 0" if guard else self.bound
        full = f"{guard} && {self.full}" if guard and self.full else self.full
        across = [body.as_index(place.stride), self.width] if self.width else []
        runs = [body.as_index(place.outer), body.as_index(place.run)] if place.run else []
        return ", ".join([self.base, self.step, bound, *across, *runs, *filter(None, (tile, full, self.most))])


@dataclass(frozen=True)
class VectorAccess:
    """Where an access lies that packs serve: its first element, the stride of rows (columns only), the runs if any."""

    start: str
    stride: str = ""
    outer: str = ""  # from one run to the next
    run: str = ""  # elements of a run
    back: bool = False  # the row is walked from its end

    def function(self, verb: str, columns: bool) -> str:
        """The device function that moves it."""
        if self.run:
            return f"{verb}_strided_{'columns' if columns else 'row'}"
        return f"{verb}_columns" if columns else f"{verb}_{'reversed' if self.back else 'tile'}"


@dataclass(eq=False)
class Sweep:
    """The loop's variable, its bound as text and number, and how its index splits. row_starts: {position: text}.

    run: the length of the inner of two reduced dimensions, `j0` and `j1`, whose accesses may be runs; else empty.
    most: where `length` is only known while the kernel runs, the length it does not exceed. shift: elements from where
    rows begin to where this loop does.
    """

    variable: str
    length: str
    width: Ix
    inner: set[str]
    splits: Sequence[str] = ()
    run: str = ""
    odd: bool = False  # rows begin at any address
    most: str = ""
    shift: str = ""
    row_starts: dict[str, str] = field(default_factory=dict)
    packs: dict[tuple[str, str], str] = field(default_factory=dict)
    stores: dict[str, tuple[str, str, VectorAccess]] = field(default_factory=dict)  # item -> (tile, pointer, place)

    def start(self, position: Ix) -> str | None:
        """Where the loop begins for an access that walks the row element by element, else None."""
        if position.key in self.row_starts:
            return offset(self.row_starts[position.key], self.shift)
        found = linear(position, self.variable)
        if found is None or found[0] != ix(1) or self._changes(found[1]):
            return None
        return self.row_starts.get(found[1].key) or to_c(found[1])

    @property
    def known(self) -> str:
        """The length as far as sizes tell it."""
        return self.most or self.length

    def column(self, position: Ix) -> VectorAccess | None:
        """Where the thread's columns of row 0 begin, and the stride of rows, if the access is dense across columns."""
        across = linear(position, "col")
        if across is None or across[0] != ix(1):
            return None
        down = linear(across[1], self.variable)
        if (
            down is None
            or down[0] == ix(0)
            or self._changes(down[1])
            or any(isinstance(a, Ind) for a in down[0].atoms())
        ):
            return None
        return VectorAccess(to_c(down[1] + ix(Var("column"))), to_c(down[0]))

    def runs(self, position: Ix, columns: bool) -> VectorAccess | None:
        """The place of an access that walks both reduced dimensions in even steps, of one element if along the row."""
        inner = linear(position, "j1") if self.run else None
        outer = linear(inner[1], "j0") if inner else None
        if inner is None or outer is None or inner[0] == ix(0):
            return None
        across = linear(outer[1], "col") if columns else (ix(1), outer[1])
        steps = [inner[0], outer[0]]
        if across is None or across[0] != ix(1) or self._changes(across[1]) or any(map(self._changes, steps)):
            return None
        if not columns:
            return VectorAccess(to_c(across[1]), "", to_c(outer[0]), self.run) if inner[0] == ix(1) else None
        return VectorAccess(to_c(across[1] + ix(Var("column"))), to_c(inner[0]), to_c(outer[0]), self.run)

    def _changes(self, rest: Ix) -> bool:
        return any(isinstance(a, Ind) or (isinstance(a, Var) and a.name in self.inner) for a in rest.atoms())

    def place(self, position: Ix, columns: bool) -> VectorAccess | None:
        """The place of an access that packs serve."""
        if columns:
            return self.column(position) or self.runs(position, columns)
        start = self.start(position)
        return self.runs(position, columns) or self.back(position) if start is None else VectorAccess(start)

    def back(self, position: Ix) -> VectorAccess | None:
        """The place of an access that walks the row element by element from its end."""
        found = linear(position, self.variable)
        if found is None or found[0] != ix(-1) or self._changes(found[1]):
            return None
        return VectorAccess(to_c(found[1]), back=True)

    def dense(self, values: Sequence[E], members: Sequence[GroupMember], columns: bool = False) -> bool:
        """Does the loop read or write in packs, most of them on their borders?

        NVIDIA reads a pack off its border element by element, the lanes 16 bytes apart: each such read occupies the
        first-level cache four times as long as neighbours side by side. Stencils of shifted slices drown in them.
        """
        accesses = [(e.attr[1], e.attr[2]) for e in unconditional(values, set())]
        accesses += [(m.position, m.item.dtype) for m in members]
        found = [(p, dtype) for p, dtype in accesses if self.place(p, columns) is not None]
        off = len({p.key for p, dtype in found if p.terms.get((), 0) % PACK.get(dtype, 4)})
        return bool(found) and (columns or off < OFF_BORDERS or 2 * off <= len({p.key for p, _ in found}))

    # ------------------------------------------------------------ text

    def read(self, body: Body, values: Sequence[E], known: set[int], share: ThreadTile) -> None:
        """Ask for the tiles that the values need."""
        for e in unconditional(values, known):
            buffer, position, _ = e.attr
            place = self.place(position, bool(share.width))
            if (buffer, position.key) in self.packs:
                continue
            if place is None and not share.width and (rest := self.gathered(position)) is not None:
                place = VectorAccess(body.emit.position(rest))
            if place is None:
                if share.width and (rest := self.picked(position)) is not None:
                    self._read_picked(body, e, rest, share)
                continue
            self.packs[buffer, position.key] = self.ask(body, e, place, share)

    def ask(self, body: Body, e: E, place: VectorAccess, share: ThreadTile) -> str:
        """Ask for one tile; its name."""
        pointer = body.pointers[e.attr[0]]
        name, function = body.emit.fresh(f"{pointer}_tile"), place.function("load", bool(share.width))
        function = "load_unaligned_tile" if self.odd and function == "load_tile" else function
        function = "load_row_interior" if self.shift else function
        body.emit.used.add((function, ""))
        arguments = share.arguments(body, place)
        body.emit.line(f"const auto {name} = {function}<{share.shape}>({offset(pointer, place.start)}, {arguments});")
        return name

    def _storing(self, place: VectorAccess, columns: bool) -> str:
        return "store_row_interior" if self.shift else place.function("store", columns)

    def gathered(self, position: Ix) -> Ix | None:
        """The position of element 0 for an access along a row that an index picks; else None."""
        found = linear(position, self.variable)
        if self.run or found is None or found[0] != ix(1):
            return None
        atoms, memo = found[1].atoms(), dict[int, bool]()
        if any(isinstance(a, Var) and a.name in self.inner for a in atoms):
            return None
        if any(isinstance(a, Ind) and depends(a.value, self.inner, memo) for a in atoms):
            return None
        hidden = (b for a in atoms if isinstance(a, Fn) for b in a.a.atoms() | a.b.atoms())
        return None if any(isinstance(b, Ind) for b in hidden) else found[1]

    def picked(self, position: Ix) -> Ix | None:
        """The position of column 0 for an access dense across columns, in rows that an index picks; else None."""
        across = linear(position, "col")
        if across is None or across[0] != ix(1):
            return None
        atoms, memo = across[1].atoms(), dict[int, bool]()
        chosen = [a for a in atoms if isinstance(a, Ind)]
        if not chosen or any(depends(a.value, {"col", "v"}, memo) for a in chosen):
            return None
        hidden = (b for a in atoms if isinstance(a, Fn) for b in a.a.atoms() | a.b.atoms())
        return None if any(isinstance(b, Ind) for b in hidden) else across[1]

    def _read_picked(self, body: Body, e: E, rest: Ix, share: ThreadTile) -> None:
        """Ask for packs of the rows that an index picks: first the index of each, unconditionally, then all rows."""
        buffer, position, dtype = e.attr
        emit, pointer, items = body.emit, body.pointers[buffer], share.shape.split(", ")[0]
        rows, name = emit.fresh(f"{pointer}_rows"), emit.fresh(f"{pointer}_tile")
        memo: dict[int, bool] = {}
        chosen = [a.value for a in sorted(rest.atoms(), key=lambda a: a.key) if isinstance(a, Ind)]
        moving = {v.id: (v, emit.fresh(f"{pointer}_at")) for v in chosen if depends(v, self.inner, memo)}
        emit.line(f"const {STORAGE[dtype]}* {rows}[{items}];")
        for value, array in moving.values():
            emit.line(f"{value.ctype} {array}[{items}];")
        emit.open("if (count > 0)")
        emit.line("#pragma unroll")
        emit.open(f"for (int k = 0; k < {items}; ++k)")
        last = "(k < count ? k : count - 1)"
        emit.line_if_used(f"const {body.index_type} {self.variable} = {share.base} + {last} * {share.step};")
        for line in self.splits:
            emit.line_if_used(line)
        for value, array in moving.values():
            emit.line(f"{array}[k] = {emit.text(value)[0]};")
            emit.name(value, f"{array}[k]")
        emit.line(f"{rows}[k] = {pointer} + ({emit.position(rest + ix(Var('column')))});")
        emit.close()
        emit.close()
        for value, array in moving.values():
            emit.name(value, f"{array}[k]")
        emit.used.add(("load_gathered_columns", ""))
        emit.line(f"const auto {name} = load_gathered_columns<{share.shape}>({rows}, count, {share.width});")
        self.packs[buffer, position.key] = name

    def declare_stores(self, body: Body, members: Sequence[GroupMember], size: str, columns: bool) -> None:
        """Tiles for what the pass makes."""
        for member in members:
            place = self.place(member.position, columns)
            if place is not None:
                buffer, _ = body.need.stores[member.item.name]
                name = body.emit.fresh(f"{body.pointers[buffer]}_out")
                body.emit.used.add((self._storing(place, columns), ""))
                body.emit.line(f"Tile<{body.tile_type(member)}, {size}> {name};")
                self.stores[member.item.name] = (name, offset(body.pointers[buffer], place.start), place)

    def write(self, body: Body, share: ThreadTile, guard: str) -> None:
        """Store what the pass made."""
        for name, pointer, place in self.stores.values():
            arguments = share.arguments(body, place, name, guard)
            function = self._storing(place, bool(share.width))
            body.emit.line(f"{function}<{share.shape}>({pointer}, {arguments});")


def linear(position: Ix, name: str) -> tuple[Ix, Ix] | None:
    """(coefficient of the variable, the rest), or None where the position is not linear in it."""
    slope: dict[tuple[Atom, ...], int] = {}
    rest: dict[tuple[Atom, ...], int] = {}
    for mono, k in position.terms.items():
        hits = [a for a in mono if isinstance(a, Var) and a.name == name]
        others = tuple(a for a in mono if not (isinstance(a, Var) and a.name == name))
        if len(hits) > 1 or any(_inside(a, name) for a in others):
            return None
        (slope if hits else rest)[others if hits else mono] = k
    return Ix(slope), Ix(rest)


def _inside(a: Atom, name: str) -> bool:
    return isinstance(a, Fn) and any(isinstance(b, Var) and b.name == name for b in a.a.atoms() | a.b.atoms())


def offset(pointer: str, start: str) -> str:
    """pointer + start."""
    return pointer if start in ("", "0") else start if pointer == "0" else f"{pointer} + {start}"


def unconditional(values: Sequence[E], stop: set[int]) -> Iterator[E]:
    """Loads that every element performs: none under a condition, none below the expressions in `stop`."""
    stack, done = list(reversed(values)), set[int]()
    while stack:
        e = stack.pop()
        if e.id in done or e.id in stop:
            continue
        done.add(e.id)
        if e.op == "load":
            yield e
        stack.extend(reversed(e.args[:1] if e.op == "guard" else () if e.op == "loop" else e.args))
