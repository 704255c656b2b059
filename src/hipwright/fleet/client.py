"""The command's side of the fleet: runs orders, and outlives the link, the head and every node.

An order's end is handed over once, as soon as it is there. Where the link to the fleet breaks, the orders that have
not ended are given to the next link, until none answers for `patience_s`.
"""

from __future__ import annotations

import importlib.util
import os
import re
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from hipwright.errors import BadInput, InfrastructureError
from hipwright.events import Listener, silent
from hipwright.fleet.nodes import FleetNode
from hipwright.fleet.records import Order, OrderEnd, OrderError, SeatWork
from hipwright.fleet.wire import Wire

PATIENCE_S = 300.0  # without any link or seat before the rest is given up
BACKOFF_S = (0.5, 1.0, 2.0, 5.0)
CONNECT_S = 90.0
_LOG_PLACE = re.compile(r"^\[[^]]*\]\s*(\([^)]*\)\s*)?\S+:\d+:\s*")
"""What Ray's lines begin with: a clock, processes, and the place in its code."""
TOKEN_FILE = Path("~/.ray/auth_token")
_LINK_ENVIRONMENT = {
    "RAY_gcs_rpc_server_reconnect_timeout_s": "30",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "PYTHONUNBUFFERED": "1",
}


def short_word(line: str) -> str:
    """The first sentence of a line of Ray's log."""
    return _LOG_PLACE.sub("", line).partition(". ")[0][:300]


def token_known() -> bool:
    """Whether this user has a token for Ray."""
    named = [os.environ.get(name) for name in ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH")]
    return any(named) or TOKEN_FILE.expanduser().exists()


class LinkLost(Exception):
    """The link has ended before its work was done; the message is its last word."""


class Link:
    """A link's process. A context manager."""

    def __init__(self, request: dict[str, Any]) -> None:
        require_ray()
        _reachable(request["address"])
        ours, theirs = socket.socketpair()
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the link
        command = [sys.executable, "-m", "hipwright.fleet.link", str(theirs.fileno())]
        environment = _LINK_ENVIRONMENT | ({"RAY_AUTH_MODE": "token"} if token_known() else {}) | dict(os.environ)
        self._process = subprocess.Popen(
            command,
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
            env=environment,
            start_new_session=True,  # Ctrl-C is the command's: it closes the socket
        )
        theirs.close()
        self._wire = Wire(ours)
        self._wire.send(request)

    @property
    def pid(self) -> int:
        """The process."""
        return self._process.pid

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._wire.close()
        try:
            self._process.wait(5.0)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._log.close()

    def send(self, message: dict[str, Any]) -> None:
        """Sends a message; where the link has ended, `messages` says so."""
        with suppress(OSError):
            self._wire.send(message)

    def messages(
        self, until: float | None = None, stopped: Callable[[], bool] = lambda: False
    ) -> Iterator[dict[str, Any]]:
        """Its messages, to "over" inclusive. until: a time.monotonic() at which it ends early; stopped: whether it is
        to. Raises LinkLost.
        """
        while until is None or time.monotonic() < until:
            try:
                message = self._wire.receive(0.2)
            except EOFError:
                raise LinkLost(self._last_word()) from None
            if message is None:
                if stopped():
                    return
                continue
            if message["type"] == "failed":
                raise LinkLost(str(message["why"]))
            yield message
            if message["type"] == "over":
                return

    def _last_word(self) -> str:
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(1.0)
        self._log.seek(max(0, self._log.seek(0, os.SEEK_END) - 4000))
        lines = [line for line in self._log.read().decode(errors="replace").splitlines() if line.strip()]
        return short_word(lines[-1]) if lines else f"its process ended ({self._process.returncode})"


def _reachable(address: str) -> None:
    """Raises LinkLost where nothing listens: Ray itself would try for minutes."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=5.0).close()
    except (OSError, ValueError, OverflowError) as error:
        raise LinkLost(str(error)) from None


def require_ray() -> None:
    """Raises BadInput where Ray is not installed."""
    if importlib.util.find_spec("ray") is None:
        raise BadInput("a fleet needs Ray, which is not installed", hint="pip install 'hipwright[fleet]'")


def ask(address: str, request: dict[str, Any]) -> tuple[list[FleetNode], list[dict[str, Any]]]:
    """The nodes and fences of a fleet, after a request. Raises InfrastructureError where none answers."""
    try:
        with Link({**request, "address": address}) as link:
            for message in link.messages(time.monotonic() + CONNECT_S):
                if message["type"] == "over":
                    return [FleetNode(**node) for node in message["nodes"]], message["fences"]
        raise LinkLost(f"no answer in {CONNECT_S:.0f} s")
    except LinkLost as error:
        raise no_fleet(address, str(error)) from None


def fleet_of(address: str) -> list[FleetNode]:
    """The nodes of a fleet. Raises InfrastructureError where none answers."""
    return ask(address, {"type": "look"})[0]


def run_orders(
    address: str,
    work: SeatWork,
    orders: Sequence[Order],
    on_end: Callable[[OrderEnd], None],
    *,
    listener: Listener = silent,
    until: float | None = None,
    patience_s: float = PATIENCE_S,
) -> None:
    """Runs orders on a fleet. on_end: called in this thread with each end, once; what it stores is not made again.

    Events for the listener: "link" {pid}, "seat" {device, node, pid}, "node_lost", "device_lost", "retry", "hang" and
    "note".
    until: a time.monotonic() after which what has not ended is left. Where the fleet stays away for `patience_s`, the
    rest ends with a fault of the service.
    """
    if len({order.id for order in orders}) != len(orders):
        raise ValueError("two orders have the same id")
    left = {order.id: order for order in orders}
    heard, failures = time.monotonic(), 0
    while left and (until is None or time.monotonic() < until):
        request = {
            "type": "run",
            "address": address,
            "work": work.to_dict(),
            "orders": [order.to_dict() for order in left.values()],
            "patience_s": patience_s,
            "more": False,
        }
        try:
            with Link(request) as link:
                listener("link", {"pid": link.pid})
                for message in link.messages(until):
                    heard, failures = time.monotonic(), 0
                    _take(message, left, on_end, listener)
            return
        except LinkLost as error:
            if time.monotonic() - heard > patience_s:
                _give_up(no_fleet(address, str(error)), left, on_end)
                return
            if not failures:
                listener("note", {"text": f"the fleet at {address} is away ({error}); {len(left)} orders wait for it"})
            time.sleep(BACKOFF_S[min(failures, len(BACKOFF_S) - 1)])
            failures += 1


def _take(
    message: dict[str, Any], left: dict[str, Order], on_end: Callable[[OrderEnd], None], listener: Listener
) -> None:
    if message["type"] == "event":
        listener(message["kind"], message["data"])
    elif message["type"] == "end":
        end = OrderEnd.from_dict(message["end"])
        if end.id in left:
            on_end(end)
            del left[end.id]


def _give_up(error: InfrastructureError, left: dict[str, Order], on_end: Callable[[OrderEnd], None]) -> None:
    for id in list(left):
        on_end(OrderEnd(id=id, error=OrderError.of(error)))
        del left[id]


def no_fleet(address: str, why: str) -> InfrastructureError:
    """The error where no fleet answers."""
    return InfrastructureError(
        f"no fleet answers at {address}: {why}",
        hint="is it up there (`hipwright fleet up`), and is ~/.ray/auth_token the head's? docs/fleet.md",
    )
