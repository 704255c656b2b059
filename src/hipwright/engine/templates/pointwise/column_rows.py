"""Rows without reductions whose threads keep the values of their columns: biases, weights, statistics of columns.

A thread takes the same vector of COLUMN_ROWS rows. What depends on the column alone is loaded and computed once, into
registers; then the vectors of ROWS_AT_ONCE rows are loaded before the first is used. Batch normalisation reads 16 bytes
of its columns for each element of a half type, which a kernel by single rows loads again for every row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from hipwright.engine.ir.expr import STORAGE, E
from hipwright.engine.ir.index import product
from hipwright.engine.ir.index_text import to_python
from hipwright.engine.templates.access import unconditional_loads
from hipwright.engine.templates.base import Body, EmittedKernel, depends, fused
from hipwright.engine.templates.pointwise.column_values import column_values, loads_beside
from hipwright.engine.templates.pointwise.elementwise import alignment_tests
from hipwright.engine.templates.rows.layout import RowLayout
from hipwright.engine.templates.rows.scope import RowScope
from hipwright.engine.templates.sweep import offset

LOCALS = frozenset(["row", "r", "k", "v", "lane", "line", "column", "place", "end", "first", "start", "last"])


def column_rows(body: Body, layout: RowLayout) -> EmittedKernel:
    """The kernel of a pointwise group that has columns to keep (column_values.py); layout.mapping: block or lanes."""
    return ColumnRows(body, layout).kernel()


class ColumnRows(RowScope):
    """Writes one kernel."""

    def kernel(self) -> EmittedKernel:
        """The finished kernel."""
        body, emit, layout = self.body, self.emit, self.layout
        names = {
            "row",
            "r",
            "k",
            "v",
            "lane",
            "line",
            "column",
            "place",
            "end",
            "first",
            "start",
            "last",
            "blocks_per_row",
        }
        emit.taken |= names | {f"{letter}{k}" for letter in "ij" for k in range(8)}
        self._name_variables()
        self.values = [m.value for m in body.stored]
        body.use_fast_functions(self.values)
        sizes = (layout.threads, layout.share, layout.vec, layout.items, layout.rows)
        body.knobs |= {n for n in sizes if n and not n.isdigit()}
        emit.used |= {"load_row_vectors", "store_row_vectors", "load_whole_vectors", "Tile"}
        outer = {"row", *(f"i{k}" for k in range(8))}
        self.kept_columns = column_values(self.values, self.inner, outer)
        self.inside = loads_beside(self.values, {e.id for e in self.kept_columns})
        grid = self._locate()
        emit.count(self.values)
        for e in self.inside:  # the same for all elements
            if not depends(e, self.inner | outer, self.memo):
                emit.bind(e)
        emit.open(f"if ({' && '.join(self._tests())})")
        self._load_columns()
        self._rows()
        emit.otherwise()
        self._elements()
        emit.close()
        kernel = body.finish(grid, layout.threads, fused(self.group), f"{layout.threads}, 1")
        kernel.single = self.width.value is not None
        return kernel

    def _locate(self) -> str:
        """Emits the way to a thread's columns and rows; returns the grid."""
        emit, kind, layout = self.emit, self.body.index_type, self.layout
        share, rows = layout.share or layout.threads, layout.rows
        self.lane, self.first, lines = "threadIdx.x", "start", ""
        if layout.share:
            lines = f"{layout.threads} / {share}"
            rows = f"{layout.rows} * ({lines})"
            emit.line(f"const int lane = threadIdx.x % {share}, line = threadIdx.x / {share};")
            self.lane, self.first = "lane", "start + line"
        self.length = self.row_sweep.length
        self.step = self.body.as_index(lines or "1")
        span, total = f"{share} * {layout.vec}", emit.position(product(self.group.outer))
        emit.line(f"const unsigned blocks_per_row = (unsigned)(({self.length} + {span} - 1) / ({span}));")
        emit.line(f"const {kind} start = ({kind})(blockIdx.x / blocks_per_row) * ({rows});")
        emit.line(f"const {kind} end = start + {rows}, last = end < {total} ? end : {total};")
        emit.line(f"const {kind} place = ({kind})(blockIdx.x % blocks_per_row) * {share} + {self.lane};")
        emit.line(f"const {kind} column = place * {layout.vec};")
        emit.line(f"if (column >= {self.length}) return;  // in the last block of a row")
        return f"cdiv({{rows}}, {rows.replace('/', '//')}) * cdiv({to_python(self.width)}, {span})"

    # ------------------------------------------------------------ whole vectors

    def _own(self) -> dict[tuple[str, str], str]:
        """The loads of a thread's own elements: (buffer, position) -> the pointer to the vector in row 0."""
        starts, pointers = self.row_sweep.row_starts, self.body.pointers
        loads = {(e.attr[0], e.attr[1].key): pointers[e.attr[0]] for e in self.inside if e.attr[1].key in starts}
        return dict(sorted(loads.items(), key=lambda load: load[1]))

    def _vectors_of_columns(self) -> dict[tuple[str, str], tuple[str, str]]:
        """The loads of columns that go by vectors: (buffer, position) -> (buffer, pointer)."""
        found = {}
        for e in unconditional_loads(self.kept_columns):
            access = self.row_sweep.access(e.attr[1], False)
            if access is not None and not access.reversed and not access.run:
                found[e.attr[0], e.attr[1].key] = e.attr[0], offset(self.body.pointers[e.attr[0]], access.start)
        return found

    def _tests(self) -> list[str]:
        """Tests that no vector is cut, and that all are aligned."""
        body, vec = self.body, self.layout.vec
        own = [*(b for b, _ in self._own()), *(body.need.stores[m.item.name][0] for m in body.stored)]
        kinds = [(STORAGE[body.need.dtypes[buffer]], body.pointers[buffer]) for buffer in dict.fromkeys(own)]
        aligned = [f"is_vector_aligned<{kind}, {vec}>({pointer})" for kind, pointer in kinds]
        columns = alignment_tests(body, list(self._vectors_of_columns().values()), vec)
        return [f"{self.length} % {vec} == 0", *aligned, *columns]

    def _load_columns(self) -> None:
        """Loads the vectors of columns, and computes the values of columns from them."""
        emit, body, vec = self.emit, self.body, self.layout.vec
        tiles = {}
        for key, (buffer, pointer) in self._vectors_of_columns().items():
            tile = tiles[key] = emit.fresh(f"{body.pointers[buffer]}_tile")
            place = f"column, {body.as_index(vec)}, {body.as_index(self.length)}"
            emit.line(f"const auto {tile} = load_whole_vectors<1, {vec}>({pointer}, {place});")
        ready = {e.id: tiles.get((e.attr[0], e.attr[1].key)) for e in self.kept_columns if _is_unconverted(e)}
        computed = [e for e in self.kept_columns if not ready.get(e.id)]
        arrays = {e.id: self._array(e) for e in computed}
        if computed:
            plain, emit.read = emit.read, self._reader(tiles, "v")
            emit.count(computed)
            emit.line("#pragma unroll")
            emit.open(f"for (int v = 0; v < {vec}; ++v)")
            emit.line_if_used(f"const {body.index_type} r = column + v;")
            for e in computed:
                emit.line(f"{arrays[e.id]}[v] = {emit.text(e)[0]};")
            emit.close()
            emit.read = plain
            emit.count(self.values)
        for e in self.kept_columns:
            emit.name(e, f"{arrays.get(e.id) or f'{ready[e.id]}.v'}[k % {vec}]")

    def _array(self, e: E) -> str:
        """Declares the array of a column's value; returns its name."""
        what = self.body.pointers[e.attr[0]] if e.op == "load" else e.label or "t"
        name = self.emit.fresh(f"{what}_column")
        self.emit.line(f"{e.ctype} {name}[{self.layout.vec}];")
        return name

    def _reader(self, tiles: Mapping[tuple[str, str], str], element: str) -> Callable[[E, str], str]:
        """Reads loads from tiles, others from memory. element: of a tile."""
        plain = self.emit.read

        def read(e: E, position: str) -> str:
            tile = tiles.get((e.attr[0], e.attr[1].key))
            return f"{tile}.v[{element}]" if tile else plain(e, position)

        return read

    def _rows(self) -> None:
        """Writes the loop over a thread's rows, by vectors."""
        emit, body, layout = self.emit, self.body, self.layout
        shape, extent = f"{layout.items}, {layout.vec}", f"{layout.items} * {layout.vec}"
        place = f"first, {self.step}, last, {body.as_index(self.length)}"
        stride = self.step if self.step == "1" else f"({self.step})"
        advance = layout.items if self.step == "1" else f"{layout.items} * {stride}"
        emit.line("#pragma unroll 1")
        emit.open(f"for ({body.index_type} first = {self.first}; first < last; first += {advance})")
        tiles, outs = {}, {}
        for key, pointer in self._own().items():
            tiles[key] = emit.fresh(f"{pointer}_tile")
            emit.line(f"const auto {tiles[key]} = load_row_vectors<{shape}>({pointer} + column, {place});")
        for m in body.stored:
            pointer = body.pointers[body.need.stores[m.item.name][0]]
            outs[m.item.name] = emit.fresh(f"{pointer}_out")
            emit.line(f"Tile<{body.vector_type(m)}, {extent}> {outs[m.item.name]};")
        plain, emit.read = emit.read, self._reader(tiles, "k")
        emit.line("#pragma unroll")
        emit.open(f"for (int k = 0; k < {extent}; ++k)")
        down = f"k / {layout.vec}" if stride == "1" else f"k / {layout.vec} * {stride}"
        emit.line_if_used(f"const {body.index_type} row = first + {down};")
        for line in self.outer_lines:
            emit.line_if_used(line)
        emit.line_if_used(f"const {body.index_type} r = column + k % {layout.vec};")
        for m in body.stored:
            emit.line(f"{outs[m.item.name]}.v[k] = {body.vector_value(m)};")
        emit.close()
        emit.read = plain
        for m in body.stored:
            pointer = body.pointers[body.need.stores[m.item.name][0]]
            emit.line(f"store_row_vectors<{shape}>({pointer} + column, {place}, {outs[m.item.name]});")
        emit.close()

    # ------------------------------------------------------------ single elements

    def _elements(self) -> None:
        """Writes the loops over a thread's elements, one by one."""
        emit, body = self.emit, self.body
        kind, step = body.index_type, "++row" if self.step == "1" else f"row += {self.step}"
        emit.open(f"for ({kind} row = {self.first}; row < last; {step})")
        for line in self.outer_lines:
            emit.line_if_used(line)
        emit.open(f"for (int k = 0; k < {self.layout.vec}; ++k)")
        emit.line(f"const {kind} r = column + k;")
        emit.line(f"if (r >= {body.as_index(self.length)}) break;")
        for m in body.stored:
            pointer = body.pointers[body.need.stores[m.item.name][0]]
            emit.line(f"{pointer}[{emit.position(m.position)}] = {body.stored_value(m)};")
        emit.close()
        emit.close()


def _is_unconverted(e: E) -> bool:
    """Whether a load gives what memory holds."""
    return e.op == "load" and STORAGE.get(e.attr[2], e.ctype) == e.ctype
