"""Integer intervals: the values that an expression of a plan or a kernel may have at given input shapes.

A uniform expression has one value; one of a thread's index has all values between its smallest and its largest.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from hipwright.program.language import next_pow2

_HUGE = 1 << 64


class Reach(NamedTuple):
    """The integers low .. high. sized: whether they depend on the sizes of inputs."""

    low: int
    high: int
    sized: bool = False

    @property
    def single(self) -> bool:
        """Whether it is one value."""
        return self.low == self.high


class Compared(NamedTuple):
    """What a comparison may come to. gap: left minus right at their smallest, which a search drives to 0."""

    true: bool
    false: bool
    sized: bool
    gap: int = 0


def constant(value: int) -> Reach:
    """The interval of one value that no size changes."""
    return Reach(int(value), int(value))


def compared(op: str, a: Reach, b: Reach) -> Compared:
    """The outcomes of a comparison of two intervals."""
    equal_possible = a.low <= b.high and b.low <= a.high
    always_equal = a.low == a.high == b.low == b.high
    outcomes = {
        "<": (a.low < b.high, a.high >= b.low),
        "<=": (a.low <= b.high, a.high > b.low),
        ">": (a.high > b.low, a.low <= b.high),
        ">=": (a.high >= b.low, a.low < b.high),
        "==": (equal_possible, not always_equal),
        "!=": (not always_equal, equal_possible),
    }
    true, false = outcomes[op]
    far = a.high if op in (">", ">=", "==", "!=") and not a.single else a.low
    return Compared(true, false, a.sized or b.sized, far - (b.low if b.single else b.high))


def truth(a: Reach) -> Compared:
    """Whether an interval holds values other than 0, and 0."""
    return Compared(a.low != 0 or a.high != 0, a.low <= 0 <= a.high, a.sized, a.low)


def binary(op: str, a: Reach, b: Reach, *, floor: bool) -> Reach | None:
    """The interval of an arithmetic operation; None where it is not known. floor: `/` and `%` as in Python, not C."""
    sized = a.sized or b.sized
    if a.single and b.single:
        value = _scalar(op, a.low, b.low, floor=floor)
        return None if value is None or abs(value) >= _HUGE else Reach(value, value, sized)
    if op == "+":
        return Reach(a.low + b.low, a.high + b.high, sized)
    if op == "-":
        return Reach(a.low - b.high, a.high - b.low, sized)
    if op == "%":
        return _remainder(a, b, sized)
    if op == "&" and b.single and b.low >= 0:
        return Reach(0, b.low if a.high - a.low >= b.low else min(b.low, max(a.high, 0)), sized)
    if op in ("*", "/", ">>", "<<") and (op == "*" or b.low > 0 or (op in (">>", "<<") and b.low >= 0)):
        corners = [_scalar(op, x, y, floor=floor) for x in (a.low, a.high) for y in (b.low, b.high)]
        known = [corner for corner in corners if corner is not None and abs(corner) < _HUGE]
        return Reach(min(known), max(known), sized) if len(known) == 4 else None
    return None


def _remainder(a: Reach, b: Reach, sized: bool) -> Reach | None:
    if not b.single or b.low <= 0 or a.low < 0:
        return None
    if a.high - a.low + 1 >= b.low or a.low % b.low > a.high % b.low:
        return Reach(0, b.low - 1, sized)
    return Reach(a.low % b.low, a.high % b.low, sized)


def _scalar(op: str, a: int, b: int, *, floor: bool) -> int | None:
    if op in ("/", "%"):
        if b == 0:
            return None
        quotient = a // b
        if not floor and quotient < 0 and quotient * b != a:
            quotient += 1
        return quotient if op == "/" else a - quotient * b
    if op in ("<<", ">>") and not 0 <= b < 64:
        return None
    known: dict[str, Callable[[], int]] = {
        "+": lambda: a + b,
        "-": lambda: a - b,
        "*": lambda: a * b,
        "&": lambda: a & b,
        "|": lambda: a | b,
        "^": lambda: a ^ b,
        "<<": lambda: a << b,
        ">>": lambda: a >> b,
    }
    return known[op]() if op in known else None


def hull(a: Reach | None, b: Reach | None) -> Reach | None:
    """The smallest interval with both."""
    if a is None or b is None:
        return None
    return Reach(min(a.low, b.low), max(a.high, b.high), a.sized or b.sized)


def of_function(name: str, args: list[Reach]) -> Reach | None:
    """min, max, abs, cdiv and next_pow2 of intervals; None for other functions."""
    sized = any(arg.sized for arg in args)
    if name in ("min", "fmin") and args:
        return Reach(min(a.low for a in args), min(a.high for a in args), sized)
    if name in ("max", "fmax") and args:
        return Reach(max(a.low for a in args), max(a.high for a in args), sized)
    if name == "abs" and len(args) == 1 and args[0].single:
        return Reach(abs(args[0].low), abs(args[0].low), sized)
    if name == "cdiv" and len(args) == 2 and args[1].single and args[1].low > 0:
        low, high = (-(-n // args[1].low) for n in (args[0].low, args[0].high))
        return Reach(low, high, sized)
    if name == "next_pow2" and len(args) == 1 and args[0].high < _HUGE:
        return Reach(next_pow2(args[0].low), next_pow2(args[0].high), sized)
    return None
