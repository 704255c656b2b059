"""Host tensors without torch, and the bundle in which processes send them to each other.

A *tree* is a nesting of tuple, list, dict (string keys), HostTensor, TensorSpec, int, float, bool, str and None. A
bundle is one JSON header and raw storages: nothing is pickled, so a hostile peer can send wrong numbers but no code.
"""

from __future__ import annotations

import json
import mmap
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from hipwright.float8 import FLOAT8, from_float8, to_float8
from hipwright.records import TensorSpec

# torch dtype name -> the NumPy dtype that holds its bits
BITS: dict[str, np.dtype[Any]] = {
    name: np.dtype(code)
    for name, code in {
        "float64": "f8",
        "float32": "f4",
        "float16": "f2",
        "bfloat16": "u2",
        "int64": "i8",
        "int32": "i4",
        "int16": "i2",
        "int8": "i1",
        "uint8": "u1",
        "bool": "?",
        "complex128": "c16",
        "complex64": "c8",
        "float8_e4m3fn": "u1",
        "float8_e5m2": "u1",
        "float8_e4m3fnuz": "u1",
        "float8_e5m2fnuz": "u1",
    }.items()
}
COMPLEX = {"complex128": "float64", "complex64": "float32"}
"""Complex dtypes, and the dtype of their parts."""
FLOATS = ("float64", "float32", "float16", "bfloat16", *COMPLEX, *FLOAT8)

Tree = Any  # a nesting of the types the module docstring names


@dataclass(frozen=True, eq=False)
class HostTensor:
    """A strided view of raw storage. shape and stride count elements; `storage` is a 1-D uint8 array.

    Tensors that shared a storage still share the same array object, so a bundle keeps aliasing.
    """

    dtype: str
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int
    storage: npt.NDArray[np.uint8] = field(repr=False)

    @classmethod
    def of(cls, array: npt.NDArray[Any], dtype: str | None = None) -> HostTensor:
        """A contiguous copy of `array`; dtype names the torch dtype when the bits do not (bfloat16 as uint16)."""
        name = dtype or str(array.dtype)
        bits = np.array(array, dtype=BITS[name], order="C", copy=True)
        return cls(name, array.shape, contiguous_strides(array.shape), 0, bits.reshape(-1).view(np.uint8))

    @classmethod
    def from_f64(cls, values: npt.NDArray[np.float64], like: HostTensor) -> HostTensor:
        """`values` (as of `to_f64`) rounded to `like`'s dtype and laid out with its strides in a new storage."""
        storage = like.storage.copy()
        out = cls(like.dtype, like.shape, like.stride, like.offset, storage)
        out.bits()[...] = rounded_bits(values, like.dtype)
        return out

    @property
    def numel(self) -> int:
        """Number of elements."""
        return prod(self.shape)

    @property
    def spec(self) -> TensorSpec:
        """Its shape, dtype and strides as a record."""
        return TensorSpec(dtype=self.dtype, shape=self.shape, stride=self.stride)

    @property
    def is_float(self) -> bool:
        """True for the floating dtypes, complex ones among them."""
        return self.dtype in FLOATS

    @property
    def is_complex(self) -> bool:
        """True for the complex dtypes."""
        return self.dtype in COMPLEX

    @property
    def values_shape(self) -> tuple[int, ...]:
        """The shape of `to_f64`: the logical one, and for a complex tensor 2 more, for the parts."""
        return (*self.shape, 2) if self.is_complex else self.shape

    def bits(self) -> npt.NDArray[Any]:
        """A writable strided view of the stored bits (bfloat16 as uint16)."""
        dt = BITS[self.dtype]
        if self.numel == 0:
            return np.empty(self.shape, dt)
        flat = self.storage.view(dt)[self.offset :]
        return np.lib.stride_tricks.as_strided(flat, self.shape, tuple(s * dt.itemsize for s in self.stride))

    def to_f64(self) -> npt.NDArray[np.float64]:
        """The values as float64, logical shape; of a complex tensor the parts, along a last dimension of 2."""
        bits = self.bits()
        if self.is_complex:
            return np.stack([bits.real, bits.imag], -1).astype(np.float64)
        if self.dtype in FLOAT8:
            return from_float8(bits, self.dtype)
        if self.dtype == "bfloat16":
            return (bits.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
        with np.errstate(invalid="ignore"):  # a NaN that signals
            return bits.astype(np.float64)


def rounded_bits(values: npt.NDArray[np.float64], dtype: str) -> npt.NDArray[Any]:
    """`values` (as of `HostTensor.to_f64`) rounded to a dtype, as the bits that it stores."""
    if dtype == "bfloat16":
        return to_bf16_bits(values)
    if dtype in FLOAT8:
        return to_float8(values, dtype)
    if dtype in COMPLEX:
        return np.ascontiguousarray(values, np.float64).view(np.complex128)[..., 0].astype(BITS[dtype])
    return values.astype(BITS[dtype])


def wide(dtype: str) -> str:
    """The dtype in which the float64 reference holds a float dtype."""
    return "complex128" if dtype in COMPLEX else "float64"


def to_bf16_bits(values: npt.NDArray[Any]) -> npt.NDArray[np.uint16]:
    """float -> bfloat16 bits, round to nearest even, NaN kept quiet."""
    with np.errstate(over="ignore", invalid="ignore"):
        raw = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32)
    rounded = ((raw.astype(np.uint64) + 0x7FFF + ((raw >> 16) & 1)) >> 16).astype(np.uint16)
    nan = (raw & 0x7FFFFFFF) > 0x7F800000
    return np.where(nan, np.uint16(0x7FC0), rounded).astype(np.uint16).reshape(np.shape(values))


