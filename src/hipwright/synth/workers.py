"""Threads that draw and check drafts, one for each zygote; the zygotes' processes do the work."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from queue import SimpleQueue

from hipwright import __version__
from hipwright.errors import WorkerError
from hipwright.sandbox import Zygote
from hipwright.synth.check import TaskRefused, check_and_capture
from hipwright.synth.describe import synthetic_task
from hipwright.synth.drafting import Drafter
from hipwright.synth.records import Draft, DroppedDraft, SyntheticTask

ZYGOTE_IMPORTS = ("torch", "hipwright.task.host.warm")
_CHECK_SEED = 0


@dataclass(frozen=True)
class IndexResult:
    """What became of one index before duplicates are considered. refused: drafts that were not taken, in order."""

    refused: tuple[DroppedDraft, ...] = ()
    task: SyntheticTask | None = None


@contextmanager
def open_zygotes(count: int, *, unsafe: bool = False) -> Iterator[list[Zygote]]:
    """One started zygote for each worker."""
    with ExitStack() as stack:
        names = (f"task host {n}" for n in range(count))
        opened = [stack.enter_context(Zygote(ZYGOTE_IMPORTS, unsafe=unsafe, name=name)) for name in names]
        for zygote in opened:
            zygote.start()
        yield opened


class DraftWorkers:
    """A thread pool; a context manager. overlaps: why a task is too close to one held elsewhere, or ""."""

    def __init__(
        self, drafter: Drafter, zygotes: Sequence[Zygote], overlaps: Callable[[SyntheticTask], str] | None
    ) -> None:
        self._drafter, self._zygotes, self._overlaps = drafter, zygotes, overlaps
        self._free: SimpleQueue[Zygote] = SimpleQueue()
        self._ending = threading.Event()
        for zygote in zygotes:
            self._free.put(zygote)
        self._pool = ThreadPoolExecutor(max_workers=len(zygotes), thread_name_prefix="synth")

    def __enter__(self) -> DraftWorkers:
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        self._ending.set()
        self._pool.shutdown(wait=False, cancel_futures=True)
        if kind is not None:  # closing the zygotes ends the checks that run, so that nothing waits for them
            for zygote in self._zygotes:
                zygote.close()
        self._pool.shutdown(wait=True)

    def submit(self, index: int) -> Future[IndexResult]:
        """Draw and check the draft of an index."""
        return self._pool.submit(self._work, index)

    def _work(self, index: int) -> IndexResult:
        zygote = self._free.get()
        try:
            draft, refused = self._drafter.draw(index, zygote)
            if draft is None:
                return IndexResult(refused)
            try:
                task = self._checked(draft, zygote)
            except TaskRefused as error:
                dropped = DroppedDraft(draft=draft, stage=error.stage, why=error.message[:500])
                return IndexResult((*refused, dropped))
            if self._overlaps is not None and (why := self._overlaps(task)):
                return IndexResult((*refused, DroppedDraft(draft=draft, stage="overlap", why=why)))
            return IndexResult(refused, task)
        finally:
            self._free.put(zygote)

    def _checked(self, draft: Draft, zygote: Zygote) -> SyntheticTask:
        """The task, checked and described. The check is repeated once when its worker process dies."""
        from hipwright.synth.graphs.hash import graph_hash

        try:
            checked = check_and_capture(draft.name, draft.source, zygote, seed=_CHECK_SEED)
        except WorkerError:
            if self._ending.is_set():
                raise
            checked = check_and_capture(draft.name, draft.source, zygote, seed=_CHECK_SEED)
        origin = {"made_by": f"hipwright {__version__}", "mode": draft.mode, "mind": draft.author, "seed": draft.seed}
        return synthetic_task(draft, checked, graph=graph_hash(checked.graph), provenance=origin)
