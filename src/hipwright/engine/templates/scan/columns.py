"""Scans down columns: serially, a thread per vector of columns, or in tiles where columns are too few for that.

In tiles, a block takes COLUMNS vectors of neighbouring columns side by side, and below each other as many threads as
the block has left, each with ITEMS rows in registers. It scans these, stores the tile's totals, waits for the tiles
above, and stores the results: one read, one write. Tiles above each other form groups of as many as a block has rows of
threads, so that each row of threads reads the totals of one tile and the last those of all before the group. Groups
follow one another as in StreamScan (Yan, Long & Zhang 2013); the order of additions is fixed, so that results do not
depend on timing as those of decoupled look-back do (Merrill & Garland 2016). Blocks wait for earlier tickets only.
"""

from __future__ import annotations

from hipwright.engine.ir.index import Sym, Var, ix
from hipwright.engine.ir.index_text import to_python
from hipwright.engine.templates.base import EmittedKernel
from hipwright.engine.templates.scan.scope import SUM_DTYPES, ScanScope
from hipwright.engine.templates.sweep import ThreadTile


def serial_columns(s: ScanScope) -> str:
    """Writes a scan by one thread per vector of columns, several rows at a time; returns the grid."""
    emit, kind, layout = s.emit, s.body.index_type, s.layout
    width, lines = emit.position(s.row_width), emit.position(s.outer)
    total = "vectors" if s.outer.value == 1 else f"({lines}) * vectors"
    emit.line(f"const {kind} vectors = ({width} + {layout.vec} - 1) / {layout.vec};")
    emit.line(f"const {kind} vector = blockIdx.x * ({kind}){layout.threads} + threadIdx.x;")
    emit.line(f"if (vector >= {total}) return;")
    s.declare_column()
    emit.line(f"{s.ctype} carry[{layout.vec}];")
    emit.line("#pragma unroll")
    emit.line(f"for (int v = 0; v < {layout.vec}; ++v) carry[v] = {s.identity};")
    emit.open(f"for ({kind} start = 0; start < {s.length}; start += {layout.items})")
    _serial_tile(s)
    emit.close()
    return f"cdiv({to_python(s.outer)} * cdiv({to_python(s.row_width)}, {layout.vec}), {layout.threads})"


def _serial_tile(s: ScanScope) -> None:
    emit, layout, member = s.emit, s.layout, s.member
    one, bound = s.body.as_index("1"), s.body.as_index(s.length)
    emit.line(f"const int count = valid_elements<{layout.items}, 1>(start, {one}, {bound});")
    tile = ThreadTile(f"{layout.items}, {layout.vec}", "start", one, bound, "width")
    s.sweep.load_tiles(s.body, [member.value, *s.following], set(), tile)
    place = f"k * {layout.vec} + v"
    plain = s.read_tiles(place)
    s.sweep.declare_stores(s.body, s.body.stored, s.extent, columns=True)
    s.open_column_elements("start")
    emit.line(f"carry[v] = {s.operator}()(carry[v], {s.ctype}({emit.text(member.value)[0]}));")
    s.write_outputs("carry[v]", place)
    emit.close()
    emit.close()
    s.sweep.store_tiles(s.body, tile, "")
    emit.read = plain


def tiled_columns(s: ScanScope) -> str:
    """Writes a scan by tiles; returns the grid. `add_tile_memory` adds the memory that it needs."""
    emit, layout, vec = s.emit, s.layout, s.layout.vec
    flags, sums = s.shared_memory()
    _declare_tile(s, flags)
    one, bound = s.body.as_index("1"), s.body.as_index(s.length)
    emit.line(f"const int count = active ? valid_elements<{layout.items}, 1>(base, {one}, {bound}) : 0;")
    tile = ThreadTile(f"{layout.items}, {vec}", "base", one, bound, "width")
    _scan_own_rows(s, tile)
    emit.line(f"{s.ctype} before[{vec}];")
    memory = f"{sums} + (long)columns * 2 * tiles * {layout.share} * {vec}, {flags} + 1 + columns * 2 * tiles"
    shape = f"{layout.threads}, {layout.share}, {vec}"
    emit.line(f"await_column_prefixes<{shape}>(total, before, {memory}, tiles, tile, {s.identity}, {s.operator}());")
    _store(s, tile)
    tiles = f"cdiv({to_python(s.width)}, {layout.threads} // {layout.share} * {layout.items})"
    return f"cdiv({to_python(s.outer)} * cdiv({to_python(s.row_width)}, {vec}), {layout.share}) * {tiles}"


