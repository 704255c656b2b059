"""Default layouts of kernels that reduce rows: a block, some lanes, or cooperative blocks for each row."""

from __future__ import annotations

from dataclasses import dataclass

from hipwright.engine.fuse.column_reductions import EACH
from hipwright.engine.fuse.groups import FULL, PART
from hipwright.engine.ir.expr import walk
from hipwright.engine.ir.index import ix, product
from hipwright.engine.ir.shapes import flatten
from hipwright.engine.layout.columns import columns, held_threads
from hipwright.engine.layout.planner import (
    COOP_KEPT,
    COOP_THREADS,
    DEVICE_ELEMENTS,
    DEVICE_THREADS,
    FEW_BLOCKS,
    FEW_COLUMNS,
    SHORT_ROW,
    even_block_counts,
    power,
)
from hipwright.engine.layout.reductions import MANY_ROWS
from hipwright.engine.layout.shared_rows import SHORT_RUN, SharedRowPlanner
from hipwright.engine.templates.base import depends
from hipwright.engine.templates.rows.cooperative import small_share
from hipwright.engine.templates.rows.layout import KEPT_VALUES, RowLayout
from hipwright.engine.templates.rows.long_sums import LONG_CHAIN
from hipwright.engine.templates.rows.reducers import MOMENTS, levels, pairs

MAPPINGS = ("block", "lanes", "columns")
UNALIGNED_ROW = 4096
"""Elements of an unaligned row from which unaligned vectors, two reads each, cost less than single elements."""
TWO_BLOCKS = 512 * 32  # values that a block keeps in registers when two blocks fit a multiprocessor
PEELED_KEPT = 40
"""Values of a peeled row of half types that a thread keeps in 64 registers: four rows fit a multiprocessor."""
PEELED_THREADS = 128  # of a peeled row that is not kept in registers, where such blocks fill the device
PAIRED_ROW = 4096
"""Elements of a row that is kept in registers where its exponentials are summed: they need no rescaling. logsumexp over
16384 x 4096 took an H200 63 us so, 96 with reloads."""
ODD_ROW, ODD_EACH = 64, 6
"""Elements of a short row without vectors, and those that a lane takes of it: means of GELUs over rows of 21 took an
H200 47 us by four lanes, 93 by sixteen."""
LINE_LANES, FILLED_KEPT, IDLE = 8, 40, 1.15
"""Lanes that read a line of memory, values that each may keep, and slots for each vector of a row above which fewer
lanes take the row, if they leave fewer idle: of 320 halves 32 lanes would have 64 slots for 40 vectors, eight have 40.
Layer norms of 258048 such rows took an H200 161 us by 32 lanes and 85 by eight.
"""
FEW_LONG_ROWS = 2  # which blocks of 512 threads share where they wait for one another


@dataclass(frozen=True)
class _Row:
    """What a block or some lanes take of a row: the whole of it, or one contiguous run.

    extent: its elements. most: vectors that a thread keeps. long: longer than a block keeps. packed: half types stay in
    registers two at a time. The rest as in `RowLayout`.
    """

    extent: int
    vec: int
    vectors: int
    most: int
    registers: bool
    long: bool
    segments: bool
    cooperative: bool
    peeled: bool
    unaligned: bool
    packed: bool


