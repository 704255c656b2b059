"""The process between a command and Ray: `python -m hipwright.fleet.link FD`, started by `hipwright.fleet.client`.

Ray ends a driver whose head is gone for long, and installs handlers of its own. So the command has no Ray in it: it
talks to this process by lines, starts another where this one ended, and so outlives the head. This process ends when
the command does, and its seats with it.
"""

from __future__ import annotations

import logging
import os
import socket
import sys
import threading
import time
from contextlib import suppress
from typing import Any

import ray
from ray._private.state import available_resources_per_node

from hipwright.errors import HipwrightError
from hipwright.fleet import board
from hipwright.fleet.nodes import FleetNode, nodes_of
from hipwright.fleet.records import Order, OrderEnd, OrderError, SeatReply, SeatReport, SeatWork
from hipwright.fleet.schedule import FleetSchedule
from hipwright.fleet.seats import SeatActor, SeatActors, outcome, ready_of
from hipwright.fleet.wire import Wire

LOOK_S = 1.0  # between two looks at the nodes
BLIND_S = 45.0  # without an answer of the head, after which this process ends
LAST_S = 5.0  # for the answers of seats that no longer have a head
WAIT_S = 0.1


def fleet_nodes() -> list[FleetNode]:
    """The living nodes of the connected fleet, with what the board says of them."""
    from dataclasses import replace

    drained = board.notes("drain")
    return [replace(node, drained=node.id in drained) for node in nodes_of(ray.nodes(), available_resources_per_node())]


class HeadLost(Exception):
    """The head is gone or is another one; a new link has to be made."""


class NodeWatch:
    """Looks at the nodes in a thread of its own: without a head Ray answers late or never, while seats still answer."""

    def __init__(self) -> None:
        self.nodes, self.fences = fleet_nodes(), board.notes("fence")
        self._seen, self._anew = time.monotonic(), False
        threading.Thread(target=self._watch, daemon=True, name="nodes").start()

    @property
    def drained(self) -> set[str]:
        """The ids of the nodes that get no new orders."""
        return {node.id for node in self.nodes if node.drained}

    @property
    def lost(self) -> str:
        """Why this process sees the fleet no more; "" while it does.

        A head that was started anew knows none of the actors and refuses their driver for ever.
        """
        if self._anew:
            return "its head was started anew"
        return f"its head has not answered for {BLIND_S:.0f} s" if time.monotonic() - self._seen > BLIND_S else ""

    def _watch(self) -> None:
        while True:
            time.sleep(LOOK_S)
            try:
                self.nodes, self.fences = fleet_nodes(), board.notes("fence")
                self._seen = time.monotonic()
            except Exception as error:
                self._anew = self._anew or "WrongClusterID" in str(error)


