"""How a kernel with reductions is laid out by default: a row to a block, to some lanes or to a team of blocks."""

from __future__ import annotations

from dataclasses import dataclass

from hipwright.engine.fuse.column_reductions import EACH
from hipwright.engine.fuse.groups import FULL, PART
from hipwright.engine.ir.expr import indices, walk
from hipwright.engine.ir.index import ix, product
from hipwright.engine.ir.shapes import flatten
from hipwright.engine.layout.columns import columns
from hipwright.engine.layout.pointwise import (
    AT_ONCE,
    FEW_BLOCKS,
    FEW_COLUMNS,
    MOST_TEAM,
    RESIDENT,
    SHORT_ROW,
    TEAM_KEPT,
    TEAM_THREADS,
    fills,
    power,
)
from hipwright.engine.layout.reductions import ReductionPlanner
from hipwright.engine.templates.base import depends
from hipwright.engine.templates.rows.layout import KEPT_VALUES, RowLayout
from hipwright.engine.templates.rows.reducers import levels, pairs

MAPPINGS = ("block", "lanes", "columns")
MANY_ROWS = 64
SHORT_RUN = 1024  # elements of a dense run below which one tile takes several
BUSY = 1024  # blocks that keep any of today's devices busy
PART_OF_ROW = 8192  # elements below which a block more costs more than it brings
TEAM_HELD = 32
"""Elements that a thread of a waiting team keeps: a team holds its whole row, four of its blocks fill the registers of
a multiprocessor and hide each other's waits. With half as many, and the rest read again, rows crossed L2 twice."""
WASTE = 0.15  # of a tile, beyond a run's end, from which one tile takes several runs
ODD_ROW = 4096
"""Elements of an odd length from which packs off their borders, two reads each, cost less than single elements."""
TWO_BLOCKS = 512 * 32  # values in registers of a block of which two fit a multiprocessor
EDGES_KEPT = 40
"""Values of a row of half types, beside its edges, that a thread keeps in 64 registers: four rows a multiprocessor."""
EDGES_THREADS = 128
"""Threads of a row with edges that does not stay: 218 us for rows of 50257 on an H200, with 256 threads 237."""
HUGE_ROW = 1 << 21  # elements from which a team takes twice that, so that few rows at a time share the cache


@dataclass(frozen=True)
class _Row:
    """What lies in one piece and goes to a block or to lanes. most: packs that a thread keeps."""

    extent: int
    vec: int
    packs: int
    most: int
    registers: bool
    long: bool
    team: bool
    edges: bool
    odd: bool


