"""Input families: kinds of values for verification beside those that `get_inputs` draws.

A family rewrites the float leaves of a base tree; integer and bool leaves stay as `get_inputs` made them (the caller
draws the base under another seed for each family). Values come from a counter-based generator keyed by (seed, workload,
family, leaf), so any case can be drawn again alone.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import sqrt
from typing import Any

import numpy as np
import numpy.typing as npt

from hipwright.tensors import BITS, HostTensor, Tree, map_tensors, tensor_leaves, to_bf16_bits
from hipwright.verify.tolerance import UNIT

F64 = npt.NDArray[np.float64]
Rng = np.random.Generator

SHIFT = 30.0  # mean of the shifted family, in standard deviations
OUTLIER_SHARE = 1e-3
LARGE_SCALES = (1e4, 1e2, 1e1)  # tried in turn until the reference stays representable
_DISCRETE = 16  # a leaf with at most this many distinct values holds labels


def generator(seed: int, *parts: object) -> Rng:
    """Philox keyed by the parts: equal parts give equal streams on every machine."""
    digest = hashlib.sha256("\x1f".join(map(str, (seed, *parts))).encode()).digest()
    return np.random.Generator(np.random.Philox(key=int.from_bytes(digest[:16], "little")))


# ---------------------------------------------------------------- families


def _uniform(rng: Rng, like: HostTensor) -> F64:
    return rng.uniform(-1.0, 1.0, like.shape)


def _normal(rng: Rng, like: HostTensor) -> F64:
    return rng.standard_normal(like.shape)


def _shifted(rng: Rng, like: HostTensor) -> F64:
    return rng.standard_normal(like.shape) + SHIFT


def _outliers(rng: Rng, like: HostTensor) -> F64:
    values = rng.standard_normal(like.shape).reshape(-1)
    count = max(1, int(values.size * OUTLIER_SHARE)) if values.size else 0
    if not count:
        return values.reshape(like.shape)
    where = rng.choice(values.size, count, replace=False)
    values[where] = rng.uniform(20.0, 100.0, count) * rng.choice([-1.0, 1.0], count)
    return values.reshape(like.shape)


def _tiny(rng: Rng, like: HostTensor) -> F64:
    return rng.standard_normal(like.shape) * (1e-3 if like.dtype == "float16" else 1e-4)


def _zeros90(rng: Rng, like: HostTensor) -> F64:
    return rng.standard_normal(like.shape) * (rng.random(like.shape) < 0.1)


def _constant_rows(rng: Rng, like: HostTensor) -> F64:
    rows = rng.standard_normal((*like.shape[:-1], 1)) if like.shape else rng.standard_normal(())
    return np.broadcast_to(rows, like.shape).copy()


def _sorted(rng: Rng, like: HostTensor) -> F64:
    values = rng.standard_normal(like.shape)
    return np.sort(values, axis=-1) if like.shape else values


def _cancelling(rng: Rng, like: HostTensor) -> F64:
    values = rng.standard_normal(like.shape).reshape(-1)
    half = values.size // 2
    values[1 : 2 * half : 2] = -values[0 : 2 * half : 2]
    return (values + 1e-3 * rng.standard_normal(values.size)).reshape(like.shape)


def _mantissa(rng: Rng, like: HostTensor) -> F64:
    """+-(1 + 2^-k): bits that a conversion to a shorter format would lose."""
    low, high = {"float16": (5, 11), "bfloat16": (3, 8)}.get(like.dtype, (11, 24))
    steps = 2.0 ** -rng.integers(low, high, like.shape).astype(np.float64)
    return rng.choice([-1.0, 1.0], like.shape) * (1.0 + steps)


def _ties(rng: Rng, like: HostTensor) -> F64:
    return rng.choice([-1.0, -0.5, 0.0, 0.5, 1.0], like.shape)


def _denormals(rng: Rng, like: HostTensor) -> F64:
    values = rng.standard_normal(like.shape)
    small = 1e-6 if like.dtype == "float16" else 1e-40
    return np.where(rng.random(like.shape) < 0.5, values * small, values)


FLOAT_FAMILIES: dict[str, Callable[[Rng, HostTensor], F64]] = {
    "normal": _normal,
    "uniform": _uniform,
    "shifted": _shifted,
    "outliers": _outliers,
    "tiny": _tiny,
    "large": _normal,
    "zeros90": _zeros90,
    "constant_rows": _constant_rows,
    "sorted": _sorted,
    "cancelling": _cancelling,
    "mantissa": _mantissa,
    "ties": _ties,
    "denormals": _denormals,
    "strided": _normal,
}
MASK_FAMILIES = {"masks_on": True, "masks_off": False}
FAMILIES = ("given", *FLOAT_FAMILIES, *MASK_FAMILIES)


def applicable(base: Tree, domain: Domain) -> tuple[str, ...]:
    """The families that change these inputs; masks only where there are bool leaves."""
    found = ["given"]
    tensors = tensor_leaves(base)
    free = [leaf.fixed is False for leaf in domain.leaves]
    if any(free):
        found += FLOAT_FAMILIES
    elif tensors:
        found.append("strided")
    if any(t.dtype == "bool" for t in tensors):
        found += MASK_FAMILIES
    return tuple(found)


# ---------------------------------------------------------------- the task's own domain


@dataclass(frozen=True)
class InputLeaf:
    """The domain of one leaf, as its given values show it.

    fixed: keep as given (integers, labels). low, high: given range. zeros: positions that are 0 under every seed, when
    they are a pattern (a triangle, a mask). symmetric: equal to its transpose. normalised: rows sum to 1.
    """

    fixed: bool = True
    low: float = 0.0
    high: float = 0.0
    zeros: npt.NDArray[np.bool_] | None = None
    symmetric: bool = False
    normalised: bool = False


@dataclass(frozen=True)
class Domain:
    """The leaves' domains. `restricted` keeps non-negative leaves non-negative, and within [0, 1] if they were."""

    leaves: tuple[InputLeaf, ...]
    restricted: bool = False
    large: float = LARGE_SCALES[0]