def _declare_tile(s: ScanScope, flags: str) -> None:
    """Declares the tile of this block, by its ticket, and the columns and rows of this thread."""
    emit, kind, layout = s.emit, s.body.index_type, s.layout
    emit.taken |= {"lane", "active", "blocks", "columns", "first", "all"}
    s.body.knobs.add(layout.share)
    emit.used |= {"take_block_ticket"}
    lanes, vec = f"({layout.threads} / {layout.share})", layout.vec
    width, lines = emit.position(s.row_width), emit.position(s.outer)
    total = "vectors" if s.outer.value == 1 else f"({lines}) * vectors"
    emit.line(f"const int ticket = take_block_ticket({flags});")
    emit.line(f"const {kind} vectors = ({width} + {vec} - 1) / {vec};")
    emit.line(f"const int blocks = ({total} + {layout.share} - 1) / {layout.share};  // side by side")
    emit.line(f"const int tiles = ({s.length} + {lanes} * {layout.items} - 1) / ({lanes} * {layout.items});")
    emit.line("const int tile = ticket / blocks, columns = ticket % blocks;")
    emit.line(f"const int lane = threadIdx.x / {layout.share};")
    emit.line(f"const {kind} first = ({kind})columns * {layout.share} + threadIdx.x % {layout.share};")
    emit.line(f"const bool active = first < {total};  // false in the last block beyond the last column")
    emit.line(f"const {kind} vector = active ? first : {total} - 1;")
    s.declare_column()
    emit.line(f"const {kind} base = ({kind})(tile * {lanes} + lane) * {layout.items};")


def _scan_own_rows(s: ScanScope, tile: ThreadTile) -> None:
    """Scans the rows that this thread holds."""
    emit, layout = s.emit, s.layout
    s.sweep.load_tiles(s.body, [s.member.value], set(), tile)
    place = f"k * {layout.vec} + v"
    plain = s.read_tiles(place)
    emit.line(f"Tile<{s.ctype}, {s.extent}> value;")
    emit.line(f"{s.ctype} total[{layout.vec}];")
    emit.line("#pragma unroll")
    emit.line(f"for (int v = 0; v < {layout.vec}; ++v) total[v] = {s.identity};")
    s.open_column_elements("base")
    text = emit.text(s.member.value)[0]
    emit.line(f"total[v] = {s.operator}()(total[v], {s.ctype}({text}));")
    emit.line(f"value.v[{place}] = total[v];")
    emit.close()
    emit.close()
    emit.read = plain


def _store(s: ScanScope, tile: ThreadTile) -> None:
    """Stores the rows, combined with all above them, and what is computed from them."""
    emit, layout = s.emit, s.layout
    s.sweep.load_tiles(s.body, s.following, set(), tile)
    place = f"k * {layout.vec} + v"
    plain = s.read_tiles(place)
    s.sweep.declare_stores(s.body, s.body.stored, s.extent, columns=True)
    s.open_column_elements("base")
    s.write_outputs(f"{s.operator}()(before[v], value.v[{place}])", place)
    emit.close()
    emit.close()
    s.sweep.store_tiles(s.body, tile, "active")
    emit.read = plain


def add_tile_memory(s: ScanScope, kernel: EmittedKernel) -> None:
    """Adds the memory that blocks share: flags (zeroed) and sums, of each tile and of each group of tiles."""
    layout, name = s.layout, s.body.name
    vectors = f"{to_python(s.outer)} * cdiv({to_python(s.row_width)}, {layout.vec})"
    rows = f"{layout.threads} // {layout.share} * {layout.items}"
    kernel.before.append(f"{name}_tiles = cdiv({vectors}, {layout.share}) * cdiv({to_python(s.width)}, {rows})")
    tiles = ix(Var(f"{name}_tiles")) * 2
    sums = tiles * ix(Sym(layout.share)) * ix(Sym(layout.vec))
    kernel.scratch = {f"{name}_flags": ([tiles + 1], "int32"), f"{name}_sums": ([sums], SUM_DTYPES[s.ctype])}
    kernel.zeroed = {f"{name}_flags"}
    kernel.used.add("await_column_prefixes")
