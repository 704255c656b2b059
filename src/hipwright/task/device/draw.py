"""Draws a workload's inputs on the device: the file's own, other shapes, other values. Runs in the device host.

Two input families are made here, for shapes that a NumPy generator would fill too slowly: "normal" (signed) and
"outliers", by the rules of `verify.inputs`: integers and labels stay; patterns of zeros, symmetry, lists in order and
the range of the given values are kept where needed. Values replace the drawn ones in place, block by block.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from hipwright.digest import span
from hipwright.errors import TaskError
from hipwright.records import Workload
from hipwright.task.device.leaf import SORTED, pieces
from hipwright.task.device.model import DeviceFile, moved_to
from hipwright.task.host import draw
from hipwright.task.host.draw import wide
from hipwright.task.host.reference import named_leaves
from hipwright.torchio import map_torch

_COSTLY = 1 << 22  # elements of inputs above which other shapes are drawn directly, not sliced
_SLOT = 1_000_003  # between the seeds of two slots
_SAMPLE = 1 << 20  # elements whose distinct values distinguish labels from measurements
_DISCRETE = 16
OUTLIER_SHARE = 1e-3


def inputs(file: DeviceFile, header: dict[str, Any]) -> list[Any]:
    """forward's arguments for a header of `verify.gpu.reference_handles.InputSetId`.

    Raises TaskError where the file does.
    """
    seed = header["seed"] + _SLOT * header["slot"]
    drawn = _drawn(file, header, seed)
    if header["family"] != "given":
        patterned = any(_has_zeros(wide(t)) or _rises(t) for t in _floats(drawn))
        other = _drawn(file, header, seed + 1) if patterned else drawn
        for index, (tensor, twin) in enumerate(zip(_floats(drawn), _floats(other), strict=True)):
            _Refill(tensor, twin, header, index).run()
    return drawn


def low(tensors: Sequence[Any]) -> float:
    """The smallest non-negative minimum of the free float leaves; -1 where there is none."""
    lows = [float(tensor.min()) for tensor in map(wide, _floats(tensors)) if _free(tensor)]
    return max((value for value in lows if value >= 0), default=-1.0)


def _drawn(file: DeviceFile, header: dict[str, Any], seed: int) -> list[Any]:
    workload = Workload.from_dict(header["workload"])
    group = workload.index if workload.origin == "group" or not file.file.given else None
    if workload.shapes is None:
        return file.inputs(seed, group)
    given = tuple(tuple(shape) for shape in header["given"])
    if sum(torch.Size(shape).numel() for shape in given) >= _COSTLY:
        with contextlib.suppress(TaskError), draw.Resized(given, workload.shapes):
            found = file.inputs(seed, group)
            if tuple(tuple(t.shape) for _, t in named_leaves("", found)) == workload.shapes:
                return found
    with file.device:
        first, second = file.inputs(seed, group), file.inputs(seed + 1, group)
        resized = draw.resize_all(first, second, workload.shapes)
    return map_torch(resized, lambda tensor: moved_to(tensor, file.device))  # type: ignore[no-any-return]


def _floats(value: Any) -> list[torch.Tensor]:
    return [tensor for _, tensor in named_leaves("", value) if tensor.is_floating_point() and tensor.numel()]


def _free(tensor: torch.Tensor) -> bool:
    """Whether its values are measurements: finite, and not labels."""
    flat = span(tensor).view(tensor.dtype)
    if not all(bool(flat[a:b].isfinite().all()) for a, b in pieces(0, flat.numel(), flat.numel())):
        return False
    sample = flat[:: max(1, flat.numel() // _SAMPLE)]
    return bool(sample.numel() <= 2 * _DISCRETE or sample.unique().numel() > _DISCRETE)


def _has_zeros(tensor: torch.Tensor) -> bool:
    """Whether a fifth of it is 0, which may be a pattern."""
    flat = span(tensor).view(tensor.dtype)
    return bool(_count_zeros(flat, flat) > 0.2 * flat.numel())


def _rises(tensor: torch.Tensor) -> bool:
    """Whether its rows are lists in order, of a tensor that can be sorted."""
    return tensor.numel() <= SORTED and draw.rises(tensor)


def _count_zeros(a: torch.Tensor, b: torch.Tensor) -> int:
    return sum(int(((a[i:j] == 0) & (b[i:j] == 0)).sum()) for i, j in pieces(0, a.numel(), a.numel()))


@dataclass
class _Refill:
    """Fills one float leaf with a family's values in place. twin: the same leaf under another seed."""

    tensor: torch.Tensor
    twin: torch.Tensor
    header: dict[str, Any]
    index: int

    def run(self) -> None:
        if self.tensor.element_size() == 1:
            self._run_wide()
            return
        if not _free(self.tensor):
            return
        flat, twin = (span(t).view(t.dtype) for t in (self.tensor, self.twin))
        zeros = _count_zeros(flat, twin) if flat.numel() == twin.numel() else 0
        pattern = 0.2 * flat.numel() < zeros < flat.numel()
        lowest, highest = float(flat.min()), float(flat.max())
        rows = self.tensor.shape[-1] if self.tensor.dim() and self.tensor.is_contiguous() else 1
        positive = self.header["restricted"] and lowest >= 0
        normalised = positive and rows > 1 and self._normalised(flat, rows)
        symmetric, ordered = self._symmetric(), _rises(self.tensor) and _rises(self.twin)
        generator = torch.Generator(flat.device).manual_seed(self._seed())
        for start, stop in pieces(0, flat.numel(), rows if normalised else flat.numel()):
            values = self._values(stop - start, generator)
            if pattern:
                values[(flat[start:stop] == 0) & (twin[start:stop] == 0)] = 0.0
            if positive:
                values = values.abs()
            if normalised:
                values = values.view(-1, rows)
                values = (values / values.sum(1, keepdim=True).clamp(min=1e-30)).view(-1)
            elif positive and highest <= 1.0:  # the families' own range ends at 100
                values = (values * (highest - lowest) / (8.0 if self.header["family"] == "normal" else 100.0)) + lowest
                values = values.clamp(lowest, highest)
            elif positive:
                values = values + lowest
            flat[start:stop] = values
        if symmetric:
            self.tensor.copy_((self.tensor + self.tensor.transpose(-1, -2)) / 2)
        elif ordered:
            self.tensor.copy_(self.tensor.sort(-1).values)

    def _run_wide(self) -> None:
        """Fills 8-bit floats by a wider copy, within their range."""
        values, limits = wide(self.tensor), torch.finfo(self.tensor.dtype)
        _Refill(values, wide(self.twin), self.header, self.index).run()
        self.tensor.copy_(torch.where(values.isfinite(), values.clamp(limits.min, limits.max), values))

    def _seed(self) -> int:
        name = self.header["workload"]["name"]
        parts = (self.header["seed"], self.header["slot"], name, self.header["family"], self.index)
        return int.from_bytes(hashlib.sha256("\x1f".join(map(str, parts)).encode()).digest()[:7], "little")

    def _values(self, count: int, generator: torch.Generator) -> torch.Tensor:
        device = self.tensor.device
        values = torch.empty(count, dtype=torch.float32, device=device).normal_(generator=generator)
        if self.header["family"] == "outliers":
            some = max(1, int(count * OUTLIER_SHARE))
            where = torch.randint(count, (some,), generator=generator, device=device)
            far = torch.empty(some, dtype=torch.float32, device=device).uniform_(20.0, 100.0, generator=generator)
            sign = torch.randint(2, (some,), generator=generator, device=device) * 2 - 1
            values[where] = far * sign
        return values

    def _normalised(self, flat: torch.Tensor, rows: int) -> bool:
        sums = (flat[a:b].view(-1, rows).double().sum(1) for a, b in pieces(0, flat.numel(), rows) if (b - a) >= rows)
        return rows <= _SAMPLE and all(bool(((part - 1.0).abs() < 1e-2).all()) for part in sums)

    def _symmetric(self) -> bool:
        t = self.tensor
        if t.dim() < 2 or t.shape[-1] != t.shape[-2] or t.shape[-1] < 2:
            return False
        corner = t[..., :64, :64]  # a cheap test that is correct for nearly all tensors
        return bool(torch.equal(corner, corner.transpose(-1, -2))) and bool(torch.equal(t, t.transpose(-1, -2)))
