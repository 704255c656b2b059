"""Figures and statuses formatted for people: pages, tables and the terminal."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

GOOD, BAD, UNSURE = "good", "bad", "unsure"
UNSURE_STATUSES = ("untrusted", "impossible", "unscorable", "degenerate")
NEUTRAL_STATUSES = ("duplicate", "not proposed", "pending")


def number(value: float | None, digits: int = 3) -> str:
    """Formats a figure with `digits` significant digits; an en dash for None."""
    if value is None:
        return "–"
    if value != value or abs(value) == float("inf"):
        return str(value)
    if isinstance(value, int) or (abs(value) >= 1000 and value == int(value)):
        return f"{int(value):,}"
    if value and not 1e-3 <= abs(value) < 1e6:
        return f"{value:.{digits - 1}e}"
    text = f"{value:.{digits}g}"
    return f"{float(text):,.0f}" if "e" in text else text


def operators(names: Iterable[str]) -> str:
    """Names of a graph's nodes as operators, repeated ones counted.

    >>> operators(["pow_1", "mul_13", "mul_26", "rsqrt"])
    'pow, mul (2), rsqrt'
    """
    counts = Counter(re.sub(r"_\d+$", "", name) for name in names)
    return ", ".join(name if count == 1 else f"{name} ({count})" for name, count in counts.items())


def percent(share: float | None) -> str:
    """Formats a share between 0 and 1 as a percentage."""
    return "–" if share is None else f"{100 * share:.0f} %"


def seconds(value: float) -> str:
    """Formats a duration in ms, s or min."""
    if value < 1:
        return f"{value * 1000:.0f} ms"
    return f"{value:.1f} s" if value < 120 else f"{value / 60:.1f} min"


def byte_count(value: float) -> str:
    """Formats bytes in the largest binary unit with a figure of at least 1."""
    for unit in ("B", "KiB", "MiB"):
        if value < 1024:
            return f"{value:.0f} {unit}" if value == int(value) else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} GiB"


def tone(status: str) -> str:
    """The colour class of a status: good, bad, unsure (nothing is known of the program), or neutral."""
    if status == "pass":
        return GOOD
    if status in NEUTRAL_STATUSES:
        return "neutral"
    return UNSURE if status in UNSURE_STATUSES else BAD
