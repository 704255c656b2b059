"""A run of synthesis: drafts are drawn from (seed, index), checked in parallel, and accepted strictly in index order.

What an index becomes depends on the settings and on the earlier indices alone. It depends neither on the number of
workers nor on when the process was killed: workers run ahead, but duplicates are decided in index order.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future

from hipwright.events import Listener, silent
from hipwright.sandbox import Zygote
from hipwright.synth import constrain
from hipwright.synth.drafting import Drafter
from hipwright.synth.duplicates import DuplicateFilter
from hipwright.synth.records import DroppedDraft, SyntheticTask
from hipwright.synth.request import SynthesisRequest
from hipwright.synth.store import SynthStore
from hipwright.synth.workers import DraftWorkers, IndexResult

INDICES_AHEAD = 3  # submitted for each worker
MAX_FRUITLESS = 300  # indices in a row that may give no task


def synthesise(
    request: SynthesisRequest,
    store: SynthStore,
    zygotes: Sequence[Zygote],
    *,
    listener: Listener = silent,
    overlaps: Callable[[SyntheticTask], str] | None = None,
) -> list[SyntheticTask]:
    """Add tasks until the store holds `request.count`, with one worker for each zygote; returns the store's tasks.

    overlaps: why a task is too close to one held elsewhere, or ""; several threads call it. The store holds fewer tasks
    after MAX_FRUITLESS indices in a row without one. Raises BadInput for a constraint that cannot be read or met, and
    infrastructure errors; after an error the zygotes are closed.
    """
    drafter = Drafter(request)
    duplicates = DuplicateFilter(store.tasks)
    fruitless, began, before = 0, time.monotonic(), len(store.tasks)
    with DraftWorkers(drafter, zygotes, overlaps) as workers:
        ahead: deque[Future[IndexResult]] = deque()
        while len(store.tasks) < request.count and fruitless < MAX_FRUITLESS:
            # no more indices than tasks are missing: an answer of a model that is not needed costs money
            while len(ahead) < min(INDICES_AHEAD * len(zygotes), request.count - len(store.tasks)):
                ahead.append(workers.submit(store.next_index + len(ahead)))
            index, result = store.next_index, ahead.popleft().result()
            dropped = _objection(drafter, duplicates, index, result)
            if dropped is None and result.task is not None:
                store.add_task(index, result.task, result.refused)
            else:
                store.drop_index(index, result.refused + ((dropped,) if dropped else ()))
            fruitless = fruitless + 1 if dropped or result.task is None else 0
            pace = len(store.tasks) - before, time.monotonic() - began
            listener("synth", _progress(request, store, result, dropped, pace))
    store.sync(complete=len(store.tasks) >= request.count)
    return store.tasks


def _objection(drafter: Drafter, duplicates: DuplicateFilter, index: int, result: IndexResult) -> DroppedDraft | None:
    """Why a task that passed its check is dropped: it misses its constraint or duplicates an earlier task."""
    task = result.task
    if task is None:
        return None
    constraints = drafter.constraints(index)
    if constraints is not None and (why := constrain.violation(task, constraints)):
        return DroppedDraft(draft=task.draft, stage="constraint", why=why)
    found = duplicates(task)
    return None if found is None else DroppedDraft(draft=task.draft, stage=found[0], why=found[1])


def _progress(
    request: SynthesisRequest,
    store: SynthStore,
    result: IndexResult,
    dropped: DroppedDraft | None,
    pace: tuple[int, float],
) -> dict[str, object]:
    """The data of the "synth" event. pace: (tasks of this run, its seconds)."""
    last = dropped or (result.refused[-1] if result.task is None else None)
    return {
        "done": len(store.tasks),
        "count": request.count,
        "dropped": sum(store.dropped.values()),
        "task": last.draft.name if last else result.task.draft.name if result.task else "",
        "stage": last.stage if last else "",
        "why": last.why if last else "",
        "made": pace[0],
        "seconds": pace[1],
    }
