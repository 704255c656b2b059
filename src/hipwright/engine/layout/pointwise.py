"""Default layouts of pointwise kernels and scans. Reductions are in layout/rows.py and layout/columns.py."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hipwright.engine.fuse.groups import FULL
from hipwright.engine.ir.expr import E, walk
from hipwright.engine.ir.index import product
from hipwright.engine.layout.kept_columns import KeptColumns
from hipwright.engine.layout.planner import (
    BIG,
    DEVICE_THREADS,
    FEW_BLOCKS,
    FEW_COLUMNS,
    MOST_WORDS,
    SHORT_ROW,
    SIZES,
    SMALL,
    LayoutPlanner,
    option,
    power,
)
from hipwright.engine.templates.access import unconditional_loads
from hipwright.engine.templates.pointwise.column_values import columns_to_keep
from hipwright.engine.templates.pointwise.elementwise import has_broadcast
from hipwright.engine.templates.pointwise.inner import is_interleaving, is_repeating
from hipwright.engine.templates.pointwise.row_parts import row_parts
from hipwright.engine.templates.pointwise.short_rows import rows_of_vector, short_rows
from hipwright.engine.templates.pointwise.sliding import STENCIL_WIDTHS, reads_several_planes, stencil_rows
from hipwright.engine.templates.pointwise.transpose import transposed_loads
from hipwright.engine.templates.rows.layout import RowLayout
from hipwright.engine.templates.scan.layout import ScanLayout


@dataclass(eq=False)
class PointwisePlanner(LayoutPlanner):
    """Lays out one group without reductions."""

    by_parts: bool = False  # members are parts of rows that are stored concatenated
    planes: str = ""  # the knob of the planes that a block of a stencil covers, or "" for one

    def pointwise(self) -> tuple[str, RowLayout | None, tuple[str, str, str]]:
        """(mapping, layout of `rows`, names of VEC, VECS and BLOCK) for a group without reductions."""
        c, group = self.c, self.group
        total = c.hint(product(group.space))
        last = c.hint(group.space[-1]) if group.space else 1
        wide = has_broadcast(self.body) and last >= FEW_COLUMNS
        transposed = self._transposed_bytes()
        self.length = last
        kept = KeptColumns(self, columns, last, total) if wide and (columns := self._columns_to_keep()) else None
        interleaved = is_interleaving(group) or is_repeating(group)
        rows = stencil_rows(group) if last >= FEW_COLUMNS and not transposed else 0
        options = (
            "scalar",
            "vector",
            *(("rows",) if wide else ()),
            *(("columns",) if kept else ()),
            *(("transpose",) if transposed else ()),
            *(("inner",) if interleaved else ()),
            *(("sliding",) if rows else ()),
        )
        scalar = total < SMALL or any(e.op == "loop" for e in walk([m.value for m in self.group.members]))
        if self.by_parts or group.short_rows:
            return "rows", self._pointwise_rows(last, total), ("", "", "")
        best = options[-1 - bool(rows)] if transposed or wide or interleaved else "vector"
        if best == "columns" and kept and not kept.pays():
            best = "rows"
        default = "scalar" if scalar else "sliding" if rows and total >= BIG else best
        mapping = str(self.choose(f"map:{self.body.name}", options, default))
        if mapping == "rows":
            return mapping, self._pointwise_rows(last, total), ("", "", "")
        if mapping == "columns" and kept:
            return mapping, kept.layout(), ("", "", "")
        if mapping == "transpose":
            side = 64 if max(transposed) <= 2 or (total >= BIG and sum(transposed) <= 8) else 32  # 33 KiB
            threads = 128 if max(transposed) <= 2 else 256  # a thread moves 8 half-type elements at once
            return mapping, None, ("", self.knob("TRANSPOSE_TILE", side), self.knob("BLOCK", threads))
        if mapping == "scalar":
            return mapping, None, ("", "", self.knob("BLOCK", 256))
        if mapping == "sliding":
            self.length = last
            side = self._stencil_width()
            threads = min(max(power(last // 4), 64), 512 // side)
            if reads_several_planes(group, c.hint):
                self.planes, threads = self.knob("PLANES", 4), 256
            return mapping, None, (str(side), str(stencil_rows(group, side)), self.knob("ROW_BLOCK", threads))
        if mapping == "inner":
            each = 16 // int(group.space[-1].value or 1)
            return mapping, None, ("", self.knob("VECS", 1 if total < BIG else max(each, 1)), self.knob("BLOCK", 256))
        self.length = 1
        inputs = len(self.body.loads)
        vec = self.widest()
        items = 1 if total < BIG else min(4 if inputs == 1 else 2, max(16 // vec, 1))
        return mapping, None, (self.knob("VEC", vec), self.knob("VECS", items), self.knob("BLOCK", 128))

    def _columns_to_keep(self) -> list[E]:
        """The values of columns that a thread may keep for several rows."""
        return columns_to_keep(self.group, self.body.stored) if not self.by_parts else []

    def _stencil_width(self) -> int:
        """Neighbouring outputs that a thread of a stencil computes: four of half types where they divide the row."""
        fits = [
            n
            for n in STENCIL_WIDTHS
            if n == STENCIL_WIDTHS[0] or (self._fits_halves(n) and stencil_rows(self.group, n))
        ]
        return int(self.choose(f"stencil_width:{self.body.name}", fits, fits[-1]))

    def _fits_halves(self, n: int) -> bool:
        """Whether n outputs divide a row, and inputs or outputs are half types."""
        return self.length % n == 0 and self.widest() == 8

    def _transposed_bytes(self) -> list[int]:
        """Bytes of an element of each operand that is transposed against the result; [] where a dimension is short."""
        found = transposed_loads(self.group, {m.item.name for m in self.body.stored})
        if found is None or any(m.role != FULL for m in self.group.members):
            return []
        sides = [self.c.hint(self.group.space[found[0]]), self.c.hint(self.group.space[-1])]
        return [SIZES[e.attr[2]] for e in found[1]] if min(sides) >= FEW_COLUMNS else []

    def _pointwise_rows(self, last: int, total: int) -> RowLayout:
        """A layout by rows of the innermost dimension: lanes for short rows, blocks for long ones."""
        self.length = last
        vec = self._row_vector(last)
        vectors = -(-last // vec)
        most = 1 if total < BIG or self._reads_overlap() else max(16 // vec, 1)
        if self._column_words(last, total) * most * vec > MOST_WORDS:
            most = max(most // 2, 1)
        each = (
            vectors > 32 and total // last * 64 <= DEVICE_THREADS
        )  # the device has a thread for each vector: a block takes a row
        if vectors <= 64 and not each:
            guarded = any(e.op == "guard" for e in walk([m.value for m in self.group.members]))
            two = total >= BIG and vectors >= 16 and not guarded  # two vectors a lane keep more bytes in flight
            lanes = min(max(power(vectors // 2 if two else vectors), 4), 32)
            threads = self.few_threads(total // last * lanes, 256)
            layout = RowLayout("lanes", self.knob("BLOCK", threads), self.knob("LANES", lanes))
            items = min(-(-vectors // lanes), max(16 // vec, 1))
        else:
            full = sum(self.numel(b) >= total for b in self.body.loads)
            # small blocks balance the multiprocessors; gathers share cache lines of a row in wide blocks
            small = total >= BIG and not self.gathers()
            widest = 256 if not small else 64 if full <= 1 else 128
            threads = min(max(power(vectors // most), 64), widest)
            threads = self.few_threads(total // last * vectors, threads)
            if total < BIG and total // last * -(-vectors // threads) > 4 * FEW_BLOCKS:
                most = 4  # the device holds all blocks at once
            items = min(-(-vectors // threads), most)
            layout = RowLayout("block", self.knob("ROW_BLOCK", threads))
        self.set_vectors(layout, "ROW_VEC", vec, items)
        return layout

    def _column_words(self, last: int, total: int) -> float:
        """The registers of an element of a row where values of its column take more than twice those of its own."""
        sizes = {b: SIZES.get(self.body.need.dtypes[b], 4) / 4 for b in self.body.loads if self.numel(b) >= last}
        own = sum(size for b, size in sizes.items() if self.numel(b) >= total)
        return sum(sizes.values()) if sum(sizes.values()) > 3 * own else 0

    def _row_vector(self, last: int) -> int:
        """Neighbouring elements that a thread takes; of short rows, which are several elements each, 16 bytes."""
        vec, variable = self.vector([last]), self.group.variables[-1].name
        accesses = [(e.attr[0], e.attr[1]) for e in unconditional_loads([m.value for m in self.body.stored])]
        accesses += [(self.body.need.stores[m.item.name][0], m.position) for m in self.body.stored]
        found = short_rows(accesses, variable, self.body.need.numels).values()
        widths = {(row.width, SIZES.get(self.body.need.dtypes[row.buffer], 4)) for row in found}
        return rows_of_vector(widths, vec) if widths else vec

    def _reads_overlap(self) -> bool:
        """Whether a row reads an input at several positions, so that neighbouring vectors share cache lines."""
        parts = row_parts(self.c.arena, self.body.stored, {self.group.variables[-1].name})
        return any(_read_several_times([m.value for m in members]) for members in parts.leaves())


def _read_several_times(values: Sequence[E]) -> bool:
    places: dict[str, set[str]] = {}
    for e in walk(values):
        if e.op == "load":
            places.setdefault(e.attr[0], set()).add(e.attr[1].key)
    return any(len(found) > 1 for found in places.values())


class ScanPlanner(LayoutPlanner):
    """Lays out a group with a scan."""

    def scan(self) -> ScanLayout:
        """A layout by columns unless the scanned dimension is the last; cooperative blocks for few long rows."""
        c, group = self.c, self.group
        self.rows, self.length = c.hint(product(group.outer)), c.hint(product(group.inner))
        (d,) = group.dims
        if d != len(group.space) - 1:
            across = c.hint(group.space[-1])
            offered = self.length >= 64 and across >= FEW_COLUMNS
            default = "tiles" if self.rows < 1 << 17 and self.length >= SHORT_ROW // 4 else "columns"
            if offered and self.choose(f"map:{self.body.name}", ("columns", "tiles"), default) == "tiles":
                return self._column_tiles(across)
            vec = self.vector([across]) if self.rows >= 1 << 17 else 1
            threads = 256 if self.rows // vec >= 1 << 16 else 64
            return ScanLayout(
                "columns",
                self.knob("SCAN_BLOCK", threads),
                self.knob("SCAN_VEC", vec),
                self.knob("SCAN_ITEMS", 8 if vec == 1 else 4),
            )
        vec = self.vector([self.length])
        vectors = -(-self.length // vec)
        items = min(option(-(-vectors // 256)), 16 // vec if vec > 1 else 8)
        threads = min(max(power(vectors // items), 64), 256)
        few = self.rows < FEW_BLOCKS and self.length > 2 * threads * vec * items
        chunks = self.length >= 4096 and self.choose(
            f"map:{self.body.name}", ("rows", "chunks"), "chunks" if few else "rows"
        )
        return ScanLayout(
            str(chunks or "rows"),
            self.knob("SCAN_BLOCK", threads),
            self.knob("SCAN_VEC", vec),
            self.knob("SCAN_ITEMS", items),
        )

    def _column_tiles(self, across: int) -> ScanLayout:
        """A layout of tiles of half a kilobyte of neighbouring columns, 32 values a thread."""
        vec = self.vector([across])
        share = min(max(power(-(-across // vec)), 8), 32)
        return ScanLayout(
            "tiles",
            self.knob("SCAN_BLOCK", 256),
            self.knob("SCAN_VEC", vec, self.widest()),
            self.knob("SCAN_ITEMS", min(32 // vec, 8), max(32 // self.widest(), 1)),
            self.knob("COLUMNS", share),
        )
