"""Computes the cases of one verification in a thread of its own, while the candidate runs those before."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Self, TypeVar

from hipwright.verify.case_draws import VerificationCase
from hipwright.verify.oracle import Oracle

T = TypeVar("T")
YIELD_SECONDS = 1e-3
"""Between two cases: the lock is not fair, and the verification itself may need one."""


@dataclass
class CasesAhead:
    """The thread. Whatever is asked for is computed in this order; at the end of the block the rest is left."""

    oracle: Oracle
    _pool: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1, "cases"))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)

    def cases(self, workload: str, families: Iterable[str]) -> Iterator[VerificationCase]:
        """The cases in order. Raises what computing them raises."""
        coming = [self._pool.submit(self._case, workload, family) for family in families]
        return map(self.result, coming)

    def call(self, function: Callable[[], T]) -> Future[T]:
        """Calls a function that computes cases, after what was asked for before."""
        return self._pool.submit(function)

    def result(self, future: Future[T]) -> T:
        """What a function returned; the wait counts as making cases, not as the verification's own time."""
        with self.oracle.making():
            return future.result()

    def _case(self, workload: str, family: str) -> VerificationCase:
        time.sleep(YIELD_SECONDS)
        return self.oracle.case(workload, family)
