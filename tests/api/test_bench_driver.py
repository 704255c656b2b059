"""The driver of benchmarks on fake machines: tasks open once, in turn, until all are done or the time is over."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from hipwright.api.bench.driver import BenchDeadline, DeadlinePassed, TaskWorker, run_jobs
from hipwright.errors import WorkerError
from hipwright.evaluation.pool import JobOutcome
from hipwright.evaluation.schedule import EvaluationJob


class ToyMachine:
    """Records what is opened and closed; `close` releases calls that hang."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.ended = threading.Event()

    @contextmanager
    def open(self, path: Path, **_: Any) -> Iterator[str]:
        self.events.append(f"open {path.stem}")
        yield path.stem
        self.events.append(f"close {path.stem}")

    def close(self) -> None:
        self.ended.set()


class ToyMeasurement:
    """A job's payload is its action: a number of seconds, "hang", "blames", or an error to raise."""

    def __init__(self, machine: ToyMachine) -> None:
        self.machine = machine

    def task(self, job: EvaluationJob) -> Path:
        return Path(f"{job.group}.py")

    def opened(self, job: EvaluationJob, bench: Any, begun: float) -> str:
        return f"opened {bench}"

    def measure(self, job: EvaluationJob, opened: str, built: Any, stop: Callable[[], bool]) -> str:
        if isinstance(job.payload, Exception):
            raise job.payload
        if job.payload == "hang":
            assert self.machine.ended.wait(20)
            raise WorkerError("the machine was closed")
        if job.payload == "blames":
            assert self.machine.ended.wait(20)
            return "unscorable: the task's process died"
        time.sleep(job.payload or 0)
        return f"{opened}: {job.key}"


def worker(machine: ToyMachine, **options: Any) -> TaskWorker:
    return TaskWorker("toy", machine, ToyMeasurement(machine), **options)  # type: ignore[arg-type]


def ran(worker: TaskWorker, jobs: list[EvaluationJob], **options: Any) -> dict[str, JobOutcome]:
    found: dict[str, JobOutcome] = {}
    run_jobs([worker], jobs, on_done=lambda outcome: found.update({outcome.job.key: outcome}), **options)
    return found


JOBS = [EvaluationJob("1", "a"), EvaluationJob("2", "a"), EvaluationJob("3", "b")]


def test_a_task_stays_open_while_its_jobs_last() -> None:
    machine = ToyMachine()
    found = ran(worker(machine), JOBS)
    assert [found[key].value for key in "123"] == ["opened a: 1", "opened a: 2", "opened b: 3"]
    assert machine.events == ["open a", "close a", "open b", "close b"]


def test_a_task_is_closed_after_each_job_where_memory_counts() -> None:
    machine = ToyMachine()
    ran(worker(machine, keep_open=False), JOBS)
    assert machine.events == ["open a", "close a", "open a", "close a", "open b", "close b"]


def test_no_job_is_begun_that_does_not_fit() -> None:
    machine = ToyMachine()
    deadline = BenchDeadline(time.monotonic() + 30.0, guess_s=60.0)
    found = ran(worker(machine, deadline=deadline), JOBS, deadline=deadline)
    assert all(isinstance(outcome.error, DeadlinePassed) for outcome in found.values()) and not machine.events


def test_the_length_of_jobs_is_learnt() -> None:
    deadline = BenchDeadline(time.monotonic() + 30.0, guess_s=1.0)
    deadline.check()
    deadline.spent(60.0)
    try:
        deadline.check()
    except DeadlinePassed:
        return
    raise AssertionError("a job of 60 s does not fit into 30 s")


def test_what_runs_at_the_deadline_is_aborted_and_has_no_outcome() -> None:
    machine, start = ToyMachine(), time.monotonic()
    deadline = BenchDeadline(start + 0.5)
    found = ran(worker(machine, deadline=deadline), [EvaluationJob("h", "a", "hang")], deadline=deadline)
    assert not found and machine.ended.is_set() and time.monotonic() - start < 10


def test_an_error_of_the_machine_is_tried_again_and_another_is_not() -> None:
    machine = ToyMachine()
    jobs = [EvaluationJob("w", "a", WorkerError("gone")), EvaluationJob("v", "b", ValueError("ours"))]
    found = ran(worker(machine), jobs, attempts=2)
    assert (found["w"].attempts, str(found["w"].error)) == (2, "gone")
    assert (found["v"].attempts, str(found["v"].error)) == (1, "ours")


def test_what_an_aborted_worker_finds_is_no_result() -> None:
    """The end of a machine's processes looks like a task that died; the row must be judged again."""
    machine = ToyMachine()
    one = worker(machine)
    job = EvaluationJob("1", "a", payload="blames")
    one.prepare(job)
    threading.Timer(0.05, one.abort).start()
    with pytest.raises(WorkerError, match="was stopped"):
        one.evaluate(job, None)
