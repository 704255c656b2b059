"""Further tiles of the row that a waiting team's blocks hold beside the one in registers.

What a kernel of waiting blocks moves is what its blocks hold, over the time of a block, most of which it waits. On
NVIDIA a multiprocessor has as much LDS as registers, so a block that fills both holds twice as much; there the tiles
go to LDS without passing through registers, and nobody waits for them before the tile in registers is done. A thread
reads what it asked for itself: no barrier. AMD's compute units have eight times as many registers as LDS, so there the
tiles stay in registers too. (Blocks that last, and ask for their part of the next row while they wait, were slower on
an H200: 400 us for long_rows, 331 so, 391 without.)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hipwright.engine.ir.expr import STORAGE, E
from hipwright.engine.templates.sweep import VectorAccess, offset

if TYPE_CHECKING:
    from hipwright.engine.templates.rows.kernel import RowKernel
    from hipwright.engine.templates.rows.tiles import Tiles

NAMES = {"stashed", "stash", "spot", "most", "at", "beside", "mine"}
NUMBER = "(part + team * (stash + 1))"
"""Of the tile that `stash` counts."""
AMD = "#ifdef __AMDGCN__  // registers, of which there are more"
MOST = 40960
"""Bytes of LDS: a kernel may declare 48 KiB on every device, and blocks reduce there too."""


class LdsRowCache:
    """The LDS of a kernel. tiles: the knob, tiles of a block; now: is a tile being written that it holds?"""

    def __init__(self, kernel: RowKernel, tiles: str) -> None:
        self.kernel, self.tiles, self.now = kernel, tiles, False
        self.arrays = {name: e for _, (e, _, name) in sorted(kernel.kept.items())}

    def fits(self) -> bool:
        """Is all that stays as memory has it, and read in packs?"""
        k = self.kernel
        loads = all(e.op == "load" and level == 0 for e, level, _ in k.kept.values())
        return bool(self.arrays) and loads and all(self._place(e) is not None for e in self.arrays.values())

    def _place(self, e: E) -> VectorAccess | None:
        place = self.kernel.row_sweep.place(e.attr[1], columns=False)
        return place if place and not place.back else None

    def declare(self) -> None:
        """Room for the tiles that fit. `mine`, `beside`: a thread's first pack, and how far its packs are apart."""
        k, emit = self.kernel, self.kernel.emit
        k.body.knobs.add(self.tiles)
        own = f"{k.layout.items} * {k.vec}"
        size = f"{k.layout.threads} * {own}"
        element = " + ".join(f"sizeof({STORAGE[e.attr[2]]})" for e in self.arrays.values())
        emit.line(f"constexpr int most = {MOST} / ({size} * ({element}));")
        emit.line(f"constexpr int stashed = {self.tiles} < most ? {self.tiles} : most;  // tiles beyond the registers")
        emit.directive(AMD)
        self._arrays("", own)
        emit.line("constexpr int mine = 0, beside = 1;")
        emit.directive("#else")
        self._arrays("__shared__ __align__(16) ", size)
        emit.line(f"const int mine = threadIdx.x, beside = {k.layout.threads};")
        emit.directive("#endif")

    def _arrays(self, where: str, size: str) -> None:
        for name, e in self.arrays.items():
            self.kernel.emit.line(f"{where}{STORAGE[e.attr[2]]} {name}_stash[stashed ? stashed * {size} : 1];")

    def _loop(self, head: str) -> None:
        """What is in registers has no index that changes."""
        emit = self.kernel.emit
        emit.directive(AMD)
        emit.line("#pragma unroll")
        emit.directive("#endif")
        emit.open(head)

    def ask(self, tiles: Tiles) -> None:
        """Everything is asked for, and nothing waited for."""
        k, emit = self.kernel, self.kernel.emit
        self._loop("for (int stash = 0; stash < stashed; ++stash)")
        tiles.begin(NUMBER)
        vec, share = k.vec, tiles.share("start", emit.line_if_used)
        for name, e in self.arrays.items():
            place = self._place(e)
            assert place is not None
            held = f"{name}_stash + (stash * {k.layout.items} * beside + mine) * {vec}"
            row = offset(k.body.pointers[e.attr[0]], place.start)
            runs = [k.body.as_index(place.outer), k.body.as_index(place.run)] if place.run else []
            arguments = ", ".join([held, row, share.base, share.step, share.bound, f"beside * {vec}", *runs])
            function = place.function("cp_async", columns=False)
            emit.used.add((function, ""))
            emit.line(f"{function}<{k.layout.items}, {vec}>({arguments});")
        emit.close()

    def take(self, tiles: Tiles) -> None:
        """The tiles in LDS go the way of those in registers, a few packs at a time."""
        k, emit = self.kernel, self.kernel.emit
        if tiles.level == 0:
            emit.line("cp_async_wait_all();")
        self._loop("for (int stash = 0; stash < stashed; ++stash)")
        tiles.begin(NUMBER)
        self._loop(f"for (int spot = 0; spot < {k.layout.items}; spot += few)")
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
        pack, lane = ("k", "") if vec == "1" else (f"k / {vec}", f" * {vec} + k % {vec}")
        place = f"((stash * {k.layout.items} + spot + {pack}) * beside + mine){lane}"
        return f"({e.ctype}){name}_stash[{place}]" if STORAGE[e.attr[2]] != e.ctype else f"{name}_stash[{place}]"
