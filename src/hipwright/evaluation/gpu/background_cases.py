"""Cases that are made while a program is built, on a GPU's task or without one."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress

from hipwright.errors import HipwrightError
from hipwright.verify import Oracle


class BackgroundCases:
    """Makes what an oracle's verifications need once, in the background; what fails there raises in them again."""

    def __init__(self) -> None:
        self._oracle: Oracle | None = None
        self._threads: list[threading.Thread] = []

    def begin(self, oracle: Oracle, make: Callable[[], object]) -> None:
        """Calls `make` in a thread, unless the last call was for the same oracle."""
        if self._oracle is oracle:
            return
        self._oracle = oracle

        def made() -> None:
            with suppress(HipwrightError):
                make()

        thread = threading.Thread(target=made, name="cases", daemon=True)
        thread.start()  # before another thread can wait for it
        self._threads = [*(one for one in self._threads if one.is_alive()), thread]

    def wait(self) -> None:
        """Returns when all that was begun has ended."""
        for thread in self._threads:
            thread.join()
