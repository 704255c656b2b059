"""The file's own inputs at other shapes. Runs in the task host.

A tensor at a new shape consists of get_inputs' own values: sliced where it shrinks, tiled where it grows. Floats beyond
the original extent come from a draw under another seed, so rows do not repeat; past twice the extent they do. Integers
and booleans are always values that the file itself produced, so an index stays valid, but for lists that divide a size
of another input: lengths go on adding up to it, and offsets go on ending there. Lists in order stay in order, as the
edges of bins. Strides keep their pattern.

Inputs of gigabytes are not drawn to be sliced: get_inputs runs with other sizes in its own torch.rand(...), torch.randn
and the like (`Resized`), and its result is used where that gives exactly the wanted shapes. Indices that it draws below
a size are drawn below the other size.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from hipwright.task.sizes import Shapes
from hipwright.tensors import refilled
from hipwright.torchio import tensors_of


class Resized(TorchFunctionMode):  # type: ignore[misc,unused-ignore]  # torch is untyped here
    """A context in which functions that create a tensor of given sizes use the sizes in `shapes` in place of those in
    `given`.
    """

    def __init__(self, given: Shapes, shapes: Shapes) -> None:
        super().__init__()
        self._whole = dict(zip(given, shapes, strict=True))
        pairs = {(o, n) for old, new in zip(given, shapes, strict=True) for o, n in zip(old, new, strict=True)}
        # a size that becomes two different ones is recognised by its whole shape only
        self._single = {o: n for o, n in pairs if sum(other == o for other, _ in pairs) == 1}

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Runs every function; those that create tensors with other sizes."""
        kwargs = dict(kwargs or {})
        if func in _BARE and args and all(isinstance(size, int) for size in args):
            args = self._sizes(args)
        elif func in _BARE or func in (torch.full, torch.randint):
            args = tuple(self._sizes(arg) if isinstance(arg, (tuple, list)) else arg for arg in args)
            kwargs |= {"size": self._sizes(kwargs["size"])} if "size" in kwargs else {}
        if func is torch.randint:
            args, kwargs = self._below(args, kwargs)
        return func(*args, **kwargs)

    def _below(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Arguments of torch.randint with another bound where it is a size: an index into a dimension of that size."""
        whole = [place for place, arg in enumerate(args) if isinstance(arg, int)]
        if "high" in kwargs:
            return args, {**kwargs, "high": self._single.get(kwargs["high"], kwargs["high"])}
        if not whole:
            return args, kwargs
        high = whole[-1]
        return (*args[:high], self._single.get(args[high], args[high]), *args[high + 1 :]), kwargs

    def _sizes(self, sizes: Sequence[int]) -> tuple[int, ...]:
        old = tuple(sizes)
        return self._whole.get(old) or tuple(self._single.get(size, size) for size in old)


_FEW = 8  # whole numbers from which on it is no chance that none occurs twice
_STEPS = 3  # numbers of a row that are above the one before them, from which on the row is in order by no chance
_BARE = (torch.rand, torch.randn, torch.zeros, torch.ones, torch.empty)  # these also take sizes as separate arguments


def resize_all(inputs: Sequence[Any], other: Sequence[Any], shapes: Shapes) -> list[Any]:
    """`inputs` with its tensor leaves resized in order; `other` is a second draw of the same structure."""
    leaves, fresh = iter(shapes), tensors_of(other)
    given = [tuple(tensor.shape) for tensor in tensors_of(inputs)]

    def walk(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            twin = next(fresh)
            return _dividing(value, twin, resize(value, twin, next(leaves)), given, shapes)
        if isinstance(value, (tuple, list)):
            return refilled(value, map(walk, value))
        return {key: walk(item) for key, item in value.items()} if isinstance(value, dict) else value

    return [walk(value) for value in inputs]


def resize(tensor: torch.Tensor, other: torch.Tensor, shape: tuple[int, ...]) -> torch.Tensor:
    """One tensor at another shape, by the rules in the module's docstring."""
    if shape == tuple(tensor.shape):
        return tensor
    if _overlaps(tensor):
        return _resize_storage(tensor, shape)
    out = _like(tensor, shape)
    if out.numel() == 0 or tensor.numel() == 0:
        return out.zero_()
    target = _unexpanded(out)
    target.copy_(_unexpanded(_tiled(tensor, shape), out))
    if _distinct(tensor) and other.shape == tensor.shape and shape[0] > tensor.shape[0]:
        target.copy_(_grown(tensor, other, shape[0]))
    if _ascends(tensor) and other.shape == tensor.shape and _ascends(other):
        target.copy_(target.sort().values)
    if tensor.is_floating_point() and other.shape == tensor.shape:
        _refresh(target, _unexpanded(_tiled(other, shape), out), tuple(tensor.shape))
        if rises(tensor) and rises(other):
            target.copy_(wide(target).sort(-1).values)
    return out


def rises(tensor: torch.Tensor) -> bool:
    """Whether every row of a float tensor is a list in order, as the edges of bins or the places of a table.

    No number is below the one before it, and `_STEPS` are above it, or all of fewer: a row of zeros is no such list.
    """
    if not tensor.is_floating_point() or not tensor.dim() or tensor.shape[-1] < 2 or not tensor.numel():
        return False
    if bool((wide(tensor[..., :_FEW]).diff(dim=-1) < 0).any()):  # of nearly all tensors the first few tell
        return False
    steps = wide(tensor).diff(dim=-1)
    least = min(_STEPS, steps.shape[-1])
    return bool((steps >= 0).all() and ((steps > 0).sum(-1) >= least).all())


def wide(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor as operators take it: 8-bit floats, which most refuse, as float32."""
    return tensor.float() if tensor.is_floating_point() and tensor.element_size() == 1 else tensor


def _tiled(tensor: torch.Tensor, shape: Sequence[int]) -> torch.Tensor:
    for dim, (old, new) in enumerate(zip(tensor.shape, shape, strict=True)):
        if new != old:
            tensor = tensor.index_select(dim, torch.arange(new) % old)
    return tensor


def _distinct(tensor: torch.Tensor) -> bool:
    """Whether a leaf is a list of whole numbers none of which occurs twice, as the slots that a cache is written at."""
    return _is_list(tensor) and tensor.numel() >= _FEW and tensor.unique().numel() == tensor.numel()


def _ascends(tensor: torch.Tensor) -> bool:
    """Whether a leaf is a list of whole numbers in order, as the offsets at which bags or sequences begin."""
    return _is_list(tensor) and tensor.numel() > 1 and bool((tensor.diff() >= 0).all())


def _dividing(
    tensor: torch.Tensor, other: torch.Tensor, resized: torch.Tensor, given: Sequence[tuple[int, ...]], shapes: Shapes
) -> torch.Tensor:
    """`resized`, or where two draws of it divide one size of the inputs, numbers that divide its new size.

    Lengths add up to the size, row by row, and offsets ascend from 0 to it. given, shapes: those of all inputs.
    """
    whole = not tensor.is_floating_point() and not tensor.is_complex() and tensor.dtype != torch.bool
    if not whole or not tensor.dim() or min(tensor.shape[-1], resized.numel()) < 2 or other.numel() < 2:
        return resized
    offsets = _ascends(tensor) and _ascends(other) and int(tensor[0]) == int(other[0]) == 0
    ends = [one[-1:] if offsets else one.sum(-1) for one in (tensor, other)]
    size = int(ends[0].reshape(-1)[0])
    if any(bool((one != size).any()) for one in ends) or int(min(tensor.min(), other.min())) < 0:
        return resized
    if not offsets and (int(tensor.max()) < 2 or _permutes(tensor)):  # a mask, or places
        return resized
    news = {n for old, new in zip(given, shapes, strict=True) for o, n in zip(old, new, strict=True) if o == size}
    if len(news) != 1 or size < 2:
        return resized
    made, new = resized.clone(), news.pop()
    if offsets:
        made.copy_(resized.long() * new // (int(resized[-1]) or 1))[-1] = new
    else:
        made.copy_(_adding_up(resized, new, int(tensor.min())))
    return made


def _permutes(tensor: torch.Tensor) -> bool:
    """Whether a list holds every number below its length, whose sum is always the same."""
    return tensor.dim() == 1 and bool(tensor.sort().values.tolist() == [*range(tensor.numel())])


def _adding_up(lengths: torch.Tensor, size: int, least: int) -> torch.Tensor:
    """Rows of lengths in the proportions of those given that add up to a size; none is 0 where `least` is not."""
    low = min(least, 1, size // lengths.shape[-1])
    ends = (lengths - low).clamp(min=0).cumsum(-1)
    scaled = torch.nn.functional.pad(ends, (1, 0)) * (size - low * lengths.shape[-1]) // ends[..., -1:].clamp(min=1)
    found = scaled.diff(dim=-1) + low
    found[..., -1] += size - found.sum(-1)
    return found


def _is_list(tensor: torch.Tensor) -> bool:
    whole = not tensor.is_floating_point() and not tensor.is_complex() and tensor.dtype != torch.bool
    return whole and tensor.dim() == 1


def _grown(tensor: torch.Tensor, other: torch.Tensor, size: int) -> torch.Tensor:
    """`size` numbers, those of the tensor first: then others between the least and the largest of two draws, as long as
    there are any, so that none occurs twice.
    """
    seen = torch.cat([tensor, other])
    known = set(tensor.tolist())
    low, high = int(seen.min()), int(seen.max())
    free = [n for n in [*dict.fromkeys(other.tolist()), *range(low, min(high, low + 2 * size) + 1)] if n not in known]
    behind = list(dict.fromkeys(free))[: size - tensor.numel()]
    grown = torch.cat([tensor, torch.tensor(behind, dtype=tensor.dtype)])
    return grown[torch.arange(size) % grown.numel()]


def _refresh(target: torch.Tensor, fresh: torch.Tensor, old: tuple[int, ...]) -> None:
    for dim, size in enumerate(old):
        if target.shape[dim] > size:
            part = (slice(None),) * dim + (slice(size, None),)
            target[part] = fresh[part]


def strides_like(tensor: torch.Tensor, shape: Sequence[int]) -> tuple[int, ...]:
    """Strides for another shape with the pattern of `tensor`: order of dimensions, 0-strides and gaps."""
    if _overlaps(tensor):
        return tuple(tensor.stride())
    strides = [0] * tensor.dim()
    extent = old_extent = 1
    for dim in sorted(range(tensor.dim()), key=lambda d: (tensor.stride(d), tensor.shape[d] > 1, -d)):
        if tensor.stride(dim) == 0:
            continue
        gap = tensor.stride(dim) - old_extent if tensor.shape[dim] > 1 else 0
        strides[dim] = extent + max(gap, 0)
        old_extent = tensor.stride(dim) * tensor.shape[dim] if tensor.shape[dim] > 1 else old_extent
        extent = strides[dim] * max(shape[dim], 1)
    return tuple(strides)


def _like(tensor: torch.Tensor, shape: Sequence[int]) -> torch.Tensor:
    """Zeros with the stride pattern and offset of `tensor`."""
    strides, offset = strides_like(tensor, shape), int(tensor.storage_offset())
    last = offset + sum((n - 1) * s for n, s in zip(shape, strides, strict=True)) if all(shape) else offset
    return torch.as_strided(torch.zeros(last + 1, dtype=tensor.dtype), tuple(shape), strides, offset)


def _unexpanded(tensor: torch.Tensor, like: torch.Tensor | None = None) -> torch.Tensor:
    """One element along the dimensions that have stride 0 (in `like`)."""
    for dim, stride in enumerate((tensor if like is None else like).stride()):
        if stride == 0:
            tensor = tensor.narrow(dim, 0, 1)
    return tensor


def _overlaps(tensor: torch.Tensor) -> bool:
    """Whether two elements share memory other than by stride 0 (sliding windows)."""
    extent = 1
    dims = [(s, n) for s, n in zip(tensor.stride(), tensor.shape, strict=True) if s and n > 1]
    for stride, size in sorted(dims):
        if stride < extent:
            return True
        extent = stride * (size - 1) + extent
    return False


def _resize_storage(tensor: torch.Tensor, shape: tuple[int, ...]) -> torch.Tensor:
    flat = torch.empty(0, dtype=tensor.dtype).set_(tensor.untyped_storage())
    last = tensor.storage_offset() + sum((n - 1) * s for n, s in zip(shape, tensor.stride(), strict=True))
    index = torch.arange(max(last + 1, 1)) % flat.numel()
    return torch.as_strided(flat[index], shape, tensor.stride(), tensor.storage_offset())
