"""The constructor's arguments of a task's Model as text."""

from __future__ import annotations

from typing import Any

from hipwright.ship.plan_text import spelled


def constructor_arguments(init: Any) -> str:
    """The constructor's arguments as text: [..] positional, [[..], {..}] with keywords."""
    items = list(init) if isinstance(init, (list, tuple)) else [init]
    given: tuple[Any, dict[str, Any]] = (items, {})
    if len(items) == 2 and isinstance(items[0], (list, tuple)) and isinstance(items[1], dict):
        given = (items[0], items[1])
    parts = [*map(_argument, given[0]), *(f"{key}={_argument(value)}" for key, value in given[1].items())]
    return "".join(f"{part}, " for part in parts)


def _argument(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_argument, value))}]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{k!r}: {_argument(v)}" for k, v in value.items()) + "}"
    return spelled(value)
