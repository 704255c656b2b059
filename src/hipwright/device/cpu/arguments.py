"""Arguments of a CPU launch: tensors in guarded memory, packed as the 8-byte slots that a kernel's entry reads."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Sequence, Set
from dataclasses import dataclass

import torch

from hipwright.device.cpu import abi
from hipwright.device.cpu.memory import GuardedMemory, GuardedRegion, raw_bytes
from hipwright.device.signature import SCALAR_FORMATS, Argument, KernelParam
from hipwright.errors import CandidateError
from hipwright.records import Status


@dataclass(frozen=True)
class BufferArgument:
    """A tensor argument: its parameter's index, the tensor in guarded memory and its region.

    original: the bytes to copy the region back to after the launch; None where the tensor was guarded already.
    """

    index: int
    tensor: torch.Tensor
    region: GuardedRegion
    original: torch.Tensor | None

    def element(self, address: int) -> int:
        """The element that an address falls into, counted from the argument's own pointer."""
        origin = int(self.tensor.data_ptr()) or self.region.start
        return (address - origin) // int(self.tensor.dtype.itemsize)


def launch_error(kernel: str, status: Status, message: str, **evidence: object) -> CandidateError:
    """An error of a launch, with the kernel in its message and evidence."""
    return CandidateError(
        f"kernel {kernel}: {message}", status=status, stage="launch", evidence={"kernel": kernel, **evidence}
    )


def guarded_buffers(
    kernel: str, params: Sequence[KernelParam], args: Sequence[Argument], memory: GuardedMemory, poison: int
) -> list[BufferArgument]:
    """The tensor arguments, each in guarded memory: as it is, or as a copy of its storage."""
    copies: dict[int, torch.Tensor] = {}  # storage address -> its guarded copy
    buffers = []
    for index, (param, arg) in enumerate(zip(params, args, strict=True)):
        if not isinstance(arg, torch.Tensor):
            continue
        if not param.pointer:
            raise launch_error(kernel, "launch_error", f"argument {param.name} is a tensor, not a scalar")
        address = arg.untyped_storage().data_ptr()
        region = memory.find(address) if address else None
        if region is not None:
            buffers.append(BufferArgument(index, arg, region, None))
            continue
        first = address not in copies
        if first:
            copies[address] = memory.copy(arg, poison)
        storage = copies[address].untyped_storage()
        tensor = torch.empty(0, dtype=arg.dtype).set_(storage, arg.storage_offset(), tuple(arg.shape), arg.stride())
        found = memory.find(storage.data_ptr())
        assert found is not None  # just allocated
        buffers.append(BufferArgument(index, tensor, found, raw_bytes(arg) if first and found.size else None))
    return buffers


def distinct(buffers: Sequence[BufferArgument]) -> list[BufferArgument]:
    """One argument for each different storage."""
    return list({buffer.region.start: buffer for buffer in reversed(buffers)}.values())[::-1]


def region_table(
    buffers: Sequence[BufferArgument], read_only: Set[int], read_alone: Sequence[int] = ()
) -> ctypes.Array[abi.BufferRegion]:
    """The regions of the distinct buffers, as the runtime reads them. read_only: first bytes of regions that stay as
    they are; read_alone: parameters through which the kernel writes nothing, by its text.
    """
    written = {b.region.start for b in buffers if b.index not in read_alone}
    rows = [
        abi.BufferRegion(
            b.region.start,
            b.region.size,
            min(b.tensor.dtype.itemsize, 8),
            b.index,
            0,
            abi.READ_ONLY if b.region.start in read_only else 0 if b.region.start in written else abi.READ_ALONE,
        )
        for b in distinct(buffers)
    ]
    return (abi.BufferRegion * max(len(rows), 1))(*rows)


def pack_slots(
    kernel: str, params: Sequence[KernelParam], args: Sequence[Argument], buffers: Sequence[BufferArgument]
) -> ctypes.Array[ctypes.c_char]:
    """8 bytes for each argument: addresses of buffers, scalars padded with zeros."""
    addresses = {buffer.index: buffer.tensor.data_ptr() or buffer.region.start for buffer in buffers}
    packed = []
    for index, (param, arg) in enumerate(zip(params, args, strict=True)):
        if param.pointer:
            if arg is not None and index not in addresses:
                raise launch_error(kernel, "launch_error", f"argument {param.name} must be a tensor or None")
            packed.append(struct.pack("<Q", addresses.get(index, 0)))
        else:
            packed.append(_scalar(kernel, param, arg))
    return ctypes.create_string_buffer(b"".join(packed) + bytes(8))


def _scalar(kernel: str, param: KernelParam, value: Argument) -> bytes:
    if isinstance(value, torch.Tensor) or value is None:
        raise launch_error(kernel, "launch_error", f"argument {param.name} must be a number")
    try:
        if param.kind == "bfloat16":
            raw = bytes(torch.tensor(float(value), dtype=torch.bfloat16).view(torch.uint8).tolist())
        elif param.kind.startswith("float"):
            raw = struct.pack("<" + SCALAR_FORMATS[param.kind], float(value))
        elif param.kind == "bool":
            raw = struct.pack("<?", bool(value))
        else:
            raw = struct.pack("<" + SCALAR_FORMATS[param.kind], int(value))
    except (struct.error, OverflowError) as error:
        raise launch_error(kernel, "launch_error", f"{value!r} does not fit argument {param.name}") from error
    return raw.ljust(8, b"\0")
