"""The mode of torch with which a forward's call is looked at on this thread; programs within are not looked at."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol, TypeVar

T = TypeVar("T")


class CallMode(Protocol):
    """A mode under which a forward is called."""

    def resting(self) -> AbstractContextManager[Any]:
        """A context whose operators it does not look at."""
        ...

    def made(self, results: Any) -> None:
        """Takes the tensors of a program's result."""
        ...


class _Current(threading.local):
    mode: CallMode | None = None


_current = _Current()


@contextmanager
def looking(mode: CallMode) -> Iterator[None]:
    """A context in which the mode, which the caller turns on, is the one that `watching` counts."""
    before, _current.mode = _current.mode, mode
    try:
        yield
    finally:
        _current.mode = before


def watching() -> int:
    """How many modes of torch on this thread look at a forward, and change nothing: 0 or 1."""
    return int(_current.mode is not None)


def unwatched(call: Callable[[], T]) -> T:
    """call() of a verified program, at whose operators nobody looks: what it returns is its own."""
    mode = _current.mode
    if mode is None:
        return call()
    with mode.resting():
        result = call()
    mode.made(result)
    return result
