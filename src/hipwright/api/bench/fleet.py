"""`hipwright bench --fleet`: the rows that are missing, judged in the seats of a fleet.

An order holds the task's text and the program, so that a node needs no file of the command's machine. A row is stored
when its order ends; the engine's programs, which the nodes write, come back with their rows.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import msgspec

from hipwright.api.bench.candidates import CandidateMeasurement, build_ahead, keep_program
from hipwright.api.bench.driver import HANG_S, TaskWorker
from hipwright.api.bench.orders import job_of, plain_entry, request_of, settings_of
from hipwright.api.bench.plan import BenchEntry, BenchmarkRun
from hipwright.api.workbench import require_sandbox
from hipwright.archive import Archive
from hipwright.device.fingerprint import NodeFingerprint, fingerprint, trouble
from hipwright.errors import DeviceError
from hipwright.evaluation.bench import BenchRow, failed_row
from hipwright.events import Listener
from hipwright.fleet.client import run_orders
from hipwright.fleet.gpu import gpu_of
from hipwright.fleet.nodes import FleetPlace
from hipwright.fleet.records import Order, OrderEnd, SeatWork
from hipwright.machine import machine
from hipwright.measure.drift import BaselineDrift
from hipwright.records import Program

FACTORY = "hipwright.api.bench.fleet:BenchSeat"


def judge_on_fleet(
    bench: BenchmarkRun,
    place: FleetPlace,
    todo: Sequence[BenchEntry],
    on_row: Callable[[BenchRow], None],
    listener: Listener,
) -> None:
    """Judges entries on a fleet and stores each row as its order ends."""
    request = bench.request
    work = SeatWork(
        factory=FACTORY,
        setup=settings_of(request),
        architecture=place.architecture,
        device=place.device,
        gpu=place.gpu,
        seats=request.workers or 0,
        hang_s=HANG_S * (1 if request.programs_given else request.budget + 1),
    )
    entries = {entry.key: entry for entry in todo}

    def ended(end: OrderEnd) -> None:
        entry = entries[end.id]
        row, text = _row(entry, end)
        if text:
            keep_program(request, entry, text)
        bench.store.add(row)
        on_row(row)

    orders = [Order(id=entry.key, group=entry.task.name, payload=plain_entry(entry)) for entry in todo]
    run_orders(request.fleet, work, orders, ended, listener=listener)


def _row(entry: BenchEntry, end: OrderEnd) -> tuple[BenchRow, str]:
    """The row of an order's end, and the program's text where the node wrote it."""
    seconds = {"seconds": round(sum(end.seconds.values()), 3), "attempts": end.attempts, "node": end.node}
    if end.error is not None:
        return msgspec.structs.replace(failed_row(end.error.error(), **entry.names), **seconds), ""
    row = BenchRow.from_dict(end.value["row"])
    return msgspec.structs.replace(row, asked=row.asked or entry.asked, **seconds), end.value["program"]


class BenchSeat:
    """What a seat of a benchmark runs: a machine of its own, and one open task."""

    def __init__(self, setup: dict[str, Any]) -> None:
        require_sandbox(setup["unsafe"])
        with ExitStack() as stack:
            self._folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="hipwright-seat-")))
            request = request_of(setup, self._folder)
            archive = stack.enter_context(Archive(self._folder / "archive"))
            made = stack.enter_context(
                machine(
                    request.targets, unsafe=request.unsafe, baseline_s=request.baseline_s, imported=request.imported
                )
            )
            for context in made.gpus.values():
                context.baselines = request.baselines
            self._machine, self._drift = made, BaselineDrift()
            self._worker = TaskWorker("seat", made, CandidateMeasurement(request, archive), seed=request.seed)
            stack.callback(self._worker.close)
            self._stack = stack.pop_all()

    def fingerprint(self, host: str, neighbours: int) -> NodeFingerprint:
        """The node, with the GPU that this seat uses."""
        return fingerprint(gpu_of(self._machine), neighbours=neighbours, host=host)

    def build(self, order: Order) -> Program | None:
        """Compiles the order's program for the seat's GPU; None where a search has to find one."""
        return build_ahead(self._machine, job_of(order.id, order.group, order.payload))

    def prepare(self, order: Order) -> None:
        """Opens the task, unless it is open; `evaluate` must follow."""
        self._worker.prepare(job_of(order.id, order.group, order.payload))

    def evaluate(self, order: Order, built: Any) -> dict[str, Any]:
        """{"row", "program": its text where a search found it, else ""}.

        Raises DeviceError where eager takes another time than before on this device (`measure/drift.py`).
        """
        job = job_of(order.id, order.group, order.payload)
        row: BenchRow = self._worker.evaluate(job, built)
        eager = row.speedups.get("eager")
        if off := self._drift.off(row.task, eager.baseline_ms if eager is not None else None):
            raise DeviceError(off)
        path = self._folder / "programs" / f"{job.payload.task.name}.py"
        text = path.read_text(encoding="utf-8") if built is None and path.exists() else ""
        return {"row": row.to_dict(), "program": text}

    def doubt(self, value: Any) -> str:
        """What the driver says of the GPU: memory errors, clocks that are held down."""
        return trouble(gpu_of(self._machine))

    def close(self) -> None:
        """Ends the processes."""
        self._stack.close()
