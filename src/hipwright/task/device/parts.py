"""Fills an expectation's leaves part by part, and cuts a batch into parts. Runs in the device host."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import torch

from hipwright.task.device.leaf import BLOCK, DeviceLeaf, add_moved, baseline_errors
from hipwright.task.device.model import memory
from hipwright.task.host.random_draws import FLOAT8
from hipwright.task.host.reference import named_leaves
from hipwright.task.nudges import Nudge
from hipwright.torchio import map_torch

COMPACT = 1 << 24  # elements above which a leaf is stored in the compact form
# relative rms by which a part may differ from the whole, in units in the last place: less than any budget
_SAME = {torch.float64: 8.0, torch.float32: 8.0, torch.float16: 2.0, torch.bfloat16: 2.0}
_SAME |= dict.fromkeys(FLOAT8, 0.25)

MARGIN = 1 << 28
"""Bytes of device memory beyond what a run seems to need."""


class WantsMemory(Exception):
    """A float64 run needs about `bytes` more device memory than may be used, at once and in parts."""

    def __init__(self, missing: int) -> None:
        self.bytes = max(missing, 0) + MARGIN
        super().__init__(f"{self.bytes} bytes of device memory are missing")


class LeafSink:
    """Collects one leaf's expectation, part by part."""

    def __init__(self, path: str, native: torch.Tensor, *, unchanged: bool, held: Collection[int]) -> None:
        """held: addresses of memory in use elsewhere; a leaf in it is not overwritten with its expectation."""
        self.path, self.native, self.unchanged = path, native, unchanged
        self.exact = self.unchanged or not native.is_floating_point()
        self._judged: torch.Tensor | None = None
        self._near: torch.Tensor | None = None
        count, device = native.numel(), native.device
        compact = count >= COMPACT and native.dtype != torch.float64
        if self.exact:
            self._want = torch.empty(count, dtype=native.dtype, device=device)
        elif compact and native.dtype == torch.float32 and native.is_contiguous() and memory(native) not in held:
            self._want = native.view(-1)  # the baseline's values are read before they are replaced
        else:
            self._want = torch.empty(count, dtype=torch.float32 if compact else torch.float64, device=device)
        kind = torch.bfloat16 if compact else torch.float64
        self._honest = None if self.exact else torch.empty(count, dtype=kind, device=device)

    def put(self, start: int, native: torch.Tensor, exact: torch.Tensor) -> None:
        """Adds values from the logical element `start` on."""
        stop = start + native.numel()
        base, true = native.detach().reshape(-1), exact.detach().reshape(-1)
        want = self._want[start:stop]
        if self.unchanged:
            want.copy_(base)
            return
        if self.exact:
            want.copy_(true.to(want.dtype))
            judged: torch.Tensor | None = want == base
            self._told_near(start, want, base)
        else:
            assert self._honest is not None
            judged = baseline_errors(base, true, want=want, honest=self._honest[start:stop])
        self._judge(start, judged)

    def put_moved(self, start: int, exact: torch.Tensor, moved: torch.Tensor, size: float) -> None:
        """What a nudge of `size` roundings makes of the values that were put at `start`."""
        true, shifted = exact.detach().reshape(-1), moved.detach().reshape(-1)
        if self.unchanged:
            return
        if self.exact:
            want = self._want[start : start + true.numel()]
            self._judge(start, want == shifted.to(want.dtype))
        else:
            assert self._honest is not None
            add_moved(true, shifted, size, self._honest[start : start + true.numel()])

    def _told_near(self, start: int, want: torch.Tensor, base: torch.Tensor) -> None:
        """Notes where indices were chosen among near values, and takes their marks away (task/host/modes/ties.py)."""
        if want.dtype not in (torch.int32, torch.int64):
            return
        near = (want < 0) & (base >= 0)
        if not bool(near.any()):
            return
        if self._near is None:
            self._near = torch.zeros(self._want.numel(), dtype=torch.bool, device=near.device)
        self._near[start : start + near.numel()] = near
        want.copy_(torch.where(near, want.bitwise_not(), want))

    def _judge(self, start: int, judged: torch.Tensor | None) -> None:
        if judged is None or bool(judged.all()):
            return
        if self._judged is None:
            self._judged = torch.ones(self._want.numel(), dtype=torch.bool, device=judged.device)
        self._judged[start : start + judged.numel()] &= judged

    def leaf(self) -> DeviceLeaf:
        """The finished leaf."""
        found = leaf_of(self.path, self.native, self._want)
        found.exact, found.honest, found.judged = self.exact, self._honest, self._judged
        found.near, found.evidence = self._near, not self.unchanged
        return found


