"""Runs a served application until SIGTERM, and then until what was let in is answered. Needs uvicorn."""

from __future__ import annotations

import asyncio
import ipaddress
import time
from types import FrameType
from typing import Any

import uvicorn

from hipwright.errors import BadInput
from hipwright.train.service.front import Application, ServiceFront
from hipwright.train.service.limits import ServiceLimits

SWEEP_S = 2.0
KEEP_ALIVE_S = 30


class ServiceServer(uvicorn.Server):
    """A server that drains, and that closes connections whose request does not begin in time."""

    def __init__(self, front: ServiceFront, host: str, port: int) -> None:
        self._front = front
        limits = front.limits
        config = uvicorn.Config(
            front,
            host=host,
            port=port,
            log_level="error",
            access_log=False,
            limit_concurrency=limits.connections,
            timeout_keep_alive=KEEP_ALIVE_S,
            timeout_graceful_shutdown=round(limits.drain_s),
            ws_max_size=limits.max_bytes,
            backlog=limits.connections,
        )
        super().__init__(config)
        self._idle: dict[int, float] = {}

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """The first signal lets nothing more in; the second ends requests too."""
        self._front.draining = True
        super().handle_exit(sig, frame)

    async def startup(self, sockets: list[Any] | None = None) -> None:
        """Listens."""
        await super().startup(sockets)
        self._sweeper = asyncio.create_task(self._sweep())

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(SWEEP_S)
            now, limit = time.monotonic(), self._front.limits.header_s
            idle = {id(one): one for one in self.server_state.connections if _waits_for_header(one)}
            self._idle = {key: self._idle.get(key, now) for key in idle}
            for key, since in self._idle.items():
                if now - since > limit:
                    self._front.metrics.refused["no header"] += 1
                    transport = getattr(idle[key], "transport", None)
                    if transport is not None:
                        transport.abort()


def _waits_for_header(connection: Any) -> bool:
    """Whether a connection of uvicorn is open, has had no request, and is no WebSocket."""
    return hasattr(connection, "cycle") and connection.cycle is None


def serve(application: Application, host: str, port: int, token: str = "", limits: ServiceLimits | None = None) -> None:
    """Serves behind `ServiceFront` until SIGTERM or Ctrl-C.

    Raises BadInput for a host off the loopback without a token.
    """
    check_host(host, token)
    ServiceServer(ServiceFront(application, limits, token), host, port).run()


def check_host(host: str, token: str) -> None:
    """Raises BadInput for a host off the loopback without a token."""
    if not (token or _loopback(host)):
        raise BadInput(
            f"{host} can be reached from other machines, and there is no token",
            hint="set a token, or serve on 127.0.0.1",
        )


def _loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
