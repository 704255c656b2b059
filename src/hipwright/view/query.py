"""Values of an address's query."""

from __future__ import annotations


def count(text: str, default: int, most: int) -> int:
    """A count from 1 to `most`; the default for what is no number."""
    return min(max(int(text), 1), most) if text.isascii() and text.isdigit() and len(text) < 10 else default
