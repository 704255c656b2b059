"""Open tasks, kept for the next program: at most so many, the least recently used one closed first."""

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

TRIES = 2
Opener = Callable[[TrainingProblem], AbstractContextManager[Workbench]]


@dataclass
class _Entry:
    """One task. leases: who judges with it now; wanted: opened ahead and not used yet."""

    opened: Future[Workbench]
    stack: ExitStack = field(default_factory=ExitStack)
    leases: int = 0
    wanted: bool = False

    @property
    def idle(self) -> bool:
        return not self.leases and self.opened.done()


class OpenTaskCache:
    """size: tasks open at once; openers: threads that open them. Safe to use from several threads.

    A task that failed to open is opened again when it is asked for again, unless it failed `TRIES` times through its
    own fault: that may have been a process of ours that was killed. After so many it stays broken until it is pushed
    out.
    """

    def __init__(self, opener: Opener, size: int, openers: int = 4) -> None:
        self._opener = opener
        self._size = size
        self._changed = threading.Condition()
        self._entries: OrderedDict[str, _Entry] = OrderedDict()
        self._failures: Counter[str] = Counter()
        self._closed = False
        self._pool = ThreadPoolExecutor(openers, thread_name_prefix="open task")
        self.opened = 0  # tasks opened so far
        self.evicted = 0

    def __len__(self) -> int:
        return len(self._entries)

    @contextmanager
    def lease(self, problem: TrainingProblem) -> Iterator[Workbench]:
        """The opened task, which stays open within the block. Waits for room, and while the task is being opened.

        Raises what opening it raised; WorkerError when the shelf is closed meanwhile.
        """
        key, entry = key_of(problem), self._take(problem)
        try:
            yield entry.opened.result()
        finally:
            with self._changed:
                entry.leases -= 1
                if entry.opened.done() and entry.opened.exception() and self._entries.get(key) is entry:
                    own = not isinstance(entry.opened.exception(), InfrastructureError)
                    self._failures[key] += own
                    if not own or self._failures[key] < TRIES:
                        del self._entries[key]
                self._changed.notify_all()

    def prefetch(self, problems: Sequence[TrainingProblem]) -> None:
        """Open these ahead, as far as there is room: neither what is in use nor what was opened ahead makes way."""
        with self._changed:
            for problem in problems:
                entry = self._entries.get(key_of(problem)) or self._open(problem, ahead=True)
                if entry is not None:
                    entry.wanted = True

    def refuse(self) -> None:
        """Open nothing more; whoever waits for a task gets WorkerError."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def idle(self, timeout_s: float) -> bool:
        """Whether, within that time, nobody uses a task and none is being opened."""
        with self._changed:
            return self._changed.wait_for(lambda: all(entry.idle for entry in self._entries.values()), timeout_s)

    def close(self) -> None:
        """Close every task, once nobody uses it."""
        self.refuse()
        while not self.idle(60.0):
            pass
        self._pool.shutdown(wait=True)
        for entry in self._entries.values():
            _close(entry)
        self._entries.clear()

    # ---------------------------------------------------------------- inside; the lock is held

    def _take(self, problem: TrainingProblem) -> _Entry:
        key = key_of(problem)
        with self._changed:
            while not self._closed:
                entry = self._entries.get(key) or self._open(problem)
                if entry is not None:
                    entry.leases += 1
                    entry.wanted = False
                    self._entries.move_to_end(key)
                    return entry
                self._changed.wait()
        raise WorkerError("the judge is closed")

    def _open(self, problem: TrainingProblem, *, ahead: bool = False) -> _Entry | None:
        """Begin to open a task, once the one that makes way for it is closed; None where there is no room."""
        if self._closed:
            return None
        victim = None
        if len(self._entries) >= self._size:
            idle = [key for key, entry in self._entries.items() if entry.idle and not (ahead and entry.wanted)]
            if not idle:
                return None
            # what was opened ahead goes last: it is about to be asked for
            victim = self._entries.pop(min(idle, key=lambda key: self._entries[key].wanted))
            self.evicted += 1
        entry = self._entries[key_of(problem)] = _Entry(Future())
        self._pool.submit(self._fill, entry, problem, victim)
        return entry

    # ---------------------------------------------------------------- in the pool's threads

    def _fill(self, entry: _Entry, problem: TrainingProblem, victim: _Entry | None) -> None:
        if victim is not None:
            _close(victim)
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
    with contextlib.suppress(Exception):  # of a process that is gone already
        entry.stack.close()


def key_of(problem: TrainingProblem) -> str:
    """What makes two problems the same task: the reference's text, whatever it is called."""
    return problem.source
