"""The text of hipRTC's built-in header, read from libhiprtc-builtins.so without loading it."""

from __future__ import annotations

import struct
from pathlib import Path

HEADER, SIZE = b"__hipRTC_header", b"__hipRTC_header_size"
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_DYNSYM, _ALLOCATED = 11, 2


def built_in_header(library: Path) -> str:
    """The header. ValueError for a file that is not such a library (64-bit ELF with both symbols)."""
    data = library.read_bytes()
    try:
        places = _symbols(data)
        start, size = places[HEADER], struct.unpack_from("<I", data, places[SIZE])[0]
    except (struct.error, KeyError, IndexError) as error:
        raise ValueError(f"{library.name} holds no hipRTC header: {error}") from None
    return data[start : start + size].rstrip(b"\0").decode()


def _symbols(data: bytes) -> dict[bytes, int]:
    """Dynamic symbols by name, with their places in the file."""
    if data[:5] != b"\x7fELF\x02":
        raise KeyError("not a 64-bit ELF file")
    (table,) = struct.unpack_from("<Q", data, 0x28)
    width, count = struct.unpack_from("<HH", data, 0x3A)
    sections = [_SECTION.unpack_from(data, table + i * width) for i in range(count)]
    found: dict[bytes, int] = {}
    for _, kind, _, _, at, length, link, *_ in sections:
        if kind != _DYNSYM:
            continue
        names = sections[link][4]
        for offset in range(at, at + length, _SYMBOL.size):
            name, _, _, _, address, _ = _SYMBOL.unpack_from(data, offset)
            word = data[names + name : data.index(b"\0", names + name)]
            found.update((word, place) for place in _in_file(sections, address))
    return found


def _in_file(sections: list[tuple[int, ...]], address: int) -> list[int]:
    """An address as a place in the file, at most one."""
    return [s[4] + address - s[3] for s in sections if s[2] & _ALLOCATED and s[3] <= address < s[3] + s[5]][:1]
