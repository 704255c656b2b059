"""Running sums and products along one dimension.

`rows`: the elements lie side by side. A block takes a tile; each wave scans a run of it with coalesced packs (Hillis &
Steele 1986 over the lanes), one barrier joins the waves. `chunks`: as that, but every tile has a block of its own, and
a block adds up what the tiles before it have left in memory: memory is read once, and the order of additions is fixed
(unlike decoupled look-back, Merrill & Garland 2016, whose order depends on timing). `columns`: neighbouring threads
scan neighbouring columns, serially. `tiles`: columns cut into tiles (templates/scan/columns.py). Pointwise values of
the scan and of what lies beside it are written by its kernel.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from hipwright.engine.emit.statements import literal
from hipwright.engine.ir.expr import COMPUTE, E
from hipwright.engine.ir.index import Var, ix, product
from hipwright.engine.ir.index_text import to_python
from hipwright.engine.templates.base import Body, EmittedKernel, fused
from hipwright.engine.templates.pointwise.elementwise import roomy
from hipwright.engine.templates.scan.columns import column_memory, column_tiles
from hipwright.engine.templates.scan.narrow import has_narrow, narrow_values, narrow_write
from hipwright.engine.templates.sweep import Sweep, ThreadTile

OPERATORS = {"sum": ("Sum", 0), "prod": ("Product", 1)}


@dataclass(frozen=True)
class ScanLayout:
    """mapping rows, chunks, columns or tiles; the names of the knobs. share: packs side by side in a tile."""

    mapping: str
    threads: str
    vec: str
    items: str
    share: str = ""


def scan(body: Body, layout: ScanLayout) -> EmittedKernel:
    """Inclusive scan; the input's own computation is fused in, and what is pointwise behind it."""
    return Scan(body, layout).kernel()


