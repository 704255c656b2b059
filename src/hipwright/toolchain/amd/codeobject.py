"""Reads the ELF header and the metadata note of an AMD code object.

Layout: ELF-64 gABI, and "Code Object Metadata" of LLVM's User Guide for the AMDGPU backend (MessagePack, note type 32).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

import msgspec

_NT_AMDGPU_METADATA = 32
_PT_NOTE = 4
_EM_AMDGPU = 224
_MACH_MASK = 0xFF


def machine(code: bytes) -> int:
    """EF_AMDGPU_MACH of the ELF header. Raises ValueError for anything but an AMD code object."""
    if code[:5] != b"\x7fELF\x02" or len(code) < 64:
        raise ValueError("not a 64-bit ELF file")
    (kind,) = struct.unpack_from("<H", code, 18)
    if kind != _EM_AMDGPU:
        raise ValueError(f"ELF machine {kind}, not AMDGPU ({_EM_AMDGPU})")
    (flags,) = struct.unpack_from("<I", code, 48)
    return int(flags) & _MACH_MASK


def metadata(code: bytes) -> dict[str, Any]:
    """The metadata document. Raises ValueError without one."""
    machine(code)
    try:
        for name, kind, content in _notes(code):
            if name == b"AMDGPU" and kind == _NT_AMDGPU_METADATA:
                document: dict[str, Any] = msgspec.msgpack.decode(content)
                return document
    except (struct.error, msgspec.DecodeError) as error:
        raise ValueError(f"the ELF file is cut off or damaged: {error}") from error
    raise ValueError("the code object has no metadata note")


def _notes(code: bytes) -> Iterator[tuple[bytes, int, bytes]]:
    (offset,) = struct.unpack_from("<Q", code, 32)
    size, count = struct.unpack_from("<HH", code, 54)
    for index in range(count):
        kind, _, start, _, _, length = struct.unpack_from("<IIQQQQ", code, offset + index * size)
        if kind != _PT_NOTE:
            continue
        at, end = start, start + length
        while at + 12 <= end:
            name_size, content_size, note = struct.unpack_from("<III", code, at)
            name_at = at + 12
            content_at = name_at + _padded(name_size)
            yield code[name_at : name_at + name_size].rstrip(b"\0"), note, code[content_at : content_at + content_size]
            at = content_at + _padded(content_size)


def _padded(size: int) -> int:
    return (size + 3) & ~3
