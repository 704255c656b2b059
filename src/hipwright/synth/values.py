"""Values of a task under composition: shape, dtype and the range of their elements. No torch.

A range has approximate bounds (5.5 standard deviations of a normal draw), and the mean and standard deviation of the
elements. It is propagated by the rules of independent elements. This is rough, and enough to refuse overflows,
logarithms of negative numbers and constants without running anything.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import exp, isfinite, log, prod, sqrt

TAIL = 5.5  # standard deviations: a bound of two million normal draws
LARGEST = {"float32": 1e4, "bfloat16": 1e4, "float16": 1.5e3}  # magnitude of a value; its square does not overflow
SMALLEST = {"float32": 1e-5, "bfloat16": 1e-4, "float16": 1e-3}  # least deviation; below it float16 has too few digits
RELATIVE = {
    "float32": 2e-3,
    "bfloat16": 0.08,
    "float16": 0.02,
}  # least deviation over mean; below it a constant would pass verification

# nodes and weights of Gauss and Hermite's quadrature of degree 9, for a standard normal
_NODES = (
    -4.512745863,
    -3.205429003,
    -2.076847979,
    -1.023255664,
    0.0,
    1.023255664,
    2.076847979,
    3.205429003,
    4.512745863,
)
_WEIGHTS = (
    2.234584e-5,
    2.789141e-3,
    4.991641e-2,
    0.2440975,
    0.4063492,
    0.2440975,
    4.991641e-2,
    2.789141e-3,
    2.234584e-5,
)
_STEPS = 64


class Unfit(Exception):
    """An operator cannot take a value. Composition then draws another operator."""


def require(condition: bool, why: str = "unfit") -> None:
    """Raise Unfit unless the condition holds."""
    if not condition:
        raise Unfit(why)


@dataclass(frozen=True)
class Range:
    """Bounds, mean and standard deviation of elements. floor, ceiling: many elements equal that bound."""

    low: float
    high: float
    mean: float
    std: float
    floor: bool = False
    ceiling: bool = False

    @property
    def rms(self) -> float:
        """Root of the mean square."""
        return sqrt(self.mean**2 + self.std**2)

    @property
    def largest(self) -> float:
        """The largest magnitude."""
        return max(abs(self.low), abs(self.high))

    def mapped(self, function: Callable[[float], float]) -> Range:
        """The range of function(x). Raises Unfit where the function is undefined in the range."""
        try:
            step = (self.high - self.low) / _STEPS
            grid = [function(self.low + k * step) for k in range(_STEPS)] + [function(self.high)]
            drawn = [function(min(self.high, max(self.low, self.mean + self.std * node))) for node in _NODES]
        except (ValueError, OverflowError, ZeroDivisionError) as error:
            raise Unfit(f"no value: {error}") from None
        mean = sum(w * v for w, v in zip(_WEIGHTS, drawn, strict=True))
        square = sum(w * (v - mean) ** 2 for w, v in zip(_WEIGHTS, drawn, strict=True))
        low, high = min(grid), max(grid)
        flat = 0.01 * (high - low)
        ends = [end for end, bunched in ((grid[0], self.floor), (grid[-1], self.ceiling)) if bunched]
        ends += [near for near, far in ((grid[0], grid[8]), (grid[-1], grid[-9])) if abs(near - far) < flat]
        return Range(
            low, high, mean, sqrt(square), any(end - low < flat for end in ends), any(high - end < flat for end in ends)
        )

    def scaled(self, factor: float, shift: float = 0.0) -> Range:
        """The range of factor * x + shift."""
        ends = sorted((self.low * factor + shift, self.high * factor + shift))
        bunched = (self.floor, self.ceiling) if factor > 0 else (self.ceiling, self.floor)
        return Range(ends[0], ends[1], self.mean * factor + shift, self.std * abs(factor), *bunched)

    def __add__(self, other: Range) -> Range:
        return Range(
            self.low + other.low, self.high + other.high, self.mean + other.mean, sqrt(self.std**2 + other.std**2)
        )

    def __mul__(self, other: Range) -> Range:
        ends = [a * b for a in (self.low, self.high) for b in (other.low, other.high)]
        mean = self.mean * other.mean
        return Range(min(ends), max(ends), mean, sqrt(max(0.0, (self.rms * other.rms) ** 2 - mean**2)))

    def __or__(self, other: Range) -> Range:
        """The range of elements drawn from both."""
        mean = (self.mean + other.mean) / 2
        square = (self.rms**2 + other.rms**2) / 2
        low, high = min(self.low, other.low), max(self.high, other.high)
        return Range(
            low,
            high,
            mean,
            sqrt(max(0.0, square - mean**2)),
            (self.floor and self.low == low) or (other.floor and other.low == low),
            (self.ceiling and self.high == high) or (other.ceiling and other.high == high),
        )

    def clipped(self, low: float, high: float) -> Range:
        """The same range with tighter bounds."""
        return Range(max(low, self.low), min(high, self.high), self.mean, self.std, self.floor, self.ceiling)

    def averaged(self, count: int) -> Range:
        """The range of means over `count` elements."""
        std = self.std / sqrt(count)
        return Range(self.mean - TAIL * std, self.mean + TAIL * std, self.mean, std).clipped(self.low, self.high)

    def summed(self, count: int) -> Range:
        """The range of sums over `count` elements."""
        return self.averaged(count).scaled(count)

    def extreme(self, count: int, sign: int = 1) -> Range:
        """The range of the largest (sign 1) or smallest (-1) of `count` elements, approximately for normal elements."""
        require(not (self.ceiling if sign > 0 else self.floor), "most extremes lie at the bound")
        reach = sqrt(2 * log(max(count, 2)))
        mean, std = self.mean + sign * self.std * (reach - 0.4), 0.8 * self.std / max(reach, 1.2)
        end, room = (self.high if sign > 0 else self.low), (self.high - self.low) / (count + 1)
        if sign * (end - mean) < room:  # of bounded elements the extremes lie close to the bound
            mean, std = end - sign * room, min(std, room)
        return Range(self.low, self.high, mean, std)

    def standardised(self, eps: float = 1e-5) -> Range:
        """The range of (x - mean) / sqrt(variance + eps)."""
        std = self.std / sqrt(self.std**2 + eps)
        return Range(-2 * TAIL, 2 * TAIL, 0.0, std)

    def softmax(self, count: int) -> Range:
        """The range of a softmax over `count` elements."""
        each = 1.0 / count
        spread = sqrt(max(0.0, exp(min(self.std, 3.0) ** 2) - 1.0))
        return Range(0.0, 1.0, each, each * min(spread, sqrt(count - 1.0)))


def normal(std: float = 1.0, mean: float = 0.0) -> Range:
    """The range of mean + std * torch.randn(...)."""
    return Range(mean - TAIL * std, mean + TAIL * std, mean, std)


def uniform(low: float = 0.0, high: float = 1.0) -> Range:
    """The range of low + (high - low) * torch.rand(...)."""
    return Range(low, high, (low + high) / 2, (high - low) / sqrt(12))


def indices(count: int) -> Range:
    """The range of torch.randint(0, count, ...), and of positions."""
    return Range(0, count - 1, (count - 1) / 2, count / sqrt(12))


@dataclass(frozen=True)
class SketchValue:
    """A value in forward. constant_sums: sums over its axes are nearly constant, as after a softmax or a norm."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    range: Range
    constant_sums: bool = False

    @property
    def rank(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    @property
    def elements(self) -> int:
        """Number of elements."""
        return prod(self.shape)

    def check_range(self) -> None:
        """Raise Unfit where the value may overflow its dtype, loses its digits, or is nearly a constant."""
        if self.dtype not in LARGEST:
            return
        r = self.range
        if not all(map(isfinite, (r.low, r.high, r.mean, r.std))) or r.largest > LARGEST[self.dtype]:
            raise Unfit(f"{self.name} reaches {r.largest:.3g}")
        if r.std < SMALLEST[self.dtype]:
            raise Unfit(f"{self.name} hardly varies")
        if r.std < RELATIVE[self.dtype] * abs(r.mean):
            raise Unfit(f"{self.name} is nearly a constant {r.mean:.3g}")