class FleetRun:
    """One run's orders on the fleet, until all have ended or the command goes. more: further ones may come."""

    def __init__(self, wire: Wire, work: SeatWork, orders: list[Order], patience_s: float, more: bool) -> None:
        self._wire, self._work, self._patience_s, self._more = wire, work, patience_s, more
        self._schedule = FleetSchedule(work, orders)
        self._seats = SeatActors(work)
        self._watch = NodeWatch()
        self._said: set[str] = set()
        self._looked = 0.0
        self._alive = time.monotonic()  # when there was a seat that is not fenced

    def run(self) -> None:
        """Runs the orders. Raises EOFError when the command is gone, HeadLost when the head is."""
        try:
            while self._schedule.left or self._more:
                self._check_head()
                self._look()
                self._give()
                self._collect()
                self._end_hangs()
                self._give_up()
                self._hear()
        finally:
            self._seats.close(self._seats.all.values())

    def _check_head(self) -> None:
        """Raises HeadLost, after what seats that work still answer in a short time."""
        if why := self._watch.lost:
            until = time.monotonic() + LAST_S
            while time.monotonic() < until and any(seat.orders for seat in self._seats.all.values()):
                self._collect()
            raise HeadLost(why)

    def _hear(self) -> None:
        """Takes further orders."""
        while (message := self._wire.receive(0)) is not None:
            self._schedule.add([Order.from_dict(one) for one in message["orders"]])

    def _say(self, kind: str, **data: Any) -> None:
        self._wire.send({"type": "event", "kind": kind, "data": data})

    def _deliver(self, *ends: OrderEnd | None) -> None:
        for end in ends:
            if end is not None:
                self._wire.send({"type": "end", "end": end.to_dict()})
        self._say_fences()

    def _say_fences(self) -> None:
        for seat, why in self._schedule.fenced.items():
            if seat not in self._said:
                self._said.add(seat)
                self._say("device_lost", device=seat, why=f"fenced: {why}")

    def _look(self) -> None:
        """Follows the nodes that came, went or are drained."""
        if time.monotonic() - self._looked < LOOK_S:
            return
        self._looked = time.monotonic()
        nodes = self._watch.nodes
        for gone in self._seats.follow(nodes):
            self._say("node_lost", device=gone.name)
            self._deliver(*self._schedule.lost(gone.name, "its node is gone"))
        drained = self._watch.drained
        for seat in [one for one in self._seats.all.values() if one.node.id in drained and not one.orders]:
            self._schedule.leave(seat.name)
            self._seats.drop(seat)
        self._seats.start_due(self._schedule.fenced)

    def _give(self) -> None:
        drained = self._watch.drained
        for seat in self._seats.all.values():
            while seat.report is not None and seat.node.id not in drained:
                order = self._schedule.take(seat.name)
                if order is None:
                    break
                reference = seat.actor.evaluate.remote(order.to_json())
                seat.orders[reference] = (order.id, time.monotonic())

    def _collect(self) -> None:
        """Takes what seats have answered since."""
        waiting: dict[Any, tuple[SeatActor, str]] = {}
        for seat in self._seats.all.values():
            if seat.opening is not None:
                waiting[seat.opening] = (seat, "")
            waiting.update({reference: (seat, id) for reference, (id, _) in seat.orders.items()})
        for reference in ready_of(waiting, WAIT_S):
            seat, id = waiting[reference]
            value, error = outcome(reference)
            if not id:
                self._opened(seat, value, error)
            elif seat.orders.pop(reference, None) is None:
                continue  # the seat was lost by another of its answers
            elif error is not None:
                self._lost(seat, error)
            else:
                reply = SeatReply.from_json(value)
                if reply.doubt:
                    self._note_doubt(seat, reply.doubt)
                self._deliver(self._schedule.ended(seat.name, reply))

    def _opened(self, seat: SeatActor, value: str | None, error: Exception | None) -> None:
        seat.opening = None
        if error is not None or value is None:
            if isinstance(error, HipwrightError):  # the seat itself says that it cannot evaluate
                self._schedule.fence(seat.name, str(error))
                self._say_fences()
            else:
                self._lost(seat, error)
            return
        seat.report = report = SeatReport.from_json(value)
        known = self._watch.fences.get(_device_key(seat))
        if report.doubt or known:
            why = report.doubt or str((known or {}).get("why", ""))
            self._note_doubt(seat, why)
            self._schedule.fence(seat.name, why)
            self._say_fences()
            return  # its actor stays, so that no other run is given the device
        self._say("seat", device=seat.name, node=report.node.to_dict(), pid=report.pid)
        self._schedule.join(seat.name)

    def _note_doubt(self, seat: SeatActor, why: str) -> None:
        """Fences the seat's device for all runs, until its node is started anew."""
        device = seat.report.node.device if seat.report is not None else ""
        fence = {"seat": seat.name, "why": why, "device": device}
        threading.Thread(target=board.note, args=("fence", _device_key(seat), fence), daemon=True).start()

    def _lost(self, seat: SeatActor, error: Exception | None) -> None:
        why = " ".join(str(error).split())[:200] if error is not None else "it ended"
        ends = self._schedule.lost(seat.name, f"{type(error).__name__}: {why}")
        if seat.name not in self._seats.all:
            return
        self._seats.again(seat)
        self._say("retry", job=seat.name, error=why, attempt=1)
        self._deliver(*ends)

    def _end_hangs(self) -> None:
        """Ends the process of a seat whose first order takes too long."""
        now = time.monotonic()
        for seat in self._seats.all.values():
            first = self._schedule.running(seat.name)[:1]
            begun = [since for id, since in seat.orders.values() if id in first]
            if begun and now - begun[0] > self._work.hang_s * self._work.depth:
                self._say("hang", job=first[0], device=seat.name, seconds=now - begun[0])
                self._deliver(*self._schedule.lost(seat.name, "an order hangs"))
                self._seats.again(seat)

    def _give_up(self) -> None:
        """Ends the orders where there has been no seat for `patience_s`, or all are fenced.

        A seat that another run holds will be free.
        """
        usable = [seat for seat in self._seats.all.values() if seat.name not in self._schedule.fenced]
        if usable:
            self._alive = time.monotonic()
        elif time.monotonic() - self._alive > self._patience_s or (self._seats.all and not usable):
            why = next(iter(self._schedule.fenced.values()), "none is open")
            text = f"the fleet has no seat of {self._work.device or self._work.architecture} left: {why}"
            error = OrderError(fault="device", status="unscorable", message=text, machine=True)
            self._deliver(*self._schedule.give_up(error))


def _device_key(seat: SeatActor) -> str:
    """The board's name of a seat's device: its own id where it has one, as Ray may give a seat another GPU."""
    own = seat.report.node.device_id if seat.report is not None else ""
    return f"{seat.node.id} {own or seat.name}"


def serve(wire: Wire) -> None:
    """Answers one request of the command: what the fleet is, a note on its board, or a run."""
    request = wire.receive(60.0)
    if request is None:
        return
    try:
        logging.disable(logging.WARNING)
        ray.init(request["address"], log_to_driver=False, logging_level="error", configure_logging=False)
    except Exception as error:
        why = " ".join(str(error).split())[:300]
        wire.send({"type": "failed", "why": why})
        return
    wire.send({"type": "connected"})
    if request["type"] == "run":
        work = SeatWork.from_dict(request["work"])
        orders = [Order.from_dict(one) for one in request["orders"]]
        try:
            FleetRun(wire, work, orders, request["patience_s"], request["more"]).run()
        except HeadLost as error:
            wire.send({"type": "failed", "why": str(error)})
            return
    elif request["type"] == "note":
        board.note(request["kind"], request["name"], request["data"])
    elif request["type"] == "remove":
        board.remove(request["kind"], request["name"])
    nodes = [vars(node) for node in fleet_nodes()] if request["type"] != "run" else []
    fences = list(board.notes("fence").values()) if request["type"] != "run" else []
    wire.send({"type": "over", "nodes": nodes, "fences": fences})


def main() -> None:
    """Serves the command at the socket whose number is given."""
    wire = Wire(socket.socket(fileno=int(sys.argv[1])))
    with suppress(EOFError, OSError):
        serve(wire)
    with suppress(Exception):
        ray.shutdown()
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
