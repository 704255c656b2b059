"""The process of a seat, in this process: values, errors and doubts as replies."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from hipwright.errors import CandidateError, DeviceError, HipwrightError, InfrastructureError, TaskError, WorkerError
from hipwright.fleet.records import Order, OrderError, SeatReply, SeatReport, SeatWork
from hipwright.fleet.seat import SeatProcess

SLEEPER = "benchmarks.fleet.sleeper:Sleeper"


def seat(**setup: Any) -> SeatProcess:
    made = SeatProcess(SeatWork(factory=SLEEPER, setup=setup).to_json(), "n/fake/0", "n", 3)
    report = SeatReport.from_json(made.open())
    assert (report.node.host, report.node.neighbours) == ("n", 3)
    return made


def reply(made: SeatProcess, **payload: Any) -> SeatReply:
    return SeatReply.from_json(made.evaluate(Order(id="x", group="g", payload=payload).to_json()))


def test_a_value_comes_with_its_node_and_seconds() -> None:
    end = reply(seat(), number=7).end
    assert end.value["square"] == 49 and end.error is None and end.seat == "n/fake/0"
    assert (
        end.node is not None and end.node.device == "sleeper" and set(end.seconds) == {"build", "prepare", "evaluate"}
    )


def test_errors_keep_their_fault_and_only_the_machines_are_retried() -> None:
    made = seat()
    wrong, broken, defect = (
        reply(made, number=1, **{"raise": "candidate"}),
        reply(made, number=1, **{"raise": "device"}),
        reply(made),
    )
    assert wrong.end.error is not None and (wrong.end.error.fault, wrong.end.error.machine) == ("candidate", False)
    assert broken.end.error is not None and (broken.end.error.fault, broken.end.error.machine) == ("device", True)
    assert defect.end.error is not None and (defect.end.error.fault, defect.end.error.machine) == ("service", False)


@pytest.mark.parametrize("kind", [CandidateError, TaskError, DeviceError, WorkerError, HipwrightError])
def test_an_error_arrives_as_it_was(kind: type[HipwrightError]) -> None:
    error = OrderError.of(kind("why", hint="what to do")).error()
    assert type(error) is kind and (error.message, error.hint, error.fault) == ("why", "what to do", kind.fault)


def test_a_doubt_voids_the_evaluation(tmp_path: Path) -> None:
    made = seat(doubt=str(tmp_path))
    (tmp_path / "all").write_text("A/A says 1.30")
    found = reply(made, number=7)
    assert found.doubt == "A/A says 1.30" and found.end.value is None
    assert found.end.error is not None and (found.end.error.fault, found.end.error.machine) == ("device", True)


def test_one_order_is_evaluated_at_a_time(tmp_path: Path) -> None:
    made, found = seat(), []
    threads = [threading.Thread(target=lambda: found.append(reply(made, number=2, seconds=0.05))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [one.end.value["opened"] for one in found] == [1, 1, 1, 1]
    assert all(one.end.seconds["evaluate"] < 0.2 for one in found)


def test_another_version_is_refused() -> None:
    made = SeatProcess(SeatWork(factory=SLEEPER, version="0.0.1").to_json(), "n/fake/0", "n", 0)
    with pytest.raises(InfrastructureError, match=r"the command 0\.0\.1"):
        made.open()
