"""A machine whose programs are judged in the seats of a fleet: tasks are captured and searched here, judged there.

Searches, ablations and audits use it as they use `hipwright.machine`. An order holds the task's text, the seed of its
inputs and the program, so that a seat needs none of the command's files. Every seat must have the fingerprint that the
first one told: results of another compiler, another cost model or another device never get into one run.
"""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from msgspec.structs import replace

from hipwright.api.fleet.choice import FleetChoice, away, told_as
from hipwright.api.workbench import require_sandbox
from hipwright.errors import HipwrightError
from hipwright.evaluation import Evaluator
from hipwright.evaluation.faults import failed
from hipwright.events import Listener, doing, silent
from hipwright.fleet.client import PATIENCE_S
from hipwright.fleet.nodes import FleetPlace
from hipwright.fleet.records import Order, OrderEnd, SeatWork
from hipwright.fleet.session import FleetSession
from hipwright.machine import Machine, Workbench, machine
from hipwright.records import Evaluation, Program, content_key
from hipwright.sandbox import Limits
from hipwright.task import TaskHandle
from hipwright.verify import Oracle
from hipwright.verify.verification import Gate

FACTORY = "hipwright.api.fleet.seat:EvaluationSeat"


@dataclass
class FleetMachine(Machine):
    """Opens tasks here; their evaluators judge in the seats of `place`. seats: how many at most."""

    place: FleetPlace = field(kw_only=True)
    seats: int = field(kw_only=True)
    session: FleetSession = field(kw_only=True)
    limits: Limits = field(kw_only=True)
    _numbers: Iterator[int] = field(default_factory=itertools.count)

    @contextmanager
    def bench(self, handle: TaskHandle, seed: int | None, listener: Listener) -> Iterator[Workbench]:
        """The evaluator of a task that is open here, once a seat has opened it too. seed: None draws a secret one."""
        seed = secrets.randbits(62) if seed is None else seed
        opening = self.submit(handle, seed, what="open")
        doing(f"a seat of the fleet opens the task {handle.task.name}")
        oracle = Oracle(handle, seed=seed, listener=listener)
        told = _value(opening.result())
        if told["task"] != handle.task.key:
            raise HipwrightError(f"the fleet reads the task {handle.task.name} in another way than this machine does")
        yield Workbench(
            handle,
            FleetEvaluator(
                handle,
                oracle,
                self.candidates,
                self.cache,
                self.targets,
                unsafe=self.unsafe,
                limits=self.limits,
                fleet=self,
                told=told,
                seed=seed,
            ),
        )

    def submit(self, handle: TaskHandle, seed: int, **payload: Any) -> Future[OrderEnd]:
        """The future end of an order about a task."""
        task = handle.task
        about = {"name": task.name, "text": task.source, "seed": seed}
        group = content_key("task on a seat", task.name, task.source, str(seed))
        return self.session.submit(Order(id=f"{next(self._numbers)}", group=group, payload={**about, **payload}))


@dataclass
class FleetEvaluator(Evaluator):
    """Evaluates programs in the seats of a fleet. told: what the first seat that opened the task said of itself.

    seed: draws the verification inputs.
    """

    fleet: FleetMachine = field(kw_only=True)
    told: Mapping[str, Any] = field(kw_only=True)
    seed: int = field(kw_only=True)

    @property
    def fingerprint(self) -> str:
        """The seats', which names their device."""
        return str(self.told["fingerprint"])

    @property
    def architectures(self) -> Mapping[str, str]:
        """Of the seats' GPUs."""
        return dict(self.told["architectures"])

    @property
    def device_names(self) -> Mapping[str, str]:
        """Of the seats' GPUs."""
        return dict(self.told["device_names"])

    def evaluate(
        self,
        program: Program,
        oracle: Oracle | None = None,
        *,
        thorough: bool = False,
        gate: Gate = "full",
        timed: bool = True,
    ) -> Evaluation:
        """As of an Evaluator. `environment` ends with the node's fingerprint.

        Raises FleetAway where no seat took the program, and no verdict was made.
        """
        payload: dict[str, Any] = {
            "what": "evaluate",
            "program": program.to_dict(),
            "draw": None if oracle is None else oracle.seed,
            "thorough": thorough,
            "gate": gate,
            "timed": timed,
            "fingerprint": self.fingerprint,
        }
        end = self.fleet.submit(self.handle, self.seed, **payload).result()
        return evaluation_of(end, self.handle.task.key, program.key)


def evaluation_of(end: OrderEnd, task: str, program: str) -> Evaluation:
    """The evaluation that an order ended with, with its node in `environment`; a failed one where seats met a fault.

    task, program: their keys. Raises FleetAway where no seat took the order.
    """
    if end.error is not None and (end.seat or not end.error.machine):
        return failed(task, program, end.error.error())
    found = Evaluation.from_dict(_value(end))
    node = end.node.line if end.node is not None else ""
    return replace(found, environment=f"{found.environment}; {node}")


def _value(end: OrderEnd) -> Any:
    """What a seat answered. Raises the error that ended the order, FleetAway where no seat took it."""
    if end.error is not None:
        error = end.error.error()
        raise away(error) if end.error.machine and not end.seat else error
    return end.value


@contextmanager
def fleet_machine(
    choice: FleetChoice,
    targets: tuple[str, ...],
    *,
    seats: int | None = None,
    unsafe: bool = False,
    limits: Limits | None = None,
    patience_s: float | None = None,
    told: str = "stage",
    listener: Listener = silent,
) -> Iterator[FleetMachine]:
    """A FleetMachine for these targets. seats: the most to use, None for all of the place.

    patience_s: how long a fleet that went away is waited for; None for PATIENCE_S. told: the event {text} by which the
    listener gets what went away and came back. Raises BadInput where the fleet has
    no seat for the targets, InfrastructureError where none answers.
    """
    require_sandbox(unsafe)
    place, limits = choice.chosen(targets), limits or Limits()
    count = min(seats or place.seats, place.seats)
    work = SeatWork(
        factory=FACTORY,
        setup={"targets": list(targets), "unsafe": unsafe, "limits": limits.to_dict(), "device": place.device},
        architecture=place.architecture,
        device=place.device,
        gpu=place.gpu,
        seats=count,
    )
    wait_s = PATIENCE_S if patience_s is None else patience_s
    session = FleetSession(choice.address, work, listener=told_as(told, listener), patience_s=wait_s)
    with machine((), unsafe=unsafe) as own, session:
        yield FleetMachine(
            own.host,
            own.candidates,
            own.cache,
            targets,
            unsafe,
            place=place,
            seats=count,
            session=session,
            limits=limits,
        )
