"""Calls of a long program that run beside the stages that follow, on another processor.

They are judged where they would have run: the verdict is the one that they would give one after the other.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Self, TypeVar

T = TypeVar("T")
LONG_CALL_S = 1.0
"""Seconds of the kernels of one checked call from which further calls run beside others."""
THREADS = 2
"""Of calls beside the verification's own, so that no processor is idle while one chain of them is left."""
FEW_OUTPUTS = 1 << 22
"""Elements of one call's outputs up to which the replies of several calls are held until they are judged."""


@dataclass
class CallsBeside:
    """Threads that make calls, begun in this order. A context manager.

    ended: the block has been left, so that calls in a row may stop.
    """

    ended: bool = False
    _pool: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(THREADS, "beside"))
    _begun: deque[Callable[[], None]] = field(default_factory=deque)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.ended = True
        self._pool.shutdown(wait=True, cancel_futures=True)

    def begin(self, calls: Callable[[], T], judge: Callable[[T], None]) -> None:
        """Makes calls in a thread; `judge_begun` judges what they return."""
        coming = self._pool.submit(calls)
        self._begun.append(lambda: judge(coming.result()))

    def run(self, calls: Callable[[], T]) -> Future[T]:
        """Makes calls in a thread, for the caller to judge."""
        return self._pool.submit(calls)

    def judge_begun(self) -> None:
        """Waits for what was begun, and judges it in order. Raises what the calls or the judging raise."""
        while self._begun:
            self._begun.popleft()()


def another_processor() -> bool:
    """Whether this process may use more than one."""
    return len(os.sched_getaffinity(0)) > 1
