"""What leaves the caches first: what a kernel reads or writes once makes room for what is wanted again.

`__builtin_nontemporal_load` and `_store` are `nt` accesses on AMD (CDNA3 ISA guide, "Memory Scopes and Temporal Hints")
and `ld.cs`, `st.cs` on NVIDIA (PTX ISA, "Cache Operators"). Whether they pay depends on the device and on what shares
its caches, so it is a choice of the whole program, `stream`, for search to vary. On an H200 programs of a library's
product and kernels that write over it gain up to 3.5 %; of 25 programs 12 lost 3 to 32 % of their speed by reading so.

"keep" is the other way round: what a kernel has read stays in the last-level cache and what it writes leaves, as
NVIDIA's `evict_last` has it (PTX ISA, "Cache Eviction Priority Hints"); elsewhere nothing changes. Memory then sees
longer runs of writes between its reads: on an H200 a copy of 256 MiB takes 126.4 us, not 128.1, the same with a hundred
pairs of buffers that are met in turn, so nothing is found again in the cache (benchmarks/cache_hints.cu). It is for
kernels that write as they read and move many times what caches hold: what was read stays there until as much is read so
again, or much else goes by. A copy of 32 MiB in all, again and again behind such a kernel, took 9.5 us and not 7.7; of
24 and 16 MiB, no longer.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from hipwright.engine.index import Ix
from hipwright.engine.lower.core import Context
from hipwright.engine.recompute import ITEM_BYTES
from hipwright.engine.tiles import READ_PACK, WRITE_PACK

if TYPE_CHECKING:
    from hipwright.engine.templates.base import Kernel

PACKED = ("no", "stores", "loads", "both")
"""Settings of programs whose kernels move packs; KEEP is for any kernel that `keeps` offers it to."""
KEEP = "keep"
KEPT_BYTES = 1 << 27
"""A kernel reads, at least, several times what caches hold."""
WRITTEN = 3
"""For each byte it writes it reads no more than these: few writes leave nothing to keep from the cache."""
ENOUGH = 1 << 22
"""Elements of the largest tensor from which caches hold less than a call moves."""

_WORDS = """// 16 bytes at any address; nobody needs them again soon, so they leave the caches first.
#ifdef __clang__
typedef unsigned Passing __attribute__((ext_vector_type(4), aligned(1)));
#else
typedef uint4 Passing;
#endif

"""
_LOADS = """    if constexpr (N * sizeof(T) % 16 == 0) {
        Passing words[N * sizeof(T) / 16];
#pragma unroll
        for (int k = 0; k < N * (int)sizeof(T) / 16; ++k)
            words[k] = __builtin_nontemporal_load(reinterpret_cast<const Passing*>(p) + k);
        __builtin_memcpy(v, words, sizeof(words));
        return;
    }
"""
_STORES = """    if constexpr (N * sizeof(T) % 16 == 0) {
        Passing words[N * sizeof(T) / 16];
        __builtin_memcpy(words, v, sizeof(words));
#pragma unroll
        for (int k = 0; k < N * (int)sizeof(T) / 16; ++k)
            __builtin_nontemporal_store(words[k], reinterpret_cast<Passing*>(p) + k);
        return;
    }
"""


def offered(c: Context, helpers: str, sizes: Iterable[Ix]) -> bool:
    """Do kernels move packs, of a tensor that caches do not hold? helpers: the program's device functions."""
    return READ_PACK in helpers and max((c.hint(size) for size in sizes), default=0) >= ENOUGH


def streaming(helpers: str, how: str) -> str:
    """The device functions with packs of whole 16 bytes read or written as `how` says, one of PACKED or KEEP."""
    for head, body, kinds in ((READ_PACK, _LOADS, ("loads", "both")), (WRITE_PACK, _STORES, ("stores", "both"))):
        if how in kinds:
            helpers = helpers.replace(head, head + body, 1)
    if how == KEEP:
        return _KEPT + helpers
    return helpers if how == "no" else helpers.replace(READ_PACK, _WORDS + READ_PACK, 1)


_KEPT = """// What is read stays in the last cache and what is written leaves it first, where the device takes the hint.
template <typename T>
__device__ __forceinline__ const T* kept(const T* p) {
#ifdef hw_kept
    return hw_kept(p);
#else
    return p;
#endif
}

"""
_HEAD = re.compile(
    r'^(?:static __device__ __forceinline__|extern "C" __global__) void (?:__launch_bounds__\([^\n]*\) )?\w+'
    r"\((?P<given>[^{}]*)\) \{\n(?!    \w+_body\()",
    re.MULTILINE,
)
"""A kernel, or the body that its entries for any sizes and for constant ones share (hipwright.engine.exact)."""
_READ = re.compile(r"const [\w ]+\* __restrict__ (\w+)")


def keeps(c: Context, kernel: Kernel, numels: Mapping[str, Ix], dtypes: Mapping[str, str]) -> bool:
    """Does the kernel read far more than caches hold, and write not much less?"""

    def moved(names: Sequence[str]) -> int:
        known = [name for name in dict.fromkeys(names) if name in numels]
        return sum(c.hint(numels[name]) * ITEM_BYTES.get(dtypes[name], 1) for name in known)

    read = moved(kernel.reads)
    return read >= KEPT_BYTES and moved(kernel.writes) * WRITTEN >= read


def kept(text: str) -> str:
    """A kernel's text with the pointers that it only reads through `kept` first."""

    def begun(head: re.Match[str]) -> str:
        return head.group() + "".join(f"    {name} = kept({name});\n" for name in _READ.findall(head["given"]))

    return _HEAD.sub(begun, text)
