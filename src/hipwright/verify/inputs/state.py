"""States of a task's model for verification: constant defaults replaced, values nudged."""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt
from typing import Any

import numpy as np

from hipwright.held import held
from hipwright.task.nudges import CATEGORIES, CATEGORY_SAMPLE, NOISE_TILE, NUDGES, Nudge
from hipwright.tensors import COMPLEX, HostTensor, Tree, map_tensors, rounded_bits, wide
from hipwright.verify.inputs.layouts import with_values
from hipwright.verify.inputs.values import F64, Rng, generator
from hipwright.verify.tolerance import ROUNDING

_CACHED = 1 << 17  # elements that stay in a processor's cache


def nudge(
    tree: Tree,
    seed: int,
    *,
    rounded: bool = False,
    way: Nudge = NUDGES[0],
    still: Sequence[float] = (),
    categories: bool = True,
) -> Tree:
    """The tree with every float element moved at random by as much as an honest kernel rounds.

    The result is float64, or rounded to each leaf's own dtype (state tables must keep theirs). way: by how many times
    as much, and in which direction all elements move. still: numbers that do not move: what the reference compares
    inputs with, since an input has not been rounded when it is compared. categories: nor does a leaf of few whole
    numbers move (`task.nudges.CATEGORIES`).

    An element moves by half an ulp of its dtype, one of 8 bits by bfloat16's (`tolerance.ROUNDING`); for float32 and
    float64, where kernels also accumulate in that dtype, by a third of sqrt(K) units: the random walk of a serial sum
    over the longest dimension K (at most 1024 terms in one thread). Half of it has the same direction for all elements
    (`Nudge.scaling`): independent nudges would average out in a sum, whose own rounding does not. Where a row holds one
    value, a serial sum rounds the same way at every step, and its error grows with K, up to K / 2 units (Higham,
    section 4.2): there elements move by up to a quarter of that.
    """
    rng = generator(seed, "nudge")

    def one(tensor: HostTensor) -> HostTensor:
        if not tensor.is_float or not tensor.numel:
            return tensor
        summed = COMPLEX.get(tensor.dtype, tensor.dtype) in ("float32", "float64")
        terms = min(max(tensor.shape, default=1), 1024) if summed else 1
        step = ROUNDING[tensor.dtype] * max(1.0, sqrt(terms) / 3)
        values = tensor.to_f64()
        if categories and _categorical(values):
            return tensor if rounded else _wide(tensor, values)
        held = np.zeros(0)
        if len(still):
            part = COMPLEX.get(tensor.dtype, tensor.dtype)
            held = HostTensor.of(rounded_bits(np.asarray(still, np.float64), part), part).to_f64()
        moved = np.array(values, order="C")
        rows = moved.reshape(-1, moved.shape[-1] if moved.ndim else 1)
        tile = rng.uniform(-1.0, 1.0, min(rows.size, NOISE_TILE))
        many = max(1, _CACHED // rows.shape[1])
        for first in range(0, len(rows), many):
            some = rows[first : first + many]
            by = _repeated(tile, first * rows.shape[1], some.size).reshape(some.shape)
            by += 0.5 if way.scaling else 0.5 * np.sign(some)
            by *= way.size * (_row_step(some, step, ROUNDING[tensor.dtype] * terms / 8) if terms > 1 else step)
            if len(held):
                by[np.isin(some, held)] = 0.0
            some *= by + 1.0  # what is not finite stays so
        return with_values(tensor, moved) if rounded else _wide(tensor, moved)

    return map_tensors(tree, one)


def _repeated(tile: F64, start: int, count: int) -> F64:
    """A copy of `count` numbers, from `start` on, of a tile without end."""
    first, found = start % len(tile), np.empty(count)
    filled = min(count, len(tile) - first)
    found[:filled] = tile[first : first + filled]
    while filled < count:
        more = min(count - filled, len(tile))
        found[filled : filled + more] = tile[:more]
        filled += more
    return found


def _row_step(rows: F64, step: float, equal: float) -> Any:
    """The size of a nudge, which is `equal` at least in rows of one value."""
    if rows.shape[1] > 1 and not (rows[:, 0] == rows[:, 1]).any():
        return step
    return np.where(np.all(rows == rows[:, :1], axis=1, keepdims=True), max(step, equal), step)


def _categorical(values: F64) -> bool:
    """Whether they are whole numbers of few kinds."""
    some = np.unique(values.reshape(-1)[:CATEGORY_SAMPLE])
    if not 2 <= len(some) <= CATEGORIES or not bool(np.all(some == np.round(some))):
        return False
    return bool(np.all(np.isin(values, some)))


def nudge_state(state: Tree, seed: int, way: Nudge = NUDGES[0]) -> Tree:
    """The state table with every float element moved as by `nudge`, in its own dtype."""
    table = held(state)
    how = {"seed": seed, "size": way.size, "scaling": way.scaling}

    def moved(kind: str) -> Tree:
        return nudge(state[kind], seed, rounded=True, way=way, categories=False)

    params = moved("params") if table is None else table.changed("nudged", **how)
    return {**state, "params": params, "buffers": moved("buffers")}


def absolute_state(state: Tree) -> Tree:
    """The state table with the absolute values of its parameters."""
    table = held(state)
    params = table.changed("absolute") if table is not None else map_tensors(state["params"], absolute)
    return {**state, "params": params}


def absolute(tensor: HostTensor) -> HostTensor:
    """A float tensor's absolute values; another one as it is."""
    return with_values(tensor, np.abs(tensor.to_f64())) if tensor.is_float and tensor.numel else tensor


def _wide(like: HostTensor, values: np.ndarray) -> HostTensor:
    """Values in float64 (complex128) that lie as `like` does, as random operators fill results in memory order."""
    dtype = wide(like.dtype)
    bits = rounded_bits(values, dtype)
    if any(step == 0 and n > 1 for step, n in zip(like.stride, like.shape, strict=True)):
        return HostTensor.of(bits, dtype)
    extent = 1 + sum((n - 1) * step for n, step in zip(like.shape, like.stride, strict=True))
    made = HostTensor(dtype, like.shape, like.stride, 0, np.zeros(bits.itemsize * extent, np.uint8))
    made.bits()[...] = bits
    return made


def randomise_state(state: Tree, other: Tree, seed: int, name: str) -> Tree:
    """The state table with constant defaults replaced: no bias is 0, no gamma 1, no running statistic the initial one.

    other: a second `init_state` under another seed. A float leaf that differs between the two was drawn at random and
    stays; a constant one gets noise around it (positive stays positive); a fixed table stays.
    """
    fresh: dict[tuple[int, int, tuple[int, ...]], HostTensor] = {}
    storages: list[Any] = []  # alive, so that an id belongs to one

    def table(kind: str) -> dict[str, HostTensor]:
        return {path: one(kind, path, tensor) for path, tensor in state[kind].items()}

    def one(kind: str, path: str, tensor: HostTensor) -> HostTensor:
        storages.append(tensor.storage)
        key = (id(storages[-1]), tensor.offset, tensor.shape)  # tied weights stay tied
        if key not in fresh:
            twin = other[kind].get(path)
            fresh[key] = _noisy(tensor, twin, generator(seed, name, kind, path))
        return fresh[key]

    params, twin = held(state), held(other)
    if params is not None and twin is not None:
        changed = params.changed("randomised", twin=twin.recipe, seed=seed, name=name)
        return {**state, "params": changed, "buffers": table("buffers")}
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
        return with_values(tensor, 0.3 * rng.standard_normal(values.shape))
    return with_values(tensor, first * rng.uniform(0.5, 1.5, values.shape))


def whole_state(state: Tree, seed: int) -> Tree:
    """The state table with whole numbers in every float parameter, for results without rounding.

    A parameter of several dimensions holds one number everywhere, so that sums over balanced inputs stay small; one of
    a single dimension holds small numbers drawn at random. Buffers stay.
    """
    fresh: dict[int, HostTensor] = {}
    params = held(state)
    if params is not None:
        return {**state, "params": params.changed("whole", seed=seed)}

    def one(path: str, tensor: HostTensor) -> HostTensor:
        if not tensor.is_float or not tensor.numel:
            return tensor
        if id(tensor.storage) not in fresh:
            rng = generator(seed, "whole", path)
            several = len(tensor.shape) > 1
            form = tensor.values_shape
            values = np.full(form, float(rng.integers(1, 3))) if several else rng.integers(1, 5, form)
            fresh[id(tensor.storage)] = with_values(tensor, np.asarray(values, np.float64))
        made = fresh[id(tensor.storage)]
        return (
            made
            if made.shape == tensor.shape
            else HostTensor(tensor.dtype, tensor.shape, tensor.stride, tensor.offset, made.storage)
        )

    return {**state, "params": {path: one(path, tensor) for path, tensor in state["params"].items()}}


def same_shapes(a: Sequence[HostTensor], b: Sequence[HostTensor]) -> bool:
    """Whether two lists of leaves have equal shapes and dtypes."""
    return [(t.shape, t.dtype) for t in a] == [(t.shape, t.dtype) for t in b]
