"""Limits of the service, and the rate at which each client may ask."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable

from hipwright.records import Record

CLIENTS = 10_000
"""Clients whose rate is remembered; the one that asked longest ago is forgotten first."""


class ServiceLimits(Record, frozen=True, kw_only=True):
    """What the service takes at once.

    max_bytes: of one request. queue: requests that are judged or wait for it. memory_bytes: of all bodies together.
    per_minute: requests of one client address, 0 for any. body_s, header_s: in which a request must arrive.
    replies, reply_bytes: of those kept for clients that ask again. sockets: WebSockets. connections: of all kinds.
    drain_s: for requests in progress after SIGTERM.
    """

    max_bytes: int = 2 << 20
    queue: int = 256
    memory_bytes: int = 256 << 20
    per_minute: int = 6000
    body_s: float = 30.0
    header_s: float = 10.0
    replies: int = 4096
    reply_bytes: int = 64 << 20
    sockets: int = 256
    connections: int = 4096
    drain_s: float = 60.0


class RateLimit:
    """A token bucket a client: `per_minute` requests, a sixth of them at once."""

    def __init__(self, per_minute: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate, self._burst, self._clock = per_minute / 60, max(1.0, per_minute / 6), clock
        self._clients: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def wait_s(self, client: str) -> float:
        """0 and a request counted, or the seconds after which the client may ask again."""
        if not self._rate:
            return 0.0
        now = self._clock()
        left, since = self._clients.pop(client, (self._burst, now))
        left = min(self._burst, left + (now - since) * self._rate)
        allowed = left >= 1
        self._clients[client] = (left - 1 if allowed else left, now)
        while len(self._clients) > CLIENTS:
            self._clients.popitem(last=False)
        return 0.0 if allowed else (1 - left) / self._rate
