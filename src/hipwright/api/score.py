"""Scores many programs of one task by the fast gate and a short timing, for learning (docs/score.md)."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from hipwright.api import targets as known_targets
from hipwright.api.inputs import TaskSource, task_source
from hipwright.api.workbench import open_on, open_workbench, require_sandbox
from hipwright.device.fingerprint import NodeFingerprint, fingerprint, trouble
from hipwright.errors import BadInput, HipwrightError
from hipwright.evaluation.faults import MACHINE_FAULTS, as_error, failed
from hipwright.evaluation.score import BatchScorer
from hipwright.fleet.client import fleet_of, run_orders
from hipwright.fleet.gpu import gpu_of
from hipwright.fleet.nodes import choose_place
from hipwright.fleet.records import Order, OrderEnd, SeatWork
from hipwright.machine import machine
from hipwright.records import Evaluation, Program, content_key
from hipwright.targets import TARGETS

FACTORY = "hipwright.api.score:ScoreSeat"
BATCH = 16
"""The most programs of one order: a seat compiles the next order's while it times these."""


@dataclass(frozen=True)
class FleetScore:
    """A program's evaluation on a fleet, and where it was made; None where no seat made one."""

    evaluation: Evaluation
    node: NodeFingerprint | None


def scoring_target(targets: Sequence[str] | None = None) -> str:
    """The first of the targets that is a GPU. Raises BadInput where none is: score mode times programs."""
    chosen = [name for name in known_targets.choose(targets) if TARGETS.is_gpu(name)]
    if not chosen:
        raise BadInput(
            "score mode times programs, so it needs a GPU",
            hint="without one, `hipwright eval` verifies a program on the cpu target",
        )
    return chosen[0]


def score_programs(
    task: object, programs: Sequence[Program], target: str, *, seed: int | None = None, unsafe: bool = False
) -> list[Evaluation]:
    """The evaluations of programs of one task, in their order. target: from `scoring_target`."""
    with (
        open_workbench(task_source(task), (target,), seed=seed, unsafe=unsafe) as bench,
        BatchScorer(bench.evaluator) as scorer,
    ):
        scorer.warm()
        return scorer.score(programs)


def score_on_fleet(
    task: object,
    programs: Sequence[Program],
    target: str,
    address: str,
    *,
    place: str = "",
    seed: int | None = None,
    unsafe: bool = False,
) -> list[FleetScore]:
    """As `score_programs`, in the seats of a fleet, on one device. place: as of `choose_place`.

    Raises BadInput, and InfrastructureError where no fleet answers.
    """
    chosen, source = choose_place(fleet_of(address), (target,), place), task_source(task)
    text = source.read()
    setup = {"name": source.name, "text": text, "target": target, "seed": seed, "unsafe": unsafe}
    work = SeatWork(
        factory=FACTORY, setup=setup, architecture=chosen.architecture, device=chosen.device, gpu=chosen.gpu
    )
    size = max(1, min(BATCH, -(-len(programs) // chosen.seats)))
    parts = [programs[begin : begin + size] for begin in range(0, len(programs), size)]
    orders = [
        Order(id=str(number), group=source.name, payload={"programs": [program.to_dict() for program in part]})
        for number, part in enumerate(parts)
    ]
    found: dict[int, list[FleetScore]] = {}

    def ended(end: OrderEnd) -> None:
        part = parts[int(end.id)]
        if end.error is not None:
            key, error = content_key("task", text), end.error.error()
            made = [failed(key, program.key, error) for program in part]
        else:
            made = [Evaluation.from_dict(plain) for plain in end.value]
        found[int(end.id)] = [FleetScore(one, end.node) for one in made]

    run_orders(address, work, orders, ended)
    return [score for number in range(len(parts)) for score in found[number]]


class ScoreSeat:
    """What a seat of `score --fleet` runs: one open task, and its scorer."""

    def __init__(self, setup: dict[str, Any]) -> None:
        require_sandbox(setup["unsafe"])
        with ExitStack() as stack:
            self._machine = stack.enter_context(machine((setup["target"],), unsafe=setup["unsafe"]))
            source = TaskSource(setup["name"], text=setup["text"])
            self._opened: BatchScorer | HipwrightError
            try:
                bench = stack.enter_context(open_on(self._machine, source, seed=setup["seed"]))
                self._opened = stack.enter_context(BatchScorer(bench.evaluator))
                self._opened.warm()
            except HipwrightError as error:
                if error.fault != "task":
                    raise
                self._opened = error  # every order ends with it: the task is at fault wherever it is opened
            self._stack = stack.pop_all()

    def fingerprint(self, host: str, neighbours: int) -> NodeFingerprint:
        """The node, with the GPU that this seat uses."""
        return fingerprint(gpu_of(self._machine), neighbours=neighbours, host=host)

    def build(self, order: Order) -> list[Program]:
        """The programs; the scorer compiles them itself, all at once."""
        return [Program.from_dict(plain) for plain in order.payload["programs"]]

    def prepare(self, order: Order) -> None:
        """Raises the task's own error."""
        if isinstance(self._opened, HipwrightError):
            raise self._opened

    def evaluate(self, order: Order, built: list[Program]) -> list[dict[str, Any]]:
        """The evaluations. Raises the machine's fault where it met all programs alike."""
        assert isinstance(self._opened, BatchScorer)
        found = self._opened.score(built)
        if all(one.fault in MACHINE_FAULTS for one in found):
            raise as_error(found[0])
        return [one.to_dict() for one in found]

    def doubt(self, value: Any) -> str:
        """What the driver says of the GPU."""
        return trouble(gpu_of(self._machine))

    def close(self) -> None:
        """Ends the processes."""
        self._stack.close()
