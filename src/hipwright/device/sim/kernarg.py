"""The kernel argument segment and the dispatch packet of a launch, as the HSA ABI has them (LLVM's AMDGPUUsage)."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any

from hipwright.device.cpu.guarded import Dim3
from hipwright.device.sim.abi import DISPATCH_BYTES

SHARED_APERTURE, PRIVATE_APERTURE = 0x10000, 0x20000
"""The high words of flat addresses of LDS and of scratch."""


def explicit(args: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The arguments that a kernel's source names."""
    return [arg for arg in args if not arg["kind"].startswith("hidden_")]


def segment(known: Mapping[str, Any], slots: bytes, grid: Dim3, block: Dim3, lds_dynamic: int) -> bytes:
    """The segment and, behind it, the dispatch packet. known: a kernel's description; slots: 8 bytes an argument."""
    data = bytearray(-(-max(known["kernarg_bytes"], 8) // 16) * 16)
    hidden = _hidden(grid, block, lds_dynamic)
    for i, arg in enumerate(explicit(known["args"])):
        data[arg["offset"] : arg["offset"] + arg["size"]] = slots[8 * i : 8 * i + 8].ljust(arg["size"], b"\0")[
            : arg["size"]
        ]
    for arg in known["args"]:
        if arg["kind"].startswith("hidden_"):
            value = hidden.get(arg["kind"][7:], 0)
            data[arg["offset"] : arg["offset"] + arg["size"]] = value.to_bytes(arg["size"], "little")
    return bytes(data) + _packet(known, grid, block, lds_dynamic)


def _hidden(grid: Dim3, block: Dim3, lds_dynamic: int) -> dict[str, int]:
    values = {"grid_dims": _dimensions(grid, block), "dynamic_lds_size": lds_dynamic}
    values |= {"private_base": PRIVATE_APERTURE, "shared_base": SHARED_APERTURE}
    for axis, blocks, threads in zip("xyz", grid, block, strict=True):
        values |= {f"block_count_{axis}": blocks, f"group_size_{axis}": threads}
    return values


def _dimensions(grid: Dim3, block: Dim3) -> int:
    return max((i + 1 for i in range(3) if grid[i] > 1 or block[i] > 1), default=1)


def _packet(known: Mapping[str, Any], grid: Dim3, block: Dim3, lds_dynamic: int) -> bytes:
    """An hsa_kernel_dispatch_packet_t."""
    abi = known["abi"]
    sizes = [blocks * threads for blocks, threads in zip(grid, block, strict=True)]
    head = struct.pack("<HH3HH3I", 2, _dimensions(grid, block), *block, 0, *(size & 0xFFFFFFFF for size in sizes))
    return (head + struct.pack("<II", abi["scratch"], abi["lds"] + lds_dynamic)).ljust(DISPATCH_BYTES, b"\0")
