"""What a waiting team's blocks hold beyond their registers: further tiles of the row, in LDS.

What a kernel of waiting blocks moves is what its blocks hold, over the time of a block, most of which it waits. On
NVIDIA a multiprocessor has as much LDS as registers, so a block that fills both holds twice as much; there the tiles
go to LDS without passing through registers, and nobody waits for them before the tile in registers is done. A thread
reads what it asked for itself: no barrier.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hipwright.engine.expr import STORAGE, E
from hipwright.engine.templates.sweep import offset, prune

if TYPE_CHECKING:
    from hipwright.engine.templates.row_tiles import Tiles
    from hipwright.engine.templates.rows import RowKernel

NAMES = {"stashed", "stash", "spot", "most", "at"}
NUMBER = "(part + team * (stash + 1))"
"""Of the tile that `stash` counts."""
MOST = 40960
"""Bytes of LDS: a kernel may declare 48 KiB on every device, and blocks reduce there too."""


class Stash:
    """The LDS of a kernel. tiles: the knob, tiles of a block; now: is a tile being written that it holds?"""

    def __init__(self, kernel: RowKernel, tiles: str) -> None:
        self.kernel, self.tiles, self.now = kernel, tiles, False
        self.arrays = {name: e for _, (e, _, name) in sorted(kernel.kept.items())}

    def fits(self) -> bool:
        """Is all that stays as memory has it, and read in packs?"""
        k = self.kernel
        loads = all(e.op == "load" and level == 0 for e, level, _ in k.kept.values())
        return bool(self.arrays) and loads and all(self._start(e) is not None for e in self.arrays.values())

    def _start(self, e: E) -> str | None:
        place = self.kernel.row_sweep.place(e.attr[1], columns=False)
        return place.start if place and not place.run and not place.back else None

    def declare(self) -> None:
        """Room for the tiles that fit."""
        k, emit = self.kernel, self.kernel.emit
        k.body.knobs.add(self.tiles)
        emit.used |= {("stash_tile", ""), ("Tile", "")}
        size = f"{k.layout.threads} * {k.layout.items} * {k.vec}"
        element = " + ".join(f"sizeof({STORAGE[e.attr[2]]})" for e in self.arrays.values())
        emit.line(f"constexpr int most = {MOST} / ({size} * ({element}));")
        emit.line(f"constexpr int stashed = {self.tiles} < most ? {self.tiles} : most;  // tiles beyond the registers")
        for name, e in self.arrays.items():
            kind = STORAGE[e.attr[2]]
            emit.line(f"__shared__ __align__(16) {kind} {name}_stash[stashed ? stashed * {size} : 1];")

    def ask(self, tiles: Tiles) -> None:
        """Everything is asked for, and nothing waited for."""
        k, emit = self.kernel, self.kernel.emit
        emit.open("for (int stash = 0; stash < stashed; ++stash)")
        tiles.begin(NUMBER)
        threads, vec, index = k.layout.threads, k.vec, len(emit.lines)
        share = tiles.share("start")
        for name, e in self.arrays.items():
            start = self._start(e)
            assert start is not None
            held = f"{name}_stash + (stash * {k.layout.items} * {threads} + threadIdx.x) * {vec}"
            row = offset(k.body.pointers[e.attr[0]], start)
            arguments = ", ".join([held, row, share.base, share.step, share.bound, f"{threads} * {vec}"])
            emit.line(f"stash_tile<{k.layout.items}, {vec}>({arguments});")
        prune(emit.lines, index, 2)
        emit.close()

    def take(self, tiles: Tiles) -> None:
        """The tiles in LDS go the way of those in registers, a few packs at a time."""
        k, emit = self.kernel, self.kernel.emit
        if tiles.level == 0:
            emit.line("stash_wait();")
        emit.open("for (int stash = 0; stash < stashed; ++stash)")
        tiles.begin(NUMBER)
        emit.open(f"for (int spot = 0; spot < {k.layout.items}; spot += few)")
        emit.line(f"const {k.body.index_type} at = start + spot * ({k.layout.threads} * {k.vec});")
        emit.line(f"if (at >= {tiles.end}) break;")
        self.now = True
        tiles.few("at")
        self.now = False
        emit.close()
        emit.close()

    def text(self, e: E, name: str, vec: str) -> str:
        """A kept value of element k of the tile now written."""
        k = self.kernel
        threads, items = k.layout.threads, k.layout.items
        if vec == "1":
            place = f"(stash * {items} + spot + k) * {threads} + threadIdx.x"
        else:
            place = f"((stash * {items} + spot + k / {vec}) * {threads} + threadIdx.x) * {vec} + k % {vec}"
        return f"({e.ctype}){name}_stash[{place}]" if STORAGE[e.attr[2]] != e.ctype else f"{name}_stash[{place}]"
