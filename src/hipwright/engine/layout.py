"""How a kernel is laid out by default: a rule over captured sizes. Every choice is in the space, for search to vary.

The rules aim at memory bandwidth: 16 bytes an access, 16 to 32 elements of a thread in flight, rows that are read once
and kept in registers where they fit, several hundred blocks (an H200 has 132 multiprocessors, an MI300X 304).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from hipwright.engine.crossed import EACH
from hipwright.engine.expr import indices, walk
from hipwright.engine.groups import FULL, PART, ROW, Group
from hipwright.engine.index import Ind, Var, ix, product
from hipwright.engine.lower.core import Context
from hipwright.engine.templates.base import Body
from hipwright.engine.templates.elementwise import broadcasts
from hipwright.engine.templates.inner import interleaves
from hipwright.engine.templates.reducers import levels, pairs
from hipwright.engine.templates.rows import KEPT_VALUES, Layout
from hipwright.engine.templates.scan import ScanLayout
from hipwright.engine.templates.sliding import slides
from hipwright.engine.templates.sweep import linear
from hipwright.engine.templates.transpose import turned

MAPPINGS = ("block", "lanes", "columns")
SIZES = {"float64": 8, "int64": 8, "float32": 4, "int32": 4, "float16": 2, "bfloat16": 2, "int16": 2, "int8": 1,
         "uint8": 1, "bool": 1}  # fmt: skip
SHORT_ROW, MANY_ROWS, FEW_COLUMNS = 1024, 64, 16
SMALL, BIG = 1 << 17, 1 << 22
SHORT_RUN = 1024  # elements of a dense run below which one tile takes several
AT_ONCE = 1 << 20
"""Elements up to which the device holds all rows at once, four elements a thread: what counts is how long one thread
takes, not how many instructions all of them do."""
RESIDENT = 1 << 18
"""Threads that the device runs at once (2048 on each multiprocessor of an H200): more are a second round."""
BUSY = 1024  # blocks that keep any of today's devices busy
BUSY_COLUMNS = 528
"""The same for blocks down columns, which have 40 registers a thread or more: four of 256 threads on each
multiprocessor of an H200. Twice as many were a round and a half."""
FULL_COLUMNS = RESIDENT
"""Packs of columns with which a thread for each fills the device: nobody need share a column, and what lanes add up,
test and exchange for a share of one column would be most of the work."""
SHORT_COLUMN = 1280
"""Rows that the 64 threads down a column of a block of 512 sum in a few steps each."""
SHORT_BAG, PICKED_ROWS = 64, 8
"""Rows up to which few lanes sum a bag, each asking for so many at once: what lanes share costs more than the loads."""
FEW_BLOCKS = 264  # two a multiprocessor of an H200
PART_OF_ROW = 8192  # elements below which a block more costs more than it brings
TEAM_THREADS, TEAM_KEPT = 256, 16  # of a team's block: few registers, so that several blocks are on a multiprocessor
TEAM_HELD = 32
"""Elements that a thread of a waiting team keeps: a team holds its whole row, four of its blocks fill the registers of
a multiprocessor and hide each other's waits. With half as many, and the rest read again, rows crossed L2 twice."""
WASTE = 0.15  # of a tile, beyond a run's end, from which one tile takes several runs
ODD_ROW = 4096
"""Elements of an odd length from which packs off their borders, two reads each, cost less than single elements."""
TWO_BLOCKS = 512 * 32  # values in registers of a block of which two fit a multiprocessor
MOST_VALUES = 64
"""Values a thread asks for at once at most: kernels of 256 spilled, and took ptxas 10 seconds each."""
MOST_TEAM = 128  # blocks of 256 threads that every device of interest runs at once, with room to spare
HUGE_ROW = 1 << 21  # elements from which a team takes twice that, so that few rows at a time share the cache


