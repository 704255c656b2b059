"""Progress: functions that are called with what happens now, for any kind of display."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Listener = Callable[[str, dict[str, Any]], None]
"""Called as listener(kind, data); must not raise."""


def silent(kind: str, data: dict[str, Any]) -> None:
    """The listener that does nothing."""
