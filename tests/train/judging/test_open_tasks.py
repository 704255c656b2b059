"""OpenTaskCache: its size, eviction, waiting, and tasks that cannot be opened."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest

from hipwright.errors import TaskError, WorkerError
from hipwright.train.judging.open_tasks import OpenTaskCache
from hipwright.train.records import TrainingProblem


class TaskOpener:
    """An opener that keeps a log, and counts how many are open at once."""

    def __init__(self, fails: dict[str, list[Exception]] | None = None) -> None:
        self.log: list[str] = []
        self.fails = fails or {}
        self.open = self.most = 0
        self.lock = threading.Lock()

    @contextmanager
    def __call__(self, problem: TrainingProblem) -> Iterator[Any]:
        with self.lock:
            self.log.append(f"open {problem.name}")
            self.open += 1
            self.most = max(self.most, self.open)
        try:
            if self.fails.get(problem.name):
                raise self.fails[problem.name].pop(0)
            time.sleep(0.01)
            yield problem.name
        finally:
            with self.lock:
                self.open -= 1
                self.log.append(f"close {problem.name}")


def task(name: str) -> TrainingProblem:
    return TrainingProblem(name=name, source=f"# {name}")


def use(cache: OpenTaskCache, *names: str) -> None:
    for name in names:
        with cache.lease(task(name)) as bench:
            assert bench == name


def test_the_least_recently_used_task_is_evicted() -> None:
    tasks = TaskOpener()
    cache = OpenTaskCache(tasks, 2)
    use(cache, "a", "b", "a", "c", "a")
    assert tasks.log == ["open a", "open b", "close b", "open c"]
    assert (cache.opened, cache.evicted) == (3, 1)
    cache.close()
    assert tasks.open == 0 and tasks.most == 2


def test_a_heavy_task_replaces_as_many_as_it_weighs() -> None:
    tasks = TaskOpener()
    cache = OpenTaskCache(tasks, 4, weigh=lambda problem: {"heavy": 3, "huge": 9}.get(problem.name, 1))
    use(cache, "a", "b", "c", "heavy")
    assert tasks.log == ["open a", "open b", "open c", "close a", "close b", "open heavy"]
    use(cache, "huge", "a")
    assert tasks.log[6:] == ["close c", "close heavy", "open huge", "close huge", "open a"]
    assert cache.evicted == 5
    cache.close()


def test_a_heavy_task_waits_for_those_in_use() -> None:
    tasks = TaskOpener()
    cache = OpenTaskCache(tasks, 4, weigh=lambda problem: 3 if problem.name == "heavy" else 1)
    with ThreadPoolExecutor(1) as pool:
        with cache.lease(task("a")), cache.lease(task("b")):
            use(cache, "c")
            later = pool.submit(use, cache, "heavy")
            time.sleep(0.1)
            assert not later.done() and "close c" not in tasks.log, "closing c alone would not suffice"
        later.result(timeout=60)
    assert tasks.log == ["open a", "open b", "open c", "close a", "close b", "open heavy"]
    cache.close()


def test_a_task_in_use_is_not_evicted() -> None:
    tasks = TaskOpener()
    cache = OpenTaskCache(tasks, 1)
    with ThreadPoolExecutor(1) as pool:
        with cache.lease(task("a")):
            later = pool.submit(use, cache, "b")
            time.sleep(0.1)
            assert not later.done() and tasks.log == ["open a"]
        later.result(timeout=60)
    assert tasks.log == ["open a", "close a", "open b"]
    cache.close()


def test_the_size_limit_holds_for_many_threads() -> None:
    tasks = TaskOpener()
    cache = OpenTaskCache(tasks, 3)
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda number: use(cache, f"t{number % 7}"), range(120)))
    cache.close()
    assert tasks.most == 3 and tasks.open == 0


def test_prefetching_opens_once_and_evicts_no_prefetched_task() -> None:
    tasks = TaskOpener()
    cache = OpenTaskCache(tasks, 3)
    use(cache, "old")
    cache.prefetch([task(name) for name in "abcde"])
    use(cache, "a", "b", "c")
    assert sorted(tasks.log) == ["close old", "open a", "open b", "open c", "open old"]
    cache.prefetch([task("d")])
    use(cache, "d")
    assert tasks.log.count("open d") == 1
    cache.close()
    assert tasks.most == 3


def test_equal_names_with_different_sources_are_two_tasks() -> None:
    tasks = TaskOpener()
    cache = OpenTaskCache(tasks, 2)
    for source in ("# one", "# two", "# one"):
        with cache.lease(TrainingProblem(name="same", source=source)):
            pass
    assert tasks.log == ["open same", "open same"]
    cache.close()


def test_a_failing_task_is_retried_once_and_a_failing_machine_always() -> None:
    tasks = TaskOpener(
        {"task": [TaskError("no Model")] * 9, "once": [TaskError("killed")], "machine": [WorkerError("killed")]}
    )
    cache = OpenTaskCache(tasks, 4)
    for _ in range(4):
        with pytest.raises(TaskError), cache.lease(task("task")):
            pass
    with pytest.raises(TaskError), cache.lease(task("once")):
        pass
    use(cache, "once")
    with pytest.raises(WorkerError), cache.lease(task("machine")):
        pass
    use(cache, "machine")
    assert [tasks.log.count(f"open {name}") for name in ("task", "once", "machine")] == [2, 2, 2]
    cache.close()


def test_closing_waits_for_leases_and_refuses_new_ones() -> None:
    tasks = TaskOpener()
    cache = OpenTaskCache(tasks, 1)
    with ThreadPoolExecutor(2) as pool:
        with cache.lease(task("a")):
            waiting = pool.submit(use, cache, "b")
            closing = pool.submit(cache.close)
            with pytest.raises(WorkerError, match="closed"):
                waiting.result(timeout=5)
            assert not closing.done()
        closing.result(timeout=5)
    assert tasks.log == ["open a", "close a"]
