"""Scans along contiguous rows. A block takes a tile: each wave scans a run of it with coalesced vectors, one barrier
combines the waves (Hillis & Steele 1986 over the lanes).
"""

from __future__ import annotations

from hipwright.engine.ir.index import Var, ix
from hipwright.engine.ir.index_text import to_python
from hipwright.engine.templates.base import EmittedKernel
from hipwright.engine.templates.scan.scope import SUM_DTYPES, ScanScope
from hipwright.engine.templates.scan.vectors import has_narrow_rows, load_narrow_tile, store_narrow_tile
from hipwright.engine.templates.sweep import ThreadTile


class RowScan:
    """Writes a scan along rows; cooperative: every tile has a block of its own (mapping "chunks")."""

    def __init__(self, scope: ScanScope) -> None:
        self.s, self.body, self.emit, self.layout = scope, scope.body, scope.emit, scope.layout
        self.cooperative = scope.layout.mapping == "chunks"
        self.narrow = has_narrow_rows(scope)
        self.span = f"{self.layout.threads} * {scope.extent}"  # elements of a block's tile

    def write(self) -> str:
        """Writes the kernel's body; returns the grid."""
        s, emit, kind, layout = self.s, self.emit, self.body.index_type, self.layout
        emit.used |= {"scan_tile", "combine_wave_totals"}
        if self.cooperative:
            self._declare_tile()
        else:
            emit.line(f"const {kind} row = blockIdx.x;")
        for line in s.lines:
            emit.line(line)
        emit.line(f"const {kind} step = warpSize * {layout.vec};")
        if self.cooperative:
            emit.line(f"const {kind} start = tile * {self.body.as_index(self.span)};")
        else:
            emit.line(f"{s.ctype} carry = {s.identity};")
            emit.line("int flip = 0;")
            emit.open(f"for ({kind} start = 0; start < {s.length}; start += {self.body.as_index(self.span)})")
        lane = f"threadIdx.x / warpSize * warpSize * {s.extent} + threadIdx.x % warpSize * {layout.vec}"
        emit.line(f"const {kind} base = start + {lane};")
        tile = ThreadTile(f"{layout.items}, {layout.vec}", "base", "step", self.body.as_index(s.length))
        self._load(tile)
        op = f"{s.operator}()"
        emit.line(f"const {s.ctype} total = scan_tile<{layout.items}, {layout.vec}>(value.v, {s.identity}, {op});")
        if self.cooperative:
            emit.line(f"{s.ctype} before = {s.identity}, all = {s.identity};")
            emit.line(f"combine_wave_totals<{layout.threads}>(total, 0, {op}, before, all);")
            self._add_earlier_tiles(op)
        else:
            emit.line(f"{s.ctype} before = carry;")
            emit.line(f"combine_wave_totals<{layout.threads}>(total, flip, {op}, before, carry);")
            emit.line("flip ^= 1;")
        self._store(f"{op}(before, value.v[k])", tile)
        if not self.cooperative:
            emit.close()
        tiles = f"cdiv({to_python(s.width)}, {self.span})"
        return f"{to_python(s.outer)} * {tiles}" if self.cooperative else to_python(s.outer)

    def _load(self, tile: ThreadTile) -> None:
        """Computes this thread's tile of scan inputs; the identity beyond the row."""
        s, emit, layout = self.s, self.emit, self.layout
        arguments = f"{tile.base}, {tile.step}, {tile.bound}"
        emit.line(f"const int count = valid_elements<{layout.items}, {layout.vec}>({arguments});")
        if self.narrow:
            load_narrow_tile(s, tile)
            return
        s.sweep.load_tiles(self.body, [s.member.value], set(), tile)
        plain = s.read_tiles("k")
        emit.line(f"Tile<{s.ctype}, {s.extent}> value;")
        emit.line("#pragma unroll")
        emit.open(f"for (int k = 0; k < {s.extent}; ++k)")
        emit.line(f"value.v[k] = {s.identity};")
        emit.line("if (k >= count) continue;")
        s.declare_row_index()
        emit.line(f"value.v[k] = {emit.text(s.member.value)[0]};")
        emit.close()
        emit.read = plain

    def _store(self, value: str, tile: ThreadTile) -> None:
        """Stores the scan's tile and what is computed from it."""
        s, emit, body = self.s, self.emit, self.body
        if self.narrow:
            store_narrow_tile(s, value, tile)
            return
        s.sweep.load_tiles(body, s.following, set(), tile)
        plain = s.read_tiles("k")
        s.sweep.declare_stores(body, body.stored, s.extent, columns=False)
        emit.line("#pragma unroll")
        emit.open(f"for (int k = 0; k < {s.extent}; ++k)")
        by_element = any(m.item.name not in s.sweep.stores for m in body.stored)
        if s.following or by_element:
            emit.line("if (k >= count) continue;")
            s.declare_row_index()
        s.write_outputs(value, "k")
        emit.close()
        s.sweep.store_tiles(body, tile, "")
        emit.read = plain

    # ------------------------------------------------------------ cooperative blocks

    def _declare_tile(self) -> None:
        """Declares the row and the tile of this block, by its ticket."""
        emit, kind = self.emit, self.body.index_type
        emit.used |= {"take_block_ticket", "await_tile_prefix"}
        emit.line(f"const int ticket = take_block_ticket({self.s.shared_memory()[0]});")
        emit.line(f"const int tiles = ({self.s.length} + {self.span} - 1) / ({self.span});")
        emit.line(f"const {kind} row = ticket / tiles;")
        emit.line(f"const {kind} tile = ticket % tiles;")

    def _add_earlier_tiles(self, op: str) -> None:
        """Adds the combined totals of the row's earlier tiles."""
        name = self.body.name
        flags, sums = self.body.pointers[f"{name}_flags"], self.body.pointers[f"{name}_sums"]
        memory = f"{sums} + row * 2 * tiles, {flags} + 1 + row * 2 * tiles"
        call = f"await_tile_prefix<{self.layout.threads}>(all, {memory}, tiles, (int)tile, {self.s.identity}, {op})"
        self.emit.line(f"before = {op}({call}, before);")

    def add_memory(self, kernel: EmittedKernel) -> None:
        """Adds the memory that blocks share: flags (zeroed) and sums, of each tile and of each group of tiles."""
        s, name = self.s, self.body.name
        kernel.before.append(f"{name}_tiles = cdiv({to_python(s.width)}, {self.span})")
        shape = s.outer * ix(Var(f"{name}_tiles")) * 2
        kernel.scratch = {f"{name}_flags": ([shape + 1], "int32"), f"{name}_sums": ([shape], SUM_DTYPES[s.ctype])}
        kernel.zeroed = {f"{name}_flags"}
