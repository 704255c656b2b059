"""Packs that leave the caches first: what a kernel reads or writes once makes room for what is wanted again.

`__builtin_nontemporal_load` and `_store` are `nt` accesses on AMD (CDNA3 ISA guide, "Memory Scopes and Temporal Hints")
and `ld.cs`, `st.cs` on NVIDIA (PTX ISA, "Cache Operators"). Whether they pay depends on the device and on what shares
its caches, so it is a choice of the whole program, `stream`, for search to vary. On an H200 programs of a library's
product and kernels that write over it gain up to 3.5 %; of 25 programs 12 lost 3 to 32 % of their speed by reading so.
"""

from __future__ import annotations

from collections.abc import Iterable

from hipwright.engine.index import Ix
from hipwright.engine.lower.core import Context
from hipwright.engine.tiles import READ_PACK, WRITE_PACK

OPTIONS = ("no", "stores", "loads", "both")
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
    """The device functions with packs of whole 16 bytes read or written as `how` says, one of OPTIONS."""
    for head, body, kinds in ((READ_PACK, _LOADS, ("loads", "both")), (WRITE_PACK, _STORES, ("stores", "both"))):
        if how in kinds:
            helpers = helpers.replace(head, head + body, 1)
    return helpers if how == "no" else helpers.replace(READ_PACK, _WORDS + READ_PACK, 1)
