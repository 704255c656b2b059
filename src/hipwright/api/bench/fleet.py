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
from hipwright.api.bench.plan import BenchEntry, BenchmarkRun, BenchRequest
from hipwright.api.workbench import require_sandbox
from hipwright.archive import Archive
from hipwright.device.fingerprint import NodeFingerprint, fingerprint, trouble
from hipwright.errors import DeviceError
from hipwright.evaluation.bench import BenchRow, failed_row
from hipwright.evaluation.formats.base import BenchTask, FormatRule
from hipwright.evaluation.schedule import EvaluationJob
from hipwright.events import Listener
from hipwright.fleet.client import run_orders
from hipwright.fleet.gpu import gpu_of
from hipwright.fleet.nodes import FleetPlace
from hipwright.fleet.records import Order, OrderEnd, SeatWork
from hipwright.machine import machine
from hipwright.measure.drift import BaselineDrift
from hipwright.records import Program

FACTORY = "hipwright.api.bench.fleet:BenchSeat"
_SETTINGS = ("targets", "mode", "budget", "seed", "unsafe", "compile_limit", "baselines", "imported")


def judge_on_fleet(
    bench: BenchmarkRun,
    place: FleetPlace,
    todo: Sequence[BenchEntry],
    on_row: Callable[[BenchRow], None],
    listener: Listener,
) -> None:
    """Judges entries on a fleet and stores each row as its order ends."""
    request = bench.request
    setup = {name: getattr(request, name) for name in _SETTINGS} | {"searches": not request.programs_given}
    work = SeatWork(
        factory=FACTORY,
        setup=setup,
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

    orders = [Order(id=entry.key, group=entry.task.name, payload=_payload(entry)) for entry in todo]
    run_orders(request.fleet, work, orders, ended, listener=listener)


def _row(entry: BenchEntry, end: OrderEnd) -> tuple[BenchRow, str]:
    """The row of an order's end, and the program's text where the node wrote it."""
    seconds = {"seconds": round(sum(end.seconds.values()), 3), "attempts": end.attempts, "node": end.node}
    if end.error is not None:
        return msgspec.structs.replace(failed_row(end.error.error(), **entry.names), **seconds), ""
    row = BenchRow.from_dict(end.value["row"])
    return msgspec.structs.replace(row, asked=row.asked or entry.asked, **seconds), end.value["program"]


def _payload(entry: BenchEntry) -> dict[str, Any]:
    task = entry.task
    plain: dict[str, Any] = {
        "task": task.name,
        "text": task.read(),
        "level": task.level,
        "number": task.number,
        "form": task.form,
        "category": task.category,
        "notes": task.notes,
        "rule": task.rule.to_dict() if task.rule is not None else None,
        "candidate": entry.candidate,
        "sample": entry.sample,
        "program": entry.program.to_dict() if entry.program is not None else None,
    }
    return plain


def _entry(order: Order) -> BenchEntry:
    """The entry of an order, on the node."""
    plain = order.payload
    task = BenchTask(
        plain["task"],
        Path(f"{plain['task']}.py"),
        plain["level"],
        plain["number"],
        plain["form"],
        plain["category"],
        text=plain["text"],
        notes=tuple(plain["notes"]),
        rule=FormatRule.from_dict(plain["rule"]) if plain["rule"] else None,
    )
    program = Program.from_dict(plain["program"]) if plain["program"] else None
    return BenchEntry(task, plain["candidate"], plain["sample"], order.id, program)


class BenchSeat:
    """What a seat of a benchmark runs: a machine of its own, and one open task."""

    def __init__(self, setup: dict[str, Any]) -> None:
        settings = {name: setup[name] for name in _SETTINGS}
        for name in ("targets", "baselines", "imported"):
            settings[name] = tuple(settings[name])
        require_sandbox(settings["unsafe"])
        with ExitStack() as stack:
            self._folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="hipwright-seat-")))
            suite = Path("fleet")
            # a folder of candidates, which is not read, says that programs are given
            given = None if setup["searches"] else suite
            request = BenchRequest(suite=suite, candidates=given, out=self._folder, **settings)
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
        return build_ahead(self._machine, _job(order))

    def prepare(self, order: Order) -> None:
        """Opens the task, unless it is open; `evaluate` must follow."""
        self._worker.prepare(_job(order))

    def evaluate(self, order: Order, built: Any) -> dict[str, Any]:
        """{"row", "program": its text where a search found it, else ""}.

        Raises DeviceError where eager takes another time than before on this device (`measure/drift.py`).
        """
        job = _job(order)
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


def _job(order: Order) -> EvaluationJob:
    return EvaluationJob(order.id, order.group, _entry(order))
