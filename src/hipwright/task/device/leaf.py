"""The expectation of one output leaf, on the device: `verify.tolerance` in torch. Runs in the device host.

The rules are the same number for number, but computed in blocks of `BLOCK` elements, so that temporaries stay bounded
whatever the tensor's size. An element stores its expectation and its honest error; budgets are computed from these and
the row's budget when needed.

Two forms: 16 bytes an element (both float64), or compact, 6 bytes: the expectation in float32, whose rounding is a
thirtieth of the smallest budget, and the honest error in bfloat16, rounded up.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import torch

from hipwright.tensors import Tree
from hipwright.torchio import DTYPES

SORTED = 1 << 27
"""The most elements that are sorted to find what an index leaf selects; above it, the choice among equals must be
torch's.
"""
BLOCK = 1 << 22  # elements: 32 MiB of float64
_CLAMP = 3.3e38  # below bfloat16's largest number
_ROUND_UP = 1.0 + 2.0**-7


@dataclass(frozen=True)
class DeviceIndexRule:
    """How an index leaf selects: index i along `dim` of `source` yields `values` (flat); any index of a tie is
    accepted.

    count: indices a row (topk, sort); several must differ.
    """

    source: torch.Tensor
    dim: int
    keepdim: bool
    values: torch.Tensor
    count: int = 1

    @property
    def inner(self) -> int:
        """Elements after `dim`, of source and output."""
        return prod(self.source.shape[self.dim + 1 :])


@dataclass
class DeviceLeaf:
    """One leaf. Tensors are flat in logical order; element counts may exceed 2^31.

    want: float64 or float32 expectation, or an exact leaf's own values. honest: the larger of the honest errors, NaN
    where it is not used; None under KernelBench's rule and for exact leaves. judged: False where the honest baseline
    disagrees with the reference. near: where an index was chosen among near values (task/host/modes/ties.py). evidence:
    False for a leaf that must only remain unchanged.
    """

    path: str
    dtype: torch.dtype
    shape: tuple[int, ...]
    want: torch.Tensor
    exact: bool
    honest: torch.Tensor | None = None
    judged: torch.Tensor | None = None
    near: torch.Tensor | None = None
    evidence: bool = True
    gather: DeviceIndexRule | None = None
    row: torch.Tensor | None = None
    row_length: int = 1
    lift: torch.Tensor | None = None
    numbers: dict[str, float] | None = None

    @property
    def numel(self) -> int:
        """Number of elements."""
        return int(self.want.numel())

    def expected(self, start: int, stop: int) -> torch.Tensor:
        """float64 values of elements start .. stop-1."""
        return self.want[start:stop].double()

    def budget(self, start: int, stop: int) -> torch.Tensor:
        """Absolute budgets of elements start .. stop-1: whole rows, or a part of one."""
        assert self.numbers is not None
        want, n = self.expected(start, stop), self.numbers
        if self.honest is None:  # KernelBench's rule
            return n["allclose"] + n["allclose"] * torch.where(want.isfinite(), want.abs(), 0.0)
        assert self.row is not None
        rows = self.row[start // self.row_length : -(-stop // self.row_length)]
        by_row = rows.unsqueeze(1).expand(-1, (stop - start) // rows.numel()).reshape(-1)
        honest = self.honest[start:stop].double()
        own = torch.where(honest.isnan(), 0.0, n["c"] * honest + n["floor"] * want.abs())
        return torch.maximum(n["element"] * by_row, own + by_row)

    def settle(self, numbers: dict[str, Any]) -> dict[str, float]:
        """Computes the rows' budgets from the numbers of `verify.gpu.budget.budget`; returns {} or the shares it
        documents.
        """
        if self.exact:
            return {}
        self.numbers, self.row_length = numbers, int(numbers["row_length"])
        finite, judged, largest = 0, self.numel, 0.0
        if self.judged is not None:
            judged = int(self.judged.sum())
        for start, stop in pieces(0, self.numel, self.row_length):
            known = self.want[start:stop]
            known = known[known.isfinite()].abs()
            finite += known.numel()
            largest = max(largest, float(known.max()) if known.numel() else 0.0)
        if self.honest is not None and self.numel:
            self.row, self.lift = self._rows()
        total = max(self.numel, 1)
        return {"finite": finite / total, "judged": judged / total, "largest": largest} if self.numel else {}

    def _rows(self) -> tuple[torch.Tensor, torch.Tensor]:
        """(budget, lift) of each row; the lift applies where the honest error was small by chance."""
        assert self.honest is not None and self.numbers is not None
        scales, spents = RowRms(self), RowRms(self)
        for start, stop in pieces(0, self.numel, self.row_length):
            honest = self.honest[start:stop].double()
            usable = ~honest.isnan()
            scales.add(start, torch.where(usable, self.expected(start, stop), 0.0))
            spents.add(start, torch.where(usable, honest, 0.0))
        scale, spent, n = scales.result(), spents.result(), self.numbers
        some = scale > 0
        relative = spent[some] / scale[some]
        typical, worst = (median(relative), float(relative.max())) if bool(some.any()) else (0.0, 0.0)
        least_relative = max(n["factor"] * typical, n["floor"])
        own = n["factor"] * spent.clamp(min=median(spent))
        row = torch.maximum(own, least_relative * scale) + n["least"]
        usual_worst = n["factor"] * (worst * scale).clamp(max=float(spent.max())) + n["least"]
        lift = (usual_worst / row).clamp(min=1.0)
        return row, torch.where(lift.isfinite(), lift, 1.0)


def pieces(start: int, stop: int, length: int, limit: int | None = None) -> Iterator[tuple[int, int]]:
    """Cut start .. stop into blocks that are whole rows of `length` elements, or lie within one row."""
    limit = limit or BLOCK
    while start < stop:
        within = start % length
        if within == 0 and stop - start >= length and length <= limit:
            end = start + min((stop - start) // length, limit // length) * length
        else:
            end = min(stop, start - within + length, start + limit)
        yield start, end
        start = end


class RowRms:
    """Root mean square of each row, fed in pieces, without squares of the extremes of float64."""

    def __init__(self, leaf: DeviceLeaf) -> None:
        self._length = leaf.row_length
        rows = leaf.numel // leaf.row_length
        self._largest = torch.zeros(rows, dtype=torch.float64, device=leaf.want.device)
        self._squares = torch.zeros_like(self._largest)  # in units of the largest, squared

    def add(self, start: int, values: torch.Tensor) -> None:
        """Elements from `start` on: whole rows, or a part of one."""
        row, rows = start // self._length, max(values.numel() // self._length, 1)
        values = values.reshape(rows, -1)
        old = self._largest[row : row + rows]
        new = torch.maximum(old, values.abs().amax(1))
        safe = torch.where(new > 0, new, 1.0)
        squares = self._squares[row : row + rows]
        squares.mul_((old / safe) ** 2).add_((values / safe.unsqueeze(1)).square_().sum(1))
        old.copy_(new)

    def result(self) -> torch.Tensor:
        """One float64 per row."""
        return self._largest * (self._squares / self._length).sqrt_()


def median(values: torch.Tensor) -> float:
    """NumPy's median: the mean of the middle two."""
    ordered, count = values.sort().values, values.numel()
    return float((ordered[(count - 1) // 2] + ordered[count // 2]) / 2)


def baseline_errors(
    native: torch.Tensor, exact: torch.Tensor, *, want: torch.Tensor, honest: torch.Tensor
) -> torch.Tensor | None:
    """Fill flat `want` and `honest` from the baseline and the reference (flat).

    `want` may be the memory of `native` or `exact`. Returns `judged`, None where all are.
    """
    judged: torch.Tensor | None = None
    for start in range(0, want.numel(), BLOCK):
        part = slice(start, start + BLOCK)
        base, true = native[part].double(), exact[part].double()
        error = (base - true).abs()
        finite = true.isfinite() & base.isfinite()
        fair = finite | (_kind(true) == _kind(base))
        honest[part] = _kept(torch.where(finite & error.isfinite(), error, torch.nan), honest.dtype)
        want[part] = true
        if not bool(fair.all()):
            if judged is None:
                judged = torch.ones(want.numel(), dtype=torch.bool, device=want.device)
            judged[part] = fair
    return judged


def add_moved(exact: torch.Tensor, moved: torch.Tensor, size: float, honest: torch.Tensor) -> None:
    """Raise flat `honest` to what a nudge of `size` roundings moves, over |size|. All flat; a result that is not finite
    says nothing.
    """
    for start in range(0, honest.numel(), BLOCK):
        part = slice(start, start + BLOCK)
        change = (moved[part].double() - exact[part].double()).abs() / abs(size)
        own = honest[part]
        honest[part] = torch.maximum(own, _kept(torch.where(change.isfinite(), change, 0.0), honest.dtype))


def _kept(error: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Errors in the dtype that they are kept in, rounded up."""
    return (error * _ROUND_UP).clamp(max=_CLAMP) if dtype == torch.bfloat16 else error


def _kind(values: torch.Tensor) -> torch.Tensor:
    """0 finite, 1 NaN, 2 +Inf, 3 -Inf."""
    return values.isnan().to(torch.int8) + 2 * values.isposinf().to(torch.int8) + 3 * values.isneginf().to(torch.int8)


# ---------------------------------------------------------------- selections


def find_gather(
    index: torch.Tensor, sources: Sequence[torch.Tensor], outputs: Sequence[torch.Tensor] = ()
) -> DeviceIndexRule | None:
    """How an index tensor selects from one of `sources` by value (`tolerance.find_gather`), or None.

    Of several ways that fit, the one whose values are among the float `outputs` counts; where none is, the first: at
    shapes that only a device holds, several fit only where nearly all values are equal.
    """
    if index.dtype == torch.bool or index.is_floating_point() or not index.numel() or int(index.min()) < 0:
        return None
    top, first = int(index.max()), None
    for source in sources:
        for dim in range(source.dim()):
            found = _reading(index, source, dim, top)
            if found is not None and (not outputs or _is_output(found, index, outputs)):
                return found
            first = first or found
    return first


def _reading(index: torch.Tensor, source: torch.Tensor, dim: int, top: int) -> DeviceIndexRule | None:
    """How an index tensor, of at most `top`, selects from a source along one dimension."""
    if top >= source.shape[dim] or source.shape[dim] < 2:
        return None
    found = _selects(index, source, dim, True) or _selects(index, source, dim, False)
    return found or _orders(index, source, dim)


def _is_output(found: DeviceIndexRule, index: torch.Tensor, outputs: Sequence[torch.Tensor]) -> bool:
    values = found.values.view(index.shape)
    return any(known.shape == index.shape and _same(values, known) for known in outputs)


def _selects(index: torch.Tensor, source: torch.Tensor, dim: int, keepdim: bool) -> DeviceIndexRule | None:
    kept = (*source.shape[:dim], 1, *source.shape[dim + 1 :])
    if tuple(index.shape) != (kept if keepdim else (*source.shape[:dim], *source.shape[dim + 1 :])):
        return None
    taken = source.gather(dim, index.reshape(kept).long())
    if any(torch.equal(taken, extreme(source, dim, keepdim=True)) for extreme in (torch.amax, torch.amin)) or (
        source.numel() <= SORTED and _of_one_rank(source, taken, dim)
    ):
        return DeviceIndexRule(source, dim, keepdim, taken.reshape(-1))
    return None


def _of_one_rank(source: torch.Tensor, taken: torch.Tensor, dim: int) -> bool:
    same = source.sort(dim).values == taken
    return bool(same.movedim(dim, 0).reshape(source.shape[dim], -1).all(1).any())


def _orders(index: torch.Tensor, source: torch.Tensor, dim: int) -> DeviceIndexRule | None:
    count = index.shape[dim] if index.dim() == source.dim() else 0
    several = 2 <= count <= source.shape[dim]
    if not several or tuple(index.shape) != (*source.shape[:dim], count, *source.shape[dim + 1 :]):
        return None
    if source.numel() > SORTED:
        return None
    taken = source.gather(dim, index.long())
    if any(_same(taken, source.topk(count, dim, largest=largest).values) for largest in (True, False)):
        return DeviceIndexRule(source, dim, True, taken.reshape(-1), count)
    return None


def _same(a: torch.Tensor, b: torch.Tensor) -> bool:
    return bool(((a == b) | (a.isnan() & b.isnan())).all())


def ties(gather: DeviceIndexRule) -> torch.Tensor:
    """Where several elements of the source have the selected value, so that any of their indices is accepted (flat)."""
    source, dim = gather.source, gather.dim
    values = gather.values.view(*source.shape[:dim], gather.count, *source.shape[dim + 1 :])
    if gather.count == 1:
        return ((source == values).sum(dim) > 1).reshape(-1)
    ordered = source.sort(dim).values
    if not _same(ordered.narrow(dim, 0, gather.count), values):
        ordered = ordered.flip(dim)
    same = ordered.diff(dim=dim) == 0
    edge = torch.zeros_like(same.narrow(dim, 0, 1))
    found = torch.cat([edge, same], dim) | torch.cat([same, edge], dim)
    return found.narrow(dim, 0, gather.count).reshape(-1)


def same_choice(gather: DeviceIndexRule, places: torch.Tensor, got: torch.Tensor) -> torch.Tensor:
    """Where `got` (int64) at flat output places selects a value equal to the expected one."""
    source, size, inner = gather.source, gather.source.shape[gather.dim], gather.inner
    valid = (got >= 0) & (got < size)
    # an output element is (before, which, after) `dim`, flat
    flat = (places // (inner * gather.count) * size + torch.where(valid, got, 0)) * inner + places % inner
    taken, want = source.reshape(-1)[flat], gather.values[places]
    return valid & ((taken == want) | (taken.isnan() & want.isnan()))


def repeated_indices(gather: DeviceIndexRule, got: torch.Tensor) -> torch.Tensor:
    """Where a row of the flat output `got` holds an index twice: all elements of such rows (flat)."""
    rows = got.view(-1, gather.count, gather.inner)
    twice = (rows.sort(1).values.diff(dim=1) == 0).any(1, keepdim=True)
    return twice.expand(rows.shape).reshape(-1)


def states_of(state: Tree) -> list[Any]:
    """The tensors of a state table, those of the host and those that are held on the device."""
    return [*state["params"].values(), *state["buffers"].values()]


def dtype_of(tensor: Any) -> torch.dtype:
    """The dtype of a tensor of the host or of torch."""
    return tensor.dtype if isinstance(tensor, torch.Tensor) else DTYPES[tensor.dtype]
