"""The fleet on this machine: nodes whose devices sleep; throughput, and kills during a run. Needs no GPU.

    python -m benchmarks fleet --nodes 8 --seats 8 --orders 640
    python -m benchmarks fleet --nodes 8 --seats 2 --orders 4000 --seconds 0.05 --kills 200 --node-kills 5

Every order asks for a square, so that a verdict that is wrong is seen; some raise a candidate's error, which must come
back as that. Kills are SIGKILL: of a seat's process, of a node, of the process between the command and Ray. Prints the
throughput as a share of (seats / seconds), from the moment at which all seats are open and from the start, and
how many orders were lost, given twice, or came with a wrong verdict. Exit code 1 if there is one.
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import random
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from benchmarks.fleet.local_fleet import LocalFleet, local_fleet
from hipwright.fleet.client import run_orders
from hipwright.fleet.records import Order, OrderEnd, SeatWork

FACTORY = "benchmarks.fleet.sleeper:Sleeper"
WRONG_EVERY = 17  # orders of which one is a candidate's error


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options."""
    parser.add_argument("--nodes", type=int, default=8)
    parser.add_argument("--seats", type=int, default=8, help="of each node")
    parser.add_argument("--orders", type=int, default=640)
    parser.add_argument("--seconds", type=float, default=1.0, help="of each order")
    parser.add_argument("--groups", type=int, default=64, help="tasks to which the orders belong")
    parser.add_argument("--kills", type=int, default=0, help="of seats' processes")
    parser.add_argument("--node-kills", type=int, default=0, help="each node is replaced by another")
    parser.add_argument("--link-kills", type=int, default=0, help="of the process between the command and Ray")
    parser.add_argument("--every", type=float, default=0.3, help="seconds between two kills")
    parser.add_argument("--json", action="store_true")


class Watch:
    """What the run says of itself: living processes of seats, the link, and every end with its time."""

    def __init__(self) -> None:
        self.seats: dict[str, int] = {}
        self.link = 0
        self.opened_at: list[float] = []
        self.ends: list[OrderEnd] = []
        self.ended_at: list[float] = []
        self.todo: queue.SimpleQueue[Callable[[], Any]] = queue.SimpleQueue()

    def event(self, kind: str, data: dict[str, Any]) -> None:
        """The listener."""
        if kind == "seat":
            self.seats[data["device"]] = data["pid"]
            self.opened_at.append(time.monotonic())
        elif kind == "link":
            self.link = data["pid"]

    def end(self, end: OrderEnd) -> None:
        """The receiver of ends."""
        while not self.todo.empty():  # Ray starts nodes in the main thread alone
            self.todo.get()()
        self.ends.append(end)
        self.ended_at.append(time.monotonic())
        if len(self.ends) % 500 == 0:
            print(f"{len(self.ends)} orders have ended", file=sys.stderr, flush=True)


class Killer(threading.Thread):
    """Kills, each kind evenly over the run, until all kills are spent or it is stopped."""

    def __init__(self, fleet: LocalFleet, watch: Watch, options: argparse.Namespace) -> None:
        super().__init__(daemon=True)
        self._fleet, self._watch, self._options = fleet, watch, options
        self.done = {"worker": 0, "node": 0, "link": 0}
        self.stopped = threading.Event()
        counts = {"worker": options.kills, "node": options.node_kills, "link": options.link_kills}
        places = [((place + 0.5) / count, kind) for kind, count in counts.items() for place in range(count)]
        self._kinds = [kind for _, kind in sorted(places, reverse=True)]  # taken from the end: each kind evenly

    def run(self) -> None:
        """The thread."""
        while self._kinds and not self.stopped.wait(self._options.every):
            if self._kill(self._kinds[-1]):
                self.done[self._kinds.pop()] += 1

    def _kill(self, kind: str) -> bool:
        if kind == "node":
            name = f"r{self.done['node']}"
            self._fleet.kill_node(random.choice(self._fleet.nodes))
            self._watch.todo.put(lambda: self._fleet.add(name, {"fake": self._options.seats}))
            return True
        pids = [self._watch.link] if kind == "link" else list(self._watch.seats.values())
        pid = random.choice(pids or [0])
        with suppress(ProcessLookupError):
            if pid and is_ray(pid, kind):
                os.kill(pid, signal.SIGKILL)
                return True
        return False


def is_ray(pid: int, kind: str) -> bool:
    """Whether the number still belongs to a process of the fleet."""
    try:
        return (b"hipwright.fleet.link" if kind == "link" else b"ray::") in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def run(options: argparse.Namespace) -> int:
    """Runs the measurement."""
    orders = [
        Order(id=str(n), group=str(n % options.groups), payload=_payload(n, options.seconds))
        for n in range(options.orders)
    ]
    watch = Watch()
    with local_fleet() as fleet:
        for number in range(options.nodes):
            fleet.add(f"n{number}", {"fake": options.seats})
        killer = Killer(fleet, watch, options)
        killer.start()
        begun = time.monotonic()
        work = SeatWork(factory=FACTORY, architecture="fake", attempts=12)
        run_orders(fleet.address, work, orders, watch.end, listener=watch.event)
        killer.stopped.set()
        killer.join(30)
        figures = _figures(options, watch, begun) | {"kills": killer.done}
    print(json.dumps(figures) if options.json else "\n".join(f"{name}: {value}" for name, value in figures.items()))
    return 1 if figures["lost"] or figures["double"] or figures["wrong"] else 0


def _payload(number: int, seconds: float) -> dict[str, Any]:
    wrong = {"raise": "candidate"} if number % WRONG_EVERY == 0 else {}
    return {"number": number, "seconds": seconds, **wrong}


def _figures(options: argparse.Namespace, watch: Watch, begun: float) -> dict[str, Any]:
    ids = [end.id for end in watch.ends]
    seats = options.nodes * options.seats
    ideal = seats / options.seconds if options.seconds else float("inf")
    all_open = watch.opened_at[seats - 1] if len(watch.opened_at) >= seats else begun
    last = watch.ended_at[-1]
    after = sum(at > all_open for at in watch.ended_at)
    return {
        "seats": seats,
        "orders": options.orders,
        "seconds of an order": options.seconds,
        "seconds until all seats were open": round(all_open - begun, 2),
        "seconds in all": round(last - begun, 2),
        "orders a second, all open": round(after / (last - all_open), 2) if last > all_open else None,
        "share of the ideal, all open": round(after / (last - all_open) / ideal, 3) if last > all_open else None,
        "share of the ideal, with the start": round(options.orders / (last - begun) / ideal, 3),
        "tried again": sum(end.attempts - 1 for end in watch.ends),
        "lost": options.orders - len(set(ids)),
        "double": len(ids) - len(set(ids)),
        "wrong": sum(not _right(end) for end in watch.ends),
    }


def _right(end: OrderEnd) -> bool:
    """Whether an end is the verdict that its order must have."""
    number = int(end.id)
    if number % WRONG_EVERY == 0:
        return end.error is not None and end.error.fault == "candidate"
    return end.error is None and end.value["square"] == number**2
