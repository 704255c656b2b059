"""Lines put into a program's text."""

from __future__ import annotations

from collections.abc import Mapping


def with_lines(text: str, added: Mapping[int, str]) -> str:
    """The text with lines put before some of its lines, which count from 1."""
    lines = text.split("\n")
    for number in sorted(added, reverse=True):
        lines[number - 1 : number - 1] = added[number].split("\n")
    return "\n".join(lines)
