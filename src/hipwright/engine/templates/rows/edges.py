"""Rows that begin and end off the borders of packs: their *edges* go one element a thread, the rest in whole packs.

Of half types a row of 50257 elements begins at another place of a pack of 16 bytes than the one before it, and NVIDIA
reads such packs element by element. Where every access along the row begins where the row does, all meet the same
borders: what lies before the first and behind the last is less than two packs, which the first threads take beside
their own. Compilers have peeled loops over misaligned memory like this since they vectorise (Larsen & Amarasinghe,
PLDI 2000). The plan copies an input that begins between two packs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hipwright.engine.templates.rows.kernel import RowKernel
    from hipwright.engine.templates.rows.tiles import Tiles

NAMES = {"border", "head", "reach"}


class UnalignedRows:
    """The edges of a kernel's rows. now: are they being written?"""

    def __init__(self, kernel: RowKernel) -> None:
        self.kernel, self.now = kernel, False

    def declare(self) -> None:
        """Where this row's packs begin, and how many elements they hold; the row's loop has these alone from now on."""
        k, sweep = self.kernel, self.kernel.row_sweep
        emit, kind, vec, length = k.emit, k.body.index_type, k.vec, sweep.length
        (start,) = sweep.row_starts.values()
        emit.line(f"const {kind} border = ({vec} - ({start}) % {vec}) % {vec};")
        emit.line(f"const {kind} head = border < {length} ? border : {length};  // before the first border of packs")
        emit.line(f"const {kind} reach = ({length} - head) / {vec} * {vec};  // from there to the last")
        sweep.length, sweep.most, sweep.shift = "reach", length, "head"

    def least(self) -> str:
        """What `reach` is at least, as far as sizes tell it."""
        return f"({self.kernel.row_sweep.most} - 2 * {self.kernel.vec} + 2)"

    def name(self, name: str) -> str:
        """The array in which a value stays: an element of an edge has its own."""
        return f"{name}_edge" if self.now else name

    def take(self, tiles: Tiles, *, keep: bool) -> None:
        """An element of an edge goes the way of a tile of one."""
        k, emit, sweep = self.kernel, self.kernel.emit, self.kernel.row_sweep
        lane, kind = k.threads.lane, k.body.index_type
        self.now, k.place, k.held_place = True, "0", "0"
        emit.open(f"if ({lane} < {sweep.most} - reach)")
        emit.line_if_used("constexpr int count = 1;")
        emit.line_if_used(f"const {kind} {sweep.variable} = {lane} < head ? {lane} : {lane} + reach;")
        for line in sweep.splits:
            emit.line_if_used(line)
        tiles.one(keep)
        emit.close()
        self.now = False
