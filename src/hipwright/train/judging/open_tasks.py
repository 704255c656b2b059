"""A cache of open tasks of limited size; the least recently used task is closed first."""

from __future__ import annotations

import contextlib
import threading
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field

from hipwright.errors import InfrastructureError, WorkerError
from hipwright.machine import Workbench
from hipwright.train.records import TrainingProblem

MAX_FAILURES = 2
Opener = Callable[[TrainingProblem], AbstractContextManager[Workbench]]
Weigh = Callable[[TrainingProblem], int]


def one_each(problem: TrainingProblem) -> int:
    """The weight of tasks that need about the same memory."""
    return 1


@dataclass
class _Entry:
    """One task. weight: the tasks that it counts as; leases: current users; prefetched: opened in advance and not used
    yet."""

    opened: Future[Workbench]
    weight: int = 1
    stack: ExitStack = field(default_factory=ExitStack)
    leases: int = 0
    prefetched: bool = False

    @property
    def idle(self) -> bool:
        return not self.leases and self.opened.done()


class OpenTaskCache:
    """Keeps up to `size` tasks open. openers: threads that open them; weigh: the tasks that a task counts as, for tasks
    of unequal memory. A task that weighs more than `size` is open alone. Safe to use from several threads.

    A task that failed to open is opened again on the next request, since a killed process may have been the cause.
    After `MAX_FAILURES` failures that are the task's own fault its error is kept until the entry is evicted.
    """

    def __init__(self, opener: Opener, size: int, openers: int = 4, weigh: Weigh = one_each) -> None:
        self._opener = opener
        self._size = size
        self._weigh = weigh
        self._changed = threading.Condition()
        self._entries: OrderedDict[str, _Entry] = OrderedDict()
        self._failures: Counter[str] = Counter()
        self._closed = False
        self._pool = ThreadPoolExecutor(openers, thread_name_prefix="open task")
        self.opened = 0  # tasks opened so far
        self.evicted = 0

    @contextmanager
    def lease(self, problem: TrainingProblem) -> Iterator[Workbench]:
        """The open task, which stays open within the block. Waits for a free entry and for the task to open.

        Raises what opening raised; WorkerError where the cache is closed meanwhile.
        """
        key, entry = task_key(problem), self._acquire(problem)
        try:
            yield entry.opened.result()
        finally:
            with self._changed:
                entry.leases -= 1
                if entry.opened.done() and entry.opened.exception() and self._entries.get(key) is entry:
                    own = not isinstance(entry.opened.exception(), InfrastructureError)
                    self._failures[key] += own
                    if not own or self._failures[key] < MAX_FAILURES:
                        del self._entries[key]
                self._changed.notify_all()

    def prefetch(self, problems: Sequence[TrainingProblem]) -> None:
        """Opens tasks in advance where entries are free. Evicts neither tasks in use nor other prefetched ones."""
        with self._changed:
            for problem in problems:
                entry = self._entries.get(task_key(problem)) or self._open(problem, in_advance=True)
                if entry is not None:
                    entry.prefetched = True

    def stop_opening(self) -> None:
        """Opens no more tasks; waiting leases raise WorkerError."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def idle(self, timeout_s: float) -> bool:
        """Whether, within that time, no task is in use and none is being opened."""
        with self._changed:
            return self._changed.wait_for(lambda: all(entry.idle for entry in self._entries.values()), timeout_s)

    def close(self) -> None:
        """Closes every task, once it is no longer in use."""
        self.stop_opening()
        while not self.idle(60.0):
            pass
        self._pool.shutdown(wait=True)
        for entry in self._entries.values():
            _close(entry)
        self._entries.clear()

    # ---------------------------------------------------------------- with the lock held

    def _acquire(self, problem: TrainingProblem) -> _Entry:
        key = task_key(problem)
        with self._changed:
            while not self._closed:
                entry = self._entries.get(key) or self._open(problem)
                if entry is not None:
                    entry.leases += 1
                    entry.prefetched = False
                    self._entries.move_to_end(key)
                    return entry
                self._changed.wait()
        raise WorkerError("the judge is closed")

    def _open(self, problem: TrainingProblem, *, in_advance: bool = False) -> _Entry | None:
        """Starts opening a task, after closing those that it replaces; None where too many others are in use."""
        if self._closed:
            return None
        weight = min(self._weigh(problem), self._size)
        victims = self._victims(weight, in_advance)
        if victims is None:
            return None
        replaced = [self._entries.pop(key) for key in victims]
        self.evicted += len(replaced)
        entry = self._entries[task_key(problem)] = _Entry(Future(), weight)
        self._pool.submit(self._open_entry, entry, problem, replaced)
        return entry

    def _victims(self, weight: int, in_advance: bool) -> list[str] | None:
        """The tasks to close for one of that weight, in order; None where closing all that may be does not suffice."""
        lacking = weight + sum(entry.weight for entry in self._entries.values()) - self._size
        idle = [key for key, entry in self._entries.items() if entry.idle and not (in_advance and entry.prefetched)]
        idle.sort(key=lambda key: self._entries[key].prefetched)  # evicted last, since they will be requested soon
        victims = []
        for key in idle:
            if lacking <= 0:
                break
            victims.append(key)
            lacking -= self._entries[key].weight
        return victims if lacking <= 0 else None

    # ---------------------------------------------------------------- in the pool's threads

    def _open_entry(self, entry: _Entry, problem: TrainingProblem, replaced: Sequence[_Entry]) -> None:
        for one in replaced:
            _close(one)
        try:
            if self._closed:
                raise WorkerError("the judge is closed")
            bench = entry.stack.enter_context(self._opener(problem))
        except BaseException as error:
            entry.opened.set_exception(error)
        else:
            entry.opened.set_result(bench)
        with self._changed:
            self.opened += 1
            self._changed.notify_all()


def _close(entry: _Entry) -> None:
    with contextlib.suppress(Exception):  # the process may have ended
        entry.stack.close()


def task_key(problem: TrainingProblem) -> str:
    """The identity of a problem's task: the text of the reference, without its name."""
    return problem.source
