"""Streaming access: which loads and stores of large tensors are evicted from the caches first.

`__builtin_nontemporal_load` and `_store` are `nt` accesses on AMD (CDNA3 ISA guide, "Memory Scopes and Temporal Hints")
and `ld.cs`, `st.cs` on NVIDIA (PTX ISA, "Cache Operators"). Whether they pay depends on the device and on what shares
its caches, so it is a choice of the whole program, `stream`, for search to vary. By default
accesses stream in programs whose kernels overwrite a library's product, and loads stream in programs that hardly write;
other programs lost speed by it (benchmarks/records/h200-knobs.jsonl).

"keep" is the reverse: loaded data stays in the last-level cache and stored data is evicted first, by NVIDIA's
`evict_last` (PTX ISA, "Cache Eviction Priority Hints"); other GPUs ignore it. Memory then sees longer runs of writes
between reads (benchmarks/cache_hints.cu measures a copy). It suits kernels that write about as much as they read and
move many times the capacity of the caches; smaller kernels that follow can lose, because what was kept leaves late.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from hipwright.engine.emit.device_code import moves_vectors
from hipwright.engine.fuse.costs import ITEM_BYTES
from hipwright.engine.ir.index import Ix
from hipwright.engine.lower.context import LoweringContext

if TYPE_CHECKING:
    from hipwright.engine.templates.base import EmittedKernel

PACKED = ("no", "stores", "loads", "both")
"""Settings of programs whose kernels move vectors: which accesses stream."""
KEEP = "keep"
"""The setting in which loaded data stays in the last-level cache."""
KEPT_BYTES = 1 << 27
"""The least bytes that a kernel reads: several times the capacity of the caches."""
WRITTEN = 3
"""The most bytes it reads for each byte it writes."""
FEW_WRITTEN = 16
"""The bytes read for each byte written from which a kernel counts as one that only reads."""
ENOUGH = 1 << 22
"""Elements of the largest tensor from which a call moves more than the caches hold."""


def offered(c: LoweringContext, used: Collection[str], sizes: Iterable[Ix]) -> bool:
    """Whether kernels move vectors of a tensor that caches do not hold. used: all device functions of the program."""
    return moves_vectors(used) and max((c.hint(size) for size in sizes), default=0) >= ENOUGH


def usual(options: Sequence[str], *, over: bool, reads_only: bool) -> str:
    """The default. over: whether all kernels overwrite products of the library."""
    if over and "both" in options:
        return "both"
    if KEEP in options:
        return KEEP
    return "loads" if reads_only and "loads" in options else "no"


def streaming_headers(how: str) -> set[str]:
    """The device headers whose functions move vectors by other instructions, as `how` says, one of PACKED or KEEP."""
    loads = {"streaming_loads"} if how in ("loads", "both") else set[str]()
    stores = {"streaming_stores"} if how in ("stores", "both") else set[str]()
    return loads | stores | ({"cache_hints"} if how == KEEP else set[str]())


def keeps(c: LoweringContext, kernel: EmittedKernel, numels: Mapping[str, Ix], dtypes: Mapping[str, str]) -> bool:
    """Whether the kernel reads far more than the caches hold, and writes not much less.

    Where rows begin off the borders of packs two of them share a line: a softmax of rows of 50257 took 185 us on an
    H200 with lines kept, 168 without.
    """
    if kernel.unaligned_rows:
        return False
    read, written = moved(c, kernel, numels, dtypes)
    return read >= KEPT_BYTES and written * WRITTEN >= read


def moved(
    c: LoweringContext, kernel: EmittedKernel, numels: Mapping[str, Ix], dtypes: Mapping[str, str]
) -> tuple[int, int]:
    """Bytes of the tensors, or of the parts of them, that a kernel reads and writes."""

    def size(names: Sequence[str]) -> int:
        known = [name for name in dict.fromkeys(names) if name in numels]
        return sum(c.hint(kernel.touched.get(name, numels[name])) * ITEM_BYTES.get(dtypes[name], 1) for name in known)

    return size(kernel.reads), size(kernel.writes)


def reads_only(
    c: LoweringContext, kernels: Sequence[EmittedKernel], numels: Mapping[str, Ix], dtypes: Mapping[str, str]
) -> bool:
    """Whether all kernels of large tensors hardly write: losses and reductions."""
    each = [moved(c, kernel, numels, dtypes) for kernel in kernels]
    return max((read for read, _ in each), default=0) >= KEPT_BYTES and all(
        written * FEW_WRITTEN < read for read, written in each if read + written >= KEPT_BYTES // FEW_WRITTEN
    )
