"""Progress: plain functions that say what happens now, shown by whichever face is on (rich, plain lines, nothing)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Listener = Callable[[str, dict[str, Any]], None]
"""Called as listener(kind, data); must not raise."""


def silent(kind: str, data: dict[str, Any]) -> None:
    """The listener that shows nothing."""
