"""What leaves the caches first: what a kernel reads or writes once makes room for what is wanted again.

`__builtin_nontemporal_load` and `_store` are `nt` accesses on AMD (CDNA3 ISA guide, "Memory Scopes and Temporal Hints")
and `ld.cs`, `st.cs` on NVIDIA (PTX ISA, "Cache Operators"). Whether they pay depends on the device and on what shares
its caches, so it is a choice of the whole program, `stream`, for search to vary. On an H200 programs of a library's
product and kernels that write over it gain up to 3.5 %; of 25 programs 12 lost 3 to 32 % of their speed by reading so.
Programs that write next to nothing gain instead: 14 of them 0 to 5 %, none lost more than 0.7 %, so they do by default.

"keep" is the other way round: what a kernel has read stays in the last-level cache and what it writes leaves, as
NVIDIA's `evict_last` has it (PTX ISA, "Cache Eviction Priority Hints"); elsewhere nothing changes. Memory then sees
longer runs of writes between its reads: on an H200 a copy of 256 MiB takes 126.4 us, not 128.1, the same with a hundred
pairs of buffers that are met in turn, so nothing is found again in the cache (benchmarks/cache_hints.cu). It is for
kernels that write as they read and move many times what caches hold: what was read stays there until as much is read so
again, or much else goes by. A copy of 32 MiB in all, again and again behind such a kernel, took 9.5 us and not 7.7; of
24 and 16 MiB, no longer.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from hipwright.engine.fuse.recompute import ITEM_BYTES
from hipwright.engine.ir.index import Ix
from hipwright.engine.lower.context import LoweringContext

if TYPE_CHECKING:
    from hipwright.engine.templates.base import EmittedKernel

PACKED = ("no", "stores", "loads", "both")
"""Settings of programs whose kernels move packs: which accesses leave the caches first."""
KEEP = "keep"
"""The setting in which what is read stays in the last-level cache."""
KEPT_BYTES = 1 << 27
"""A kernel reads, at least, several times what caches hold."""
WRITTEN = 3
"""For each byte it writes it reads no more than these: few writes leave nothing to keep from the cache."""
FEW_WRITTEN = 16
"""For each byte that they write, kernels that only read have read more than these."""
ENOUGH = 1 << 22
"""Elements of the largest tensor from which caches hold less than a call moves."""


def offered(c: LoweringContext, used: Collection[tuple[str, str]], sizes: Iterable[Ix]) -> bool:
    """Whether kernels move vectors of a tensor that caches do not hold. used: all device functions of the program."""
    return ("load_vector", "") in used and max((c.hint(size) for size in sizes), default=0) >= ENOUGH


def usual(options: Sequence[str], *, over: bool, reads_only: bool) -> str:
    """The static rule. over: do all kernels write over a library's products?"""
    if over and "both" in options:
        return "both"
    if KEEP in options:
        return KEEP
    return "loads" if reads_only and "loads" in options else "no"


def streaming(how: str) -> dict[str, str]:
    """The device functions that move vectors by other instructions, as `how` says, one of PACKED or KEEP."""
    loads = {"load_vector": "load_vector_streaming"} if how in ("loads", "both") else {}
    stores = {"store_vector": "store_vector_streaming"} if how in ("stores", "both") else {}
    return loads | stores


def streaming_uses(how: str) -> set[tuple[str, str]]:
    """The device functions that kernels call besides, as `how` says."""
    return {("retain_in_cache", "")} if how == KEEP else set()


def keeps(c: LoweringContext, kernel: EmittedKernel, numels: Mapping[str, Ix], dtypes: Mapping[str, str]) -> bool:
    """Does the kernel read far more than caches hold, and write not much less?

    Where rows begin off the borders of packs two of them share a line: a softmax of rows of 50257 took 185 us on an
    H200 with lines kept, 168 without.
    """
    if kernel.unaligned_rows:
        return False
    read, written = _moved(c, kernel, numels, dtypes)
    return read >= KEPT_BYTES and written * WRITTEN >= read


def _moved(
    c: LoweringContext, kernel: EmittedKernel, numels: Mapping[str, Ix], dtypes: Mapping[str, str]
) -> tuple[int, int]:
    """Bytes of the tensors that a kernel reads and writes."""

    def size(names: Sequence[str]) -> int:
        known = [name for name in dict.fromkeys(names) if name in numels]
        return sum(c.hint(numels[name]) * ITEM_BYTES.get(dtypes[name], 1) for name in known)

    return size(kernel.reads), size(kernel.writes)


def reads_only(
    c: LoweringContext, kernels: Sequence[EmittedKernel], numels: Mapping[str, Ix], dtypes: Mapping[str, str]
) -> bool:
    """Do all kernels that move much write next to nothing? Losses and reductions of what caches do not hold."""
    moved = [_moved(c, kernel, numels, dtypes) for kernel in kernels]
    return max((read for read, _ in moved), default=0) >= KEPT_BYTES and all(
        written * FEW_WRITTEN < read for read, written in moved if read + written >= KEPT_BYTES // FEW_WRITTEN
    )
