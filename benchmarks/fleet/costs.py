"""What the command's side of a fleet takes for each order, without Ray: choosing seats, storing rows. Needs no GPU.

    python -m benchmarks fleet-costs --seats 1000 --groups 500

Prints orders a second that the schedule gives to seats and takes back, and rows a second that are stored durably.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

from hipwright.evaluation.bench import BenchRow, RowStore
from hipwright.fleet.records import Order, OrderEnd, SeatReply, SeatWork
from hipwright.fleet.schedule import FleetSchedule

ROWS = 300


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options."""
    parser.add_argument("--seats", type=int, default=1000)
    parser.add_argument("--groups", type=int, default=500)
    parser.add_argument("--orders", type=int, default=20_000)


def run(options: argparse.Namespace) -> int:
    """Runs the measurement."""
    print(f"orders scheduled a second: {_scheduled(options):.0f}")
    print(f"rows stored a second: {_stored():.0f}")
    return 0


def _scheduled(options: argparse.Namespace) -> float:
    """Orders a second through a schedule whose seats are always busy."""
    orders = [Order(id=str(n), group=str(n % options.groups)) for n in range(options.orders)]
    made = FleetSchedule(SeatWork(factory="none:none"), orders)
    seats = [f"seat {n}" for n in range(options.seats)]
    for seat in seats:
        made.join(seat)
    begun = time.monotonic()
    held = {seat: made.take(seat) for seat in seats}
    while made.left:
        for seat in seats:
            order = held[seat] or made.take(seat)
            if order is not None:
                made.ended(seat, SeatReply(end=OrderEnd(id=order.id, value=1, seconds={"prepare": 1, "evaluate": 1})))
            held[seat] = made.take(seat)
    return options.orders / (time.monotonic() - begun)


def _stored() -> float:
    """Rows a second in this folder's file system."""
    with tempfile.TemporaryDirectory(dir=".") as folder:
        store, begun = RowStore(Path(folder)), time.monotonic()
        for number in range(ROWS):
            store.add(BenchRow(key=str(number), task="t", candidate="c", status="pass", message="x" * 500))
        return ROWS / (time.monotonic() - begun)
