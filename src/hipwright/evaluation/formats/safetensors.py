"""Small integer tensors of safetensors files: a workload's offsets and tables, which random numbers cannot replace.

A file is the header's length (8 bytes, little-endian), a JSON header of {name: dtype, shape, data_offsets}, and the
bytes (huggingface/safetensors, "Format"). Nothing else of the file is read, and no library for it is needed.
"""

from __future__ import annotations

import base64
from math import prod
from pathlib import Path
from typing import Any

import msgspec

from hipwright.evaluation.formats.read import Malformed, below, decoded, inside

MAX_HEADER, MAX_TENSOR = 1 << 20, 1 << 16
DTYPES = {"I64": ("int64", 8), "I32": ("int32", 4), "I16": ("int16", 2), "I8": ("int8", 1), "BOOL": ("bool", 1)}
HELPER = '''

def _stored(text, dtype, shape):
    """A tensor of the workload's file."""
    import base64

    return torch.frombuffer(bytearray(base64.b64decode(text)), dtype=dtype).reshape(shape).clone()
'''


class TensorEntry(msgspec.Struct):
    """A tensor of a header. data_offsets: of its bytes, from the header's end."""

    dtype: str
    shape: list[int]
    data_offsets: tuple[int, int]


def stored(path: str, key: str, shape: tuple[int, ...], dtype: str, root: Path, where: str) -> str:
    """A tensor as Python text that calls `HELPER`. path: from root. Raises Malformed, also for one that is not kept."""
    place = inside(root, root, path, f"{where}.path")
    entry, data = _read(place, key, root.resolve(), where)
    if entry.dtype not in DTYPES or DTYPES[entry.dtype][0] != dtype or tuple(entry.shape) != shape:
        raise Malformed(f"{where}: the file has {entry.dtype} {entry.shape}, the definition {dtype} {list(shape)}")
    if len(data) != prod(entry.shape) * DTYPES[entry.dtype][1]:
        raise Malformed(f"{where}: the file has {len(data)} bytes of {key[:80]!r}")
    return f"_stored({base64.b64encode(data).decode()!r}, torch.{dtype}, {shape!r})" if data else _empty(shape, dtype)


def keeps(dtype: str, shape: tuple[int, ...]) -> bool:
    """Whether such a tensor is read: integers, and few of them."""
    size = next((size for name, size in DTYPES.values() if name == dtype), None)
    return size is not None and prod(shape) * size <= MAX_TENSOR


def _empty(shape: tuple[int, ...], dtype: str) -> str:
    return f"torch.zeros({shape!r}, dtype=torch.{dtype})"


def _read(path: Path, key: str, root: Path, where: str) -> tuple[TensorEntry, bytes]:
    try:
        with path.open("rb") as stream:
            length = int.from_bytes(stream.read(8), "little")
            if length > MAX_HEADER:
                raise Malformed(f"{where}: {below(path, root)}: a header of {length} bytes")
            text = stream.read(length).decode("utf-8", "replace")
            header = decoded(text, dict[str, Any], f"{where}: {below(path, root)}")
            if key not in header:
                raise Malformed(f"{where}.tensor_key: {below(path, root)} has no {key[:80]!r}")
            entry = _entry(header[key], f"{where}: {below(path, root)}: {key[:80]}")
            first, last = entry.data_offsets
            if not 0 <= first <= last or last - first > MAX_TENSOR:
                raise Malformed(f"{where}: {below(path, root)}: {key[:80]}: data_offsets {first} to {last}")
            stream.seek(8 + length + first)
            return entry, stream.read(last - first)
    except OSError as error:
        raise Malformed(f"{where}: {below(path, root)}: {error.strerror or error}") from None


def _entry(value: object, where: str) -> TensorEntry:
    try:
        return msgspec.convert(value, TensorEntry)
    except msgspec.ValidationError as error:
        raise Malformed(f"{where}: {error}") from None
