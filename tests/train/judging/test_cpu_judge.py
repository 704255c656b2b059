"""LocalJudge on the cpu target: many tasks at once, with real compilers and sandboxes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from hipwright.errors import BadInput, InfrastructureError
from hipwright.machine import Machine, machine
from hipwright.records import Build
from hipwright.toolchain.amd import offline as amdgpu
from hipwright.train.environment import outcome
from hipwright.train.judging.judges import LocalJudge, without_samples
from hipwright.train.records import TrainingProblem
from hipwright.train.rewards import REWARDS
from tests.train.judging.judged import BAD, GOOD, problem, program

pytestmark = pytest.mark.slow
TARGETS = ("cpu", "gfx942")


@pytest.fixture(scope="module")
def judge(cache: Path) -> Iterator[LocalJudge]:
    with LocalJudge(TARGETS, open_tasks=2, workers=2, cache=cache) as made:
        yield made


def test_more_tasks_are_judged_than_stay_open(judge: LocalJudge) -> None:
    """Results match their programs although tasks are evicted while futures wait."""
    judge.prefetch([problem(name) for name in GOOD])
    asked = [(task, kind) for kind in (GOOD, BAD) for task in kind]
    waiting = [
        judge.submit(problem(task), program(kind[task], "honest" if kind is GOOD else "broken")) for task, kind in asked
    ]
    found = [future.result(timeout=240) for future in waiting]
    assert [one.passed for one in found] == [True] * 3 + [False] * 3, [one.message for one in found]
    assert {one.fault for one in found[3:]} == {"candidate"}
    assert [one.program for one in found[:3]] == [program(GOOD[task]).key for task in GOOD]
    assert judge.figures()["evicted"] >= 1 and judge.figures()["faults"] == 0


def test_verdicts_are_cached(judge: LocalJudge) -> None:
    first = judge.submit(problem("row_sum"), program("row_sum_tree"))
    same = judge.submit(problem("row_sum"), program("row_sum_tree"))
    assert same is first
    found = first.result(timeout=120)
    before = judge.figures()
    again = judge.submit(
        TrainingProblem(name="another name", source=problem("row_sum").source), program("row_sum_tree")
    )
    assert again.done() and again.result() == without_samples(found)
    after = judge.figures()
    assert (after["hits"] - before["hits"], after["judged"] - before["judged"]) == (1, 0)


def test_verdicts_are_restored_from_a_checkpoint(judge: LocalJudge) -> None:
    found = judge.submit(problem("row_sum"), program("row_sum_tree")).result(timeout=120)
    state = json.loads(json.dumps(judge.state()))
    other = LocalJudge(TARGETS, opener=lambda: pytest.fail("nothing is to be judged"))
    other.load(state)
    assert state["known"] and json.loads(json.dumps(other.state()["known"])) == state["known"]
    for wrong in (LocalJudge(("cpu",)), LocalJudge(TARGETS, seed=1)):
        with pytest.raises(BadInput, match="another judge"):
            wrong.load(state)
    judge.load(state)
    assert judge.submit(problem("row_sum"), program("row_sum_tree")).result() == without_samples(found)


def test_a_new_scope_has_no_verdicts_and_builds_of_others(judge: LocalJudge, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[bool] = []
    build = amdgpu.build
    monkeypatch.setattr(amdgpu, "build", lambda *a, **k: _noted(compiled, build(*a, **k)))

    def judged(scope: str) -> tuple[int, int]:
        """(newly judged programs, cached verdicts)."""
        if scope:
            judge.start_scope(scope)
        before = judge.figures()
        assert judge.submit(problem("row_sum"), program("row_sum_tree")).result(timeout=120).passed
        after = judge.figures()
        return after["judged"] - before["judged"], after["hits"] - before["hits"]

    judge.start_scope("")
    assert [judged(scope) for scope in ("", "one", "", "two", "one")] == [(1, 0), (1, 0), (0, 1), (1, 0), (1, 0)]
    assert compiled[-3:] == [False, False, True], "builds of another scope were found, or those of this one were not"
    assert judge.figures()["judged"] == 1
    judge.start_scope("")


def _noted(found: list[bool], build: Build) -> Build:
    found.append(build.cached)
    return build


def test_the_clock_estimate_has_no_interval(judge: LocalJudge) -> None:
    found = judge.submit(problem("scale_bias"), program("scale_bias_vector")).result(timeout=120)
    told = outcome(found, program("scale_bias_vector"), clock=judge.clock)
    assert (told.clock, told.device, told.baseline, judge.device) == ("estimate", "", "library", "")
    assert told.base_ms and told.time_ms and told.floor_ms and told.speedup
    assert told.low == told.high == told.speedup == pytest.approx(told.base_ms / told.time_ms)
    assert told.speedup > 1.0, "three operators of the reference against one kernel"
    assert told.floor_ms < told.time_ms


def test_a_task_that_does_not_load_is_unscorable(judge: LocalJudge) -> None:
    broken = TrainingProblem(name="broken", source="import torch\nraise RuntimeError('no')\n")
    found = judge.submit(broken, program("row_sum_wave")).result(timeout=120)
    assert found.fault == "task" and "no" in found.message
    assert REWARDS["hipwright"]([outcome(found, program("row_sum_wave"))])[0].reward is None


class Killer:
    """Kills the candidates' zygote with its processes right after it started a session, `left` times."""

    def __init__(self, made: Machine) -> None:
        self.left = 0
        self._made, self._session = made, made.candidates.session
        made.candidates.session = self.session  # type: ignore[method-assign]

    def session(self, *args: Any, **named: Any) -> Any:
        found = self._session(*args, **named)
        if self.left > 0:
            self.left -= 1
            self._made.candidates.close()
        return found


def test_a_killed_worker_is_retried_and_then_unscorable(cache: Path) -> None:
    killers = []

    @contextmanager
    def opener() -> Iterator[Machine]:
        with machine(TARGETS, unsafe=False, cache=cache) as made:
            killers.append(Killer(made))
            yield made

    with LocalJudge(TARGETS, workers=1, opener=opener) as judge:
        killers[0].left = 99
        lost = judge.submit(problem("row_sum"), program("row_sum_wave")).result(timeout=240)
        assert not judge.state()["known"], "a fault is not remembered"
        killers[0].left = 1
        found = judge.submit(problem("row_sum"), program("row_sum_wave")).result(timeout=240)
        figures = judge.figures()
    assert (figures["retries"], figures["faults"]) == (2, 1)
    told = [outcome(one, program("row_sum_wave"), clock="estimate") for one in (lost, found)]
    assert [one.status for one in told] == ["unscorable", "pass"], told
    assert [one.reward for one in REWARDS["hipwright"](told)] == [None, pytest.approx(0.3, abs=0.3)]


def test_closing_gives_no_verdicts(cache: Path) -> None:
    judge = LocalJudge(TARGETS, workers=1, cache=cache)
    with judge:
        waiting = [judge.submit(problem(task), program(GOOD[task])) for task in GOOD]
    assert all(future.done() for future in waiting)
    told = [future.result() for future in waiting if not future.cancelled()]
    assert not any(one.fault == "candidate" for one in told), told
    with pytest.raises(InfrastructureError):
        judge.submit(problem("row_sum"), program("row_sum_wave"))
