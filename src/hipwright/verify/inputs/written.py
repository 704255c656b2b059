"""Inputs that the task writes: their paths, what they hold before a call, and which of their elements stay."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from hipwright.tensors import BITS, HostTensor, Tree

Mask = npt.NDArray[np.bool_]


def named_leaves(tree: Tree, path: str = "inputs") -> Iterator[tuple[str, HostTensor]]:
    """(path, tensor) in order, with the paths that the task host gives: inputs[0], inputs[1]['k']."""
    if isinstance(tree, HostTensor):
        yield path, tree
    elif isinstance(tree, Mapping):
        for key, item in tree.items():
            yield from named_leaves(item, f"{path}[{key!r}]")
    elif isinstance(tree, (list, tuple)):
        for index, item in enumerate(tree):
            yield from named_leaves(item, f"{path}[{index}]")


def is_input(path: str) -> bool:
    """Whether a path of the state after a call is an input's; else it is a buffer's."""
    return path.startswith("inputs[")


def written_paths(after: Iterable[str]) -> tuple[str, ...]:
    """The inputs among the paths of the state after a call."""
    return tuple(path for path in after if is_input(path))


def buffers_of(after: Mapping[str, HostTensor]) -> dict[str, HostTensor]:
    """The module's buffers in the state after a call."""
    return {path: tensor for path, tensor in after.items() if not is_input(path)}


def state_before(after: Iterable[str], inputs: Tree, state: Tree) -> dict[str, HostTensor]:
    """What each leaf of the state after a call held before it."""
    given = dict(named_leaves(inputs))
    return {path: given[path] if is_input(path) else state["buffers"][path] for path in after}


def state_name(path: str) -> str:
    """A leaf of the state after a call, as messages name it."""
    return f"{path} after the call" if is_input(path) else f"buffer {path}"


def changed_input(inputs: Tree, written: Collection[str], number: int) -> str:
    """What a call changed that it must not, in words. number: of the input; written: those that the task writes."""
    paths = [path for path, _ in named_leaves(inputs)]
    path = paths[number] if number < len(paths) else ""
    return f"memory between the elements of {path}" if path in written else f"input {number}"


def stays(
    path: str,
    native: tuple[HostTensor, HostTensor],
    runs: Sequence[tuple[Tree, Mapping[str, HostTensor]]],
) -> Mask | None:
    """Where no run of the reference changes an input, to the bit; None where it changes every element.

    native: the input before and after the run in the task's own dtypes; runs: (inputs, state afterwards) of the others,
    on nudged inputs among them, where an element that is written with its own value by chance does not stay.
    """
    mask: Mask = raw_bits(native[0]) == raw_bits(native[1])
    for inputs, after in runs:
        before = dict(named_leaves(inputs))[path].to_f64()
        left = after[path].to_f64()
        mask &= (before == left) | (np.isnan(before) & np.isnan(left))
    return mask if mask.any() else None


def raw_bits(tensor: HostTensor) -> npt.NDArray[Any]:
    """The stored bits as unsigned integers, of the shape of `HostTensor.to_f64`: -0 is not 0, a NaN equals itself."""
    bits = tensor.bits()
    if tensor.is_complex:
        bits = np.ascontiguousarray(bits)[..., None].view(bits.real.dtype)
    return bits.view(f"u{bits.dtype.itemsize}")


def overlapping(inputs: Tree, written: Iterable[str]) -> tuple[str, str] | None:
    """(a written input, another one that holds an element of it), for the first such pair; None without one."""
    leaves = dict(named_leaves(inputs))
    for path in written:
        for other, tensor in leaves.items():
            if other != path and tensor.storage is leaves[path].storage and _meet(leaves[path], tensor):
                return path, other
    return None


def folded_inputs(inputs: Tree, written: Collection[str]) -> str:
    """A written input of which several elements are one in memory, such as an expanded one; "" without any."""
    return next((path for path, tensor in named_leaves(inputs) if path in written and _folded(tensor)), "")


def _folded(tensor: HostTensor) -> bool:
    reach = 1  # elements of memory that the dimensions of smaller strides span
    for stride, size in sorted((s, n) for s, n in zip(tensor.stride, tensor.shape, strict=True) if n > 1):
        if stride < reach:
            return tensor.numel > 0
        reach += stride * (size - 1)
    return False


def _meet(a: HostTensor, b: HostTensor) -> bool:
    """Whether two tensors on one storage have a byte in common."""
    if not a.numel or not b.numel:
        return False
    spans = [_span(one) for one in (a, b)]
    if spans[0][1] <= spans[1][0] or spans[1][1] <= spans[0][0]:
        return False
    marks = np.zeros(a.storage.nbytes, np.uint8)
    _bytes_of(marks, a)[...] = 1
    return bool(_bytes_of(marks, b).any())


def _span(tensor: HostTensor) -> tuple[int, int]:
    """The first byte of a tensor in its storage, and the one after its last."""
    size = BITS[tensor.dtype].itemsize
    last = tensor.offset + sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride, strict=True))
    return tensor.offset * size, (last + 1) * size


def _bytes_of(marks: npt.NDArray[np.uint8], tensor: HostTensor) -> npt.NDArray[np.uint8]:
    """The bytes of a tensor's elements, as a view of one mark for each byte of its storage."""
    size = BITS[tensor.dtype].itemsize
    strides = (*(s * size for s in tensor.stride), 1)
    start = marks[tensor.offset * size :]
    return np.lib.stride_tricks.as_strided(start, (*tensor.shape, size), strides)
