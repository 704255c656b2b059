"""A judge whose programs are judged in the seats of a fleet, each with a LocalJudge of its own."""

from __future__ import annotations

import itertools
import threading
from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import ExitStack
from types import TracebackType
from typing import Any, Self

from hipwright.device.fingerprint import NodeFingerprint, fingerprint, trouble
from hipwright.errors import InfrastructureError
from hipwright.evaluation.faults import as_error, failed, failed_by_machine
from hipwright.events import Listener, silent
from hipwright.fleet.client import fleet_of
from hipwright.fleet.gpu import gpu_of
from hipwright.fleet.nodes import choose_place
from hipwright.fleet.records import Order, OrderEnd, SeatWork
from hipwright.fleet.session import FleetSession
from hipwright.records import Evaluation, Program, content_key
from hipwright.train.judging.judges import MAX_CACHED, LocalJudge, check_targets, clock_of
from hipwright.train.judging.open_tasks import task_key
from hipwright.train.records import Clock, TrainingProblem

FACTORY = "hipwright.train.judging.fleet:JudgeSeat"
GPU_TOGETHER, CPU_TOGETHER = 32, 2
"""Programs that a seat judges at once; the stages of score mode overlap them on a GPU."""


class FleetJudge:
    """Judges on a fleet. place: as of `choose_place`: one device, as rewards of several are not comparable.

    Raises BadInput and InfrastructureError on entering where the fleet has no such seat.
    """

    def __init__(
        self,
        address: str,
        targets: Sequence[str],
        *,
        place: str = "",
        workers: int = 0,
        unsafe: bool = False,
        listener: Listener = silent,
    ) -> None:
        self.device = ""
        self._targets = check_targets(tuple(dict.fromkeys(targets)))
        self.clock: Clock = clock_of(self._targets)
        self._address, self._place, self._listener = address, place, listener
        self._setup = {"targets": list(self._targets), "workers": workers, "unsafe": unsafe}
        self._known: OrderedDict[str, Future[Evaluation]] = OrderedDict()
        self._numbers = itertools.count()
        self._lock = threading.Lock()
        self._session: FleetSession | None = None
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        place = choose_place(fleet_of(self._address), self._targets, self._place)
        self.device, together = place.name, GPU_TOGETHER if place.gpu else CPU_TOGETHER
        work = SeatWork(
            factory=FACTORY,
            setup=self._setup,
            architecture=place.architecture,
            device=place.device,
            gpu=place.gpu,
            together=together,
            depth=2 * together,
            attempts=3,
        )
        self._session = self._stack.enter_context(FleetSession(self._address, work, listener=self._listener))
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._session = None
        self._stack.close()

    def submit(self, problem: TrainingProblem, program: Program) -> Future[Evaluation]:
        """The future evaluation. Verdicts are cached, but not faults of the machine."""
        if self._session is None:
            raise InfrastructureError("the judge is not open", hint="use it as a context manager")
        key = content_key("judged", task_key(problem), program.key)
        with self._lock:
            known = self._known.get(key)
            if known is not None and not (known.done() and failed_by_machine(known.result())):
                self._known.move_to_end(key)
                return known
            found = self._known[key] = Future()
            while len(self._known) > MAX_CACHED:
                self._known.popitem(last=False)
            payload = {"problem": problem.to_dict(), "program": program.to_dict()}
            order = Order(id=f"{key}-{next(self._numbers)}", group=task_key(problem), payload=payload)
        self._session.submit(order).add_done_callback(lambda end: found.set_result(_evaluation(problem, program, end)))
        return found

    def prefetch(self, problems: Sequence[TrainingProblem]) -> None:
        """Nothing: a task is opened in the seats that its programs go to."""


def _evaluation(problem: TrainingProblem, program: Program, ended: Future[OrderEnd]) -> Evaluation:
    end = ended.result()
    if end.error is not None:
        return failed(content_key("problem", problem.source), program.key, end.error.error())
    return Evaluation.from_dict(end.value)


class JudgeSeat:
    """What a seat runs: a LocalJudge."""

    def __init__(self, setup: dict[str, Any]) -> None:
        self._judge = LocalJudge(setup["targets"], workers=setup["workers"], unsafe=setup["unsafe"])
        self._judge.__enter__()

    def fingerprint(self, host: str, neighbours: int) -> NodeFingerprint:
        """The node, with the GPU that this seat uses."""
        return fingerprint(gpu_of(self._judge.machine), neighbours=neighbours, host=host)

    def build(self, order: Order) -> tuple[TrainingProblem, Program]:
        """The problem and the program; its task begins to open."""
        problem = TrainingProblem.from_dict(order.payload["problem"])
        self._judge.prefetch([problem])
        return problem, Program.from_dict(order.payload["program"])

    def prepare(self, order: Order) -> None:
        """Nothing: the judge opens tasks itself."""

    def evaluate(self, order: Order, built: tuple[TrainingProblem, Program]) -> dict[str, Any]:
        """The evaluation. Raises the machine's fault, which another seat may not meet."""
        found = self._judge.submit(*built).result()
        if failed_by_machine(found):
            raise as_error(found)
        return found.to_dict()

    def doubt(self, value: Any) -> str:
        """What the driver says of the GPU."""
        return trouble(gpu_of(self._judge.machine))

    def close(self) -> None:
        """Ends the processes."""
        self._judge.close()
