"""The process of one seat: opens what the run needs once, then builds and evaluates orders. Knows nothing of Ray.

One order is evaluated at a time, or `SeatWork.together`; meanwhile the next ones are built. An evaluation counts only
if the seat's timings are trusted right after it; else it is void, the seat says why, and another one evaluates the
order.
"""

from __future__ import annotations

import os
import threading
import time
from importlib import import_module
from typing import Any, Protocol

import hipwright
from hipwright.device.fingerprint import NodeFingerprint
from hipwright.errors import DeviceError, InfrastructureError
from hipwright.fleet.records import Order, OrderEnd, OrderError, SeatReply, SeatReport, SeatWork

EXIT_S = 5.0


class SeatEvaluator(Protocol):
    """What a factory gives. `build` runs beside evaluations; of the other methods as many as `SeatWork.together` says.

    A fault of the machine is raised as InfrastructureError and retried in another seat; any other exception is final.
    """

    def fingerprint(self, host: str, neighbours: int) -> NodeFingerprint:
        """The node and the device."""
        ...

    def build(self, order: Order) -> Any:
        """What can be made ahead, on processors."""
        ...

    def prepare(self, order: Order) -> None:
        """Opens what the order's group shares; returns quickly if it is open."""
        ...

    def evaluate(self, order: Order, built: Any) -> Any:
        """The order's value, in JSON types."""
        ...

    def doubt(self, value: Any) -> str:
        """Why the device's timings are not trusted now; "" if they are. value: just made, None before the first."""
        ...

    def close(self) -> None:
        """Ends its processes."""
        ...


class SeatProcess:
    """The body of an actor. host: the node's name in the fleet; neighbours: the node's other seats."""

    def __init__(self, work: str, seat: str, host: str, neighbours: int) -> None:
        self._work = SeatWork.from_json(work)
        self._seat, self._host, self._neighbours = seat, host, neighbours
        self._turn = threading.BoundedSemaphore(self._work.together)
        self._evaluator: SeatEvaluator | None = None
        self._node: NodeFingerprint | None = None

    def open(self) -> str:
        """The seat's report, as JSON. Raises InfrastructureError where it cannot evaluate."""
        if self._work.version != hipwright.__version__:
            raise InfrastructureError(
                f"{self._host} has hipwright {hipwright.__version__}, the command {self._work.version}",
                hint="install the same version on every node",
            )
        module, _, name = self._work.factory.partition(":")
        self._evaluator = getattr(import_module(module), name)(self._work.setup)
        assert self._evaluator is not None
        self._node = self._evaluator.fingerprint(self._host, self._neighbours)
        doubt = self._evaluator.doubt(None)
        return SeatReport(node=self._node, pid=os.getpid(), doubt=doubt).to_json()

    def evaluate(self, text: str) -> str:
        """The reply to an order, both as JSON. Raises nothing of the order's own."""
        order, seconds, doubt = Order.from_json(text), {}, ""  # type: tuple[Order, dict[str, float], str]
        value, error = None, None
        evaluator = self._evaluator
        assert evaluator is not None and self._node is not None
        try:
            begun = time.monotonic()
            built = evaluator.build(order)
            seconds["build"] = time.monotonic() - begun
            with self._turn:
                begun = time.monotonic()
                evaluator.prepare(order)
                seconds["prepare"] = time.monotonic() - begun
                begun = time.monotonic()
                value = evaluator.evaluate(order, built)
                seconds["evaluate"] = time.monotonic() - begun
                doubt = evaluator.doubt(value)
        except Exception as met:
            error = OrderError.of(met)
        if doubt:
            value, error = None, OrderError.of(DeviceError(f"{self._seat}: {doubt}"))
        end = OrderEnd(id=order.id, value=value, error=error, seat=self._seat, node=self._node, seconds=seconds)
        return SeatReply(end=end, doubt=doubt).to_json()

    def end(self) -> None:
        """Ends the evaluator's processes, and this one soon after: where no head is left, nobody else does."""
        threading.Timer(EXIT_S, os._exit, (0,)).start()
        self.close()

    def close(self) -> None:
        """Ends the evaluator's processes."""
        if self._evaluator is not None:
            self._evaluator.close()
