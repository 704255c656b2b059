"""What default layouts of kernels share: rules over captured sizes. Search may vary every choice.

The rules aim at memory bandwidth: 16 bytes an access, 16 to 32 elements of a thread in flight, rows that are read once
and kept in registers where they fit, several hundred blocks (an H200 has 132 multiprocessors, an MI300X 304).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from hipwright.engine.fuse.groups import FULL, PART, Group
from hipwright.engine.ir.expr import walk
from hipwright.engine.ir.index import Ind
from hipwright.engine.lower.context import LoweringContext
from hipwright.engine.templates.base import Body
from hipwright.engine.templates.rows.layout import RowLayout
from hipwright.float8 import FLOAT8

SIZES = {
    "float64": 8,
    "int64": 8,
    "float32": 4,
    "int32": 4,
    "float16": 2,
    "bfloat16": 2,
    "int16": 2,
    "int8": 1,
    "uint8": 1,
    "bool": 1,
} | dict.fromkeys(FLOAT8, 1)
SHORT_ROW, FEW_COLUMNS = 1024, 16
SMALL, BIG = 1 << 17, 1 << 22
DEVICE_THREADS = 1 << 18
"""Threads that the device runs at once (2048 on each multiprocessor of an H200)."""
DEVICE_ELEMENTS = 1 << 20
"""Elements up to which the device holds all rows at once, four elements a thread: the latency of one thread decides,
not the number of instructions."""
FEW_BLOCKS = 264  # two for each multiprocessor of an H200
COOP_THREADS, COOP_KEPT = 256, 16  # of a cooperative block: several blocks fit a multiprocessor
MOST_COOP_BLOCKS = 128  # blocks of 256 threads that all supported GPUs run at once
MULTIPROCESSORS = (132, 256, 304)
"""Multiprocessors or compute units of an H200, an MI355X and an MI300X."""
MOST_WORDS = 48
"""Registers for what a thread has loaded, of the 64 that a kernel of any block size has: a normalisation by float32
statistics of each column needs 72 for two vectors of halves.
"""
MOST_VALUES = 64
"""Values that a thread loads at once at most: with 256 the kernels spill."""


@dataclass(eq=False)
class LayoutPlanner:
    """Lays out one group. choose(key, options, default) and knob(name, default, most) record the program's choices."""

    c: LoweringContext
    group: Group
    body: Body
    choose: Callable[[str, Sequence[Any], Any], Any]
    knob: Callable[..., str]
    rows: int = field(init=False)
    length: int = field(init=False)

    def set_vectors(self, layout: RowLayout, name: str, vec: int, items: int) -> None:
        """Sets the knobs of the vector's elements and of the vectors a thread loads at once."""
        layout.vec = self.knob(name, vec, self.widest())
        layout.items = self.knob("ROW_ITEMS", option(items), MOST_VALUES // self.widest())

    @staticmethod
    def few_threads(total: int, threads: int) -> int:
        """Threads of a block, halved while there are fewer than two blocks for each multiprocessor."""
        while threads > 64 and total < FEW_BLOCKS * threads:
            threads //= 2
        return threads

    def vector(self, extents: Sequence[int]) -> int:
        """Elements of a vector of 16 bytes at most that divides all extents; 1 for unaligned rows."""
        widths = [*extents, *(self.c.hint(v.size) for v in self.group.columns.values() if v.size is not None)]
        fits = [v for v in (8, 4, 2) if v <= self.widest() and all(w % v == 0 for w in widths)]
        return max(fits, default=1)

    def gathers(self) -> bool:
        """Whether a load is a gather: its position depends on an index tensor."""
        loads = [e for e in walk([m.value for m in self.group.members]) if e.op == "load"]
        return any(isinstance(a, Ind) for e in loads for a in e.attr[1].atoms())

    def widest(self) -> int:
        """Elements in 16 bytes of the narrowest tensor that has at least a row's elements."""
        stored = [self.body.need.stores[m.item.name][0] for m in self.body.stored if m.role in (FULL, PART)]
        big = [b for b in [*self.body.loads, *stored] if self.numel(b) >= self.length]
        return min(8, 16 // min((SIZES.get(self.body.need.dtypes[b], 4) for b in big), default=4))

    def numel(self, buffer: str) -> int:
        """The number of elements of a buffer at capture."""
        size = self.body.need.numels.get(buffer)
        return self.c.hint(size) if size is not None else self.length


def power(value: int) -> int:
    """The next power of two."""
    return 1 << max(value - 1, 0).bit_length()


def option(items: int) -> int:
    """The items of a tile as an option of the knob: a power of two up to 32."""
    return min(power(items), 32)


def even_block_counts(groups: int) -> set[int]:
    """Numbers of cooperative blocks with which each multiprocessor gets the same number of blocks over all `groups`.

    Powers of two load multiprocessors unevenly: 1024 blocks are 7 or 8 for each of an H200.
    """
    found = {count * each // max(groups, 1) for count in MULTIPROCESSORS for each in (4, 8)}
    return {size for size in found if size > 1}
