"""Compares one leaf with its expectation, in pieces: `verify.compare` for tensors on the device. Runs in the device
host.

All counters stay on the device until the result is requested, so a piece costs no synchronisation.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import inf
from typing import Any

import torch

from hipwright.task.device.leaf import BLOCK, DeviceLeaf, pieces, repeated_indices, same_choice
from hipwright.torchio import INTEGERS

_SAMPLE = 1 << 20  # elements from which the most frequent value is estimated


class LeafComparison:
    """One comparison with one leaf. Values come in logical order, flat, from the first to the last."""

    def __init__(self, leaf: DeviceLeaf) -> None:
        self.leaf = leaf
        device = leaf.want.device
        self._next = 0
        self._bad = torch.zeros((), dtype=torch.int64, device=device)  # elements outside every budget
        self._first = torch.full((), -1, dtype=torch.int64, device=device)
        self._got = torch.zeros((), dtype=torch.float64 if not leaf.exact else leaf.dtype, device=device)
        if not leaf.exact:
            rows = leaf.numel // leaf.row_length
            self._squares = torch.zeros(rows, dtype=torch.float64, device=device)
            self._wrong = torch.zeros(rows, dtype=torch.int64, device=device)
            self._best = torch.full_like(self._squares, -1.0)
            self._where = torch.zeros(rows, dtype=torch.int64, device=device)
            self._have = torch.zeros_like(self._squares)
        elif leaf.gather is not None and leaf.gather.count > 1:
            self._indices = torch.empty(leaf.numel, dtype=leaf.dtype, device=device)
            self._excused = torch.zeros(leaf.numel, dtype=torch.bool, device=device)

    def add(self, values: torch.Tensor) -> None:
        """The next values, of the leaf's dtype (or any float dtype for a float leaf)."""
        first, self._next = self._next, self._next + values.numel()
        if self._next > self.leaf.numel:
            raise ValueError("more values than the leaf has")
        length = BLOCK if self.leaf.exact else self.leaf.row_length
        for start, stop in pieces(first, self._next, length):
            part = values[start - first : stop - first]
            (self._add_exact if self.leaf.exact else self._add_float)(start, stop, part)

    def _add_float(self, start: int, stop: int, part: torch.Tensor) -> None:
        leaf, got, want = self.leaf, part.double(), self.leaf.expected(start, stop)
        mismatch = got.isnan() != want.isnan()
        for sign in (inf, -inf):
            mismatch |= (got == sign) != (want == sign)
        error = (got - want).abs()
        counted = error.isfinite()
        if leaf.judged is not None:
            mismatch &= leaf.judged[start:stop]
            counted &= leaf.judged[start:stop]
        self._refuse(start, mismatch, got)
        error = torch.where(counted, error, 0.0)
        ratio = error / leaf.budget(start, stop)
        row, rows = start // leaf.row_length, max((stop - start) // leaf.row_length, 1)
        here = slice(row, row + rows)
        self._squares[here] += (error * error).reshape(rows, -1).sum(1)
        self._wrong[here] += (ratio > 1.0).reshape(rows, -1).sum(1)
        best, at = ratio.reshape(rows, -1).max(1)
        at = at + torch.arange(rows, device=at.device) * (ratio.numel() // rows)
        better = best > self._best[here]
        self._best[here] = torch.where(better, best, self._best[here])
        self._where[here] = torch.where(better, at + start, self._where[here])
        self._have[here] = torch.where(better, got[at], self._have[here])

    def _add_exact(self, start: int, stop: int, part: torch.Tensor) -> None:
        leaf, want = self.leaf, self.leaf.want[start:stop]
        bits = INTEGERS[want.element_size()]
        wrong = part.view(bits) != want.view(bits)
        if leaf.judged is not None:
            wrong &= leaf.judged[start:stop]
        if leaf.gather is not None:
            places = wrong.nonzero().squeeze(1)
            wrong[places] = ~same_choice(leaf.gather, places + start, part[places].long())
            if leaf.gather.count > 1:
                self._indices[start:stop] = part
                self._excused[start + places] = ~wrong[places]
        self._refuse(start, wrong, part)

    def _refuse(self, start: int, wrong: torch.Tensor, got: torch.Tensor) -> None:
        """Counts elements that are wrong whatever the budget, and stores the first."""
        at = wrong.to(torch.uint8).argmax()
        new = wrong[at] & ((self._first < 0) | (at + start < self._first))
        self._first = torch.where(new, at + start, self._first)
        self._got = torch.where(new, got[at], self._got)
        self._bad += wrong.sum()

    def result(self) -> dict[str, Any]:
        """The result as `verify.gpu.budget.comparison` documents it. Raises ValueError when values are missing."""
        leaf = self.leaf
        if self._next != leaf.numel:
            raise ValueError(f"{leaf.path}: {self._next} of {leaf.numel} values")
        if leaf.numel and leaf.gather is not None and leaf.gather.count > 1:
            self._refuse(0, self._excused & repeated_indices(leaf.gather, self._indices), self._indices)
        described = {"path": leaf.path, "kind": "pass", "worst": 0.0, "flat": -1, "expected": None, "got": None}
        described |= {"budget": None, "wrong": 0, "total": leaf.numel}
        if not leaf.numel:
            return {**described, "total": 0}
        if bad := int(self._bad):
            flat = int(self._first)
            kind = "exact" if leaf.exact else "mask"
            described |= {"kind": kind, "worst": inf, "flat": flat, "wrong": bad}
            return {**described, "expected": self._expected(flat), "got": self._got.item()}
        return described if leaf.exact else {**described, **self._worst()}

    def _worst(self) -> dict[str, Any]:
        leaf, best, over, ratios = self.leaf, self._best, self._wrong, None
        if leaf.row is not None:
            ratios = (self._squares / leaf.row_length).sqrt_() / leaf.row
            ratios.masked_fill_(ratios.isnan(), 0.0)  # a budget beyond the largest double refuses nothing
            eased = self._eased(torch.maximum(ratios, best))
            best, ratios, over = best / eased, ratios / eased, torch.where(eased > 1.0, 0, over)
        row = int(best.argmax())
        worst, wrong, by_row = float(best[row]), int(over.sum()), False
        if ratios is not None:
            top = int(ratios.argmax())
            if float(ratios[top]) > max(worst, 1.0):
                row, worst, by_row = top, float(ratios[top]), True
                wrong = max(wrong, int((ratios > 1.0).sum()))
        flat = int(self._where[row])
        kind = "pass" if worst <= 1.0 else "row" if by_row else "element"
        return {
            "kind": kind,
            "worst": worst,
            "flat": flat,
            "wrong": wrong,
            "expected": self._expected(flat),
            "got": float(self._have[row]),
            "budget": self._budget(flat),
        }

    def _eased(self, worst: torch.Tensor) -> torch.Tensor:
        """The factor on each row's budgets (`verify.compare`). worst: each row's largest error over budget."""
        over, lift, numbers = worst > 1.0, self.leaf.lift, self.leaf.numbers
        if lift is None or numbers is None or int(over.sum()) > numbers["lucky"] * over.numel():
            return torch.ones_like(worst)
        return torch.where(over & (worst <= lift), lift, 1.0)

    def _expected(self, flat: int) -> Any:
        value = self.leaf.want[flat]
        return value.item() if self.leaf.exact else float(value)

    def _budget(self, flat: int) -> float:
        """The budget of one element: its row's, or its own."""
        return float(self.leaf.budget(flat, flat + 1))


def passes(leaf: DeviceLeaf, blocks: Iterable[torch.Tensor]) -> bool:
    """Whether these values would pass."""
    check = LeafComparison(leaf)
    for block in blocks:
        check.add(block)
    return bool(check.result()["kind"] == "pass")


def blocks_of(values: torch.Tensor) -> Iterable[torch.Tensor]:
    """A tensor's values in logical order, flat, in blocks."""
    flat = values.detach().reshape(-1)
    return (flat[start : start + BLOCK] for start in range(0, flat.numel(), BLOCK))


def constant_blocks(leaf: DeviceLeaf, value: float | int | bool) -> Iterable[torch.Tensor]:
    """Blocks that hold one value."""
    dtype = leaf.dtype if leaf.exact else torch.float64
    for start in range(0, leaf.numel, BLOCK):
        count = min(BLOCK, leaf.numel - start)
        yield torch.full((count,), value, dtype=dtype, device=leaf.want.device)


def best_constant(leaf: DeviceLeaf) -> float | int | bool:
    """The most likely constant to pass: the mean of a float leaf, the most frequent value of an exact leaf's sample."""
    if leaf.exact:
        values, counts = leaf.want[:: max(1, leaf.numel // _SAMPLE)].unique(return_counts=True)
        found: float | int | bool = values[counts.argmax()].item()
        return found
    total, count = 0.0, 0
    for start in range(0, leaf.numel, BLOCK):
        block = leaf.expected(start, start + BLOCK)
        block = block[block.isfinite()]
        total, count = total + float(block.sum()), count + block.numel()
    return total / count if count else 0.0
