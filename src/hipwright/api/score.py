"""Scores many programs of one task by the fast gate and a short timing, for learning (docs/score.md).

The GPUs of this machine share the programs, each with the task open for itself; or the seats of a fleet do.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from hipwright.api import targets as known_targets
from hipwright.api.inputs import TaskSource, task_source
from hipwright.api.workbench import open_on, require_sandbox
from hipwright.device import topology
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


@dataclass(frozen=True)
class ScoredPrograms:
    """The evaluations of programs, in their order, and what they took.

    gpus: the numbers of the GPUs that scored; open_s: until the task was open on the last of them; score_s: from then
    to the last evaluation.
    """

    evaluations: list[Evaluation]
    gpus: tuple[int, ...]
    open_s: float
    score_s: float


def score_programs(
    task: object,
    programs: Sequence[Program],
    target: str,
    *,
    gpus: str = "all",
    seed: int | None = None,
    unsafe: bool = False,
) -> ScoredPrograms:
    """Scores programs of one task. target: from `scoring_target`; gpus: "all", or numbers such as "0,1".

    Every GPU gets a share of at least BATCH programs, as it opens the task for itself. Programs whose evaluation met a
    fault of a machine are scored again on a GPU that met none. Raises BadInput, DeviceError without a GPU, and what
    opening the task raises.
    """
    chosen = [gpu.index for gpu in topology.choose(gpus, target)]
    used = chosen[: max(1, -(-len(programs) // BATCH))]
    seed = secrets.randbits(62) if seed is None and len(used) > 1 else seed
    began = time.monotonic()
    with ThreadPoolExecutor(len(used)) as pool, ExitStack() as stack:  # its threads outlive what they start
        scorers = list(pool.map(partial(_open_scorer, stack, task_source(task), target, seed, unsafe), used))
        opened = time.monotonic()
        found = score_shared(scorers, programs)
        return ScoredPrograms(found, tuple(used), opened - began, time.monotonic() - opened)


def _open_scorer(
    stack: ExitStack, source: TaskSource, target: str, seed: int | None, unsafe: bool, gpu: int
) -> BatchScorer:
    """A warm scorer on one GPU, with processes of its own, which end with the stack."""
    with ExitStack() as own:
        made = own.enter_context(machine((target,), unsafe=unsafe, gpu=gpu))
        bench = own.enter_context(open_on(made, source, seed=seed))
        scorer = own.enter_context(BatchScorer(bench.evaluator))
        scorer.warm()
        stack.push(own.pop_all())
    return scorer


class Scorer(Protocol):
    """Scores programs of one open task on one device."""

    def score(self, programs: Sequence[Program], /) -> list[Evaluation]:
        """An evaluation for each, in order."""


def score_shared(scorers: Sequence[Scorer], programs: Sequence[Program]) -> list[Evaluation]:
    """The evaluations, in order, of programs that are dealt out to the scorers, which work at the same time.

    What ends by a machine's fault, or by an error of the scorer, is scored once more by the first of the scorers that
    met none. Raises a scorer's error where none is left.
    """
    count = len(scorers)
    with ThreadPoolExecutor(count) as pool:
        asked = [pool.submit(scorer.score, programs[place::count]) for place, scorer in enumerate(scorers)]
        errors = [one.exception() for one in asked]
    found: dict[int, Evaluation] = {}
    for place, one in enumerate(asked):
        if errors[place] is None:
            found |= dict(zip(range(place, len(programs), count), one.result(), strict=True))
    again = [n for n in range(len(programs)) if n not in found or found[n].fault in MACHINE_FAULTS]
    sound = [place for place in range(count) if not any(n % count == place for n in again)]
    if again and sound:
        found |= dict(zip(again, scorers[sound[0]].score([programs[n] for n in again]), strict=True))
    for error in errors:
        if error is not None and len(found) < len(programs):
            raise error
    return [found[n] for n in range(len(programs))]


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
