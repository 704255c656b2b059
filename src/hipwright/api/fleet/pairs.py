"""`hipwright dataset build --fleet`: the seats of a fleet make the pairs of tasks, a task an order.

The rows of a task come from the task and the seed alone, so they are those of one machine; each says its node.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

from msgspec.structs import replace

from hipwright.api.data.hooks import evidence_text, mutants, search_pairs
from hipwright.api.fleet.choice import FleetChoice, away, told_as
from hipwright.api.workbench import require_sandbox
from hipwright.dataset.build import Made, Maker, timeout_s
from hipwright.dataset.make import BuildSettings, Hooks, TaskPairs, make_pairs
from hipwright.dataset.records import Pair
from hipwright.dataset.store import TaskOutcome
from hipwright.dataset.tasks import DatasetTask
from hipwright.device.fingerprint import NodeFingerprint, fingerprint, trouble
from hipwright.errors import InfrastructureError
from hipwright.events import Listener
from hipwright.fleet.client import run_orders
from hipwright.fleet.gpu import gpu_of
from hipwright.fleet.records import Order, OrderEnd, SeatWork
from hipwright.machine import machine
from hipwright.synth.records import SyntheticTask

FACTORY = "hipwright.api.fleet.pairs:PairsSeat"


def in_seats(
    fleet: FleetChoice, settings: BuildSettings, *, seats: int | None, unsafe: bool, listener: Listener
) -> Maker:
    """Makes pairs in the seats of a fleet. seats: the most to use, None for all.

    Raises BadInput where the fleet has no seat for the targets, InfrastructureError where none answers, and where it
    stays away: what is not made then is no outcome, and the next build makes it.
    """
    place = fleet.chosen(settings.targets)
    work = SeatWork(
        factory=FACTORY,
        setup={"settings": settings.to_dict(), "unsafe": unsafe},
        architecture=place.architecture,
        device=place.device,
        gpu=place.gpu,
        seats=seats or 0,
        hang_s=timeout_s(settings),
    )

    def make(todo: Sequence[DatasetTask], took: Callable[[DatasetTask, Made], None]) -> None:
        entries = {entry.key: entry for entry in todo}

        def ended(end: OrderEnd) -> None:
            took(entries[end.id], _made(end))

        orders = [Order(id=entry.key, group=entry.key, payload=_payload(entry)) for entry in entries.values()]
        run_orders(fleet.address, work, orders, ended, listener=told_as("note", listener))

    return make


def _made(end: OrderEnd) -> Made:
    """What a seat made, with its node in every row. Raises InfrastructureError where no seat took the task."""
    if end.error is not None:
        error = end.error.error()
        if isinstance(error, InfrastructureError) and not end.seat:
            raise away(error, "the same command and --resume")
        return error
    node = {"node": end.node.to_dict()} if end.node is not None else {}
    rows = [Pair.from_dict(row) for row in end.value["pairs"]]
    pairs = tuple(replace(row, provenance=row.provenance | node) for row in rows)
    return TaskPairs(TaskOutcome.from_dict(end.value["outcome"]), pairs)


def _payload(entry: DatasetTask) -> dict[str, Any]:
    synthetic = entry.synthetic.to_dict() if entry.synthetic is not None else None
    return {"name": entry.name, "source": entry.source, "synthetic": synthetic}


class PairsSeat:
    """What a seat runs: a machine, on which it makes the pairs of one task after the other."""

    def __init__(self, setup: dict[str, Any]) -> None:
        require_sandbox(setup["unsafe"])
        self._settings = BuildSettings.from_dict(setup["settings"])
        with ExitStack() as stack:
            self._machine = stack.enter_context(machine(self._settings.targets, unsafe=setup["unsafe"]))
            self._stack = stack.pop_all()

    def fingerprint(self, host: str, neighbours: int) -> NodeFingerprint:
        """The node, with the GPU that this seat uses."""
        return fingerprint(gpu_of(self._machine), neighbours=neighbours, host=host)

    def build(self, order: Order) -> DatasetTask:
        """The task."""
        plain = order.payload["synthetic"]
        synthetic = SyntheticTask.from_dict(plain) if plain is not None else None
        return DatasetTask(order.payload["name"], order.payload["source"], synthetic)

    def prepare(self, order: Order) -> None:
        """Nothing: a task is opened once, by `evaluate`."""

    def evaluate(self, order: Order, built: DatasetTask) -> dict[str, Any]:
        """The outcome and the rows. Raises the machine's fault, which another seat may not meet."""
        made = make_pairs(self._machine, built, self._settings, Hooks(mutants, evidence_text, search_pairs))
        return {"outcome": made.outcome.to_dict(), "pairs": [pair.to_dict() for pair in made.pairs]}

    def doubt(self, value: Any) -> str:
        """What the driver says of the GPU."""
        return trouble(gpu_of(self._machine))

    def close(self) -> None:
        """Ends the processes."""
        self._stack.close()