@dataclass(frozen=True)
class Cut:
    """How arguments are cut along dimension 0: which leaves, by number, and the batch's size."""

    size: int
    which: frozenset[int]

    def args(self, args: list[Any], start: int, stop: int) -> list[Any]:
        """The arguments of one part."""
        index = iter(range(1 << 30))
        return map_torch(args, lambda t: t[start:stop] if next(index) in self.which else t)  # type: ignore[no-any-return]


def cut(args: list[Any], outputs: list[tuple[str, torch.Tensor]]) -> Cut | None:
    """Cuts by the batch of the largest input; of square arguments only that one, as the others may not be batches."""
    tensors = [tensor for _, tensor in named_leaves("", args)]
    if not tensors or not outputs:
        return None
    main = max(range(len(tensors)), key=lambda i: tensors[i].numel())
    size = tensors[main].shape[0] if tensors[main].dim() else 0
    if size < 2 or any(not tensor.dim() or tensor.shape[0] != size for _, tensor in outputs):
        return None
    alike = [i for i, t in enumerate(tensors) if t.dim() == tensors[main].dim() and t.shape[0] == size]
    square = len(tensors[main].shape) == 2 and tensors[main].shape[1] == size
    return Cut(size, frozenset([main] if square else alike))


def same_rows(part: torch.Tensor, whole: torch.Tensor) -> bool:
    """Whether the reference on a part of the batch gives that part of the whole, up to rounding."""
    if part.shape != whole.shape:
        return False
    a, b = part.reshape(-1), whole.reshape(-1)
    if not part.is_floating_point():
        return bool(torch.equal(a, b))
    squares = wrong = torch.zeros((), dtype=torch.float64, device=a.device)
    for start in range(0, a.numel(), BLOCK):
        x, y = a[start : start + BLOCK].double(), b[start : start + BLOCK].double()
        error = torch.where(x.isfinite() & y.isfinite(), x - y, 0.0)
        wrong = wrong + (error * error).sum() + torch.where(x.isfinite() == y.isfinite(), 0.0, torch.inf).sum()
        squares = squares + torch.where(y.isfinite(), y * y, 0.0).sum()
    allowed = (_SAME[part.dtype] * torch.finfo(part.dtype).eps / 2) ** 2
    return bool(wrong <= allowed * squares)


def kept(tensor: torch.Tensor) -> int:
    """Bytes of a leaf that stay allocated, beside the baseline's own output."""
    count = int(tensor.numel())
    if not tensor.is_floating_point():
        return count * int(tensor.element_size())
    if count < COMPACT or tensor.dtype == torch.float64:
        return 16 * count
    return (2 if tensor.dtype == torch.float32 else 6) * count


def leaf_of(path: str, native: torch.Tensor, want: torch.Tensor) -> DeviceLeaf:
    """A leaf with the spec of the baseline's."""
    return DeviceLeaf(path, native.dtype, tuple(native.shape), want, exact=not native.is_floating_point())


def same_bits(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two tensors of one shape and dtype hold the same bits, NaN and the sign of 0 included."""
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    flat, before = (tensor.contiguous().reshape(-1).view(torch.uint8) for tensor in (one, other))
    return bool(torch.equal(flat, before))


def put_all(
    sinks: list[LeafSink], places: list[int], exact: list[torch.Tensor], moved: list[torch.Tensor], way: Nudge
) -> None:
    """Adds a run on nudged inputs to its sinks."""
    for sink, place, true, shifted in zip(sinks, places, exact, moved, strict=False):
        sink.put_moved(place, true, shifted, way.size)