class Scan:
    """Writes one kernel; `emit` holds the text."""

    def __init__(self, body: Body, layout: ScanLayout) -> None:
        self.body, self.layout, self.emit, self.group = body, layout, body.emit, body.group
        self.member = next(m for m in body.group.members if m.item.kind == "scan")
        self.ctype = COMPUTE[self.member.item.dtype]
        self.operator, identity = OPERATORS[self.member.item.reduction]
        self.identity = f"{self.ctype}({literal(identity, self.ctype)})"
        self.columns = layout.mapping in ("columns", "tiles")
        self.extent = f"{layout.items} * {layout.vec}"
        self.narrow = False  # are half types or smaller read or written in packs along the row?

    @property
    def behind(self) -> list[E]:
        """The values that stand behind the scan."""
        return [m.value for m in self.body.stored if m is not self.member]

    def kernel(self) -> EmittedKernel:
        """The finished kernel."""
        body, emit, layout = self.body, self.emit, self.layout
        emit.taken |= {
            "row",
            "r",
            "start",
            "carry",
            "value",
            "k",
            "v",
            "base",
            "count",
            "col",
            "column",
            "line",
            "pack",
            "across",
            "width",
            "step",
            "tile",
            "tiles",
            "ticket",
            "total",
            "before",
            "flip",
            *(f"i{k}" for k in range(8)),
        }
        body.knobs |= {layout.threads, layout.vec, layout.items}
        emit.used |= {(self.operator, ""), ("Tile", ""), ("valid_elements", "")}
        self._variables()
        emit.count([self.member.value, *self.behind])
        self.narrow = not self.columns and has_narrow(self)
        if layout.mapping == "tiles":
            grid = column_tiles(self)
        else:
            grid = self._columns() if self.columns else self._rows()
        bounds = roomy(body, layout.threads) if self.narrow else layout.threads
        kernel = body.finish(grid, layout.threads, fused(self.group), bounds)
        if layout.mapping == "chunks":
            self._memory(kernel)
        elif layout.mapping == "tiles":
            column_memory(self, kernel, _dtype(self.ctype))
        return kernel

    def _variables(self) -> None:
        group, body = self.group, self.body
        (d,) = group.dims
        kept = [k for k in range(len(group.space)) if k != d]
        self.outer = product([group.space[k] for k in kept])
        if self.columns:
            table, self.lines = body.name_variables(kept[:-1], "i", "line") if kept[1:] else ({}, [])
            table[group.variables[kept[-1]]] = ix(Var("col", group.space[kept[-1]]))
            self.across = group.space[kept[-1]]
            self.outer = product([group.space[k] for k in kept[:-1]])
        else:
            table, self.lines = body.name_variables(kept, "i", "row") if kept else ({}, [])
        body.rename({**table, group.variables[d]: ix(Var("r", group.space[d]))})
        self.width = group.space[d]
        self.length = self.emit.position(self.width)
        self.sweep = Sweep("r", self.length, self.width, {"r"})

    # ------------------------------------------------------------ rows

    def _rows(self) -> str:
        emit, kind, layout = self.emit, self.body.index_type, self.layout
        chunks = layout.mapping == "chunks"
        span = f"{layout.threads} * {self.extent}"
        emit.used |= {("scan_tile", ""), ("combine_wave_totals", "")}
        if chunks:
            self._ticket(span)
        else:
            emit.line(f"const {kind} row = blockIdx.x;")
        for line in self.lines:
            emit.line(line)
        emit.line(f"const {kind} step = warpSize * {layout.vec};")
        if not chunks:
            emit.line(f"{self.ctype} carry = {self.identity};")
            emit.line("int flip = 0;")
            emit.open(f"for ({kind} start = 0; start < {self.length}; start += {self.body.as_index(span)})")
        else:
            emit.line(f"const {kind} start = tile * {self.body.as_index(span)};")
        lanes = f"threadIdx.x / warpSize * warpSize * {self.extent} + threadIdx.x % warpSize * {layout.vec}"
        emit.line(f"const {kind} base = start + {lanes};")
        self._values("base", "step", self.body.as_index(self.length))
        op = f"{self.operator}()"
        emit.line(
            f"const {self.ctype} total = scan_tile<{layout.items}, {layout.vec}>(value.v, {self.identity}, {op});"
        )
        if chunks:
            emit.line(f"{self.ctype} before = {self.identity}, all = {self.identity};")
            emit.line(f"combine_wave_totals<{layout.threads}>(total, 0, {op}, before, all);")
            self._look_back(op)
        else:
            emit.line(f"{self.ctype} before = carry;")
            emit.line(f"combine_wave_totals<{layout.threads}>(total, flip, {op}, before, carry);")
            emit.line("flip ^= 1;")
        share = ThreadTile(f"{layout.items}, {layout.vec}", "base", "step", self.body.as_index(self.length))
        self._write(f"{op}(before, value.v[k])", share)
        if not chunks:
            emit.close()
        tiles = f"cdiv({to_python(self.width)}, {span})"
        return f"{to_python(self.outer)} * {tiles}" if chunks else to_python(self.outer)

    def _values(self, base: str, step: str, bound: str) -> None:
        """This thread's tile of inputs, the identity past the end."""
        emit, layout = self.emit, self.layout
        emit.line(f"const int count = valid_elements<{layout.items}, {layout.vec}>({base}, {step}, {bound});")
        if self.narrow:
            narrow_values(self, base, step, bound)
            return
        self.sweep.load_tiles(
            self.body, [self.member.value], set(), ThreadTile(f"{layout.items}, {layout.vec}", base, step, bound)
        )
        plain = self.read_packs("k")
        emit.line(f"Tile<{self.ctype}, {self.extent}> value;")
        emit.line("#pragma unroll")
        emit.open(f"for (int k = 0; k < {self.extent}; ++k)")
        emit.line(f"value.v[k] = {self.identity};")
        emit.line("if (k >= count) continue;")
        self.place_element()
        emit.line(f"value.v[k] = {emit.text(self.member.value)[0]};")
        emit.close()
        emit.read = plain

    def place_element(self) -> None:
        """Where element k of the tile lies in the row."""
        vec = self.layout.vec
        self.emit.line_if_used(f"const {self.body.index_type} r = base + k / {vec} * step + k % {vec};")

    def read_packs(self, place: str) -> Callable[[E, str], str]:
        """Loads that packs serve are elements of these from here on; returns how loads were printed before."""
        emit, packs, plain = self.emit, dict(self.sweep.tiles), self.emit.read
        emit.read = lambda e, p: f"{packs[k]}.v[{place}]" if (k := (e.attr[0], e.attr[1].key)) in packs else plain(e, p)
        return plain

    def _write(self, value: str, share: ThreadTile) -> None:
        """Store the scan's tile and what is computed from it."""
        emit, body = self.emit, self.body
        if self.narrow:
            narrow_write(self, value, share)
            return
        self.sweep.load_tiles(body, self.behind, set(), share)
        plain = self.read_packs("k")
        self.sweep.declare_stores(body, body.stored, self.extent, columns=False)
        emit.line("#pragma unroll")
        emit.open(f"for (int k = 0; k < {self.extent}; ++k)")
        if self.behind:
            emit.line("if (k >= count) continue;")
            self.place_element()
        self.outputs(value, "k")
        emit.close()
        self.sweep.store_tiles(body, share, "")
        emit.read = plain

    def outputs(self, value: str, place: str) -> None:
        """The values to store at one element, into their tiles or memory."""
        emit, name = self.emit, self.member.item.name
        self.body.rows[name] = value
        if self.behind:
            self.body.rows[name] = emit.fresh(name)
            emit.line(f"const {self.ctype} {self.body.rows[name]} = {value};")
        for member in self.body.stored:
            text = self.body.rows[name] if member is self.member else emit.text(member.value)[0]
            found = self.sweep.stores.get(member.item.name)
            if found:
                emit.line(f"{found[0]}.v[{place}] = {self.body.in_tile(member, text)};")
            else:
                emit.line(self.body.store(member, text, emit.position(member.position)))

    # ------------------------------------------------------------ chunks

    def scratch(self) -> tuple[str, str]:
        """Memory that the blocks of the launch share: the pointers to flags and sums."""
        name = self.body.name
        for scratch, dtype in ((f"{name}_flags", "int32"), (f"{name}_sums", _dtype(self.ctype))):
            self.body.need.dtypes[scratch] = dtype
            self.body.pointers[scratch] = self.emit.fresh(scratch)
            self.body.scratch.append(scratch)
        return self.body.pointers[f"{name}_flags"], self.body.pointers[f"{name}_sums"]

    def _ticket(self, span: str) -> None:
        emit, kind = self.emit, self.body.index_type
        emit.used |= {("take_block_ticket", ""), ("await_tile_prefix", "")}
        emit.line(f"const int ticket = take_block_ticket({self.scratch()[0]});")
        emit.line(f"const int tiles = ({self.length} + {span} - 1) / ({span});")
        emit.line(f"const {kind} row = ticket / tiles;")
        emit.line(f"const {kind} tile = ticket % tiles;")

    def _look_back(self, op: str) -> None:
        """Add what the row's earlier tiles come to."""
        name, layout = self.body.name, self.layout
        flags, sums = self.body.pointers[f"{name}_flags"], self.body.pointers[f"{name}_sums"]
        places = f"{sums} + row * 2 * tiles, {flags} + 1 + row * 2 * tiles"
        call = f"await_tile_prefix<{layout.threads}>(all, {places}, tiles, (int)tile, {self.identity}, {op})"
        self.emit.line(f"before = {op}({call}, before);")

    def _memory(self, kernel: EmittedKernel) -> None:
        """Flags (zeroed) and sums: two a tile, the tile's own and that of whole groups before it."""
        span = f"{self.layout.threads} * {self.extent}"
        name = self.body.name
        kernel.before.append(f"{name}_tiles = cdiv({to_python(self.width)}, {span})")
        tiles = ix(Var(f"{name}_tiles"))
        shape = self.outer * tiles * 2
        kernel.scratch = {f"{name}_flags": ([shape + 1], "int32"), f"{name}_sums": ([shape], _dtype(self.ctype))}
        kernel.zeroed = {f"{name}_flags"}

    # ------------------------------------------------------------ columns

    def open_elements(self, start: str) -> None:
        """The loops over the thread's columns and their rows from `start`."""
        emit, kind, layout = self.emit, self.body.index_type, self.layout
        emit.line("#pragma unroll")
        emit.open(f"for (int v = 0; v < {layout.vec}; ++v)")
        emit.line("if (v >= width) continue;")
        emit.line(f"const {kind} col = column + v;")
        emit.line("#pragma unroll")
        emit.open(f"for (int k = 0; k < {layout.items}; ++k)")
        emit.line("if (k >= count) continue;")
        emit.line_if_used(f"const {kind} r = {start} + k;")

    def place_column(self) -> None:
        """The line and the first column of the thread's pack, and how many columns of it there are."""
        emit, kind, vec, across = self.emit, self.body.index_type, self.layout.vec, self.emit.position(self.across)
        if self.outer.value != 1:
            emit.line(f"const {kind} line = pack / across;")
        emit.line(f"const {kind} column = pack % across * {vec};")
        emit.line(f"const int width = {across} - column < {vec} ? {across} - column : {vec};")
        for line in self.lines:
            emit.line(line)

    def _columns(self) -> str:
        """A thread a pack of columns: several rows of it are asked for at once."""
        emit, kind, layout = self.emit, self.body.index_type, self.layout
        across, lines = emit.position(self.across), emit.position(self.outer)
        total = "across" if self.outer.value == 1 else f"({lines}) * across"
        emit.line(f"const {kind} across = ({across} + {layout.vec} - 1) / {layout.vec};")
        emit.line(f"const {kind} pack = blockIdx.x * ({kind}){layout.threads} + threadIdx.x;")
        emit.line(f"if (pack >= {total}) return;")
        self.place_column()
        emit.line(f"{self.ctype} carry[{layout.vec}];")
        emit.line("#pragma unroll")
        emit.line(f"for (int v = 0; v < {layout.vec}; ++v) carry[v] = {self.identity};")
        emit.open(f"for ({kind} start = 0; start < {self.length}; start += {layout.items})")
        self._column_tile()
        emit.close()
        lines_text, across_text = to_python(self.outer), to_python(self.across)
        return f"cdiv({lines_text} * cdiv({across_text}, {layout.vec}), {layout.threads})"

    def _column_tile(self) -> None:
        emit, layout, member = self.emit, self.layout, self.member
        one, bound = self.body.as_index("1"), self.body.as_index(self.length)
        emit.line(f"const int count = valid_elements<{layout.items}, 1>(start, {one}, {bound});")
        share = ThreadTile(f"{layout.items}, {layout.vec}", "start", one, bound, "width")
        self.sweep.load_tiles(self.body, [member.value, *self.behind], set(), share)
        place = f"k * {layout.vec} + v"
        plain = self.read_packs(place)
        self.sweep.declare_stores(self.body, self.body.stored, self.extent, columns=True)
        self.open_elements("start")
        emit.line(f"carry[v] = {self.operator}()(carry[v], {self.ctype}({emit.text(member.value)[0]}));")
        self.outputs("carry[v]", place)
        emit.close()
        emit.close()
        self.sweep.store_tiles(self.body, share, "")
        emit.read = plain


def _dtype(ctype: str) -> str:
    return {"float": "float32", "double": "float64", "int": "int32", "long": "int64"}[ctype]