def observe(first: Tree, second: Tree) -> Domain:
    """The domain that two draws of `get_inputs` show."""
    pairs = zip(tensor_leaves(first), tensor_leaves(second), strict=True)
    return Domain(tuple(_observe_leaf(a, b) for a, b in pairs))


def _observe_leaf(a: HostTensor, b: HostTensor) -> InputLeaf:
    if not a.is_float or not a.numel or a.shape != b.shape:
        return InputLeaf()
    x, y = a.to_f64(), b.to_f64()
    if not (np.isfinite(x).all() and np.isfinite(y).all()):
        return InputLeaf()
    if x.size > 2 * _DISCRETE and len(np.unique(x)) <= _DISCRETE and len(np.unique(np.concatenate([x, y]))) > 1:
        return InputLeaf()
    zeros = (x == 0) & (y == 0)
    pattern = bool(0.2 * x.size < zeros.sum() < x.size)
    square = x.ndim >= 2 and x.shape[-1] == x.shape[-2] and x.shape[-1] > 1
    return InputLeaf(
        fixed=False,
        low=float(min(x.min(), y.min())),
        high=float(max(x.max(), y.max())),
        zeros=zeros if pattern else None,
        symmetric=bool(square and np.array_equal(x, np.swapaxes(x, -1, -2))),
        normalised=bool(x.ndim and x.shape[-1] > 1 and x.min() >= 0 and np.allclose(x.sum(-1), 1.0, atol=1e-2)),
    )


# ---------------------------------------------------------------- making a case


def make(base: Tree, family: str, domain: Domain, seed: int, workload: str) -> Tree:
    """`base` with the family applied to its free float leaves (and bool leaves for the mask families)."""
    if family == "given":
        return base
    counter = iter(range(len(domain.leaves)))
    copies: dict[int, HostTensor] = {}

    def one(tensor: HostTensor) -> HostTensor:
        index = next(counter)
        key = id(tensor)
        if key not in copies:
            copies[key] = _leaf(tensor, domain, index, family, generator(seed, workload, family, index))
        return copies[key]

    return map_tensors(base, one)


def _leaf(tensor: HostTensor, domain: Domain, index: int, family: str, rng: Rng) -> HostTensor:
    leaf = domain.leaves[index]
    if family in MASK_FAMILIES:
        if tensor.dtype == "bool":
            return HostTensor.of(np.full(tensor.shape, MASK_FAMILIES[family]))
        return tensor
    out = tensor
    if not leaf.fixed and tensor.numel:
        values = FLOAT_FAMILIES[family](rng, tensor)
        if family == "large":
            values = values * min(domain.large, 100.0 if tensor.dtype == "float16" else domain.large)
        out = with_values(tensor, _into_domain(values, leaf, domain.restricted))
    return restride(out) if family == "strided" else out


