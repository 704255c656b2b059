"""Reads the output of ROCm's compilers: extracts one code object from a bundle, and its kernels' resources.

Sources: "Clang Offload Bundler" and "Code Object Metadata" in the documentation of Clang and of LLVM's AMDGPU backend.
"""

from __future__ import annotations

import struct
from typing import Any

from hipwright.records import KernelResources
from hipwright.targets import OFFLINE, Architecture
from hipwright.toolchain.amd import codeobject, isa

_MAGIC = b"__CLANG_OFFLOAD_BUNDLE__"
_COMPRESSED = b"CCOB"


def extract(data: bytes, arch: str) -> bytes:
    """The ELF code object for `arch` ("gfx942") in a compiler's output: an ELF file, or a bundle of them.

    Raises ValueError where it has none.
    """
    if data.startswith(b"\x7fELF"):
        return data
    if data.startswith(_COMPRESSED):
        raise ValueError("the bundle is compressed; compile with --no-offload-compress")
    if not data.startswith(_MAGIC):
        raise ValueError("neither a code object nor a bundle")
    try:
        found = _entries(data)
    except (struct.error, UnicodeDecodeError) as error:
        raise ValueError(f"the bundle is damaged: {error}") from None
    for name, start, size in found:
        if name.partition("--")[2].partition(":")[0] == arch and size and start + size <= len(data):
            return data[start : start + size]
    raise ValueError(f"the bundle has nothing for {arch}, only {', '.join(name for name, _, _ in found) or 'nothing'}")


def _entries(data: bytes) -> list[tuple[str, int, int]]:
    """(name, offset, size) of each entry; a name is "hipv4-amdgcn-amd-amdhsa--gfx942:xnack-" or similar."""
    (count,) = struct.unpack_from("<Q", data, len(_MAGIC))
    at, found = len(_MAGIC) + 8, []
    for _ in range(min(count, 64)):
        start, size, length = struct.unpack_from("<QQQ", data, at)
        name = data[at + 24 : at + 24 + length].decode()
        found.append((name, start, size))
        at += 24 + length
    return found


def resources(code: bytes, arch: str) -> tuple[KernelResources, ...]:
    """The resources of each kernel of a code object, by its metadata; occupancy where the architecture is known.

    Raises ValueError for anything but an AMD code object.
    """
    architecture = OFFLINE.get(arch)
    return tuple(_kernel(entry, architecture) for entry in codeobject.metadata(code).get("amdhsa.kernels", ()))


def _kernel(entry: dict[str, Any], architecture: Architecture | None) -> KernelResources:
    vgpr, agpr, sgpr = (int(entry.get(f".{name}_count", 0)) for name in ("vgpr", "agpr", "sgpr"))
    lds, workgroup = int(entry[".group_segment_fixed_size"]), int(entry[".max_flat_workgroup_size"])
    return KernelResources(
        name=entry[".name"],
        vgpr=vgpr - agpr,
        agpr=agpr,
        sgpr=sgpr,
        lds_bytes=lds,
        scratch_bytes=int(entry[".private_segment_fixed_size"]),
        spills=int(entry.get(".vgpr_spill_count", 0)) + int(entry.get(".sgpr_spill_count", 0)),
        occupancy=isa.occupancy(architecture, vgpr, lds, workgroup, sgpr) if architecture else 0,
        max_workgroup=workgroup,
    )
