"""The seats of a run as Ray actors: started where nodes offer them, watched, ended. Imports Ray; used by the link."""

from __future__ import annotations

import time
from collections.abc import Callable, Container, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from hipwright.fleet.nodes import FleetNode
from hipwright.fleet.records import SeatReport, SeatWork
from hipwright.fleet.seat import SeatProcess

CLOSE_S = 3.0  # for the seats to end their processes
RETRY_S = 1.0  # between a seat's end and its next start


@dataclass
class SeatActor:
    """One seat of a node. actor: None while it waits for its next start. opening: its report, until it is open."""

    name: str
    node: FleetNode
    actor: Any = None
    opening: Any = None
    report: SeatReport | None = None
    not_before: float = 0.0
    orders: dict[Any, tuple[str, float]] = field(default_factory=dict)


class SeatActors:
    """Keeps an actor on each seat that the living nodes offer."""

    def __init__(self, work: SeatWork) -> None:
        self._work, self._text = work, work.to_json()
        self._class = ray.remote(SeatProcess)
        self.all: dict[str, SeatActor] = {}

    def follow(self, nodes: Iterable[FleetNode]) -> list[SeatActor]:
        """Starts actors on new seats; returns those whose node is gone."""
        known = {node.id: node for node in nodes}
        gone = [seat for seat in self.all.values() if seat.node.id not in known]
        for seat in gone:
            del self.all[seat.name]
        for node in known.values():
            if node.drained:
                continue
            count = node.offers(self._work.architecture, self._work.device)
            for number in range(count):
                name = f"{node.name}/{self._work.architecture}/{number}"
                full = self._work.seats and len(self.all) >= self._work.seats
                if name not in self.all and not full:
                    self.all[name] = SeatActor(name, node)
        return gone

    def start_due(self, fenced: Container[str]) -> None:
        """Starts the actors that are due, but for fenced seats."""
        for seat in self.all.values():
            if seat.actor is None and seat.name not in fenced and time.monotonic() >= seat.not_before:
                self._start(seat)

    def _start(self, seat: SeatActor) -> None:
        count = seat.node.offers(self._work.architecture, self._work.device)
        options = {
            "num_cpus": 0,
            "num_gpus": 1 if self._work.gpu else 0,
            "resources": {self._work.architecture: 1},
            "max_restarts": 0,
            "max_task_retries": 0,
            "max_concurrency": self._work.depth + 1,
            "scheduling_strategy": NodeAffinitySchedulingStrategy(seat.node.id, soft=False),
        }
        seat.actor = self._class.options(**options).remote(self._text, seat.name, seat.node.name, count - 1)
        seat.opening, seat.report = seat.actor.open.remote(), None

    def again(self, seat: SeatActor) -> None:
        """Ends a seat's actor and starts it anew a little later."""
        self._kill(seat)
        seat.not_before = time.monotonic() + RETRY_S

    def drop(self, seat: SeatActor) -> None:
        """Closes an idle seat for this run."""
        self.close([seat])
        self.all.pop(seat.name, None)

    def close(self, seats: Iterable[SeatActor]) -> None:
        """Lets seats end their processes, for CLOSE_S at the most, and ends them."""
        seats = list(seats)
        closing = [seat.actor.end.remote() for seat in seats if seat.actor is not None and seat.report is not None]
        with suppress(Exception):
            ray.wait(closing, num_returns=len(closing), timeout=CLOSE_S)
        for seat in seats:
            self._kill(seat)

    def _kill(self, seat: SeatActor) -> None:
        if seat.actor is not None:
            with suppress(Exception):
                ray.kill(seat.actor)
        seat.actor = seat.opening = seat.report = None
        seat.orders.clear()


def ready_of(references: Iterable[Any], timeout_s: float) -> list[Any]:
    """The references whose call has ended, after waiting for one of them."""
    all_of_them = list(references)
    if not all_of_them:
        time.sleep(timeout_s)
        return []
    first, _ = ray.wait(all_of_them, num_returns=1, timeout=timeout_s, fetch_local=True)
    if not first:
        return []
    return ray.wait(all_of_them, num_returns=len(all_of_them), timeout=0, fetch_local=True)[0]  # type: ignore[no-any-return]


def outcome(reference: Any, timeout_s: float = 10.0) -> tuple[Any, Exception | None]:
    """What an ended call gave or raised, with Ray's wrapper taken off."""
    get: Callable[..., Any] = ray.get
    try:
        return get(reference, timeout=timeout_s), None
    except ray.exceptions.RayTaskError as error:
        cause = getattr(error, "cause", None)
        return None, cause if isinstance(cause, Exception) else error
    except Exception as error:
        return None, error
