"""How a row kernel is laid out: which threads share a row, and what they keep of it."""

from __future__ import annotations

from dataclasses import dataclass

KEPT_VALUES = 32
"""Elements of a row that a thread keeps in registers, at most."""


@dataclass
class RowLayout:
    """The layout of one kernel by rows. Sizes are names of knobs or literals.

    mapping: "block", "lanes" or "columns" (kernel.py). whole: the row has a fixed length and is one tile. segments: the
    row consists of several contiguous runs, and tiles do not cross their ends.
    """

    mapping: str
    threads: str  # of a block
    share: str = ""  # lanes that share a row, or vectors of columns side by side
    vec: str = "1"  # elements of a vector
    items: str = "1"  # vectors of a thread's tile
    rows: str = ""  # rows of a thread that keeps the values of its columns (pointwise/column_rows.py), else ""
    rest_items: str = ""  # the same of the tiles after the first, or "chunks"
    launch_bounds: str = ""  # if other than `threads`
    static_bounds: str = ""  # launch bounds of the static-shape variant, if other
    registers: bool = False  # the first tile stays in registers between passes
    whole: bool = False
    segments: bool = False
    several_rows: bool = False  # values of several rows stay in registers
    unaligned: bool = False  # rows begin at any address and are loaded by unaligned vectors
    peeled: bool = False  # all accesses begin alike: head and tail are peeled, the interior is aligned (unaligned.py)
    blocks: str = ""  # the knob of the cooperative blocks of a row, or "" for one block
    apart: bool = False  # a second launch combines what cooperative blocks have stored, of which none waits
    cache_tiles: str = ""  # the knob of the tiles that a waiting block holds in its row cache, or "" for none
    prefetch: bool = False  # few elements: loads of later passes and of row values are issued first
    one_block: bool = False  # few threads: the compiler may use the registers of a block that has a unit to itself
    prefetch_shared: bool = False  # so few elements that operands shared by all rows are loaded first too
    prefetch_operands: bool = False  # operands of later passes are loaded first, whatever their size
    sum_blocks: str = ""  # blocks that take the rows in turn and sum their columns (engine/fuse/column_reductions.py)
    long_sums: bool = False  # a thread adds so many values that sums of floats go by tiles (long_sums.py)
    chunked: bool = False  # the first tile is processed a few vectors at a time: other operands need few registers
