"""The ticks of plot axes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Tick:
    """A labelled place on an axis."""

    at: float
    label: str