class RowPlanner(ReductionPlanner):
    """For a group with reductions."""

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
        """A block takes row after row; its threads hold a whole row and the sums of their columns."""
        vec = self.vector([self.length])
        threads = min(max(power(-(-self.length // EACH)), 64), 1024)
        layout = RowLayout("block", self.knob("ROW_BLOCK", threads), launch_bounds="1024", static_bounds="1024")
        self.pack(layout, "ROW_VEC", vec, -(-self.length // (threads * vec)))
        layout.registers = layout.whole = True
        layout.sum_blocks = str(next(iter(self.group.column_sums.values())).value)
        return layout

    def _mapping(self) -> str:
        group = self.group
        if len(group.dims) == len(group.space):
            return "block"
        default = "block"
        if len(group.space) - 1 not in group.dims and self.rows >= FEW_COLUMNS:
            default = "columns"
        elif self.length < SHORT_ROW and self.rows >= MANY_ROWS and not (self._at_once() and self.length > 32 * 8):
            default = "lanes"
        return str(self.choose(f"map:{self.body.name}", MAPPINGS, default))

    def _at_once(self) -> bool:
        return self.rows * self.length <= AT_ONCE

    def _registers(self, mapping: str) -> bool:
        """Keep what fits of a row in registers between passes?"""
        passes = sum(m.role == "red" for m in self.group.members) + self.follows
        if passes < 2:
            return False
        default = "registers" if any(m.role == FULL for m in self.group.members) else "reload"
        if mapping != "columns" and 0 < self.length <= SHORT_ROW and pairs(self.group.members):
            default = "registers"  # all is asked for at once, and exponentials need no rescaling
        if mapping == "lanes" and self.arrays() > 1 and self.widest() == 8:
            default = "registers"  # all is asked for at once: 8 % of three halves' rows of 768
        if mapping == "block" and self._twice() and 0 < self.arrays() * self.length <= TWO_BLOCKS:
            default = "registers"
        if mapping == "columns" and self.static is None and self.length > 1024:
            default = "reload"
        return bool(self.choose(f"cache:{self.body.name}", ("registers", "reload"), default) == "registers")

    def _twice(self) -> bool:
        """Is the row needed again once its first reductions are known?"""
        members = self.group.members
        after = levels(members, pairs(members))
        return any(m.role == "red" and after[m.item.name] > 0 for m in members)

    def _rows(self, mapping: str, registers: bool) -> RowLayout:
        cut, last = self._cut(mapping), self.c.hint(self.group.space[self.group.dims[-1]])
        segments, long = cut == "segments", self.length > self._block_holds()
        extent = last if segments else self.length
        vec = self.vector([last if cut == "shared" else extent])
        team = mapping == "block" and self._team(self.rows, self._team_blocks())
        edges = mapping == "block" and not team and vec < self.widest() and extent >= SHORT_ROW and self._alike()
        edges = edges and bool(self.choose(f"edges:{self.body.name}", (True, False), True))
        odd = mapping == "block" and vec == 1 and extent >= ODD_ROW and not registers and not self._follows_rows()
        odd = odd and not edges
        vec = self.widest() if odd or edges else vec
        packed = mapping == "block" and registers and not long and extent > 1024 * KEPT_VALUES
        held = (self._held() if self.follows else TEAM_KEPT) if team else KEPT_VALUES * (2 if packed else 1)
        row = _Row(extent, vec, -(-extent // vec), max(held // vec, 1), registers, long, bool(team), edges, odd)
        layout, threads, items = self._lanes(row) if mapping == "lanes" else self._block(row)
        if not registers:
            items = min(items, max(16 // vec, 2))
        self.pack(layout, "ROW_VEC", vec, items)
        layout.registers, layout.segments, layout.unaligned, layout.peeled = registers, segments, odd, edges
        layout.several_rows = mapping == "block" and self.arrays() > 1 and self._twice()
        layout.whole = self.static is not None and 0 < self.static <= threads * KEPT_VALUES and not segments
        layout.rest_items = "1" if extent <= threads * vec * items and not team else layout.items
        layout.chunked = packed
        if team and self.follows and registers:
            layout.rest_items = "chunks"
            short = extent % (threads * vec * items) > 0
            layout.chunked = short or self._packed() or bool(self._along() - self._along("red"))
        if team:
            more = () if self.follows else fills(self.rows)  # a team that waits has the size that holds its row
            layout.blocks = self.knob("TEAM", self._team_size(), more=more)
            if self.follows and registers and self.choose(f"stash:{self.body.name}", (False, True), True):
                layout.cache_tiles = self.knob("STASH", 1)
        layout.prefetch = self.rows * self.length <= 4 * AT_ONCE
        layout.prefetch_shared = self._at_once() and vec * items <= 16
        layout.one_block = self._at_once() and self.rows * threads <= RESIDENT // 2
        return layout

    def _cut(self, mapping: str) -> str:
        """How tiles lie in a row of several dense runs: "segments" end with them, "shared" ones hold several, or ""."""
        group, trailing = self.group, self._trailing()
        last, long = self.c.hint(group.space[group.dims[-1]]), self.length > self._block_holds()
        if len(group.dims) == 2 and not trailing and (last < SHORT_RUN or (long and self._wasteful(last))):
            return "shared"
        segments = mapping == "block" and len(group.dims) > 1 and not group.columns and last >= 32
        segments = segments and group.dims[-1] == len(group.space) - 1
        return "segments" if segments and (not trailing or (long and last >= 1024)) else ""

    def _lanes(self, row: _Row) -> tuple[RowLayout, int, int]:
        """(layout, lanes of a row, packs of a lane)."""
        packs, vec = row.packs, row.vec
        lanes = min(max(power(packs if self._at_once() else packs // 2), 4), 32)
        while self._at_once() and lanes > 8 and self.rows * lanes > RESIDENT:
            lanes //= 2
        items = min(-(-packs // lanes), row.most)
        once = min(items, max(16 // vec, 2))
        if not row.registers and lanes > 8 and packs % (lanes * once) and packs % (lanes // 2 * once) == 0:
            lanes //= 2  # no tile is cut short
        block = 128 if vec * items >= KEPT_VALUES else 256  # of many registers a block less than 256 still fits
        block = self.few_threads(self.rows * lanes, block)
        return RowLayout("lanes", self.knob("BLOCK", block), self.knob("LANES", lanes)), lanes, items

    def _block(self, row: _Row) -> tuple[RowLayout, int, int]:
        """(layout, threads of a row, packs of a thread)."""
        extent, vec, registers = row.extent, row.vec, row.registers
        wide = registers and 512 * 16 < extent <= 512 * KEPT_VALUES  # two such blocks fit a multiprocessor
        few = 4 if self._at_once() else 8 if self.rows <= 512 else max(16, 4 * vec if registers else 0)
        each = max((KEPT_VALUES if wide else 16 if row.team else few) // vec, 1)
        at_most = TEAM_THREADS if row.team or row.odd else 512 if row.long or not registers else 1024
        at_most = EDGES_THREADS if row.edges and not registers else at_most
        threads, most = min(max(power(row.packs // each), 64), at_most), row.most
        if row.edges and wide and row.packs * vec <= TEAM_THREADS * EDGES_KEPT:
            threads, most = TEAM_THREADS, 2 * most
        items = min(-(-row.packs // threads), most)
        layout = RowLayout("block", self.knob("ROW_BLOCK", threads))
        full = registers and 512 * 16 < extent * self.arrays() <= TWO_BLOCKS
        layout.launch_bounds = "1024" if wide and threads == 512 and not row.team else ""
        spare = threads == 512 or row.edges
        layout.static_bounds = "1024" if full and spare and not row.team else ""  # with tails 128 spilled
        if self.static is None and pairs(self.group.members):  # the branch for rows of any length takes more registers
            layout.launch_bounds, layout.static_bounds = "", layout.launch_bounds or layout.static_bounds
        if row.edges and layout.static_bounds:
            layout.launch_bounds = f"{layout.threads}, 1"  # or rows of any length spill some
        if row.team and self.follows:
            layout.launch_bounds = f"({layout.threads} > 640 ? {layout.threads} : 640)"  # 96 registers: 78 spilled
            tight = vec * items > TEAM_KEPT and extent % (threads * vec * min(items, 2)) == 0
            layout.static_bounds = "1024" if tight else ""  # without tails 64 do
            layout.launch_bounds = "1024" if tight and self.static else layout.launch_bounds
        return layout, threads, items

    def _alike(self) -> bool:
        """Does every access along the row begin where the row does?"""
        group = self.group
        names = {group.variables[d].name for d in group.dims}
        if group.columns or not self._trailing():
            return False
        flat = flatten(group.space, [ix(v) for v in group.variables]).key
        along, memo = walk([m.value for m in group.members]), dict[int, bool]()
        loads = [e.attr[1] for e in along if e.op == "load" and depends(e, names, memo)]
        stores = [m.position for m in self.body.stored if m.role == FULL]
        return bool(loads) and all(p.key == flat for p in [*loads, *stores])

    def _follows_rows(self) -> bool:
        """Is anything stored along the row?"""
        return any(m.role in (FULL, PART) for m in self.body.stored)

    def _wasteful(self, last: int) -> bool:
        """Would tiles that end with their runs be short, and is all read along both dimensions or along none?"""
        tile = TEAM_THREADS * TEAM_KEPT
        if -(-last // tile) * tile <= (1 + WASTE) * last:
            return False
        outer, inner = (self.group.variables[d] for d in self.group.dims)
        used = [p.atoms() for e in walk([m.value for m in self.group.members]) for p in indices(e)]
        return not any(outer in atoms and inner not in atoms for atoms in used)

    def _team_blocks(self) -> int:
        """How many blocks should share a row."""
        if self.follows:
            whole = -(-self.length // (TEAM_THREADS * self._held()))
            return whole if self.length > self._block_holds() else min(2 * whole, FEW_BLOCKS // max(self.rows, 1))
        return min(BUSY // max(self.rows, 1), self.length // PART_OF_ROW)

    def _held(self) -> int:
        """Values a thread of a waiting team keeps of what the reductions read; fewer where tiles would be cut short."""
        if self._packed():
            return 2 * TEAM_HELD
        held = max(TEAM_HELD // max(len(self._along("red")), 1), TEAM_KEPT)
        last = self.c.hint(self.group.space[self.group.dims[-1]])
        whole = self.length if self._trailing() or last < SHORT_RUN or self._wasteful(last) else last
        tile = TEAM_THREADS * held
        return held // 2 if held > TEAM_KEPT and -(-whole // tile) * tile > (1 + WASTE) * whole else held

    def _trailing(self) -> bool:
        """Are the reduced dimensions the last ones?"""
        group = self.group
        return list(group.dims) == list(range(len(group.space) - len(group.dims), len(group.space)))

    def _along(self, *roles: str) -> set[str]:
        """Inputs along the row that members of these roles read, or any."""
        values = [m.value for m in self.group.members if not roles or m.role in roles]
        loads = {e.attr[0] for e in walk(values) if e.op == "load"}
        return {b for b in loads if self.numel(b) >= self.length}

    def _packed(self) -> bool:
        """Do rows stay in registers as half types, two a register? Where the one input is reduced as it is."""
        reds = [m.value for m in self.group.members if m.role == "red"]
        halves = all(e.op == "load" and e.attr[2] in ("float16", "bfloat16") for e in reds)
        return halves and self.follows and self._trailing() and len(self._along("red")) == 1

    def _block_holds(self) -> int:
        """Elements of a row that the largest block keeps."""
        return 1024 * KEPT_VALUES * (2 if self._packed() else 1)

    def _team_size(self) -> int:
        """Where blocks wait for one another, all of a team must be on the device at once."""
        most = BUSY if not self.follows else (2 * MOST_TEAM if self.length >= HUGE_ROW else MOST_TEAM)
        blocks = self._team_blocks()
        return max(min(power(blocks), most), 2)

    def _team(self, blocks: int, share: int) -> bool:
        """Does a team of blocks share a row by default? Long rows, or too few of them."""
        if self.length < PART_OF_ROW // 2 or self.overwrites():
            return False
        total = self.rows * self.length  # below some size the team's own launch (zeroed counters) costs what it saves
        if self.follows:
            default = share >= 2 and (self.length > self._block_holds() or (share >= 4 and total >= 1 << 20))
        else:
            default = share >= 2 and blocks < FEW_BLOCKS and total >= 1 << 16
        return bool(self.choose(f"team:{self.body.name}", (False, True), default))
