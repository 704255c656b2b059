"""Server-sent events: a page is told within a quarter of a second that what it shows has changed.

The stream carries no data of the archive, only a key that is another one after each change: the page then asks for
itself again and replaces the parts that differ (static/view.js). One page is one connection, and a page that is not
visible has none.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.responses import StreamingResponse

POLL_S = 0.2
STATUS_S = 1.0
"""How often a page is checked without a write: a killed run writes nothing, but its lock is free."""
HEARTBEAT_S = 15.0


@dataclass(frozen=True)
class Watched:
    """What a page depends on.

    state: of JSON types; version: a number that is another one after any write to the archive; closing: whether the
    server ends.
    """

    state: Callable[[], Any]
    version: Callable[[], int]
    closing: Callable[[], bool]


async def changes(watched: Watched) -> AsyncIterator[str]:
    """The events of one page: its state now, then each other state, and a comment where nothing happens for long."""
    told: Any = None
    seen, checked, spoke = -1, 0.0, time.monotonic()
    while not watched.closing():
        now, current = time.monotonic(), await run_in_threadpool(watched.version)
        if current != seen or now - checked >= STATUS_S:
            seen, checked = current, now
            found = await run_in_threadpool(watched.state)
            if found != told:
                told, spoke = found, now
                yield f"event: change\ndata: {json.dumps(found)}\n\n"
        if now - spoke >= HEARTBEAT_S:
            spoke = now
            yield ": still here\n\n"
        await asyncio.sleep(POLL_S)


def stream(watched: Watched) -> StreamingResponse:
    """The answer to an EventSource."""
    headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
    return StreamingResponse(changes(watched), media_type="text/event-stream", headers=headers)
