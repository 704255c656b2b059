"""Shapes of a plan's tensors, as far as a plan's own words tell them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from hipwright.verify.admitted.reach import Reach, constant

Value = Any
"""A Reach (an integer or a truth value), SizedTensor, tuple, Plain, or None where it is not known."""


def is_sequence(value: Value) -> bool:
    """Whether a value is a tuple of values; an interval, itself a named tuple, is none."""
    return isinstance(value, tuple) and not isinstance(value, Reach)


@dataclass(frozen=True, slots=True)
class Plain:
    """A value that is no size: text, a float, None."""

    value: object


@dataclass(frozen=True, slots=True)
class SizedTensor:
    """A tensor of known shape; None where a size is not known."""

    shape: tuple[Reach | None, ...]

    @property
    def numel(self) -> Reach | None:
        """Its elements."""
        return product(self.shape)


def product(sizes: Sequence[Reach | None]) -> Reach | None:
    """The product of single sizes."""
    known = [size for size in sizes if size is not None]
    if len(known) < len(sizes) or not all(size.single for size in known):
        return None
    total = prod(size.low for size in known)
    return Reach(total, total, any(size.sized for size in known))


def _axis(tensor: SizedTensor, at: Value, extra: int = 0) -> int | None:
    rank = len(tensor.shape) + extra
    if not isinstance(at, Reach) or not at.single or not -rank <= at.low < rank:
        return None
    return at.low % rank


def _sizes(args: Sequence[Value]) -> tuple[Reach | None, ...] | None:
    parts = args[0] if len(args) == 1 and is_sequence(args[0]) else tuple(args)
    if not all(part is None or isinstance(part, Reach) for part in parts):
        return None
    return tuple(parts)


def reshaped(tensor: SizedTensor, args: Sequence[Value]) -> Value:
    """view and reshape, one size of which may be -1."""
    sizes = _sizes(args)
    if sizes is None:
        return None
    free = [i for i, size in enumerate(sizes) if size is not None and size.low == size.high == -1]
    if len(free) != 1:
        return SizedTensor(sizes)
    rest, whole = product([size for i, size in enumerate(sizes) if i != free[0]]), tensor.numel
    found = None
    if rest is not None and whole is not None and rest.low > 0:
        found = Reach(whole.low // rest.low, whole.low // rest.low, rest.sized or whole.sized)
    return SizedTensor(tuple(found if i == free[0] else size for i, size in enumerate(sizes)))


def _transpose(tensor: SizedTensor, args: Sequence[Value]) -> Value:
    places = [_axis(tensor, at) for at in args] or list(range(len(tensor.shape)))[-2:]
    if len(places) != 2 or None in places:
        return None
    a, b = places
    shape = list(tensor.shape)
    assert a is not None and b is not None
    shape[a], shape[b] = shape[b], shape[a]
    return SizedTensor(tuple(shape))


def _permute(tensor: SizedTensor, args: Sequence[Value]) -> Value:
    order = [_axis(tensor, at) for at in _sizes(args) or ()]
    if len(order) != len(tensor.shape) or None in order:
        return None
    return SizedTensor(tuple(tensor.shape[at] for at in order if at is not None))


def _unsqueeze(tensor: SizedTensor, args: Sequence[Value]) -> Value:
    at = _axis(tensor, args[0], 1) if args else None
    return None if at is None else SizedTensor((*tensor.shape[:at], constant(1), *tensor.shape[at:]))


def _squeeze(tensor: SizedTensor, args: Sequence[Value]) -> Value:
    at = _axis(tensor, args[0]) if args else None
    return None if at is None else SizedTensor((*tensor.shape[:at], *tensor.shape[at + 1 :]))


def _flatten(tensor: SizedTensor, args: Sequence[Value]) -> Value:
    given = [*args, *(constant(0), constant(-1))[len(args) :]]
    first, last = (_axis(tensor, at) for at in given[:2])
    if first is None or last is None:
        return None
    middle = product(tensor.shape[first : last + 1])
    return SizedTensor((*tensor.shape[:first], middle, *tensor.shape[last + 1 :]))


def _expand(tensor: SizedTensor, args: Sequence[Value]) -> Value:
    sizes = _sizes(args)
    if sizes is None or len(sizes) < len(tensor.shape):
        return None
    own = (*[None] * (len(sizes) - len(tensor.shape)), *tensor.shape)
    return SizedTensor(tuple(o if s is not None and s.low == -1 else s for s, o in zip(sizes, own, strict=True)))


SHAPED: dict[str, Callable[[SizedTensor, Sequence[Value]], Value]] = {
    "view": reshaped,
    "reshape": reshaped,
    "transpose": _transpose,
    "swapaxes": _transpose,
    "t": _transpose,
    "permute": _permute,
    "unsqueeze": _unsqueeze,
    "squeeze": _squeeze,
    "flatten": _flatten,
    "expand": _expand,
}
"""Methods that give another shape."""

_COPIES = "contiguous clone to type detach float half double bfloat16 int long short char byte bool"
_POINTWISE = "relu sigmoid tanh exp log sqrt rsqrt neg abs square silu gelu clamp softmax log_softmax"
_ALIKE = "empty_like zeros_like ones_like full_like"
KEEPING = frozenset((*_COPIES.split(), *_POINTWISE.split(), *_ALIKE.split()))
"""Methods and functions whose result has the shape of their first argument."""

MAKING = frozenset(["empty", "zeros", "ones", "full", "new_empty", "new_zeros", "new_ones", "new_full"])


def made(args: Sequence[Value]) -> Value:
    """torch.empty and the like: sizes come as one tuple or one by one."""
    parts = [args[0]] if args and is_sequence(args[0]) else [a for a in args if a is None or isinstance(a, Reach)]
    sizes = _sizes(parts)
    return None if sizes is None else SizedTensor(sizes)


def indexed(tensor: SizedTensor, keys: Sequence[Value]) -> Value:
    """tensor[keys] for integers, None, slices given as (start, stop, step), and "..." as Plain(...)."""
    shape: list[Reach | None] = list(tensor.shape)
    out: list[Reach | None] = []
    rank = sum(1 for key in keys if isinstance(key, (Reach, slice)))
    for key in keys:
        if isinstance(key, Plain) and key.value is None:
            out.append(constant(1))
        elif isinstance(key, Plain) and key.value is Ellipsis:
            count = len(shape) - rank
            out += shape[:count]
            shape = shape[count:]
        elif isinstance(key, Reach) and shape:
            shape.pop(0)
            rank -= 1
        elif isinstance(key, slice) and shape:
            out.append(_sliced(shape.pop(0), key))
            rank -= 1
        else:
            return None
    return SizedTensor((*out, *shape))


def _sliced(size: Reach | None, key: slice) -> Reach | None:
    ends = (key.start, key.stop, key.step)
    if size is None or not all(end is None or (isinstance(end, Reach) and end.single) for end in ends):
        return None
    bounds = slice(*(None if end is None else end.low for end in ends))
    if bounds.step is not None and bounds.step <= 0:
        return None
    count = len(range(*bounds.indices(max(size.low, 0))))
    return Reach(count, count, size.sized or any(isinstance(end, Reach) and end.sized for end in ends))