@dataclass(eq=False)
class Planner:
    """Decides for one group. choose(key, options, default) and knob(name, default, most) are the writer's."""

    c: Context
    group: Group
    body: Body
    choose: Callable[[str, Sequence[Any], Any], Any]
    knob: Callable[..., str]
    by_parts: bool = False  # members of a pointwise group are parts of rows that are stored joined

    def layout(self) -> Layout:
        """The layout of the kernel."""
        c, group = self.c, self.group
        self.rows, self.length = c.hint(product(group.outer)), c.hint(product(group.inner))
        self.static = product(group.inner).value
        if group.crossed:
            return self._crossed()
        after = levels(group.members, pairs(group.members))
        self.follows = any(after[f"={m.item.name}"] > 0 for m in self.body.stored if m.role in (FULL, PART))
        mapping = self._mapping()
        registers = self._registers(mapping)
        return self._columns(registers) if mapping == "columns" else self._rows(mapping, registers)

    def _crossed(self) -> Layout:
        """A block a row, row after row: its threads hold it whole, and the sums of their columns."""
        vec = self._vector([self.length])
        threads = min(max(_power(-(-self.length // EACH)), 64), 1024)
        layout = Layout("block", self.knob("ROW_BLOCK", threads), bounds="1024", exact_bounds="1024")
        self._pack(layout, "ROW_VEC", vec, -(-self.length // (threads * vec)))
        layout.registers = layout.whole = True
        layout.crossed = str(next(iter(self.group.crossed.values())).value)
        return layout

    def _name(self) -> str:
        return self.body.name

    def _mapping(self) -> str:
        group = self.group
        if len(group.dims) == len(group.space):
            return "block"
        default = "block"
        if len(group.space) - 1 not in group.dims and self.rows >= FEW_COLUMNS:
            default = "columns"
        elif self.length <= SHORT_ROW and self.rows >= MANY_ROWS and not (self._at_once() and self.length > 32 * 8):
            default = "lanes"
        return str(self.choose(f"map:{self._name()}", MAPPINGS, default))

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
        if mapping == "block" and self._twice() and 0 < self._arrays() * self.length <= TWO_BLOCKS:
            default = "registers"
        if mapping == "columns" and self.static is None and self.length > 1024:
            default = "reload"
        return bool(self.choose(f"cache:{self._name()}", ("registers", "reload"), default) == "registers")

    def _twice(self) -> bool:
        """Is the row needed again once its first reductions are known?"""
        members = self.group.members
        after = levels(members, pairs(members))
        return any(m.role == "red" and after[m.item.name] > 0 for m in members)

    def _arrays(self) -> int:
        """Inputs of all rows' whole lengths: what a thread keeps of each stays in registers of its own."""
        return max(sum(self._numel(b) >= self.length * self.rows for b in self.body.loads), 1)

    # ------------------------------------------------------------ pointwise

    def pointwise(self) -> tuple[str, Layout | None, tuple[str, str, str]]:
        """(mapping, layout of `rows`, names of VEC, PACKS and BLOCK) for a group without reductions."""
        c, group = self.c, self.group
        total = c.hint(product(group.space))
        last = c.hint(group.space[-1]) if group.space else 1
        wide = broadcasts(self.body) and last >= FEW_COLUMNS
        turn = self._turned()
        short, rows = interleaves(group), slides(group) if last >= FEW_COLUMNS and not turn else 0
        options = ("scalar", "vector", *(("rows",) if wide else ()), *(("transpose",) if turn else ()),
                   *(("inner",) if short else ()), *(("sliding",) if rows else ()))  # fmt: skip
        alone = total < SMALL or any(e.op == "loop" for e in walk([m.value for m in self.group.members]))
        if self.by_parts:
            return "rows", self._pointwise_rows(last, total), ("", "", "")
        best = options[-1 - bool(rows)] if turn or wide or short else "vector"
        default = "scalar" if alone else "sliding" if rows and total >= BIG else best
        mapping = str(self.choose(f"map:{self._name()}", options, default))
        if mapping == "rows":
            return mapping, self._pointwise_rows(last, total), ("", "", "")
        if mapping == "transpose":
            side = 64 if max(turn) <= 2 or (total >= BIG and sum(turn) <= 8) else 32  # 33 KiB
            return mapping, None, ("", self.knob("TURN_TILE", side), self.knob("BLOCK", 256))
        if mapping == "scalar":
            return mapping, None, ("", "", self.knob("BLOCK", 256))
        if mapping == "sliding":
            return mapping, None, ("", str(rows), self.knob("ROW_BLOCK", min(max(_power(last // 4), 64), 256)))
        if mapping == "inner":
            each = 16 // int(group.space[-1].value or 1)
            return mapping, None, ("", self.knob("PACKS", 1 if total < BIG else max(each, 1)), self.knob("BLOCK", 256))
        self.length = 1
        inputs = len(self.body.loads)
        vec = self._widest()
        items = 1 if total < BIG else min(4 if inputs == 1 else 2, max(16 // vec, 1))
        return mapping, None, (self.knob("VEC", vec), self.knob("PACKS", items), self.knob("BLOCK", 256))

    def _turned(self) -> list[int]:
        """Bytes an element of the operands that run along another dimension than the result, both of some length."""
        found = turned(self.group, {m.item.name for m in self.body.stored})
        if found is None or any(m.role != FULL for m in self.group.members):
            return []
        sides = [self.c.hint(self.group.space[found[0]]), self.c.hint(self.group.space[-1])]
        return [SIZES[e.attr[2]] for e in found[1]] if min(sides) >= FEW_COLUMNS else []

    def _pointwise_rows(self, last: int, total: int) -> Layout:
        """Rows of the innermost dimension: lanes for short ones, tiles of blocks for long ones."""
        self.length = last
        vec = self._vector([last])
        packs = -(-last // vec)
        most = 1 if total < BIG else max(16 // vec, 1)
        each = packs > 32 and total // last * 64 <= RESIDENT  # a thread for each pack at once: a row has a block
        if packs <= 64 and not each:
            guarded = any(e.op == "guard" for e in walk([m.value for m in self.group.members]))
            two = total >= BIG and packs >= 16 and not guarded  # packs a lane, for more bytes under way
            lanes = min(max(_power(packs // 2 if two else packs), 4), 32)
            threads = self._few_threads(total // last * lanes, 256)
            layout = Layout("lanes", self.knob("BLOCK", threads), self.knob("LANES", lanes))
            items = min(-(-packs // lanes), max(16 // vec, 1))
        else:
            threads = min(max(_power(packs // most), 64), 256)
            threads = self._few_threads(total // last * packs, threads)
            if total < BIG and total // last * -(-packs // threads) > 4 * FEW_BLOCKS:
                most = 4  # the device holds all blocks at once
            items = min(-(-packs // threads), most)
            layout = Layout("block", self.knob("ROW_BLOCK", threads))
        self._pack(layout, "ROW_VEC", vec, items)
        return layout

    @staticmethod
    def _few_threads(total: int, threads: int) -> int:
        """Threads of a block: fewer where a multiprocessor would not have two blocks of so many."""
        while threads > 64 and total < FEW_BLOCKS * threads:
            threads //= 2
        return threads

    def _pack(self, layout: Layout, name: str, vec: int, items: int) -> None:
        """Neighbours a thread takes, and how many times that at once: as many values as registers may hold."""
        layout.vec = self.knob(name, vec, self._widest())
        layout.items = self.knob("ROW_ITEMS", _option(items), MOST_VALUES // self._widest())

    # ------------------------------------------------------------ scans

    def scan(self) -> ScanLayout:
        """Columns unless the scanned dimension is the last; blocks share rows that are few and long."""
        c, group = self.c, self.group
        self.rows, self.length = c.hint(product(group.outer)), c.hint(product(group.inner))
        (d,) = group.dims
        if d != len(group.space) - 1:
            across = c.hint(group.space[-1])
            offered = self.length >= 64 and across >= FEW_COLUMNS
            default = "tiles" if self.rows < 1 << 17 and self.length >= SHORT_ROW // 4 else "columns"
            if offered and self.choose(f"map:{self._name()}", ("columns", "tiles"), default) == "tiles":
                return self._column_tiles(across)
            vec = self._vector([across]) if self.rows >= 1 << 17 else 1
            threads = 256 if self.rows // vec >= 1 << 16 else 64
            return ScanLayout("columns", self.knob("SCAN_BLOCK", threads), self.knob("SCAN_VEC", vec),
                              self.knob("SCAN_ITEMS", 8 if vec == 1 else 4))  # fmt: skip
        vec = self._vector([self.length])
        packs = -(-self.length // vec)
        items = min(_option(-(-packs // 256)), 16 // vec if vec > 1 else 8)
        threads = min(max(_power(packs // items), 64), 256)
        few = self.rows < FEW_BLOCKS and self.length > 2 * threads * vec * items
        chunks = self.length >= 4096 and self.choose(
            f"map:{self._name()}", ("rows", "chunks"), "chunks" if few else "rows"
        )
        return ScanLayout(str(chunks or "rows"), self.knob("SCAN_BLOCK", threads), self.knob("SCAN_VEC", vec),
                          self.knob("SCAN_ITEMS", items))  # fmt: skip

    def _column_tiles(self, across: int) -> ScanLayout:
        """Half a kilobyte of columns side by side, 32 values a thread."""
        vec = self._vector([across])
        share = min(max(_power(-(-across // vec)), 8), 32)
        return ScanLayout("tiles", self.knob("SCAN_BLOCK", 256), self.knob("SCAN_VEC", vec, self._widest()),
                          self.knob("SCAN_ITEMS", min(32 // vec, 8), max(32 // self._widest(), 1)),
                          self.knob("COLUMNS", share))  # fmt: skip

    # ------------------------------------------------------------ rows

    def _rows(self, mapping: str, registers: bool) -> Layout:
        group = self.group
        trailing = self._trailing()
        last = self.c.hint(group.space[group.dims[-1]])
        long = self.length > self._block_holds()
        segments = mapping == "block" and len(group.dims) > 1 and not group.columns and last >= 32
        segments = segments and group.dims[-1] == len(group.space) - 1 and (not trailing or (long and last >= 1024))
        short_runs = len(group.dims) == 2 and not trailing and (last < SHORT_RUN or (long and self._wasteful(last)))
        segments = segments and not short_runs
        extent = last if segments else self.length
        vec = self._vector([last if short_runs else extent])
        odd = mapping == "block" and vec == 1 and extent >= ODD_ROW and not registers and not self._follows_rows()
        vec = self._widest() if odd else vec
        team = mapping == "block" and self._team(self.rows, self._team_blocks())
        packs = -(-extent // vec)
        packed = mapping == "block" and registers and not long and extent > 1024 * KEPT_VALUES
        held = (self._held() if self.follows else TEAM_KEPT) if team else KEPT_VALUES * (2 if packed else 1)
        most = max(held // vec, 1)
        if mapping == "lanes":
            lanes = min(max(_power(packs if self._at_once() else packs // 2), 4), 32)
            while self._at_once() and lanes > 8 and self.rows * lanes > RESIDENT:
                lanes //= 2
            items = min(-(-packs // lanes), most)
            once = min(items, max(16 // vec, 2))
            if not registers and lanes > 8 and packs % (lanes * once) and packs % (lanes // 2 * once) == 0:
                lanes //= 2  # no tile is cut short
            block = 128 if vec * items >= KEPT_VALUES else 256  # of many registers a block less than 256 still fits
            block = self._few_threads(self.rows * lanes, block)
            layout = Layout("lanes", self.knob("BLOCK", block), self.knob("LANES", lanes))
            threads = lanes
        else:
            wide = registers and 512 * 16 < extent <= 512 * KEPT_VALUES  # two such blocks fit a multiprocessor
            few = 4 if self._at_once() else 8 if self.rows <= 512 else 16
            each = max((KEPT_VALUES if wide else 16 if team else few) // vec, 1)
            threads = min(
                max(_power(packs // each), 64), TEAM_THREADS if team or odd else 512 if long or not registers else 1024
            )
            items = min(-(-packs // threads), most)
            layout = Layout("block", self.knob("ROW_BLOCK", threads))
            full = registers and 512 * 16 < extent * self._arrays() <= TWO_BLOCKS
            layout.bounds = "1024" if wide and threads == 512 and not team else ""
            layout.exact_bounds = "1024" if full and threads == 512 and not team else ""  # with tails 128 spilled
            if self.static is None and pairs(group.members):  # the branch for rows of any length takes more registers
                layout.bounds, layout.exact_bounds = "", layout.bounds or layout.exact_bounds
            if team and self.follows:
                layout.bounds = f"({layout.threads} > 640 ? {layout.threads} : 640)"  # 96 registers: 78 spilled
                tight = vec * items > TEAM_KEPT and extent % (threads * vec * min(items, 2)) == 0
                layout.exact_bounds = "1024" if tight else ""  # without tails 64 do
                layout.bounds = "1024" if tight and self.static else layout.bounds
        if not registers:
            items = min(items, max(16 // vec, 2))
        self._pack(layout, "ROW_VEC", vec, items)
        layout.registers, layout.segments, layout.odd = registers, segments, odd
        layout.several = mapping == "block" and self._arrays() > 1 and self._twice()
        layout.whole = self.static is not None and 0 < self.static <= threads * KEPT_VALUES and not segments
        layout.rest = "1" if extent <= threads * vec * items and not team else layout.items
        layout.parts = packed
        if team and self.follows and registers:
            layout.rest = "few"
            cut = extent % (threads * vec * items) > 0
            layout.parts = cut or self._packed() or bool(self._along() - self._along("red"))
        layout.team = self.knob("TEAM", self._team_size()) if team else ""
        layout.ahead = self.rows * self.length <= 4 * AT_ONCE
        layout.weights = self._at_once() and vec * items <= 16
        layout.roomy = self._at_once() and self.rows * threads <= RESIDENT // 2
        return layout

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

    def _vector(self, extents: Sequence[int]) -> int:
        """Neighbours that fill 16 bytes, if they divide the captured row (else it lies at odd addresses)."""
        widths = [*extents, *(self.c.hint(v.size) for v in self.group.columns.values() if v.size is not None)]
        fits = [v for v in (8, 4, 2) if v <= self._widest() and all(w % v == 0 for w in widths)]
        return max(fits, default=1)

    def _widest(self) -> int:
        stored = [self.body.need.stores[m.item.name][0] for m in self.body.stored if m.role in (FULL, PART)]
        big = [b for b in [*self.body.loads, *stored] if self._numel(b) >= self.length]
        return min(8, 16 // min((SIZES.get(self.body.need.dtypes[b], 4) for b in big), default=4))

    def _numel(self, buffer: str) -> int:
        size = self.body.need.numels.get(buffer)
        return self.c.hint(size) if size is not None else self.length

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
        return {b for b in loads if self._numel(b) >= self.length}

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
        return max(min(_power(blocks), most), 2)

    def _team(self, blocks: int, share: int) -> bool:
        """Does a team of blocks share a row by default? Long rows, or too few of them."""
        if self.length < PART_OF_ROW // 2 or self._overwrites():
            return False
        total = self.rows * self.length  # below some size the team's own launch (zeroed counters) costs what it saves
        if self.follows:
            default = share >= 2 and (self.length > self._block_holds() or (share >= 4 and total >= 1 << 20))
        else:
            default = share >= 2 and blocks < FEW_BLOCKS and total >= 1 << 16
        return bool(self.choose(f"team:{self._name()}", (False, True), default))

    def _overwrites(self) -> bool:
        """Would a block of a team read what another overwrites? Only where more than the row's one value reads it."""
        targets = {m.item.target for m in self.group.members if m.item.target}
        wide = [m.value for m in self.group.members if m.role != ROW]
        return any(e.op == "load" and e.attr[0] in targets for e in walk(wide))

    # ------------------------------------------------------------ columns

    def _columns(self, registers: bool) -> Layout:
        group = self.group
        stays = [k for k in range(len(group.space)) if k not in group.dims]
        across = self.c.hint(group.space[stays[-1]])
        vec = self._vector([across]) if self._dense(group.variables[stays[-1]]) else 1
        packs = -(-across // vec)
        share, threads = 32, 256
        kept = TEAM_KEPT
        if registers:
            threads, share, kept = self._column_block(vec)
        while share > 8 and share >= 2 * packs and packs < 32:
            share //= 2
        if not registers and self._short_columns(packs):
            threads, share = 512, 8
        many = self.rows >= BUSY_COLUMNS * vec * share
        if not registers and many and self.length <= SHORT_BAG and self._picked():
            threads, kept = max(64, share * _power(-(-self.length // PICKED_ROWS))), PICKED_ROWS * vec
        elif not registers and self.rows >= FULL_COLUMNS * vec:
            threads = share = 64
        lanes = threads // share
        items = min(-(-self.length // lanes), max(kept // vec, 1))
        blocks = -(-self.rows // (vec * share))
        layout = Layout("columns", self.knob("BLOCK", threads), self.knob("COLUMNS", share))
        self._pack(layout, "COLUMN_VEC", vec, items)
        layout.registers = registers
        layout.rest = "1" if self.length <= lanes * items else layout.items
        layout.whole = self.static is not None and 0 < self.static <= lanes * max(kept // vec, 1)
        shares = min(BUSY_COLUMNS // max(blocks, 1), self.length // (lanes * 16))
        if not self.follows and self.length >= 512 and not self._overwrites():
            default = blocks < FEW_BLOCKS and shares >= 2
            if self.choose(f"team:{self._name()}", (False, True), default):
                layout.team = self.knob("TEAM", min(_power(max(shares, 2)), 2 * MOST_TEAM))
        return layout

    def _short_columns(self, packs: int) -> bool:
        """Are columns so few and so short that blocks a line of memory wide are enough, and no team need meet?"""
        lines = max(self.rows // max(self.c.hint(self.group.outer[-1]), 1), 1)
        few = packs >= 32 and packs * lines < FEW_BLOCKS * 32
        return few and 512 <= self.length <= SHORT_COLUMN and self.rows * self.length <= 4 * AT_ONCE

    def _picked(self) -> bool:
        """Does an index pick the rows that are reduced?"""
        loads = [e for e in walk([m.value for m in self.group.members]) if e.op == "load"]
        return any(isinstance(a, Ind) for e in loads for a in e.attr[1].atoms())

    def _column_block(self, vec: int) -> tuple[int, int, int]:
        """(threads, packs side by side, values a thread keeps): the widest rows whose columns stay in registers."""
        for threads, share, most in ((256, 32, 32), (256, 16, 48), (512, 16, 32), (512, 8, 32)):
            kept = max(most // self._arrays(), TEAM_KEPT)
            if self.length <= threads // share * (kept // vec) and share * vec >= 32:
                return threads, share, kept
        return 1024, max(32 // vec, 8), TEAM_KEPT

    def _dense(self, variable: Var) -> bool:
        """Do neighbouring columns lie side by side in some access?"""
        values = [m.value for m in self.group.members]
        positions = [e.attr[1] for e in walk(values) if e.op == "load"]
        found = (linear(p, variable.name) for p in positions)
        return any(f is not None and f[0] == ix(1) for f in found)


def _power(value: int) -> int:
    """The next power of two."""
    return 1 << max(value - 1, 0).bit_length()


def _option(items: int) -> int:
    """Tiles come in powers of two."""
    return min(_power(items), 32)
