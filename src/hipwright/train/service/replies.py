"""Replies kept by idempotency key: a request that is sent again is judged once.

A key belongs to one client's token, path and body. While the first request is judged, the others wait for its reply.
Replies that blame the machine are not kept: the next request is judged anew.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

MAX_KEY = 200  # characters


@dataclass(frozen=True)
class Reply:
    """A whole HTTP response."""

    status: int
    headers: tuple[tuple[bytes, bytes], ...]
    body: bytes

    @property
    def size(self) -> int:
        """Bytes that keeping it takes, about."""
        return len(self.body) + sum(len(name) + len(value) for name, value in self.headers) + 200


class OtherRequest(Exception):
    """The key was used for another request."""


class ReplyStore:
    """The last replies by key, at most `count` and `size` bytes; those in progress besides. Used in one event loop."""

    def __init__(self, count: int, size: int) -> None:
        self._count, self._size, self._held = count, size, 0
        self._kept: OrderedDict[str, tuple[str, Reply]] = OrderedDict()
        self._running: dict[str, tuple[str, asyncio.Task[Reply]]] = {}

    async def once(
        self, key: str, request: bytes, make: Callable[[], Awaitable[Reply]], worth: Callable[[Reply], bool]
    ) -> tuple[Reply, bool]:
        """(the reply, whether it is another request's). worth: whether a reply is kept.

        The work goes on when the caller is cancelled. Raises OtherRequest.
        """
        digest = hashlib.sha256(request).hexdigest()
        known = self._kept.get(key) or self._running.get(key)
        if known is not None and known[0] != digest:
            raise OtherRequest
        if key in self._kept:
            self._kept.move_to_end(key)
            return self._kept[key][1], True
        if key in self._running:
            return await asyncio.shield(self._running[key][1]), True
        task = asyncio.ensure_future(self._make(key, digest, make, worth))
        self._running[key] = (digest, task)
        return await asyncio.shield(task), False

    async def _make(
        self, key: str, digest: str, make: Callable[[], Awaitable[Reply]], worth: Callable[[Reply], bool]
    ) -> Reply:
        try:
            reply = await make()
        finally:
            self._running.pop(key, None)
        if worth(reply) and reply.size <= self._size:
            self._kept[key] = (digest, reply)
            self._held += reply.size
            while len(self._kept) > self._count or self._held > self._size:
                self._held -= self._kept.popitem(last=False)[1][1].size
        return reply

    @property
    def held(self) -> int:
        """Bytes of the kept replies."""
        return self._held
