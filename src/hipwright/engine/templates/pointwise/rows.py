"""Rows without reductions: a block per tile of a row, or a few lanes per row.

A tile that lies within its row, with aligned vectors of narrow types, is loaded, computed and stored without a test per
element; the ends of rows are processed element by element.
"""

from __future__ import annotations

from hipwright.engine.fuse.groups import GroupMember
from hipwright.engine.ir.expr import STORAGE, E, walk
from hipwright.engine.ir.index import Ix
from hipwright.engine.ir.index_text import to_c, to_python
from hipwright.engine.templates.access import unconditional_loads
from hipwright.engine.templates.base import Body, EmittedKernel, fused
from hipwright.engine.templates.pointwise.elementwise import alignment_tests, needs_bounds_test, relaxed_bounds
from hipwright.engine.templates.pointwise.rolled import rolled_loads
from hipwright.engine.templates.pointwise.row_parts import RowParts, row_parts
from hipwright.engine.templates.pointwise.short_rows import ShortRow, short_rows
from hipwright.engine.templates.rows.layout import RowLayout
from hipwright.engine.templates.rows.scope import RowScope
from hipwright.engine.templates.sweep import MAX_UNALIGNED, VECTOR_LENGTH, VectorAccess, offset

MAX_FULL_TILES = 4
"""Operands up to which tiles of single elements are as large as those of vectors."""


def plain_rows(body: Body, layout: RowLayout) -> EmittedKernel:
    """The kernel of a pointwise group, by rows; layout.mapping: block or lanes."""
    return PlainRows(body, layout).kernel()