def _into_domain(values: F64, leaf: InputLeaf, restricted: bool) -> F64:
    if leaf.zeros is not None and leaf.zeros.shape == values.shape:
        values = np.where(leaf.zeros, 0.0, values)
    if leaf.symmetric:
        values = (values + np.swapaxes(values, -1, -2)) / 2
    if not restricted or leaf.low < 0:
        return values
    values = np.abs(values)
    if leaf.normalised:
        total = values.sum(-1, keepdims=True)
        return np.where(total > 0, values / np.where(total > 0, total, 1.0), 1.0 / values.shape[-1])
    if leaf.low > 0:
        values = values + leaf.low
    if leaf.high <= 1.0 and values.size and values.max() > 0:
        top = values.max()
        values = values * (leaf.high / top)
        values = np.maximum(values, leaf.low)
    return values


def with_values(like: HostTensor, values: F64) -> HostTensor:
    """`values` rounded to `like`'s dtype, dense where `like` overlaps itself, else with its strides."""
    if any(s == 0 and n > 1 for s, n in zip(like.stride, like.shape, strict=True)):
        bits = to_bf16_bits(values) if like.dtype == "bfloat16" else values.astype(BITS[like.dtype])
        return HostTensor.of(bits, like.dtype)
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


def nudge(tree: Tree, seed: int, *, rounded: bool = False) -> Tree:
    """The tree with every float element moved at random by as much as an honest kernel rounds.

    The result is float64, or rounded to each leaf's own dtype (state tables must keep theirs).

    An element moves by half an ulp of its dtype; for float32 and float64, where kernels also accumulate in that dtype,
    by a third of sqrt(K) units: the random walk of a serial sum over the longest dimension K (at most 1024 terms in one
    thread). Half of it has the same direction for all elements, away from zero: independent nudges would average out in
    a sum, whose own rounding does not. Where a row holds one value, a serial sum rounds the same way at every step, and
    its error grows with K, up to K / 2 units (Higham, section 4.2): there elements move by up to a quarter of that.
    """
    rng = generator(seed, "nudge")

    def one(tensor: HostTensor) -> HostTensor:
        if not tensor.is_float or not tensor.numel:
            return tensor
        terms = min(max(tensor.shape, default=1), 1024) if tensor.dtype in ("float32", "float64") else 1
        size: Any = UNIT[tensor.dtype] * max(1.0, sqrt(terms) / 3)
        values = tensor.to_f64()
        if terms > 1:
            equal = np.all(values == values[..., :1], axis=-1, keepdims=True)
            size = np.where(equal, np.maximum(size, UNIT[tensor.dtype] * terms / 8), size)
        relative = size * (rng.uniform(-1.0, 1.0, tensor.shape) + 0.5 * np.sign(values))
        moved = np.where(np.isfinite(values), values * (1.0 + relative), values)
        return with_values(tensor, moved) if rounded else HostTensor.of(moved)

    return map_tensors(tree, one)


# ---------------------------------------------------------------- parameters and buffers


def randomise_state(state: Tree, other: Tree, seed: int, name: str) -> Tree:
    """The state table with constant defaults replaced: no bias is 0, no gamma 1, no running statistic the initial one.

    other: a second `init_state` under another seed. A float leaf that differs between the two was drawn at random and
    stays; a constant one gets noise around it (positive stays positive); a fixed table stays.
    """
    fresh: dict[tuple[int, int, tuple[int, ...]], HostTensor] = {}

    def table(kind: str) -> dict[str, HostTensor]:
        return {path: one(kind, path, tensor) for path, tensor in state[kind].items()}

    def one(kind: str, path: str, tensor: HostTensor) -> HostTensor:
        key = (id(tensor.storage), tensor.offset, tensor.shape)  # tied weights stay tied
        if key not in fresh:
            twin = other[kind].get(path)
            fresh[key] = _noisy(tensor, twin, generator(seed, name, kind, path))
        return fresh[key]

    return {**state, "params": table("params"), "buffers": table("buffers")}


def _noisy(tensor: HostTensor, twin: HostTensor | None, rng: Rng) -> HostTensor:
    if not tensor.is_float or not tensor.numel:
        return tensor
    values = tensor.to_f64()
    first = float(values.flat[0])
    if not np.isfinite(values).all() or not (values == first).all():
        return tensor
    if twin is not None and twin.shape == tensor.shape and not np.array_equal(twin.to_f64(), values):
        return tensor  # a single random element
    if first == 0.0:
        return with_values(tensor, 0.3 * rng.standard_normal(tensor.shape))
    return with_values(tensor, first * rng.uniform(0.5, 1.5, tensor.shape))


def same_shapes(a: Sequence[HostTensor], b: Sequence[HostTensor]) -> bool:
    """Whether two lists of leaves have equal shapes and dtypes."""
    return [(t.shape, t.dtype) for t in a] == [(t.shape, t.dtype) for t in b]
