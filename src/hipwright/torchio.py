"""torch tensors <-> HostTensor. Imports torch: only worker processes import this module."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Any

import numpy as np
import torch

from hipwright.tensors import BITS, HostTensor, Tree, refilled

DTYPES = {name: getattr(torch, name) for name in BITS}
NAMES = {dtype: name for name, dtype in DTYPES.items()}
INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
"""By the bytes of an element: the types as which the bits of any others are compared."""


def to_torch(tensor: HostTensor) -> torch.Tensor:
    """A torch view of the same memory, same strides and offset (a copy when the storage is read-only or empty)."""
    dtype = DTYPES[tensor.dtype]
    if tensor.numel == 0:
        return torch.empty_strided(tensor.shape, tensor.stride, dtype=dtype)
    storage = tensor.storage if tensor.storage.flags.writeable else tensor.storage.copy()
    item = BITS[tensor.dtype].itemsize
    flat = torch.from_numpy(storage[: storage.nbytes // item * item]).view(dtype)
    return torch.as_strided(flat, tensor.shape, tensor.stride, tensor.offset)


def from_torch(tensor: torch.Tensor, seen: dict[int, Any] | None = None) -> HostTensor:
    """A HostTensor with the same strides over a copy of the storage; `seen` keeps shared storages shared."""
    tensor = tensor.detach().resolve_conj().resolve_neg().cpu()
    if tensor.dtype not in NAMES:
        raise TypeError(f"tensors of {tensor.dtype} are not supported")
    seen = {} if seen is None else seen
    storage = tensor.untyped_storage()
    # the storage itself is kept beside the copy so that its id cannot be reused while `seen` lives
    entry = seen.get(storage._cdata)
    if entry is None:
        raw = np.empty(0, np.uint8)
        if storage.nbytes():
            raw = torch.empty(0, dtype=torch.uint8).set_(storage).numpy().copy()
        entry = seen[storage._cdata] = (raw, storage)
    return HostTensor(
        NAMES[tensor.dtype], tuple(tensor.shape), tuple(tensor.stride()), tensor.storage_offset(), entry[0]
    )


def tree_to_torch(tree: Tree) -> Any:
    """The same nesting with torch tensors; tensors that shared a storage share it again."""
    if isinstance(tree, (tuple, list)):
        return refilled(tree, map(tree_to_torch, tree))
    if isinstance(tree, dict):
        return {key: tree_to_torch(item) for key, item in tree.items()}
    return to_torch(tree) if isinstance(tree, HostTensor) else tree


def tree_from_torch(value: Any, seen: dict[int, Any] | None = None) -> Tree:
    """The same nesting with HostTensors. Raises TypeError on a leaf that cannot be compared."""
    seen = {} if seen is None else seen
    if isinstance(value, torch.Tensor):
        return from_torch(value, seen)
    if isinstance(value, tuple):  # named tuples too: their names are not compared
        return tuple(tree_from_torch(item, seen) for item in value)
    if isinstance(value, list):
        return [tree_from_torch(item, seen) for item in value]
    if isinstance(value, dict):
        return {str(key): tree_from_torch(item, seen) for key, item in value.items()}
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise TypeError(f"a {type(value).__name__} cannot be passed between processes")


def with_copies(value: Any, paths: Collection[str], path: str = "inputs") -> Any:
    """A nesting with copies of the tensors at these paths (inputs[0], inputs[1]['k']), of their strides."""
    if isinstance(value, torch.Tensor):
        if path not in paths:
            return value
        return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=value.device).copy_(value)
    if isinstance(value, (tuple, list)):
        return refilled(value, (with_copies(item, paths, f"{path}[{index}]") for index, item in enumerate(value)))
    if isinstance(value, dict):
        return {key: with_copies(item, paths, f"{path}[{str(key)!r}]") for key, item in value.items()}
    return value


def map_torch(value: Any, fn: Callable[[torch.Tensor], Any]) -> Any:
    """The same nesting with fn applied to each tensor."""
    if isinstance(value, (tuple, list)):
        return refilled(value, (map_torch(item, fn) for item in value))
    if isinstance(value, dict):
        return {key: map_torch(item, fn) for key, item in value.items()}
    return fn(value) if isinstance(value, torch.Tensor) else value


def tensors_of(value: Any) -> Iterator[torch.Tensor]:
    """The tensors of a nesting of lists, tuples and dictionaries, in order."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple, dict)):
        for item in value.values() if isinstance(value, dict) else value:
            yield from tensors_of(item)


_UNFROZEN = torch.backends.disable_global_flags.__globals__["__allow_nonbracketed_mutation"]


def full_precision() -> None:
    """float32 means float32 in this process: no TF32 in products, convolutions and recurrent layers.

    torch allows cuDNN TF32 by default, whose 10-bit mantissas no verification of float32 lets pass. Candidates and
    baselines run under the same setting; a task file may ask for more speed, for its baseline alone. torch's own test
    modules freeze such settings for a process that imports them: this function sets them there too.
    """
    with _UNFROZEN():
        torch.backends.cuda.matmul.allow_tf32 = False
        torch.backends.cudnn.allow_tf32 = False
