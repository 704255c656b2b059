"""An asyncio event loop in a background thread, for blocking callers."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

from hipwright.llm.call_failure import SilentStream

T = TypeVar("T")


class EventLoopThread:
    """Starts at once, in a daemon thread, so that the process can exit without closing it."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="hipwright-llm", daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of `work`; an interrupt of the waiting thread cancels it. SilentStream on a closed loop."""
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except concurrent.futures.CancelledError:
            raise SilentStream("closed while it waited for an answer") from None
        except BaseException:
            future.cancel()
            raise

    def close(self, last: Coroutine[Any, Any, None]) -> None:
        """Cancels the remaining tasks, runs `last`, and stops."""
        asyncio.run_coroutine_threadsafe(self._finish(last), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _finish(self, last: Coroutine[Any, Any, None]) -> None:
        rest = asyncio.all_tasks() - {asyncio.current_task()}
        for task in rest:
            task.cancel()
        await asyncio.gather(*rest, return_exceptions=True)
        await last
        await self._loop.shutdown_asyncgens()
