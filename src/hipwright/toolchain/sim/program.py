"""A program for the executor: its micro-ops, and what a launch needs to know of each kernel, as one block of bytes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from hipwright.errors import ToolchainError
from hipwright.toolchain.sim import encode, listing
from hipwright.toolchain.sim.listing import KernelHeader, Listing

MAGIC = b"hipwright sim 1\n"
FULL_RATE = {"round_mode_32": 0, "round_mode_16_64": 0, "denorm_mode_32": 3, "denorm_mode_16_64": 3}
_USER_REGISTERS = (
    ("private_segment_buffer", 4),
    ("dispatch_ptr", 2),
    ("queue_ptr", 2),
    ("kernarg_segment_ptr", 2),
    ("dispatch_id", 2),
    ("flat_scratch_init", 2),
    ("private_segment_size", 1),
)
"""The scalar registers that a kernel may ask for, in the order in which they are passed, and how many each takes."""


def assemble(text: str) -> bytes:
    """The program of an assembly file: MAGIC, the length of its description, the description (JSON), micro-ops.

    An instruction that the executor does not know is refused when it runs. Raises ToolchainError for a text that is not
    clang's.
    """
    read = listing.read(text)
    encoder = encode.Encoder(read.target, read.labels)
    ops = [encoder.encode(one) for one in read.instructions]
    names = sorted({op.handler for op in ops})
    number = {name: i for i, name in enumerate(names)}
    registers = encode.highest(ops)
    description = {
        "target": read.target,
        "handlers": names,
        "kernels": {name: _kernel(header, read, registers) for name, header in read.kernels.items()},
        "text": {str(one.line): str(one) for one in read.instructions},
    }
    head = json.dumps(description, separators=(",", ":")).encode()
    return MAGIC + len(head).to_bytes(8, "little") + head + b"".join(op.pack(number[op.handler]) for op in ops)


def disassemble(program: bytes) -> tuple[dict[str, Any], bytes]:
    """(description, micro-ops) of a program. Raises ToolchainError for other bytes."""
    if not program.startswith(MAGIC):
        raise ToolchainError("the simulator's program is damaged")
    start = len(MAGIC) + 8
    length = int.from_bytes(program[len(MAGIC) : start], "little")
    return json.loads(program[start : start + length]), program[start + length :]


def _kernel(header: KernelHeader, read: Listing, registers: int) -> dict[str, Any]:
    """What the launch ABI says of one kernel."""
    if header.name not in read.labels:
        raise ToolchainError(f"the assembly has no code for kernel {header.name}")
    gfx9 = read.target.startswith("gfx9")
    wave = 64 if gfx9 or not header.directive("wavefront_size32", 1) else 32
    users, at = _user_registers(header)
    groups = {}
    for axis in "xyz":
        groups[f"group_{axis}"] = at if header.directive(f"system_sgpr_workgroup_id_{axis}", int(axis == "x")) else -1
        at += groups[f"group_{axis}"] >= 0
    at += header.directive("system_sgpr_workgroup_info")
    offset = header.directive("system_sgpr_private_segment_wavefront_offset")
    return {
        "abi": {
            "entry": read.labels[header.name],
            "vgprs": registers,
            "lds": header.directive("group_segment_fixed_size"),
            "scratch": header.directive("private_segment_fixed_size"),
            "wave": wave,
            "mode": _mode(header),
            "item_ids": header.directive("system_vgpr_workitem_id"),
            "packed_ids": int(read.target not in ("gfx900", "gfx906", "gfx908")),
            "kernarg_sgpr": users.get("kernarg_segment_ptr", -1),
            "dispatch_sgpr": users.get("dispatch_ptr", -1),
            "scratch_sgpr": users.get("private_segment_buffer", -1),
            "scratch_offset": at if offset else -1,
            "flat_scratch": users.get("flat_scratch_init", -1),
            "preload": header.directive("user_sgpr_kernarg_preload_length"),
            "preload_sgpr": users["preload"],
            **groups,
        },
        "kernarg_bytes": int(header.metadata[".kernarg_segment_size"]),
        "args": [
            {"kind": arg[".value_kind"], "offset": int(arg[".offset"]), "size": int(arg[".size"])}
            for arg in header.metadata.get(".args", ())
        ],
        "threads": int(header.metadata.get(".max_flat_workgroup_size", 1024)),
    }


def _user_registers(header: KernelHeader) -> tuple[Mapping[str, int], int]:
    """(the first register of each value that is passed, the register behind them all)."""
    places, at = {}, 0
    for name, count in _USER_REGISTERS:
        if header.directive(f"user_sgpr_{name}"):
            places[name] = at
            at += count
    places["preload"] = at
    at += header.directive("user_sgpr_kernarg_preload_length")
    return places, header.directive("user_sgpr_count", at)


def _mode(header: KernelHeader) -> int:
    """The MODE register that a wave starts with: rounding in bits 0 to 3, denormals in bits 4 to 7."""
    value = {name: header.directive(f"float_{name}", default) for name, default in FULL_RATE.items()}
    return (
        value["round_mode_32"]
        | value["round_mode_16_64"] << 2
        | value["denorm_mode_32"] << 4
        | value["denorm_mode_16_64"] << 6
    )
