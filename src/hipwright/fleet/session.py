"""Orders on a fleet one by one, for a service: futures, over any number of links."""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Self

from hipwright.errors import InfrastructureError
from hipwright.events import Listener, silent
from hipwright.fleet.client import BACKOFF_S, PATIENCE_S, Link, LinkLost, no_fleet
from hipwright.fleet.records import Order, OrderEnd, OrderError, SeatWork
from hipwright.stopping import StopSignals

STOPPED_S = 0.3  # for the link to end, where the command has been told to stop and has a second


class FleetSession:
    """A run on a fleet to which orders are added. A context manager; safe to use from several threads.

    listener: gets the events of `run_orders`, in the session's own thread. patience_s: how long orders wait for a fleet
    that does not answer before they end with a fault of the service; the session goes on trying.
    """

    def __init__(
        self, address: str, work: SeatWork, *, listener: Listener = silent, patience_s: float = PATIENCE_S
    ) -> None:
        self._address, self._work, self._listener, self._patience_s = address, work, listener, patience_s
        self._waiting: dict[str, tuple[Order, Future[OrderEnd]]] = {}
        self._lock = threading.Lock()
        self._link: Link | None = None
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="fleet session", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._stopping.set()
        signals = StopSignals.current
        stopped = kind is KeyboardInterrupt or (signals is not None and signals.received)
        self._thread.join(STOPPED_S if stopped else None)  # left alone, the link ends by itself and its seats with it
        self._end_all(InfrastructureError("the fleet's session was closed"))

    def submit(self, order: Order) -> Future[OrderEnd]:
        """The future end of an order with a new id. The future raises nothing of the order's own."""
        future: Future[OrderEnd] = Future()
        with self._lock:
            if order.id in self._waiting:
                raise ValueError("two orders have the same id")
            self._waiting[order.id] = (order, future)
            if self._link is not None:
                self._link.send({"type": "orders", "orders": [order.to_dict()]})
        return future

    def _run(self) -> None:
        heard, failures = time.monotonic(), 0
        while not self._stopping.is_set():
            try:
                for message in self._messages():
                    heard, failures = time.monotonic(), 0
                    self._take(message)
            except LinkLost as error:
                if not failures:
                    self._listener("note", {"text": f"the fleet at {self._address} is away ({error})"})
                if time.monotonic() - heard > self._patience_s:
                    self._end_all(no_fleet(self._address, str(error)))
                self._stopping.wait(BACKOFF_S[min(failures, len(BACKOFF_S) - 1)])
                failures += 1

    def _messages(self) -> Any:
        """The messages of one link, from its start on."""
        with self._lock:  # orders that come later are sent
            link = self._link = Link(self._request())
        try:
            with link:
                self._listener("link", {"pid": link.pid})
                yield from link.messages(stopped=self._stopping.is_set)
        finally:
            with self._lock:
                self._link = None

    def _request(self) -> dict[str, Any]:
        return {
            "type": "run",
            "address": self._address,
            "work": self._work.to_dict(),
            "orders": [order.to_dict() for order, _ in self._waiting.values()],
            "patience_s": self._patience_s,
            "more": True,
        }

    def _take(self, message: dict[str, Any]) -> None:
        if message["type"] == "event":
            self._listener(message["kind"], message["data"])
        elif message["type"] == "end":
            end = OrderEnd.from_dict(message["end"])
            with self._lock:
                known = self._waiting.pop(end.id, None)
            if known is not None:
                known[1].set_result(end)

    def _end_all(self, error: InfrastructureError) -> None:
        with self._lock:
            waiting, self._waiting = self._waiting, {}
        for id, (_, future) in waiting.items():
            future.set_result(OrderEnd(id=id, error=OrderError.of(error)))
