"""Orders one by one: futures that outlive a killed link, and a judge over the seats of a real cluster."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from benchmarks.fleet.local_fleet import LocalFleet, local_fleet
from hipwright.errors import BadInput
from hipwright.fleet.records import Order, SeatWork
from hipwright.fleet.session import FleetSession
from hipwright.records import Program
from hipwright.train.judging.fleet import FleetJudge
from hipwright.train.records import TrainingProblem
from tests.fleet.conftest import needs_ray

pytestmark = [needs_ray, pytest.mark.slow, pytest.mark.filterwarnings("ignore")]
CORPUS = Path(__file__).parents[2] / "src/hipwright/audit/corpus"
WORK = SeatWork(factory="benchmarks.fleet.sleeper:Sleeper", architecture="fake")


@pytest.fixture(scope="module")
def small() -> Any:
    with local_fleet() as made:
        made.add("one", {"fake": 2, "cpu": 1})
        yield made


def test_orders_come_when_they_come_and_outlive_a_killed_link(small: LocalFleet) -> None:
    links: list[int] = []

    def watch(kind: str, data: dict[str, Any]) -> None:
        if kind == "link":
            links.append(data["pid"])

    def order(number: int) -> Order:
        return Order(id=f"{number}", group="g", payload={"number": number, "seconds": 0.1})

    with FleetSession(small.address, WORK, listener=watch) as session:
        first = [session.submit(order(number)) for number in range(4)]
        assert [one.result(timeout=60).value["square"] for one in first] == [0, 1, 4, 9]
        second = [session.submit(order(number)) for number in range(4, 20)]
        time.sleep(0.3)
        os.kill(links[-1], signal.SIGKILL)
        assert [one.result(timeout=60).value["square"] for one in second] == [n**2 for n in range(4, 20)]
        assert len(links) == 2
        never = session.submit(Order(id="never", payload={"number": 1, "seconds": 99}))
    ended = never.result(timeout=1)
    assert ended.error is not None and (ended.error.fault, ended.error.machine) == ("service", True)


def test_a_fleet_that_is_nowhere_ends_orders_with_a_fault_of_the_service() -> None:
    with FleetSession("127.0.0.1:9", WORK, patience_s=0.1) as session:
        error = session.submit(Order(id="x", payload={})).result(timeout=20).error
    assert error is not None and error.fault == "service" and "no fleet answers" in error.message


def test_programs_are_judged_in_the_seats(small: LocalFleet) -> None:
    problem = TrainingProblem(name="row_sum", source=(CORPUS / "tasks/row_sum.py").read_text())
    right = Program(text=(CORPUS / "program/honest/row_sum_wave.py").read_text())
    wrong = Program(text=right.text.replace("return", "return  # no such plan\n", 1) + "\nHIP = 3\n")
    with pytest.raises(BadInput, match="no rocm seat"):
        FleetJudge(small.address, ("rocm",)).__enter__()
    with FleetJudge(small.address, ("cpu",)) as judge:
        assert (judge.device, judge.clock) == ("", "")
        found = [judge.submit(problem, one) for one in (right, wrong, right)]
        evaluations = [one.result(timeout=120) for one in found]
    assert found[0] is found[2]
    assert [one.status for one in evaluations] == ["pass", "parse_error", "pass"], evaluations[1].message
    assert evaluations[0].program == right.key and evaluations[1].fault == "candidate"
