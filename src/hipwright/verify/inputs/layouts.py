"""Layouts of input tensors: the same values elsewhere in memory."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from hipwright.tensors import BITS, HostTensor, rounded_bits
from hipwright.verify.inputs.values import F64


def with_values(like: HostTensor, values: F64) -> HostTensor:
    """`values` rounded to `like`'s dtype, dense where `like` overlaps itself, else with its strides."""
    if any(s == 0 and n > 1 for s, n in zip(like.stride, like.shape, strict=True)):
        return HostTensor.of(rounded_bits(values, like.dtype), like.dtype)
    with np.errstate(over="ignore"):
        return HostTensor.from_f64(values, like)


def restride(tensor: HostTensor) -> HostTensor:
    """The same values at an offset, every dimension stretched by a gap; gaps of float storage hold NaN."""
    if not tensor.numel:
        return tensor
    item = BITS[tensor.dtype]
    strides: list[int] = []
    step = 2
    for size in reversed(tensor.shape):
        strides.append(step)
        step = step * size + 1
    offset = 3
    last = offset + sum((n - 1) * s for n, s in zip(tensor.shape, reversed(strides), strict=True))
    storage = np.full((last + 1) * item.itemsize, 0xFF, np.uint8)  # all ones: NaN in every float format
    if tensor.dtype == "bool":
        storage[:] = 1
    out = HostTensor(tensor.dtype, tensor.shape, tuple(reversed(strides)), offset, storage)
    out.bits()[...] = tensor.bits()
    return out


def offset_by_one(tensor: HostTensor) -> HostTensor:
    """The same values, contiguous from the second element of the storage on: aligned to one element alone."""
    flat = HostTensor.of(tensor.bits(), tensor.dtype)
    item = BITS[tensor.dtype].itemsize
    storage = np.concatenate([np.zeros(item, np.uint8), flat.storage])
    return HostTensor(tensor.dtype, tensor.shape, flat.stride, 1, storage)


def permuted(tensor: HostTensor) -> HostTensor:
    """The same values with dimensions in another order in memory: channels last for four, else reversed."""
    rank = len(tensor.shape)
    order = (0, 2, 3, 1) if rank == 4 else tuple(range(rank))[::-1]
    return _in_order(tensor, order)


def transposed(tensor: HostTensor) -> HostTensor:
    """The same values with the last two dimensions exchanged in memory."""
    rank = len(tensor.shape)
    return _in_order(tensor, (*range(rank - 2), rank - 1, rank - 2)) if rank > 1 else tensor


def _in_order(tensor: HostTensor, order: tuple[int, ...]) -> HostTensor:
    """The same values, dense, with the dimensions from the slowest to the fastest in this order."""
    if not tensor.numel or len(order) < 2:
        return tensor
    flat = HostTensor.of(tensor.bits().transpose(order), tensor.dtype)
    stride = [0] * len(order)
    for place, axis in enumerate(order):
        stride[axis] = flat.stride[place]
    return HostTensor(tensor.dtype, tensor.shape, tuple(stride), 0, flat.storage)


def expanded(tensor: HostTensor) -> HostTensor:
    """One slice along the first dimension with more than one element, repeated by stride 0."""
    axis = next((axis for axis, size in enumerate(tensor.shape) if size > 1), None)
    if axis is None:
        return tensor
    one = HostTensor.of(tensor.bits().take([0], axis), tensor.dtype)
    stride = list(one.stride)
    stride[axis] = 0
    return HostTensor(tensor.dtype, tensor.shape, tuple(stride), 0, one.storage)


LAYOUTS: dict[str, Callable[[HostTensor], HostTensor]] = {
    "strided": restride,
    "offset": offset_by_one,
    "permuted": permuted,
    "transposed": transposed,
    "expanded": expanded,
}
"""Families that hold normal values (integers as given) in another layout."""
