"""Markdown tables, and how numbers are written in them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

from hipwright.measure.fastp import GeometricMean, TaskShare


def table(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A Markdown table."""
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(str(cell) for cell in line)} |" for line in lines)


def microseconds(value: float) -> str:
    """One decimal below 10, none above."""
    return f"{value:.1f}" if value < 10 else f"{value:,.0f}"


def interval(value: float, bounds: tuple[float, float]) -> str:
    """A value and its 95 % interval."""
    return f"{value:.2f} [{bounds[0]:.2f}, {bounds[1]:.2f}]"


def mean(found: GeometricMean | None) -> str:
    """A geometric mean and its interval; empty without one."""
    return interval(found.value, found.interval) if found else ""


def share(found: TaskShare) -> str:
    """A share of tasks in percent, with both counts."""
    return f"{found.share:.0%} ({found.count} of {found.total})" if found.total else ""


def day(clock: float) -> str:
    """The UTC date of a time in seconds since 1970."""
    return datetime.fromtimestamp(clock, UTC).date().isoformat()


def days(dates: Iterable[str]) -> str:
    """The first and the last of some dates."""
    first, *rest = sorted(set(dates)) or [""]
    return f"{first} to {rest[-1]}" if rest else first