class RowPlanner(SharedRowPlanner):
    """Lays out one group with reductions."""

    def layout(self) -> RowLayout:
        """The layout of the kernel."""
        c, group = self.c, self.group
        self.rows, self.length = c.hint(product(group.outer)), c.hint(product(group.inner))
        self.static = product(group.inner).value
        if group.column_sums:
            return self._with_column_sums()
        after = levels(group.members, pairs(group.members))
        self.follows = any(after[f"={m.item.name}"] > 0 for m in self.body.stored if m.role in (FULL, PART))
        mapping = self._mapping()
        registers = self._registers(mapping)
        return columns(self, registers) if mapping == "columns" else self._rows(mapping, registers)

    def _with_column_sums(self) -> RowLayout:
        """A layout whose blocks take rows in turn; threads hold a whole row and the sums of their columns."""
        vec = self.vector([self.length])
        threads = min(max(power(-(-self.length // EACH)), 64), 1024)
        layout = RowLayout("block", self.knob("ROW_BLOCK", threads), launch_bounds="1024", static_bounds="1024")
        self.set_vectors(layout, "ROW_VEC", vec, -(-self.length // (threads * vec)))
        layout.registers = layout.whole = True
        layout.sum_blocks = str(next(iter(self.group.column_sums.values())).value)
        return layout

    def _mapping(self) -> str:
        group = self.group
        if len(group.dims) == len(group.space):
            return "block"
        default = "block"
        if len(group.space) - 1 not in group.dims and self.rows >= FEW_COLUMNS:
            default = "lanes" if self.short_and_narrow() else "columns"
        elif self.runs_are_short() or self.walks_across():
            default = "columns"
        elif self.length < SHORT_ROW and self.rows >= MANY_ROWS and not (self._fits_device() and self.length > 32 * 8):
            default = "lanes"
        return str(self.choose(f"map:{self.body.name}", MAPPINGS, default))

    def _fits_device(self) -> bool:
        return self.rows * self.length * self.run <= DEVICE_ELEMENTS

    def _registers(self, mapping: str) -> bool:
        """Whether the part of a row that fits stays in registers between passes."""
        passes = sum(m.role == "red" for m in self.group.members) + self.follows
        if passes < 2:
            return False
        default = "registers" if any(m.role == FULL for m in self.group.members) else "reload"
        if mapping != "columns" and 0 < self.length <= PAIRED_ROW and pairs(self.group.members):
            default = "registers"  # all loads are issued at once, and exponentials need no rescaling
        if mapping == "lanes" and self.arrays() > 1 and self.widest() == 8:
            default = "registers"  # all loads are issued at once
        if mapping == "block" and self._reads_row_twice() and 0 < self.arrays() * self.length <= TWO_BLOCKS:
            default = "registers"
        if mapping == "columns" and self.static is None and self.length > 1024 and not held_threads(self):
            default = "reload"
        return bool(self.choose(f"row_cache:{self.body.name}", ("registers", "reload"), default) == "registers")

    def _reads_row_twice(self) -> bool:
        """Whether a reduction reads the row after another reduction of it is known."""
        members = self.group.members
        after = levels(members, pairs(members))
        return any(m.role == "red" and after[m.item.name] > 0 for m in members)

    def _rows(self, mapping: str, registers: bool) -> RowLayout:
        row = self._row(mapping, registers)
        layout, threads, items = self._lanes(row) if mapping == "lanes" else self._block(row)
        if not registers:
            items = min(items, max(16 // row.vec, 2))
        self.set_vectors(layout, "ROW_VEC", row.vec, items)
        layout.registers, layout.segments = registers, row.segments
        layout.unaligned, layout.peeled, layout.chunked = row.unaligned, row.peeled, row.packed
        layout.several_rows = mapping == "block" and self.arrays() > 1 and self._reads_row_twice()
        kept = max(KEPT_VALUES, row.vec * items)
        layout.whole = self.static is not None and 0 < self.static <= threads * kept and not row.segments
        once = row.extent <= threads * row.vec * items and not row.cooperative
        layout.rest_items = "1" if once else layout.items
        if row.cooperative:
            self._cooperate(layout, registers, row.extent % (threads * row.vec * items) > 0)
        share = threads * (self.cooperative_block_count() if row.cooperative else 1)
        layout.long_sums = self.length // share >= LONG_CHAIN
        layout.prefetch = self.rows * self.length <= 4 * DEVICE_ELEMENTS
        layout.prefetch_shared = self._fits_device() and row.vec * items <= 16
        if registers and self.group.folded > 1 and not row.cooperative:
            layout.prefetch_operands = bool(self.choose(f"early_operands:{self.body.name}", (False, True), False))
        layout.one_block = self._fits_device() and self.rows * threads <= DEVICE_THREADS // 2
        return layout

    def _row(self, mapping: str, registers: bool) -> _Row:
        """What a block or some lanes take of a row, and how."""
        tiling, last = self._tiling(mapping), self.c.hint(self.group.space[self.group.dims[-1]])
        long, block = self.length > self.block_capacity(), mapping == "block"
        extent = last if tiling == "segments" else self.length
        vec = self.vector([last if tiling == "shared" else extent])
        cooperative = block and self.cooperates(self.rows, self.wanted_blocks())
        vec = 1 if self.group.run is not None else vec  # the runs of neighbouring threads are neighbours
        peeled = block and not cooperative and vec < self.widest() and extent >= SHORT_ROW
        peeled = peeled and self._all_begin_with_row()
        peeled = peeled and bool(self.choose(f"peel:{self.body.name}", (True, False), True))
        unaligned = block and vec == 1 and extent >= UNALIGNED_ROW and not registers and not peeled
        unaligned = unaligned and not self._stores_along_row() and self.group.run is None
        vec = self.widest() if unaligned or peeled else vec
        packed = block and registers and not long and extent > 1024 * KEPT_VALUES
        kept = KEPT_VALUES * (2 if packed else 1)
        if cooperative:
            kept = self.kept_values() if self.follows else max(COOP_KEPT // self.run, 2)
        return _Row(
            extent=extent,
            vec=vec,
            vectors=-(-extent // vec),
            most=max(kept // vec, 1),
            registers=registers,
            long=long,
            segments=tiling == "segments",
            cooperative=cooperative,
            peeled=peeled,
            unaligned=unaligned,
            packed=packed,
        )

    def _cooperate(self, layout: RowLayout, registers: bool, partial: bool) -> None:
        """Sets what cooperative blocks need. partial: the last tile of a row is not full."""
        more = () if self.follows else even_block_counts(self.rows)  # blocks that wait together hold their row
        layout.blocks = self.knob("COOP_BLOCKS", self.cooperative_block_count(), more=more)
        layout.apart = self.combines_apart()
        if not (self.follows and registers):
            return
        layout.rest_items = "chunks"
        other = self.inputs_along_row() - self.inputs_along_row("red")
        layout.chunked = partial or self.keeps_halves() or bool(other)
        if self.choose(f"lds_cache:{self.body.name}", (False, True), True):
            layout.cache_tiles = self.knob("LDS_TILES", 1)

    def _tiling(self, mapping: str) -> str:
        """How tiles divide a row of several contiguous runs: "segments" end with one, "shared" hold several; or ""."""
        group, trailing = self.group, self.reduces_last_dims()
        last, long = self.c.hint(group.space[group.dims[-1]]), self.length > self.block_capacity()
        if len(group.dims) == 2 and not trailing and (last < SHORT_RUN or (long and self.wastes_tiles(last))):
            return "shared"
        segments = mapping == "block" and len(group.dims) > 1 and not group.columns and last >= 32
        segments = segments and group.dims[-1] == len(group.space) - 1
        return "segments" if segments and (not trailing or (long and last >= 1024)) else ""

    def _lanes(self, row: _Row) -> tuple[RowLayout, int, int]:
        """(layout, lanes of a row, vectors of a lane)."""
        vectors, vec = row.vectors, row.vec
        odd = vec == 1 and vectors <= ODD_ROW and not self._fits_device()
        each = 1 if self._fits_device() or self.group.folded > 1 else ODD_EACH if odd else 2
        lanes = min(max(power(vectors // each), 4), 32)
        while self._fits_device() and lanes > 8 and self.rows * lanes > DEVICE_THREADS:
            lanes //= 2
        few = odd and not row.registers and not self._sums_moments()
        items = min(-(-vectors // lanes), 2 if few else row.most)
        once = min(items, max(16 // vec, 2))
        if not row.registers and lanes > 8 and vectors % (lanes * once) and vectors % (lanes // 2 * once) == 0:
            lanes //= 2  # every tile is full
        if row.registers and vec > 1 and self.static and not self._fits_device():
            busy = _busy_lanes(vectors, lanes, FILLED_KEPT // vec)
            lanes, items = (busy, -(-vectors // busy)) if busy < lanes else (lanes, items)
        # small blocks where threads have many registers, and where they wait for indices before rows
        block = 64 if self.gathers() else 128 if vec * items >= KEPT_VALUES else 256
        block = self.few_threads(self.rows * lanes, block)
        return RowLayout("lanes", self.knob("BLOCK", block), self.knob("LANES", lanes)), lanes, items

    def _sums_moments(self) -> bool:
        """Whether means and variances are reduced: a tile costs them a merge and two quotients, whatever it holds."""
        return any(m.role == "red" and m.item.reduction in MOMENTS for m in self.group.members)

    def _block(self, row: _Row) -> tuple[RowLayout, int, int]:
        """(layout, threads of a row, vectors of a thread)."""
        extent, vec, registers = row.extent, row.vec, row.registers
        wide = registers and 512 * 16 < extent <= 512 * KEPT_VALUES  # two such blocks fit a multiprocessor
        few = 4 if self._fits_device() else 8 if self.rows <= 512 else max(16, 4 * vec if registers else 0)
        each = max((KEPT_VALUES if wide else 16 if row.cooperative else few) // vec, 1)
        at_most = COOP_THREADS if row.cooperative or row.unaligned else 512 if row.long or not registers else 1024
        share = small_share(self.rows, self.length) if row.cooperative and self.follows else -1
        at_most = 512 if share == 0 and self.rows <= FEW_LONG_ROWS else at_most
        at_most = PEELED_THREADS if row.peeled and not registers and self.rows >= FEW_BLOCKS else at_most
        threads, most = min(max(power(row.vectors // each), 64), at_most), row.most
        if row.peeled and wide and row.vectors * vec <= COOP_THREADS * PEELED_KEPT:
            threads, most = COOP_THREADS, 2 * most
        items = min(-(-row.vectors // (threads * max(2 * share, 1))), most)
        layout = RowLayout("block", self.knob("ROW_BLOCK", threads))
        full = registers and 512 * 16 < extent * self.arrays() <= TWO_BLOCKS
        layout.launch_bounds = "1024" if wide and threads == 512 and not row.cooperative else ""
        spare = threads == 512 or row.peeled
        layout.static_bounds = "1024" if full and spare and not row.cooperative else ""  # any length: 128 spill
        if self.static is None and pairs(self.group.members):  # the variant for rows of any length takes more registers
            layout.launch_bounds, layout.static_bounds = "", layout.launch_bounds or layout.static_bounds
        if row.peeled and layout.static_bounds:
            layout.launch_bounds = f"{layout.threads}, 1"  # else the variant for rows of any length spills
        if share >= 0:
            layout.launch_bounds = (
                f"({layout.threads} > 640 ? {layout.threads} : 640)"  # 96 registers a thread: 78 spill
            )
            tight = vec * items > COOP_KEPT and extent % (threads * vec * min(items, 2)) == 0
            layout.static_bounds = "1024" if tight else ""  # 64 registers are enough without a tail
            layout.launch_bounds = "1024" if tight and self.static else layout.launch_bounds
        return layout, threads, items

    def _all_begin_with_row(self) -> bool:
        """Whether every access along the row begins where the row begins."""
        group = self.group
        names = {group.variables[d].name for d in group.dims}
        if group.columns or not self.reduces_last_dims():
            return False
        flat = flatten(group.space, [ix(v) for v in group.variables]).key
        along, memo = walk([m.value for m in group.members]), dict[int, bool]()
        loads = [e.attr[1] for e in along if e.op == "load" and depends(e, names, memo)]
        stores = [m.position for m in self.body.stored if m.role == FULL]
        return bool(loads) and all(p.key == flat for p in [*loads, *stores])

    def _stores_along_row(self) -> bool:
        """Whether anything is stored along the row."""
        return any(m.role in (FULL, PART) for m in self.body.stored)


def _busy_lanes(vectors: int, lanes: int, most: int) -> int:
    """The lanes of a row that leave the fewest slots without a vector, if these are many. most: vectors of a lane."""

    def slots(count: int) -> int:
        return -(-vectors // count) * count

    fewer = [n for n in (lanes // 2, lanes // 4) if n >= LINE_LANES and slots(n) <= n * most]
    best = min(fewer, key=slots, default=lanes)
    return best if slots(lanes) > IDLE * slots(best) else lanes
