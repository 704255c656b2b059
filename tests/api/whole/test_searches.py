"""The searches of a model's regions beside each other: what they share, their events, and how they end."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from hipwright.api.optimize import SearchRequest
from hipwright.api.whole import search
from hipwright.api.whole.handle import Clock
from hipwright.api.whole.outcome import RegionOutcome
from hipwright.api.whole.plan import Call, Region
from hipwright.errors import TaskError, WorkerError
from hipwright.events import Listener

WAIT_S = 20.0


def regions(count: int) -> list[RegionOutcome]:
    calls = [Call(n, f"part{n}", "Linear", -1, 1.0, 0.1, 2, str(n)) for n in range(count)]
    return [RegionOutcome(n, Region(f"text {n}", (call,)), budget=n + 1) for n, call in enumerate(calls)]


def ended(*, interrupted: bool = False) -> Any:
    return SimpleNamespace(search=SimpleNamespace(interrupted=interrupted), passed=False, evaluation=None)


def find(
    monkeypatch: pytest.MonkeyPatch, count: int, answer: Callable[..., Any], *, at_a_time: int = 4
) -> tuple[list[RegionOutcome], list[tuple[str, dict[str, Any]]], Callable[[], None]]:
    """(the regions, the events, runs the searches)."""
    monkeypatch.setattr(search, "at_a_time", lambda: at_a_time)
    monkeypatch.setattr(search, "answered", answer)
    outcomes, events = regions(count), list[tuple[str, dict[str, Any]]]()
    machine: Any = SimpleNamespace(targets=("cpu",), unsafe=False)
    clock = Clock("processor", "here", "")

    def run() -> None:
        how: dict[str, Any] = {"seed": 0, "max_minutes": None, "listener": lambda *event: events.append(event)}
        search.find_programs(outcomes, clock, machine, **how)

    return outcomes, events, run


@pytest.mark.parametrize(("at_a_time", "at_once"), [(1, 1), (3, 3)])
def test_as_many_at_once_as_the_machine_has_processors_for(
    monkeypatch: pytest.MonkeyPatch, at_a_time: int, at_once: int
) -> None:
    inside, most, lock, full = 0, 0, threading.Lock(), threading.Event()

    def answer(request: SearchRequest, machine: Any, tell: Listener, stop: Any) -> Any:
        nonlocal inside, most
        with lock:
            inside, most = inside + 1, max(most, inside + 1)
            if most == at_once:
                full.set()
        assert full.wait(WAIT_S)
        tell("stage", {"text": request.task.text})
        with lock:
            inside -= 1
        return ended()

    outcomes, events, run = find(monkeypatch, 5, answer, at_a_time=at_a_time)
    run()
    assert most == at_once and all(one.why == "no program was verified: none was tried" for one in outcomes)
    for one in outcomes:
        own = [(kind, data) for kind, data in events if data["region"] == one.number]
        assert [kind for kind, _ in own] == ["region", "stage", "region done"]
        assert own[1][1]["text"] == f"text {one.number}" and own[2][1]["seconds"] == one.seconds >= 0.0


def test_what_cannot_be_searched_stays_and_the_others_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def answer(request: SearchRequest, *how: Any) -> Any:
        if request.budget == 2:
            raise TaskError("its graph is too large")
        return ended()

    outcomes, events, run = find(monkeypatch, 3, answer)
    run()
    assert [one.why.partition(":")[0] for one in outcomes].count("no search") == 1
    assert outcomes[1].why == "no search: its graph is too large" and len(events) == 6


@pytest.mark.parametrize("error", [KeyboardInterrupt, WorkerError("the machine is gone")])
def test_an_interruption_ends_the_others(monkeypatch: pytest.MonkeyPatch, error: Any) -> None:
    begun, told = threading.Event(), threading.Event()

    def answer(request: SearchRequest, machine: Any, tell: Listener, stop: Callable[[], bool]) -> Any:
        if request.budget == 1:
            assert begun.wait(WAIT_S)
            if error is KeyboardInterrupt:
                return ended(interrupted=True)
            raise error
        begun.set()
        while not stop():
            told.wait(0.01)
        told.set()
        return ended(interrupted=True)

    outcomes, _, run = find(monkeypatch, 4, answer, at_a_time=2)
    with pytest.raises(error if error is KeyboardInterrupt else WorkerError):
        run()
    assert told.wait(WAIT_S), "the search beside it was not asked to stop"
    assert not outcomes[3].why, "one that had not begun was begun"


def test_how_many_depends_on_the_processors_that_are_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    for count, wanted in ((1, 1), (7, 1), (8, 2), (16, 4), (64, 4)):
        monkeypatch.setattr(search.os, "sched_getaffinity", lambda _, count=count: set(range(count)))
        assert search.at_a_time() == wanted