class PlainRows(RowScope):
    """Writes one kernel."""

    def kernel(self) -> EmittedKernel:
        """The finished kernel."""
        body, emit, layout = self.body, self.emit, self.layout
        emit.taken |= {
            "row",
            "r",
            "k",
            "base",
            "start",
            "lane",
            "blocks_per_row",
            *(f"i{k}" for k in range(8)),
            *(f"j{k}" for k in range(8)),
        }
        self._name_variables()
        self._take(body.stored)
        self.vec, self.items = layout.vec, layout.items
        self.short, self.short_out = self._short_loads(), self._short_stores()
        parts = self._parts()
        vectors = bool(parts.sides) or self._vectorises(parts.members)
        if not vectors and not self.short and not self.short_out:
            self.vec = "1"  # as many single elements, if registers hold their operands
            self.items = f"{layout.items} * {layout.vec}" if len(self._loads()) <= MAX_FULL_TILES else layout.items
        self.extent = self.items if self.vec == "1" else f"{self.items} * {self.vec}"
        body.knobs |= {n for n in (layout.threads, layout.share, layout.vec, layout.items) if not n.isdigit() and n}
        emit.used |= {"has_whole_vectors", "Tile"}
        grid = self._lanes() if layout.mapping == "lanes" else self._blocks()
        for line in self.outer_lines:
            emit.line(line)
        if not parts.sides:
            emit.count(self.values)
            self.hoist(self.values, 0)
        if layout.mapping == "lanes":
            span = body.as_index(f"{layout.share} * {self.extent}")
            emit.open(f"for ({body.index_type} start = 0; start < {self.row_sweep.length}; start += {span})")
        self._each_part(parts, "lane" if layout.mapping == "lanes" else "threadIdx.x")
        if layout.mapping == "lanes":
            emit.close()
        return body.finish(grid, layout.threads, fused(self.group), relaxed_bounds(body, layout.threads))

    def _lanes(self) -> str:
        """Emits the way to a row of LANES neighbouring lanes; returns the grid."""
        emit, kind, layout = self.emit, self.body.index_type, self.layout
        block, share = layout.threads, layout.share
        emit.line(f"const int lane = threadIdx.x % {share};")
        emit.line(f"const {kind} row = blockIdx.x * ({kind})({block} / {share}) + threadIdx.x / {share};")
        emit.line(f"if (row >= {emit.position(self._rows())}) return;  // in the last block, beyond the last row")
        self.step = share
        return f"cdiv({{rows}}, {block} // {share})"

    def _blocks(self) -> str:
        """Emits the way to a block's tile of a row; returns the grid."""
        emit, kind, layout = self.emit, self.body.index_type, self.layout
        span, length = f"{layout.threads} * {self.extent}", self.row_sweep.length
        emit.line(f"const unsigned blocks_per_row = (unsigned)(({length} + {span} - 1) / ({span}));")
        emit.line(f"const {kind} row = blockIdx.x / blocks_per_row;")
        emit.line(f"const {kind} start = ({kind})(blockIdx.x % blocks_per_row) * ({span});")
        self.step = layout.threads
        return f"({{rows}}) * cdiv({to_python(self.width)}, {span})"

    def _rows(self) -> Ix:
        total = Ix({(): 1})
        for size in self.group.outer:
            total = total * size
        return total

    # ------------------------------------------------------------ parts of rows

    def _parts(self) -> RowParts:
        """What the rows are concatenated from, along another dimension, if all of it goes by vectors."""
        stored = self.body.stored
        whole = RowParts(stored)
        if self.short or self.short_out or self.group.short_rows or len(stored) < len(self.group.members):
            return whole
        found = row_parts(self.body.c.arena, stored, self.inner)
        return found if all(self._vectorises(members) for members in found.leaves()) else whole

    def _vectorises(self, members: list[GroupMember]) -> bool:
        """Whether the tiles of a part go by vectors."""
        self._take(members)
        return self.row_sweep.vectorises(self.values, members) and not self._mostly_conditional()

    def _take(self, members: list[GroupMember]) -> None:
        """Makes these members what is written from here on."""
        self.body.stored, self.values = members, [m.value for m in members]
        self.body.use_fast_functions(self.values)

    def _each_part(self, parts: RowParts, lane: str) -> None:
        """Writes the tile of the part that a row belongs to."""
        if parts.condition is None:
            self._tile(lane)
            return
        condition = self.emit.text(parts.condition)[0]
        self.emit.open(f"if ({condition})")
        for number, side in enumerate(parts.sides):
            if number:
                self.emit.otherwise()
            self._take(side.members)
            if not side.sides:
                self.emit.count(self.values)
                self.hoist(self.values, 0)
            self._each_part(side, lane)
        self.emit.close()

    def _mostly_conditional(self) -> bool:
        """Whether most loads along the row are conditional: those of a vector would be single loads, 16 bytes apart."""
        along = [e for e in walk(self.values) if e.op == "load" and self.row_sweep.access(e.attr[1], False) is not None]
        single = len(along) - len(self._loads())
        return single >= MAX_UNALIGNED and 2 * single > len(along)

    # ------------------------------------------------------------ one tile

    def _tile(self, lane: str) -> None:
        """Writes one tile: by vectors if they are whole and aligned, else element by element."""
        emit, body, sweep = self.emit, self.body, self.row_sweep
        scale = "" if self.vec == "1" else f" * {self.vec}"
        shape = f"{self.items}, {self.vec}"
        step, bound = body.as_index(f"{self.step}{scale}"), body.as_index(sweep.length)
        emit.line(f"const {body.index_type} base = start + {lane}{scale};")
        loads, stores = self._loads(hoisted=True), self._stores()
        vectors = [(b, pointer) for b, pointer, aligned in [*loads.values(), *stores.values()] if aligned]
        tests = [f"has_whole_vectors<{shape}>(base, {step}, {bound})", *alignment_tests(body, vectors, self.vec)]
        emit.open(f"if ({' && '.join([*tests, *self._short_tests()])})")
        plain, tiles = emit.read, self._load_short(f"base, {step}, {bound}")
        for key, (buffer, pointer, _) in loads.items():
            tile = emit.fresh(f"{body.pointers[buffer]}_tile")
            tiles[key] = f"{tile}.v[k]"
            emit.line(f"const auto {tile} = load_whole_vectors<{shape}>({pointer}, base, {step}, {bound});")
        tiles |= self._roll(tiles, step, bound)
        outs, short_outs = self._declare_short()
        members = {m.item.name: m for m in body.stored}
        stored = {}
        for name, (buffer, _, _) in stores.items():
            stored[name] = emit.fresh(f"{body.pointers[buffer]}_out")
            outs[name] = f"{stored[name]}.v[k]"
            emit.line(f"Tile<{body.vector_type(members[name])}, {self.extent}> {stored[name]};")

        def read(e: E, position: str) -> str:
            return tiles.get((e.attr[0], e.attr[1].key)) or plain(e, position)

        emit.read = read
        hoisted = {(e.attr[0], e.attr[1].key) for e in walk(self.values) if e.op == "load" and emit.known(e)}
        self._elements(outs, bound, {*tiles, *hoisted}, tested=needs_bounds_test(self.values, {*tiles, *hoisted}))
        emit.read = plain
        for name, (_, pointer, _) in stores.items():
            emit.line(f"store_whole_vectors<{shape}>({pointer}, base, {step}, {bound}, {stored[name]});")
        for row, name in short_outs:
            emit.line(
                f"store_short_rows<{shape}, {row.width}>({self._short_pointer(row)}, base, {step}, {bound}, {name});"
            )
        emit.otherwise()
        self._elements({}, bound, set(), tested=True)
        emit.close()

    def _loads(self, *, hoisted: bool = False) -> dict[tuple[str, str], tuple[str, str, bool]]:
        """Loads that go by vectors: (buffer, position) -> (buffer, pointer, whether its offset is aligned).

        hoisted: values of the whole row have names, so that rows selected by an index have an address.
        """
        out = {}
        for e in unconditional_loads(self.values):
            access = self.row_sweep.access(e.attr[1], False)
            buffer, position, _ = e.attr
            if access is None and (first := self.row_sweep.indexed_row(position)) is not None:
                access = VectorAccess(self.emit.position(first) if hoisted else "")
            if access is not None and _is_contiguous(access):
                out[buffer, position.key] = self._described(buffer, position, access)
        return out

    def _stores(self) -> dict[str, tuple[str, str, bool]]:
        """Stores that go by vectors: item -> as in `_loads`."""
        out = {}
        for m in self.body.stored:
            access = self.row_sweep.access(m.position, False)
            if access is not None and _is_contiguous(access):
                buffer = self.body.need.stores[m.item.name][0]
                out[m.item.name] = self._described(buffer, m.position, access)
        return out

    def _roll(self, tiles: dict[tuple[str, str], str], step: str, bound: str) -> dict[tuple[str, str], str]:
        """Writes the vectors of neighbours along periodic rows; returns their elements. tiles: of vectors before."""
        emit, shape, found = self.emit, f"{self.items}, {self.vec}", dict(tiles)
        for rolled in rolled_loads(self.values, self.row_sweep.variable, self.row_sweep.width):
            if rolled.key in found:
                continue
            emit.used.add("roll_vectors")
            buffer, center = rolled.key[0], (rolled.key[0], rolled.place.key)
            pointer = offset(self.body.pointers[buffer], to_c(rolled.start))
            if center not in found:
                name = emit.fresh(f"{self.body.pointers[buffer]}_tile")
                found[center] = f"{name}.v[k]"
                emit.line(f"const auto {name} = load_whole_vectors<{shape}>({pointer}, base, {step}, {bound});")
            tile, name = found[center].removesuffix(".v[k]"), emit.fresh(f"{self.body.pointers[buffer]}_rolled")
            found[rolled.key] = f"{name}.v[k]"
            arguments = f"{tile}, {pointer}, base, {step}, {bound}"
            emit.line(f"const auto {name} = roll_vectors<{shape}, {rolled.step}>({arguments});")
        return found

    # ------------------------------------------------------------ short rows

    def _short_loads(self) -> dict[tuple[str, str], ShortRow]:
        """The loads of elements of short rows, (buffer, position) -> the row."""
        loads = [(e.attr[0], e.attr[1]) for e in unconditional_loads(self.values)]
        found = short_rows(loads, self.row_sweep.variable, self.body.need.numels)
        return {key: row for key, row in found.items() if not self.row_sweep.varies(row.start)}

    def _short_stores(self) -> dict[str, ShortRow]:
        """The members that are the elements of short rows, item -> the row."""
        places = {m.item.name: (self.body.need.stores[m.item.name][0], m.position) for m in self.body.stored}
        found = short_rows(places.values(), self.row_sweep.variable, self.body.need.numels, whole=True)
        rows = {name: found.get((buffer, position.key)) for name, (buffer, position) in places.items()}
        return {name: row for name, row in rows.items() if row and not self.row_sweep.varies(row.start)}

    def _copied(self, member: GroupMember, loaded: set[tuple[str, str]]) -> str:
        """The text of an element of a short row that is a copy, which is not converted though others of the kernel
        compute with it; "" for other elements, and where what is copied may be overwritten.
        """
        e, dtype = member.value, self.body.need.stores[member.item.name][1]
        if not self.group.short_rows or e.op != "load" or e.attr[2] != dtype:
            return ""
        kept = (e.attr[0], e.attr[1].key) in loaded or e.attr[0] not in self.body.overwritten
        return self.emit.read(e, self.emit.position(e.attr[1])) if kept else ""

    def _short_pointer(self, row: ShortRow) -> str:
        return offset(self.body.pointers[row.buffer], to_c(row.start))

    def _short_tests(self) -> list[str]:
        """Tests that the vectors of short rows are aligned."""
        rows = {row.key: row for row in [*self.short.values(), *self.short_out.values()]}.values()
        kinds = [(f"{STORAGE[self.body.need.dtypes[row.buffer]]}, {self.vec}, {row.width}", row) for row in rows]
        return [f"are_short_rows_aligned<{kind}>({self._short_pointer(row)})" for kind, row in kinds]

    def _load_short(self, arguments: str) -> dict[tuple[str, str], str]:
        """Writes the loads of short rows; returns the text of each element."""
        emit, names = self.emit, dict[tuple[str, str, int], str]()
        for row in self.short.values():
            if row.key not in names:
                name = names[row.key] = emit.fresh(f"{self.body.pointers[row.buffer]}_rows")
                emit.used.add("load_short_rows")
                shape = f"{self.items}, {self.vec}, {row.width}"
                emit.line(f"const auto {name} = load_short_rows<{shape}>({self._short_pointer(row)}, {arguments});")
        return {key: _element(names[row.key], row) for key, row in self.short.items()}

    def _declare_short(self) -> tuple[dict[str, str], list[tuple[ShortRow, str]]]:
        """Declares the tiles of short rows that are stored: (the text of each member's element, the rows' tiles)."""
        emit, names = self.emit, dict[tuple[str, str, int], str]()
        tiles: list[tuple[ShortRow, str]] = []
        for row in self.short_out.values():
            if row.key not in names:
                name = names[row.key] = emit.fresh(f"{self.body.pointers[row.buffer]}_out")
                emit.used.add("store_short_rows")
                kind = STORAGE[self.body.need.dtypes[row.buffer]]
                emit.line(f"Tile<{kind}, {self.extent} * {row.width}> {name};")
                tiles.append((row, name))
        return {item: _element(names[row.key], row) for item, row in self.short_out.items()}, tiles

    def _described(self, buffer: str, position: Ix, access: VectorAccess) -> tuple[str, str, bool]:
        aligned = position.terms.get((), 0) % VECTOR_LENGTH.get(self.body.need.dtypes[buffer], 4) == 0
        return buffer, offset(self.body.pointers[buffer], access.start), aligned

    def _elements(self, outs: dict[str, str], bound: str, loaded: set[tuple[str, str]], *, tested: bool) -> None:
        """Writes the loop over the tile's elements, into the tiles `outs` or, without them, one by one to memory.

        loaded: (buffer, position) of loads that came before. tested: elements beyond the row must not be computed.
        """
        emit, body, sweep = self.emit, self.body, self.row_sweep
        if outs:
            emit.line("#pragma unroll")
        emit.open(f"for (int k = 0; k < {self.extent}; ++k)")
        first = place = f"base + k * {self.step}"
        if self.vec != "1":
            first = f"base + k / {self.vec} * ({self.step} * {self.vec})"
            place = f"{first} + k % {self.vec}"
        index = f"const {body.index_type} {sweep.variable} = {place};"
        emit.line(index) if tested else emit.line_if_used(index)
        if tested and outs:  # by vectors: the loads of one have the same condition, and are issued together
            emit.line(f"if ({first} >= {bound}) continue;")
        elif tested:
            emit.line(f"if ({sweep.variable} >= {bound}) break;")
        for line in sweep.splits:
            emit.line_if_used(line)
        if self.group.short_rows:  # all of a row is read before its first element is overwritten
            for e in walk(self.values):
                if e.op == "load" and e.attr[0] in body.overwritten and (e.attr[0], e.attr[1].key) not in loaded:
                    emit.bind(e)
        for member in body.stored:
            if member.item.name in self.short_out and outs:
                emit.line(f"{outs[member.item.name]} = {self._copied(member, loaded) or body.stored_value(member)};")
            elif member.item.name in outs:
                emit.line(f"{outs[member.item.name]} = {body.vector_value(member)};")
            else:
                value = self._copied(member, loaded) or body.stored_value(member)
                pointer = body.pointers[body.need.stores[member.item.name][0]]
                emit.line(f"{pointer}[{emit.position(member.position)}] = {value};")
        emit.close()


def _element(tile: str, row: ShortRow) -> str:
    """The element of a tile of short rows that belongs to the thread's element `k`."""
    return f"{tile}.v[k * {row.width} + {row.place}]" if row.place else f"{tile}.v[k * {row.width}]"


def _is_contiguous(access: VectorAccess) -> bool:
    """Whether the access traverses the row element by element, forwards."""
    return not access.reversed and not access.run
