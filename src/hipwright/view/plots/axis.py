"""Axes: from a value to a place in pixels, and round ticks."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, floor, log10

from hipwright.report.formatting import number
from hipwright.report.ticks import Tick


@dataclass(frozen=True)
class PixelAxis:
    """An axis from `low` at `start` to `high` at `end` (pixels), linear or logarithmic. Values outside are clipped."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def __call__(self, value: float) -> float:
        """The place of a value, in pixels."""
        low, high, at = self._inner(self.low), self._inner(self.high), self._inner(value)
        share = min(max((at - low) / (high - low), 0.0), 1.0) if high > low else 0.5
        return round(self.start + share * (self.end - self.start), 1)

    def _inner(self, value: float) -> float:
        return log10(max(value, 1e-300)) if self.log else value

    def ticks(self, count: int = 5, *, whole: bool = False) -> list[Tick]:
        """Round values, about `count` of them; whole: whole numbers alone."""
        values = _decades(self.low, self.high) if self.log else []
        if len(values) < 2:
            values = _round_values(self.low, self.high, count)
        return [
            Tick(self(value), number(value))
            for value in values
            if (not self.log or value > 0) and (not whole or value == int(value))
        ]


def fitted(values: list[float], start: float, end: float) -> PixelAxis:
    """An axis that holds all of the positive values with some room; logarithmic over more than a decade."""
    low, high = min(values), max(values)
    if high > 10 * low > 0:
        return PixelAxis(low / 1.15, high * 1.15, start, end, log=True)
    room = 0.08 * (high - low) or 0.1 * abs(low) or 1.0
    return PixelAxis(max(low - room, 0.0), high + room, start, end)


def _round_values(low: float, high: float, count: int) -> list[float]:
    if not high > low:
        return [low]
    size = 10.0 ** floor(log10((high - low) / count))
    step = next((k * size for k in (1, 2, 5, 10) if (high - low) / (k * size) <= count), 10 * size)
    return [round(step * n, 12) for n in range(ceil(low / step - 1e-9), floor(high / step + 1e-9) + 1)]


def _decades(low: float, high: float) -> list[float]:
    """1, 2 and 5 of each decade, or its 1 alone where there are more than four."""
    first, last = floor(log10(low)), ceil(log10(high))
    steps = (1, 2, 5) if last - first <= 4 else (1,)
    found = [k * 10.0**e for e in range(first, last + 1) for k in steps]
    return [value for value in found if low <= value <= high]
