"""The row cache: tiles of a row that a block keeps in LDS beside the one in registers, while it waits for other blocks.

What a kernel of waiting blocks moves is what its blocks hold, over the lifetime of a block, most of which it waits. On
NVIDIA a multiprocessor has as much LDS as registers, so a block that fills both holds twice as much; there the tiles
are copied to LDS asynchronously, and nothing waits for them before the tile in registers is done. A thread reads only
what it copied itself: no barrier. AMD's compute units have eight times as many registers as LDS, so there these tiles
stay in registers too. (Persistent blocks that load their part of the next row while they wait were slower on an H200:
400 us for long_rows, 331 so, 391 without.)
"""

from __future__ import annotations

from hipwright.engine.ir.expr import STORAGE, E
from hipwright.engine.templates.rows.scope import RowScope
from hipwright.engine.templates.sweep import ThreadTile, VectorAccess, offset

NAMES = {"cached_tiles", "cached", "vec0", "max_cached", "chunk_start", "pitch", "rank"}
TILE_NUMBER = "(block_rank + blocks * (cached + 1))"
"""The number in the row of the tile that `cached` counts."""
LDS_BYTES = 40960
"""Bytes of LDS: a kernel may declare 48 KiB on every device, and block reductions need some."""


class RowCache:
    """The row cache of a kernel. tiles: the knob; writing: whether a tile that it holds is being processed."""

    def __init__(self, scope: RowScope, tiles: str) -> None:
        self.scope, self.tiles, self.writing = scope, tiles, False
        self.arrays = {name: e for _, (e, _, name) in sorted(scope.kept.items())}

    def applies(self) -> bool:
        """Whether all kept values are loads of the first pass in vectors, so that the cache can hold them unchanged."""
        kept = self.scope.kept
        loads = all(e.op == "load" and level == 0 for e, level, _ in kept.values())
        return bool(self.arrays) and loads and all(self._access(e) is not None for e in self.arrays.values())

    def _access(self, e: E) -> VectorAccess | None:
        access = self.scope.row_sweep.access(e.attr[1], columns=False)
        return access if access and not access.reversed else None

    def declare(self) -> None:
        """Declares arrays for the tiles that fit. `rank`, `pitch`: a thread's first vector and the way to its next."""
        k, emit = self.scope, self.scope.emit
        k.body.knobs.add(self.tiles)
        own = f"{k.layout.items} * {k.vec}"
        size = f"{k.layout.threads} * {own}"
        emit.used.add("ROW_CACHE")
        element = " + ".join(f"sizeof({STORAGE[e.attr[2]]})" for e in self.arrays.values())
        emit.line(f"constexpr int max_cached = {LDS_BYTES} / ({size} * ({element}));")
        emit.line(
            f"constexpr int cached_tiles = {self.tiles} < max_cached ? {self.tiles} : max_cached;"
            "  // tiles in the row cache"
        )
        for name, e in self.arrays.items():
            declared = f"{STORAGE[e.attr[2]]}, {name}_cache, cached_tiles * {own}, {k.layout.threads}"
            emit.line(f"ROW_CACHE({declared});")
        emit.line(f"const int rank = row_cache_rank(), pitch = row_cache_pitch<{k.layout.threads}>();")

    def open_loop(self, head: str) -> None:
        """Opens a loop, unrolled where the cache is an array of registers."""
        emit = self.scope.emit
        emit.line("UNROLL_ROW_CACHE")
        emit.open(head)

    def copy(self, tile: ThreadTile) -> None:
        """Starts copying one tile of every kept value."""
        k, emit, vec = self.scope, self.scope.emit, self.scope.vec
        for name, e in self.arrays.items():
            access = self._access(e)
            assert access is not None
            cache = f"{name}_cache + (cached * {k.layout.items} * pitch + rank) * {vec}"
            row = offset(k.body.pointers[e.attr[0]], access.start)
            runs = [k.body.as_index(access.outer), k.body.as_index(access.run)] if access.run else []
            arguments = ", ".join([cache, row, tile.base, tile.step, tile.bound, f"pitch * {vec}", *runs])
            function = access.function("cp_async", columns=False)
            emit.used.add(function)
            emit.line(f"{function}<{k.layout.items}, {vec}>({arguments});")

    def element(self, e: E, name: str, vec: str) -> str:
        """A kept value of element k of the tile being processed, as text."""
        k = self.scope
        vector, lane = ("k", "") if vec == "1" else (f"k / {vec}", f" * {vec} + k % {vec}")
        place = f"((cached * {k.layout.items} + vec0 + {vector}) * pitch + rank){lane}"
        return f"({e.ctype}){name}_cache[{place}]" if STORAGE[e.attr[2]] != e.ctype else f"{name}_cache[{place}]"
