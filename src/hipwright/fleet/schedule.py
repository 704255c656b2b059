"""Which seat evaluates which order, and what follows from faults: bookkeeping only, without Ray, processes or clocks.

Orders of one group go where the group is open (`hipwright.evaluation.schedule`). Every order ends once. A fault of the
machine gives the order to another seat, `attempts` times at most; then the fault is its end, never a verdict. A seat
whose timings are doubted, or that meets fault after fault, is fenced: it gets nothing more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from hipwright.errors import WorkerError
from hipwright.evaluation.schedule import EvaluationJob, JobQueue
from hipwright.fleet.records import Order, OrderEnd, OrderError, SeatReply, SeatWork

MAX_FAULTS = 3  # faults of the machine in a row, in different orders, after which a seat is fenced
MAX_DEATHS = 6  # ends of a seat's process in a row, without an order that ended, after which it is fenced


@dataclass
class _Seat:
    """orders: taken and not ended, the first is being evaluated."""

    orders: list[Order] = field(default_factory=list)
    faults: set[str] = field(default_factory=set)
    deaths: int = 0


class FleetSchedule:
    """The orders of a run and the seats that are open."""

    def __init__(self, work: SeatWork, orders: Sequence[Order]) -> None:
        self._work = work
        self.tries: dict[str, int] = {}
        self._left: set[str] = set()
        self._queue = JobQueue([], 1 << 30)
        self._open: dict[str, _Seat] = {}
        self._deaths: dict[str, int] = {}
        self.fenced: dict[str, str] = {}
        self.add(orders)

    def add(self, orders: Sequence[Order]) -> None:
        """More orders; their ids are new."""
        self.tries |= dict.fromkeys((order.id for order in orders), 0)
        self._left |= {order.id for order in orders}
        self._queue.add_built([EvaluationJob(one.id, one.group, one) for one in orders])

    @property
    def left(self) -> int:
        """Orders that have not ended."""
        return len(self._left)

    @property
    def seats(self) -> tuple[str, ...]:
        """The open seats."""
        return tuple(self._open)

    def running(self, seat: str) -> tuple[str, ...]:
        """The ids of a seat's orders, the one that is being evaluated first."""
        return tuple(order.id for order in self._open[seat].orders) if seat in self._open else ()

    def join(self, seat: str) -> None:
        """A seat is open."""
        self._open[seat] = _Seat(deaths=self._deaths.get(seat, 0))

    def take(self, seat: str) -> Order | None:
        """The next order for a seat; None where it is full or should wait."""
        own = self._open.get(seat)
        if own is None or len(own.orders) >= self._work.depth:
            return None
        found = self._queue.next_job(seat, list(self._open))
        if found is None:
            return None
        order: Order = found[0].payload
        own.orders.append(order)
        return order

    def ended(self, seat: str, reply: SeatReply) -> OrderEnd | None:
        """What a seat answered: the order's end, or None where it is retried or has ended before."""
        own, end = self._open.get(seat), reply.end
        order = self._remove(own, end.id)
        if order is None or own is None or end.id not in self._left:
            return None
        self.tries[end.id] += 1
        self._observe(end)
        fault = end.error if end.error is not None and end.error.machine else None
        if fault is None:
            own.faults.clear()
            own.deaths = self._deaths[seat] = 0
            return self._finish(end)
        own.faults.add(end.id)
        if reply.doubt:
            self.fence(seat, reply.doubt)
        elif len(own.faults) >= MAX_FAULTS:
            self.fence(seat, f"{MAX_FAULTS} orders in a row met a fault: {fault.message}")
        return self._again(order, seat, end)

    def lost(self, seat: str, why: str) -> list[OrderEnd]:
        """A seat's process has ended: its orders wait again. Returns the ends of those without attempts left."""
        own = self._open.pop(seat, None)
        self._queue.lost(seat)
        if own is None:
            return []
        self._deaths[seat] = own.deaths + 1
        if own.deaths + 1 >= MAX_DEATHS:
            self.fenced[seat] = f"its process ended {MAX_DEATHS} times in a row: {why}"
        ends = []
        for number, order in enumerate(own.orders):
            error = OrderError.of(WorkerError(f"{seat}: {why}"))
            if number < self._work.together and order.id in self._left:  # the others had not begun
                self.tries[order.id] += 1
            if (end := self._again(order, seat, OrderEnd(id=order.id, error=error, seat=seat))) is not None:
                ends.append(end)
        return ends

    def leave(self, seat: str) -> None:
        """An idle seat is closed; a busy one must not be."""
        self._open.pop(seat, None)
        self._queue.lost(seat)

    def fence(self, seat: str, why: str) -> None:
        """A seat gets nothing more; what it has been given ends as it ends."""
        self.fenced.setdefault(seat, why)
        own = self._open.pop(seat, None)
        self._queue.lost(seat)
        for order in own.orders if own is not None else ():
            self._queue.give_back(EvaluationJob(order.id, order.group, order), None, seat)

    def give_up(self, error: OrderError) -> list[OrderEnd]:
        """The end of every order that is left."""
        return [self._finish(OrderEnd(id=one, error=error)) for one in sorted(self._left)]

    # ----------------------------------------------------------------

    def _again(self, order: Order, seat: str, end: OrderEnd) -> OrderEnd | None:
        if order.id not in self._left:
            return None
        if self.tries[order.id] >= self._work.attempts:
            return self._finish(end)
        self._queue.give_back(EvaluationJob(order.id, order.group, order), None, seat)
        return None

    def _finish(self, end: OrderEnd) -> OrderEnd:
        self._left.discard(end.id)
        self._queue.ended(end.id)
        return replace(end, attempts=max(1, self.tries.pop(end.id)))

    def _observe(self, end: OrderEnd) -> None:
        for name, mean in (("prepare", self._queue.prepare_s), ("evaluate", self._queue.work_s)):
            if name in end.seconds:
                mean.add(end.seconds[name])

    @staticmethod
    def _remove(own: _Seat | None, id: str) -> Order | None:
        found = next((order for order in own.orders if order.id == id), None) if own is not None else None
        if own is not None and found is not None:
            own.orders.remove(found)
        return found
