"""What listeners that draw on a terminal have in common."""

from __future__ import annotations

from contextlib import ExitStack
from types import TracebackType
from typing import Any, Self

from hipwright.cli.display.heartbeat import covered


class DrawingListener:
    """A listener whose methods `_on_KIND` take the events; kinds without one are ignored. A context manager, which ends
    what is drawn."""

    def __init__(self) -> None:
        self._drawn: Any = None
        self._drawing = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._drawn is not None:
            self._drawn.stop()
        self._drawing.close()

    def __call__(self, kind: str, data: dict[str, Any]) -> None:
        """Handles one event."""
        handler = getattr(self, f"_on_{kind}", None)
        if handler is not None:
            handler(data)

    def _draw(self, drawn: Any) -> None:
        """Begins to draw, what rich can start and stop."""
        self._drawn = drawn
        self._drawing.enter_context(covered())
        drawn.start()
