"""JudgePool: the distribution of programs, and faults. The judges are fakes that report their name."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Self

import pytest

from hipwright.errors import BadInput, InfrastructureError
from hipwright.records import Evaluation, Program
from hipwright.train.judging.judge_pool import MAX_LEAD, JudgePool
from hipwright.train.judging.judges import LocalJudge
from hipwright.train.records import TrainingProblem

PROGRAM = Program(text="x")


class NamedJudge:
    """A judge with its name in the message. holds: set to let it answer; broken: it reports device faults."""

    def __init__(self, name: str, device: str = "NVIDIA H200", *, broken: bool = False, opens: bool = True) -> None:
        self.name, self.device, self.clock = name, device, "device"
        self.broken, self.opens = broken, opens
        self.holds = threading.Event()
        self.holds.set()
        self.open = False
        self.asked: list[str] = []
        self.prefetched: list[str] = []
        self._pool = ThreadPoolExecutor(32)

    def __enter__(self) -> Self:
        if not self.opens:
            raise InfrastructureError("no GPU")
        self.open = True
        return self

    def __exit__(self, *_: object) -> None:
        self.open = False

    def prefetch(self, problems: Sequence[TrainingProblem]) -> None:
        self.prefetched += [problem.name for problem in problems]

    def submit(self, problem: TrainingProblem, program: Program) -> Future[Evaluation]:
        self.asked.append(problem.name)

        def judged() -> Evaluation:
            self.holds.wait(10)
            fault: Any = "device" if self.broken else None
            status: Any = "unscorable" if self.broken else "pass"
            return Evaluation(task="t", program=program.key, status=status, fault=fault, message=self.name)

        return self._pool.submit(judged)


def tasks(count: int) -> list[TrainingProblem]:
    return [TrainingProblem(name=f"t{number}", source=f"# {number}") for number in range(count)]


def test_programs_of_a_task_stay_together_and_tasks_are_spread() -> None:
    judges = [NamedJudge("a"), NamedJudge("b"), NamedJudge("c")]
    with JudgePool(judges) as pool:  # type: ignore[arg-type]
        pool.prefetch(tasks(60))
        for task in tasks(60):
            assert len({pool.submit(task, PROGRAM).result(timeout=5).message for _ in range(3)}) == 1
        assert (pool.device, pool.clock) == ("NVIDIA H200", "device")
    assert [sorted(set(judge.asked)) for judge in judges] == [sorted(judge.prefetched) for judge in judges]
    assert all(8 <= len(judge.prefetched) <= 32 for judge in judges), "about a third each"
    assert not any(judge.open for judge in judges)


def test_a_busy_judge_shares_its_task() -> None:
    judges = [NamedJudge("a"), NamedJudge("b")]
    with JudgePool(judges) as pool:  # type: ignore[arg-type]
        for judge in judges:
            judge.holds.clear()
        waiting = [pool.submit(tasks(1)[0], PROGRAM) for _ in range(3 * MAX_LEAD)]
        assert min(len(judge.asked) for judge in judges) >= MAX_LEAD
        for judge in judges:
            judge.holds.set()
        assert all(future.result(timeout=5).passed for future in waiting)


def test_a_fault_of_one_machine_is_retried_on_another() -> None:
    judges = [NamedJudge("a", broken=True), NamedJudge("b"), NamedJudge("c", broken=True)]
    with JudgePool(judges) as pool:  # type: ignore[arg-type]
        found = [pool.submit(task, PROGRAM).result(timeout=5) for task in tasks(20)]
    assert {one.message for one in found} == {"b"} and all(one.passed for one in found)
    with JudgePool([NamedJudge("a", broken=True)] * 1) as pool:  # type: ignore[list-item]
        assert pool.submit(tasks(1)[0], PROGRAM).result(timeout=5).fault == "device"


def test_judges_of_different_devices_are_refused_and_closed() -> None:
    judges = [NamedJudge("a"), NamedJudge("b", "NVIDIA H100")]
    with pytest.raises(BadInput, match="differ"), JudgePool(judges):  # type: ignore[arg-type]
        pass
    assert not any(judge.open for judge in judges)


def test_a_judge_that_fails_to_open_closes_the_others() -> None:
    judges = [NamedJudge("a"), NamedJudge("b", opens=False), NamedJudge("c")]
    with pytest.raises(InfrastructureError, match="no GPU"), JudgePool(judges):  # type: ignore[arg-type]
        pass
    assert not any(judge.open for judge in judges)


def test_a_checkpoint_gives_every_judge_all_verdicts() -> None:
    """Also with another number of judges."""
    first = LocalJudge(("cpu",))
    known = {"k": Evaluation(task="t", program="p", status="pass").to_dict()}
    first.load({**first.state(), "known": known})
    state = JudgePool([first, LocalJudge(("cpu",))]).state()
    later = JudgePool([LocalJudge(("cpu",)) for _ in range(3)])
    later.load(state)
    assert [len(judge.state()["known"]) for judge in later.judges] == [1, 1, 1]  # type: ignore[attr-defined]


def test_a_pool_without_judges_is_refused() -> None:
    with pytest.raises(BadInput):
        JudgePool([])
