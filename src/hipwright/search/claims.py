"""What a search evaluates now, told to the other searches of its archive: a candidate is evaluated by one of them.

A search claims the cache key of a candidate before it evaluates it, and gives the claim up when the result is stored.
Another search that has the same candidate waits, and takes the result as it takes an earlier run's. A claim is a lease:
it is prolonged while the search lives, and is over a minute after its process was killed. Its holder is the run, so a
run that is resumed has the claims that it had.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType

from hipwright.archive import Archive
from hipwright.errors import BadInput, InfrastructureError
from hipwright.records import Evaluation

LEASE_S, POLL_S = 60.0, 0.5


class Claims:
    """The claims of one run. shared: False claims nothing. check: called while waiting; raises to end it."""

    def __init__(
        self, archive: Archive, run: str, shared: bool, check: Callable[[], None], lease_s: float = LEASE_S
    ) -> None:
        self._archive, self._run, self._shared, self._check, self._lease_s = archive, run, shared, check, lease_s
        self._held: set[str] = set()
        self._mutex = threading.Lock()
        self._over = threading.Event()
        self._keeper: threading.Thread | None = None

    def __enter__(self) -> Claims:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Gives all claims up: what is still evaluated is not stored any more."""
        self._over.set()
        if self._keeper is not None:
            self._keeper.join()
        with suppress(BadInput, InfrastructureError):  # a claim that stays is over soon
            for key in sorted(self._held):
                self.end(key)

    def known(self, key: str) -> Evaluation | None:
        """The evaluation stored under a cache key, waited for where another search makes it.

        None: it is this search's to make, and is claimed until `end`.
        """
        while (known := self._archive.evaluation(key)) is None and self._shared:
            if self._archive.claim(key, self._run, self._lease_s):
                self._keep(key)
                return self._archive.evaluation(key)  # it may have been stored just before its claim was given up
            self._check()
            time.sleep(POLL_S)
        return known

    def end(self, key: str) -> None:
        """Gives the claim of a key up, if there is one."""
        with self._mutex:
            held = key in self._held
            self._held.discard(key)
        if held:
            self._archive.give_up(key, self._run)

    def _keep(self, key: str) -> None:
        with self._mutex:
            self._held.add(key)
            if self._keeper is None:
                self._keeper = threading.Thread(target=self._prolong, name="claims", daemon=True)
                self._keeper.start()

    def _prolong(self) -> None:
        while not self._over.wait(self._lease_s / 3):
            with self._mutex:
                held = sorted(self._held)
            for key in held:
                with suppress(BadInput, InfrastructureError):  # the next append tells of it
                    self._archive.claim(key, self._run, self._lease_s)
