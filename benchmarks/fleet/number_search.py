"""A search whose programs are numbers, and whose verdicts follow from them: for faults of a fleet, without a compiler.

The truth about a program is a function of its text, so a wrong verdict is seen, whoever gave it.
"""

from __future__ import annotations

import hashlib
import random
import time
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any

from hipwright import search
from hipwright.api.fleet.machine import evaluation_of
from hipwright.device.fingerprint import NodeFingerprint
from hipwright.errors import CandidateError
from hipwright.evaluation.faults import failed
from hipwright.fleet.records import Order, OrderEnd
from hipwright.fleet.session import FleetSession
from hipwright.records import Evaluation, Program, Run, Task, Workload
from hipwright.search import Proposal, ProposalRequest

SOURCE = "# the truth about a program is a function of its text\n"
TASK = Task(name="numbers", source=SOURCE, workloads=(Workload(name="w"),))
FACTORY = "benchmarks.fleet.number_search:NumbersSeat"
TARGETS = ("cpu",)
WRONG_EVERY = 7  # programs of which one is wrong
ROUND = 4


def new_run(name: str, budget: int, seed: int) -> Run:
    """A run of the numbers; canonical exports do not have its name."""
    settings = {"round": ROUND}
    made = search.new_run(TASK, TARGETS, budget=budget, policy_name="best_of_n", seed=seed, settings=settings)
    return Run(**{**made.to_dict(), "id": name, "targets": TARGETS})


def truth(program: Program) -> Evaluation:
    """The verdict that a program must have."""
    number = int(hashlib.sha256(program.text.encode()).hexdigest()[:8], 16)
    if number % WRONG_EVERY == 0:
        return failed(TASK.key, program.key, CandidateError("planted", status="wrong_value"))
    found = Evaluation(task=TASK.key, program=program.key, status="pass", score=1.0 + number % 9973, coverage=1.0)
    return Evaluation.from_dict({**found.to_dict(), "score_kind": "estimate"})


class NumbersSource:
    """Proposes numbers."""

    def initial(self) -> Sequence[dict[str, Any]]:
        """One empty action."""
        return [{}]

    def prepare(self, asks: Sequence[ProposalRequest]) -> None:
        """Nothing is slow."""

    def propose(self, ask: ProposalRequest, rng: random.Random) -> Proposal:
        """A program with a number that the search draws."""
        number = rng.getrandbits(60)
        return Proposal(program=Program(text=f"# program {number}\n"), choices={"number": number})


class HereJudge:
    """Judges in this process."""

    fingerprint = "numbers"

    def evaluate(self, program: Program) -> Evaluation:
        """The truth."""
        return truth(program)


class FarJudge:
    """Judges in the seats of a fleet, each verdict after a sleep of so many seconds."""

    fingerprint = "numbers"

    def __init__(self, session: FleetSession, seconds: float) -> None:
        self._session, self._seconds, self._asked = session, seconds, 0

    def evaluate(self, program: Program) -> Evaluation:
        """The seat's verdict. Raises FleetAway."""
        self._asked += 1
        payload = {"program": program.to_dict(), "seconds": self._seconds}
        order = Order(id=f"{program.key}-{self._asked}", group=program.key[0], payload=payload)
        future: Future[OrderEnd] = self._session.submit(order)
        return evaluation_of(future.result(), TASK.key, program.key)


class NumbersSeat:
    """What a seat runs: it sleeps, and tells the truth."""

    def __init__(self, setup: dict[str, Any]) -> None:
        self._open = ""

    def fingerprint(self, host: str, neighbours: int) -> NodeFingerprint:
        """A fake device's."""
        return NodeFingerprint(host=host, architecture="fake", device="numbers", neighbours=neighbours)

    def build(self, order: Order) -> Program:
        """The program."""
        return Program.from_dict(order.payload["program"])

    def prepare(self, order: Order) -> None:
        """Opens the group."""
        self._open = order.group

    def evaluate(self, order: Order, built: Program) -> dict[str, Any]:
        """The truth, after a sleep."""
        time.sleep(float(order.payload["seconds"]))
        return truth(built).to_dict()

    def doubt(self, value: Any) -> str:
        """Nothing is doubted."""
        return ""

    def close(self) -> None:
        """Nothing is open."""
