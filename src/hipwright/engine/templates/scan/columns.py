"""Scans down columns by tiles, for columns too few to keep a device busy with a thread each.

A block takes a tile: COLUMNS packs of neighbouring columns side by side, and below each other as many threads as the
block has left, each with ITEMS rows in registers. It scans these, leaves the tile's sums in memory, waits for the tiles
above, and writes: one read, one write. Tiles above each other form groups of as many as a block has rows of threads, so
that each row of threads asks for one tile's sums and the last for what comes before the group. Groups follow one
another as in StreamScan (Yan, Long & Zhang 2013); the order of additions is fixed, so that results do not depend on
timing as decoupled look-back's do (Merrill & Garland 2016). Blocks wait for earlier tickets only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hipwright.engine.ir.index import Sym, Var, ix
from hipwright.engine.ir.index_text import to_python
from hipwright.engine.templates.base import EmittedKernel
from hipwright.engine.templates.sweep import ThreadTile

if TYPE_CHECKING:
    from hipwright.engine.templates.scan.rows import Scan


def column_tiles(scan: Scan) -> str:
    """Write the body; returns the grid. The scan's `memory` then says what the kernel needs."""
    emit, layout, vec = scan.emit, scan.layout, scan.layout.vec
    flags, sums = scan.scratch()
    _place(scan, flags)
    one, bound = scan.body.as_index("1"), scan.body.as_index(scan.length)
    emit.line(f"const int count = live ? valid_elements<{layout.items}, 1>(base, {one}, {bound}) : 0;")
    share = ThreadTile(f"{layout.items}, {vec}", "base", one, bound, "width")
    _own_rows(scan, share)
    emit.line(f"{scan.ctype} before[{vec}];")
    places = f"{sums} + (long)columns * 2 * tiles * {layout.share} * {vec}, {flags} + 1 + columns * 2 * tiles"
    shape = f"{layout.threads}, {layout.share}, {vec}"
    emit.line(
        f"await_column_prefixes<{shape}>(total, before, {places}, tiles, tile, {scan.identity}, {scan.operator}());"
    )
    _write(scan, share)
    lines_text, across_text = to_python(scan.outer), to_python(scan.across)
    tiles = f"cdiv({to_python(scan.width)}, {layout.threads} // {layout.share} * {layout.items})"
    return f"cdiv({lines_text} * cdiv({across_text}, {vec}), {layout.share}) * {tiles}"


def _place(scan: Scan, flags: str) -> None:
    """Which tile the block has, in the order in which blocks start, and which columns and rows of it the thread."""
    emit, kind, layout = scan.emit, scan.body.index_type, scan.layout
    emit.taken |= {"lane", "live", "blocks", "columns", "first", "all"}
    scan.body.knobs.add(layout.share)
    emit.used |= {("take_block_ticket", "")}
    lanes, vec = f"({layout.threads} / {layout.share})", layout.vec
    across, lines = emit.position(scan.across), emit.position(scan.outer)
    total = "across" if scan.outer.value == 1 else f"({lines}) * across"
    emit.line(f"const int ticket = take_block_ticket({flags});")
    emit.line(f"const {kind} across = ({across} + {vec} - 1) / {vec};")
    emit.line(f"const int blocks = ({total} + {layout.share} - 1) / {layout.share};  // side by side")
    emit.line(f"const int tiles = ({scan.length} + {lanes} * {layout.items} - 1) / ({lanes} * {layout.items});")
    emit.line("const int tile = ticket / blocks, columns = ticket % blocks;")
    emit.line(f"const int lane = threadIdx.x / {layout.share};")
    emit.line(f"const {kind} first = ({kind})columns * {layout.share} + threadIdx.x % {layout.share};")
    emit.line(f"const bool live = first < {total};  // the last block may have columns to spare")
    emit.line(f"const {kind} pack = live ? first : {total} - 1;")
    scan.place_column()
    emit.line(f"const {kind} base = ({kind})(tile * {lanes} + lane) * {layout.items};")


def _own_rows(scan: Scan, share: ThreadTile) -> None:
    """Each thread scans the rows that it holds."""
    emit, layout = scan.emit, scan.layout
    scan.sweep.load_tiles(scan.body, [scan.member.value], set(), share)
    place = f"k * {layout.vec} + v"
    plain = scan.read_packs(place)
    emit.line(f"Tile<{scan.ctype}, {scan.extent}> value;")
    emit.line(f"{scan.ctype} total[{layout.vec}];")
    emit.line("#pragma unroll")
    emit.line(f"for (int v = 0; v < {layout.vec}; ++v) total[v] = {scan.identity};")
    scan.open_elements("base")
    text = emit.text(scan.member.value)[0]
    emit.line(f"total[v] = {scan.operator}()(total[v], {scan.ctype}({text}));")
    emit.line(f"value.v[{place}] = total[v];")
    emit.close()
    emit.close()
    emit.read = plain


def _write(scan: Scan, share: ThreadTile) -> None:
    """With what comes before them, the rows are stored, and what is computed from them."""
    emit, layout = scan.emit, scan.layout
    scan.sweep.load_tiles(scan.body, scan.behind, set(), share)
    place = f"k * {layout.vec} + v"
    plain = scan.read_packs(place)
    scan.sweep.declare_stores(scan.body, scan.body.stored, scan.extent, columns=True)
    scan.open_elements("base")
    scan.outputs(f"{scan.operator}()(before[v], value.v[{place}])", place)
    emit.close()
    emit.close()
    scan.sweep.store_tiles(scan.body, share, "live")
    emit.read = plain


def column_memory(scan: Scan, kernel: EmittedKernel, dtype: str) -> None:
    """Flags (zeroed) and sums: for each block of columns two a tile, its own and what comes before whole groups."""
    layout, name = scan.layout, scan.body.name
    packs = f"{to_python(scan.outer)} * cdiv({to_python(scan.across)}, {layout.vec})"
    rows = f"{layout.threads} // {layout.share} * {layout.items}"
    kernel.before.append(f"{name}_tiles = cdiv({packs}, {layout.share}) * cdiv({to_python(scan.width)}, {rows})")
    tiles = ix(Var(f"{name}_tiles")) * 2
    sums = tiles * ix(Sym(layout.share)) * ix(Sym(layout.vec))
    kernel.scratch = {f"{name}_flags": ([tiles + 1], "int32"), f"{name}_sums": ([sums], dtype)}
    kernel.zeroed = {f"{name}_flags"}
    kernel.used.add(("await_column_prefixes", ""))
