"""Rows that nothing is reduced of: a tile of a row a block, or a few lanes a row.

A tile that lies within its row, narrow types on the borders of packs, is read, computed and written without a test an
element; the ends of rows go element by element.
"""

from __future__ import annotations

from hipwright.engine.ir.expr import STORAGE, E, walk
from hipwright.engine.ir.index import Ix
from hipwright.engine.ir.index_text import to_python
from hipwright.engine.templates.access import unconditional_loads
from hipwright.engine.templates.base import Body, EmittedKernel, fused
from hipwright.engine.templates.pointwise.elementwise import needs_test, on_borders, roomy
from hipwright.engine.templates.rows.layout import RowLayout
from hipwright.engine.templates.rows.scope import RowScope
from hipwright.engine.templates.sweep import MAX_UNALIGNED, VECTOR_LENGTH, VectorAccess, offset

FEW_READS = 4
"""Tiles of single elements that a thread reads as long as they are as large as those of packs."""


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
            "team",
            *(f"i{k}" for k in range(8)),
            *(f"j{k}" for k in range(8)),
        }
        self._name_variables()
        self.values = [m.value for m in body.stored]
        body.hurry(self.values)
        self.vec, self.items = layout.vec, layout.items
        if not self.row_sweep.vectorises(self.values, body.stored) or self._scattered():
            self.vec = "1"  # as many single elements, where registers hold what they read
            self.items = f"{layout.items} * {layout.vec}" if len(self._reads()) <= FEW_READS else layout.items
        self.extent = self.items if self.vec == "1" else f"{self.items} * {self.vec}"
        body.knobs |= {n for n in (layout.threads, layout.share, layout.vec, layout.items) if not n.isdigit() and n}
        emit.used |= {("has_whole_vectors", ""), ("Tile", "")}
        grid = self._lanes() if layout.mapping == "lanes" else self._blocks()
        for line in self.outer_lines:
            emit.line(line)
        emit.count(self.values)
        self.hoist(self.values, 0)
        if layout.mapping == "lanes":
            span = body.as_index(f"{layout.share} * {self.extent}")
            emit.open(f"for ({body.index_type} start = 0; start < {self.row_sweep.length}; start += {span})")
        self._tile("lane" if layout.mapping == "lanes" else "threadIdx.x")
        if layout.mapping == "lanes":
            emit.close()
        return body.finish(grid, layout.threads, fused(self.group), roomy(body, layout.threads))

    def _lanes(self) -> str:
        """LANES neighbouring lanes have a row."""
        emit, kind, layout = self.emit, self.body.index_type, self.layout
        block, share = layout.threads, layout.share
        emit.line(f"const int lane = threadIdx.x % {share};")
        emit.line(f"const {kind} row = blockIdx.x * ({kind})({block} / {share}) + threadIdx.x / {share};")
        emit.line(f"if (row >= {emit.position(self._rows())}) return;  // the last block may have rows to spare")
        self.beside = share
        return f"cdiv({{rows}}, {block} // {share})"

    def _blocks(self) -> str:
        """Every tile of a row has a block."""
        emit, kind, layout = self.emit, self.body.index_type, self.layout
        span, length = f"{layout.threads} * {self.extent}", self.row_sweep.length
        emit.line(f"const unsigned team = (unsigned)(({length} + {span} - 1) / ({span}));  // blocks that share a row")
        emit.line(f"const {kind} row = blockIdx.x / team;")
        emit.line(f"const {kind} start = ({kind})(blockIdx.x % team) * ({span});")
        self.beside = layout.threads
        return f"({{rows}}) * cdiv({to_python(self.width)}, {span})"

    def _rows(self) -> Ix:
        total = Ix({(): 1})
        for size in self.group.outer:
            total = total * size
        return total

    def _scattered(self) -> bool:
        """Are most loads along the row under conditions? Those of a pack would be read singly, 16 bytes apart."""
        along = [e for e in walk(self.values) if e.op == "load" and self.row_sweep.access(e.attr[1], False) is not None]
        single = len(along) - len(self._reads())
        return single >= MAX_UNALIGNED and 2 * single > len(along)

    # ------------------------------------------------------------ one tile

    def _tile(self, lane: str) -> None:
        emit, body, sweep = self.emit, self.body, self.row_sweep
        scale = "" if self.vec == "1" else f" * {self.vec}"
        shape = f"{self.items}, {self.vec}"
        step, bound = body.as_index(f"{self.beside}{scale}"), body.as_index(sweep.length)
        emit.line(f"const {body.index_type} base = start + {lane}{scale};")
        reads, writes = self._reads(hoisted=True), self._writes()
        packed = [(b, pointer) for b, pointer, on in [*reads.values(), *writes.values()] if on]
        tests = [f"has_whole_vectors<{shape}>(base, {step}, {bound})", *on_borders(body, packed, self.vec)]
        emit.open(f"if ({' && '.join(tests)})")
        plain, packs = emit.read, dict[tuple[str, str], str]()
        for key, (buffer, pointer, _) in reads.items():
            packs[key] = emit.fresh(f"{body.pointers[buffer]}_tile")
            emit.line(f"const auto {packs[key]} = load_whole_vectors<{shape}>({pointer}, base, {step}, {bound});")
        outs = {}
        for name, (buffer, _, _) in writes.items():
            outs[name] = emit.fresh(f"{body.pointers[buffer]}_out")
            emit.line(f"Tile<{STORAGE[body.need.stores[name][1]]}, {self.extent}> {outs[name]};")

        def read(e: E, position: str) -> str:
            name = packs.get((e.attr[0], e.attr[1].key))
            return f"{name}.v[k]" if name else plain(e, position)

        emit.read = read
        hoisted = {(e.attr[0], e.attr[1].key) for e in walk(self.values) if e.op == "load" and emit.known(e)}
        self._elements(outs, bound, harm=needs_test(self.values, {*packs, *hoisted}))
        emit.read = plain
        for name, (_, pointer, _) in writes.items():
            emit.line(f"store_whole_vectors<{shape}>({pointer}, base, {step}, {bound}, {outs[name]});")
        emit.otherwise()
        self._elements({}, bound, harm=True)
        emit.close()

    def _reads(self, *, hoisted: bool = False) -> dict[tuple[str, str], tuple[str, str, bool]]:
        """Accesses that packs serve: (buffer, position) -> (buffer, pointer, on the borders of packs?).

        hoisted: what a row shares has a name, so that rows that an index picks can be told where they lie.
        """
        out = {}
        for e in unconditional_loads(self.values):
            place = self.row_sweep.access(e.attr[1], False)
            buffer, position, _ = e.attr
            if place is None and (rest := self.row_sweep.indexed_row(position)) is not None:
                place = VectorAccess(self.emit.position(rest) if hoisted else "")
            if place is not None and _forwards(place):
                out[buffer, position.key] = self._access(buffer, position, place)
        return out

    def _writes(self) -> dict[str, tuple[str, str, bool]]:
        out = {}
        for m in self.body.stored:
            place = self.row_sweep.access(m.position, False)
            if place is not None and _forwards(place):
                buffer = self.body.need.stores[m.item.name][0]
                out[m.item.name] = self._access(buffer, m.position, place)
        return out

    def _access(self, buffer: str, position: Ix, place: VectorAccess) -> tuple[str, str, bool]:
        on = position.terms.get((), 0) % VECTOR_LENGTH.get(self.body.need.dtypes[buffer], 4) == 0
        return buffer, offset(self.body.pointers[buffer], place.start), on

    def _elements(self, outs: dict[str, str], bound: str, *, harm: bool) -> None:
        """The loop over the tile's elements, in registers or, without `outs`, one after another in memory.

        harm: elements behind the row must not be computed.
        """
        emit, body, sweep = self.emit, self.body, self.row_sweep
        if outs:
            emit.line("#pragma unroll")
        emit.open(f"for (int k = 0; k < {self.extent}; ++k)")
        place = f"base + k * {self.beside}"
        if self.vec != "1":
            place = f"base + k / {self.vec} * ({self.beside} * {self.vec}) + k % {self.vec}"
        index = f"const {body.index_type} {sweep.variable} = {place};"
        emit.line(index) if harm else emit.line_if_used(index)
        if harm:
            emit.line(f"if ({sweep.variable} >= {bound}) {'continue' if outs else 'break'};")
        for line in sweep.splits:
            emit.line_if_used(line)
        for member in body.stored:
            value = body.stored_value(member)
            if member.item.name in outs:
                emit.line(f"{outs[member.item.name]}.v[k] = {value};")
            else:
                pointer = body.pointers[body.need.stores[member.item.name][0]]
                emit.line(f"{pointer}[{emit.position(member.position)}] = {value};")
        emit.close()


def _forwards(place: VectorAccess) -> bool:
    """Does the access walk the row element by element?"""
    return not place.reversed and not place.run
