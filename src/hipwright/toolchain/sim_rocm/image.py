"""The section of a code object that the simulated GPU runs, as `sim_rocm_rt/launch.h` reads it."""

from __future__ import annotations

import struct
from typing import Any

from hipwright.toolchain.sim import program

MAGIC = program.MAGIC
SECTION = ".hipwright.simulated"
HIDDEN = (
    *(f"block_count_{axis}" for axis in "xyz"),
    *(f"group_size_{axis}" for axis in "xyz"),
    *("grid_dims", "dynamic_lds_size", "private_base", "shared_base"),
)
"""Hidden arguments by the number that a launch knows them by; those that are not listed are 0."""
ABI = (
    *("entry", "vgprs", "lds", "scratch", "wave", "mode", "item_ids", "packed_ids"),
    *("kernarg_sgpr", "dispatch_sgpr", "scratch_sgpr", "group_x", "group_y", "group_z", "scratch_offset"),
    *("flat_scratch", "preload", "preload_sgpr"),
)
"""The fields of `Kernel` in sim_rt/sim.h, 32 bits each; registers are -1 where a value is not passed."""
OP_BYTES = 200


def section(assembly: str) -> bytes:
    """The section's content for clang's assembly of a source. Raises ToolchainError for a text that is not clang's."""
    description, ops = program.disassemble(program.assemble(assembly))
    handlers, kernels = description["handlers"], description["kernels"]
    args = [arg for known in kernels.values() for arg in known["args"]]
    names = [*handlers, *kernels]
    head = struct.pack("<5I", len(ops) // OP_BYTES, len(handlers), len(kernels), len(args), len(names))
    text = b"".join(f"{name}\0".encode() for name in names)
    return MAGIC + head + _kernels(kernels) + b"".join(map(_arg, args)) + ops + text


def _kernels(kernels: dict[str, Any]) -> bytes:
    out, first = b"", 0
    for known in kernels.values():
        abi = [known["abi"][name] & 0xFFFFFFFF for name in ABI]
        count = len(known["args"])
        out += struct.pack(f"<{len(ABI)}I4I", *abi, known["kernarg_bytes"], known["threads"], first, count)
        first += count
    return out


def _arg(arg: dict[str, Any]) -> bytes:
    hidden, kind = arg["kind"].removeprefix("hidden_"), 0
    if hidden != arg["kind"]:
        kind = 1 + (HIDDEN.index(hidden) if hidden in HIDDEN else len(HIDDEN))
    return struct.pack("<3I", kind, arg["offset"], arg["size"])
