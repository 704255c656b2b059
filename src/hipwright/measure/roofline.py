"""The least time that a task can take on a device, and the number of input slots that exceed the cache
(docs/measurement.md).

Two figures, from measured ceilings, without launch overhead:

- roofline_ms: counted bytes / copy bandwidth or counted operations / matrix rate, whichever is longer: the figure that
  programs are compared with. float32 runs at the rate of three float16 products where that is higher. A good program
  may be a little faster (data that stays in the cache, an algebraic shortcut).
- lowest_ms: a true lower bound: a program below it did not do the work, and is IMPOSSIBLE. Each step errs towards less:

  bytes: outputs are written and inputs and parameters read once. The cache keeps at most its size of them from one call
  to the next, so at least (all - cache) bytes move in a call, and at least (inputs - cache / slots) when calls take
  `slots` inputs in turn. An input counts only as far as `need` says that it must be read (a gather reads rows; known
  zeros need not be read). Reads alone can be a little faster than the copy of the ceiling, and clocks drift:
  BYTES_MARGIN.
  operations: only products of two of the task's own tensors whose result is no larger than the task's outputs (else a
  reduction after it may be done first), and those divided by SHORTCUTS: Winograd convolution saves up to 4 times,
  triangular operands up to 6.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Literal, Protocol

from hipwright.measure.cost import FREE, OpCall, Spec, base_name, is_product, op_flops, tensor_bytes
from hipwright.measure.gathers import GATHERS, like, picked_bytes
from hipwright.task.placed import PLACED

BYTES_MARGIN = 0.85
SHORTCUTS = 8.0
SPLIT_PRODUCTS = 3
"""Products of float16 parts that give one as accurate as float32's own (Ootomo and Yokota, IJHPCA 2022)."""
OVER_CACHE = 3
"""The rotating inputs fill the last-level cache this many times."""
MOST_SLOTS = 64

_PARTS = GATHERS | {"masked_select", "tril", "triu"}
"""Operators that read only some elements of their inputs."""


class Rates(Protocol):
    """Measured ceilings of a device (hipwright.measure.ceilings): bytes and operations a second by dtype."""

    @property
    def bytes_per_s(self) -> float:
        """Copy bandwidth: bytes read plus bytes written."""
        ...

    @property
    def flops(self) -> Mapping[str, float]:
        """Matrix product rate by dtype name."""
        ...


@dataclass(frozen=True)
class TaskWork:
    """What a task must move and compute in one call, whatever the program.

    inputs, params, outputs: bytes once each, of a tensor that gathers alone read what they select, of an input that is
    written at some places those written; need_inputs,
    need_params, need_outputs: those of them that must be read or written. flops: counted operations of products by
    dtype; sure_flops: those that no rewriting avoids.
    """

    inputs: int
    params: int
    outputs: int
    need_inputs: int
    need_params: int
    need_outputs: int
    flops: Mapping[str, float]
    sure_flops: Mapping[str, float]


@dataclass(frozen=True)
class Floor:
    """Milliseconds of one call; see the module."""

    roofline_ms: float
    lowest_ms: float
    bound: Literal["memory", "compute"]
    bytes: int
    lowest_bytes: int


def count_work(
    calls: Iterable[OpCall],
    inputs: Sequence[Spec],
    params: Sequence[Spec],
    outputs: Sequence[Spec],
    nonzero: Mapping[int, float] | None = None,
) -> TaskWork:
    """Counts from the reference's operators (records as in hipwright.measure.cost) and its leaves.

    params: those that the operators read. nonzero: by an input's index, the share of values that are not zero, where it
    is known to be the same under every seed; other inputs count as 1.
    """
    ops = [call for call in calls if base_name(call["op"]) not in FREE]
    picked = {like(spec) for call in ops if base_name(call["op"]) in _PARTS for spec in call["in"]}
    placing = [call for call in ops if base_name(call["op"]) in PLACED and call["in"]]
    placed = {like(call["in"][0]) for call in placing}
    picked |= placed
    read = {like(spec) for call in ops if base_name(call["op"]) not in _PARTS for spec in call["in"]}
    leaves = Counter(like(spec) for spec in (*inputs, *params) if like(spec) not in picked)
    made = {like(spec) for call in ops for spec in call["out"]}  # other outputs are views of inputs
    room = sum(map(tensor_bytes, outputs))

    def needed(spec: Spec, share: float = 1.0) -> int:
        return int(share * tensor_bytes(spec)) if like(spec) in read and like(spec) not in picked else 0

    flops: dict[str, float] = {}
    sure: dict[str, float] = {}
    for call in ops:
        if is_product(base_name(call["op"])) and call["in"] and call["out"]:
            dtype = call["in"][0]["dtype"]
            flops[dtype] = flops.get(dtype, 0.0) + op_flops(call)
            first = 1 if len(call["in"]) > 2 and base_name(call["op"]).startswith(("add", "badd")) else 0  # a bias
            own = (Counter(map(like, call["in"][first : first + 2])) & leaves).total() == 2
            if own and sum(map(tensor_bytes, call["out"])) <= room:
                sure[dtype] = max(sure.get(dtype, 0.0), float(op_flops(call)))
    shares, picked_of = nonzero or {}, picked_bytes(ops)
    touched = sum(tensor_bytes(call["in"][-1]) for call in placing)
    return TaskWork(
        sum(picked_of(spec) for spec in inputs if like(spec) not in placed),
        sum(map(picked_of, params)),
        room + touched,
        sum(needed(spec, shares.get(place, 1.0)) for place, spec in enumerate(inputs)),
        sum(needed(spec) for spec in params),
        sum(tensor_bytes(spec) for spec in outputs if like(spec) in made),
        flops,
        sure,
    )


def floor_of(work: TaskWork, rates: Rates, *, cache_bytes: int, slots: int = 1) -> Floor:
    """The floor of one call; `slots`: inputs that take turns (1: always the same)."""
    moved = work.inputs + work.params + work.outputs
    memory = 1e3 * moved / rates.bytes_per_s
    compute = 1e3 * sum(_seconds(count, dtype, rates) for dtype, count in work.flops.items())
    touched = work.need_inputs + work.need_params + work.need_outputs - cache_bytes
    rotated = work.need_inputs - cache_bytes / slots if slots > 1 else 0.0
    least = max(0, int(max(touched, rotated)))
    sure = max((_seconds(count, dtype, rates) for dtype, count in work.sure_flops.items()), default=0.0)
    lowest = 1e3 * max(BYTES_MARGIN * least / rates.bytes_per_s, sure / SHORTCUTS)
    return Floor(max(memory, compute), lowest, "memory" if memory >= compute else "compute", moved, least)


def rotation(bytes_per_call: int, cache_bytes: int, room_bytes: int) -> int:
    """The number of input slots: OVER_CACHE times the cache, at most MOST_SLOTS and what fits into `room_bytes`.

    Inputs so small that MOST_SLOTS of them fit into the cache stay there, for every side alike.
    """
    each = max(bytes_per_call, 1)
    return max(1, min(ceil(OVER_CACHE * cache_bytes / each) + 1, MOST_SLOTS, room_bytes // each))


def _seconds(count: float, dtype: str, rates: Rates) -> float:
    """Seconds of `count` operations.

    Unknown dtypes run at the fastest known rate: a lower bound may be too low, never too high.
    """
    rate = rates.flops.get(dtype) or max(rates.flops.values(), default=0.0)
    if dtype == "float32":
        rate = max(rate, rates.flops.get("float16", 0.0) / SPLIT_PRODUCTS)
    return count / rate if rate else 0.0
