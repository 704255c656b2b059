"""Progress: functions that are called with what happens now, for any kind of display."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

Listener = Callable[[str, dict[str, Any]], None]
"""Called as listener(kind, data); must not raise."""


def silent(kind: str, data: dict[str, Any]) -> None:
    """The listener that does nothing."""


Observer = Callable[[str, int, int], None]
"""Called as observer(text, done, total) with what the process does now; total is 0 where it is not known."""


def _unobserved(text: str, done: int, total: int) -> None:
    """Nobody looks."""


_observers: list[Observer] = [_unobserved]


def doing(text: str, done: int = 0, total: int = 0) -> None:
    """Tells a display what this process works on now, from however deep; does nothing where there is none.

    For work that may last seconds within one call, whose listener hears of it at its ends alone. done of total: how
    much of it is done.
    """
    _observers[-1](text, done, total)


@contextmanager
def observed(observer: Observer) -> Iterator[None]:
    """Within the block, `doing` tells this observer, which is called in any thread and must not raise."""
    _observers.append(observer)
    try:
        yield
    finally:
        _observers.remove(observer)