def contiguous_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Row-major strides in elements, as torch counts them (a size-0 dimension counts as 1)."""
    strides: list[int] = []
    step = 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))


def leaves(tree: Tree) -> Iterator[Any]:
    """The leaves of a tree in order; dict entries in insertion order."""
    if isinstance(tree, (tuple, list)):
        for item in tree:
            yield from leaves(item)
    elif isinstance(tree, dict):
        for item in tree.values():
            yield from leaves(item)
    else:
        yield tree


def tensor_leaves(tree: Tree) -> list[HostTensor]:
    """The HostTensors of a tree in order."""
    found: list[HostTensor] = []
    _gather(tree, found)
    return found


def _gather(tree: Tree, found: list[HostTensor]) -> None:
    """Collects the leaves in one list: with a chain of generators every leaf would pass through all levels."""
    if isinstance(tree, HostTensor):
        found.append(tree)
    elif isinstance(tree, dict):
        for item in tree.values():
            _gather(item, found)
    elif isinstance(tree, (tuple, list)):
        for item in tree:
            _gather(item, found)


def refilled(value: Any, items: Iterable[Any]) -> Any:
    """A tuple or list of a value's own class with other items; a named tuple's class takes them one by one."""
    kind = type(value)
    return kind._make(items) if hasattr(kind, "_make") else kind(items)


def map_tensors(tree: Tree, fn: Any) -> Tree:
    """The same nesting with fn applied to each HostTensor."""
    if isinstance(tree, (tuple, list)):
        return refilled(tree, (map_tensors(item, fn) for item in tree))
    if isinstance(tree, dict):
        return {key: map_tensors(item, fn) for key, item in tree.items()}
    return fn(tree) if isinstance(tree, HostTensor) else tree


# ---------------------------------------------------------------- the wire

_ALIGN = 64


SMALL_BYTES = 1 << 18  # of a bundle that is read instead of mapped


def write_bundle(fd: int, tree: Tree) -> int:
    """Writes a tree to a file descriptor (usually a memfd); returns the byte count.

    Shared storages are written once.
    """
    arrays: list[npt.NDArray[np.uint8]] = []
    header = json.dumps({"tree": _marked(_encode(tree, {}, arrays)), "sizes": [a.nbytes for a in arrays]}).encode()
    offset = _round_up(8 + len(header))
    total = offset + sum(_round_up(a.nbytes) for a in arrays)
    os.ftruncate(fd, total)
    os.pwrite(fd, len(header).to_bytes(8, "little") + header, 0)
    for array in arrays:
        _pwrite_all(fd, array, offset)
        offset += _round_up(array.nbytes)
    return total


def _encode(node: Tree, storages: dict[int, int], arrays: list[npt.NDArray[np.uint8]]) -> tuple[bool, Any]:
    """(whether a tree is plain JSON, the header's form of it).

    No closure, which would refer to itself and keep the arrays until a garbage collection.
    """
    if node is None or isinstance(node, (bool, int, str, float)):
        return True, node
    if isinstance(node, HostTensor):
        storage = node.storage  # read once: that of a held tensor is fetched, and kept by `arrays` alone
        slot = storages.setdefault(id(storage), len(arrays))
        if slot == len(arrays):
            arrays.append(storage)
        return False, {"T": [node.dtype, list(node.shape), list(node.stride), node.offset, slot]}
    if isinstance(node, TensorSpec):
        return False, {"S": [node.dtype, list(node.shape), list(node.stride)]}
    if isinstance(node, tuple):
        return False, {"t": [_marked(_encode(item, storages, arrays)) for item in node]}
    if isinstance(node, list):
        items = [_encode(item, storages, arrays) for item in node]
        if all(plain for plain, _ in items):
            return True, [item for _, item in items]
        return False, {"l": [_marked(item) for item in items]}
    if isinstance(node, dict):
        entries = [(str(key), _encode(item, storages, arrays)) for key, item in node.items()]
        if all(plain for _, (plain, _) in entries):
            return True, {key: item for key, (_, item) in entries}
        return False, {"d": [[key, _marked(item)] for key, item in entries]}
    raise TypeError(f"a bundle cannot hold a {type(node).__name__}")


def _marked(item: tuple[bool, Any]) -> Any:
    """Marks an item that is plain JSON as a whole, so that a reader need not traverse it."""
    plain, form = item
    return {"j": form} if plain else form


def read_bundle(fd: int, *, own: bool = False) -> Tree:
    """Reads a tree; large storages are mapped copy-on-write. Raises ValueError if it is malformed.

    own: copies each storage instead: a map keeps the memfd, and with it a file descriptor, open as long as it lives.
    """
    size = os.fstat(fd).st_size
    if size < 8:
        raise ValueError("bundle too short")
    mapped: mmap.mmap | bytearray
    if size <= SMALL_BYTES:  # unmapping is slow in a process that drives a GPU
        mapped = bytearray(size)
        if os.preadv(fd, [mapped], 0) != size:
            raise ValueError("bundle shrank while it was read")
    else:
        mapped = mmap.mmap(fd, size, access=mmap.ACCESS_COPY)
    raw: npt.NDArray[np.uint8] = np.frombuffer(mapped, dtype=np.uint8)
    length = int.from_bytes(raw[:8].tobytes(), "little")
    if not 0 < length <= size - 8:
        raise ValueError("bundle header out of range")
    header = json.loads(raw[8 : 8 + length].tobytes())
    storages: list[npt.NDArray[np.uint8]] = []
    offset = _round_up(8 + length)
    for nbytes in header["sizes"]:
        if not (isinstance(nbytes, int) and nbytes >= 0 and offset + nbytes <= size):
            raise ValueError("bundle storage out of range")
        storage = raw[offset : offset + nbytes]
        storages.append(storage.copy() if own and isinstance(mapped, mmap.mmap) else storage)
        offset += _round_up(nbytes)
    return _decode(header["tree"], storages)


def _decode(node: Any, storages: list[npt.NDArray[np.uint8]]) -> Tree:
    kind, value = next(iter(node.items()))
    if kind == "j":
        return value
    if kind == "T":
        dtype, shape, stride, offset, slot = value
        tensor = HostTensor(dtype, tuple(map(int, shape)), tuple(map(int, stride)), int(offset), storages[slot])
        _check_extent(tensor)
        return tensor
    if kind == "S":
        return _decode_spec(*value)
    if kind == "t":
        return tuple(_decode(item, storages) for item in value)
    if kind == "l":
        return [_decode(item, storages) for item in value]
    if kind == "d":
        return {str(key): _decode(item, storages) for key, item in value}
    raise ValueError(f"malformed bundle: {str(kind)[:20]!r}")


def _decode_spec(dtype: Any, shape: Any, stride: Any) -> TensorSpec:
    spec = TensorSpec(dtype=dtype, shape=tuple(map(int, shape)), stride=tuple(map(int, stride)))
    if dtype not in BITS or len(spec.shape) != len(spec.stride) or any(n < 0 for n in (*spec.shape, *spec.stride)):
        raise ValueError("malformed spec in bundle")
    return spec


def _check_extent(tensor: HostTensor) -> None:
    if tensor.dtype not in BITS or len(tensor.shape) != len(tensor.stride):
        raise ValueError("malformed tensor in bundle")
    if any(n < 0 for n in tensor.shape) or any(s < 0 for s in tensor.stride) or tensor.offset < 0:
        raise ValueError("negative extent in bundle")
    if tensor.numel:
        last = tensor.offset + sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride, strict=True))
        if (last + 1) * BITS[tensor.dtype].itemsize > tensor.storage.nbytes:
            raise ValueError("tensor reaches past its storage in bundle")


def _pwrite_all(fd: int, array: npt.NDArray[np.uint8], offset: int) -> None:
    view = memoryview(np.ascontiguousarray(array).data)
    while view.nbytes:
        done = os.pwrite(fd, view, offset)
        view, offset = view[done:], offset + done


def _round_up(n: int) -> int:
    return (n + _ALIGN - 1) // _ALIGN * _ALIGN
