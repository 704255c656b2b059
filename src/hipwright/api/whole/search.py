"""Searches for the programs of a model's regions: from the archive, resumed, or new. Imports no torch."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import replace
from typing import Any

from hipwright import config
from hipwright.api.inputs import TaskSource
from hipwright.api.live.answers import archived
from hipwright.api.optimize import TEXT_KEY, SearchRequest, run_search, text_key
from hipwright.api.result import Result
from hipwright.api.whole.handle import Clock
from hipwright.api.whole.outcome import ESTIMATED, MEASURED, RegionOutcome
from hipwright.archive import Archive, list_runs
from hipwright.errors import BadInput, TaskError
from hipwright.events import Listener
from hipwright.machine import Machine
from hipwright.targets import TARGETS

NAME = "region"
AT_A_TIME = 4
"""Regions that are searched at a time at most; each wants four processors."""


def find_programs(
    outcomes: Sequence[RegionOutcome],
    clock: Clock,
    machine: Machine,
    *,
    seed: int,
    max_minutes: float | None,
    listener: Listener,
) -> None:
    """Searches for each region, several at a time; those with a faster program, as far as that is known, are kept.

    They share the machine's processes, and on a GPU its timing lock: while one is timed the others open, compile and
    trace. Raises KeyboardInterrupt after a search that was interrupted.
    Events, each with "region", its number: those of `run_search`, "region" {number, paths, budget} before each, and
    "region done" {number, seconds, kept, why} after it. They come from several threads, one at a time.
    """
    stop, turn = threading.Event(), threading.Lock()

    def found(one: RegionOutcome) -> None:
        def tell(kind: str, data: dict[str, Any]) -> None:
            with turn:
                listener(kind, {**data, "region": one.number})

        if not stop.is_set():
            request = SearchRequest(
                task=TaskSource(NAME, text=one.region.text),
                targets=machine.targets,
                budget=one.budget,
                seed=seed,
                max_minutes=max_minutes,
                unsafe=machine.unsafe,
            )
            _find(one, request, clock, machine, tell, stop.is_set)

    count = min(at_a_time(), len(outcomes))
    if count < 2:
        for one in outcomes:
            found(one)
        return
    pool = ThreadPoolExecutor(count, thread_name_prefix="region")
    try:
        futures = [pool.submit(found, one) for one in outcomes]
        for future in wait(futures, return_when=FIRST_EXCEPTION).done:
            future.result()
    except BaseException:  # the others end with their next evaluation, or with the machine
        stop.set()
        raise
    finally:
        pool.shutdown(wait=not stop.is_set(), cancel_futures=True)


def at_a_time() -> int:
    """How many regions are searched at a time on this machine."""
    return max(1, min(AT_A_TIME, len(os.sched_getaffinity(0)) // 4))


def _find(
    one: RegionOutcome,
    request: SearchRequest,
    clock: Clock,
    machine: Machine,
    tell: Listener,
    stop: Callable[[], bool],
) -> None:
    tell("region", {"number": one.number, "paths": list(one.region.paths), "budget": one.budget})
    begun = time.monotonic()
    try:
        one.result = answered(request, machine, tell, stop)
    except (TaskError, BadInput) as error:
        one.drop(f"no search: {error.message}")
    else:
        if one.result.search.interrupted:  # the archive has what was found, and the same command goes on
            raise KeyboardInterrupt
        _weigh(one, clock)
    one.seconds = time.monotonic() - begun
    tell("region done", {"number": one.number, "seconds": one.seconds, "kept": one.kept, "why": one.why})


def answered(
    request: SearchRequest, machine: Machine, listener: Listener, stop_requested: Callable[[], bool] = lambda: False
) -> Result:
    """The archive's answer, else the search of this task that was interrupted, else a new one."""
    found = archived(request)
    if found is not None:
        listener("stage", {"text": f"the archive has the answer: run {found.run}"})
        return found
    if run := interrupted(request):
        request = replace(request, resume=run)
    return run_search(request, on=machine, listener=listener, stop_requested=stop_requested)


def interrupted(request: SearchRequest) -> str:
    """The run of the same search that was not finished, "" where there is none."""
    wanted = text_key(request.task.read())
    try:
        with Archive(config.archive(), create=False) as archive:
            open_ = {one.id for one in list_runs(archive) if one.status == "interrupted"}
            for run in archive.runs():
                same = (run.targets, run.budget, run.seed) == (request.targets, request.budget, request.seed)
                if run.id in open_ and same and run.settings.get(TEXT_KEY) == wanted:
                    return run.id
    except BadInput:  # there is no archive yet
        pass
    return ""


def _weigh(one: RegionOutcome, clock: Clock) -> None:
    """Whether a region's program is worth trying in the model: verified on values, and not slower as far as known."""
    assert one.result is not None
    result = one.result
    if not result.passed:
        why = result.evaluation.message if result.evaluation is not None else "none was tried"
        one.drop(f"no program was verified: {why}")
        return
    if not ran_on(result):
        one.drop("no program ran: add a target that runs here (--target cpu)")
        return
    one.factor, one.basis = speed_of(one, clock)
    if one.factor is not None and one.factor <= 1.0:
        one.drop(f"its program is not faster: {one.factor:.2f}x of eager ({one.basis})")
        return
    one.kept, one.why = True, ""


def ran_on(result: Result) -> list[str]:
    """The targets on which the program's values were found right."""
    found = result.program_targets
    return [name for name, one in found.items() if one.verdict is not None and one.verdict.passed]


def speed_of(one: RegionOutcome, clock: Clock) -> tuple[float | None, str]:
    """(how many times faster than eager, by what); (None, "") where nothing is known of its speed."""
    assert one.result is not None
    found = one.result.program_targets
    for name, target in found.items():
        if TARGETS.is_gpu(name) and target.timing is not None and "eager" in target.timing.versus:
            return target.timing.versus["eager"].speedup, MEASURED
    estimate = found[clock.architecture].estimate if clock.architecture in found else None
    if clock.times != "estimate" or estimate is None:
        return None, ""
    own = sum(call.seconds for call in one.region.calls) / len(one.region.calls)
    return own * 1e6 / estimate.microseconds, ESTIMATED
