"""Searches for the programs of a model's regions: from the archive, resumed, or new. Imports no torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

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


def find_programs(
    outcomes: Sequence[RegionOutcome],
    clock: Clock,
    machine: Machine,
    *,
    seed: int,
    max_minutes: float | None,
    listener: Listener,
) -> None:
    """Searches for each region in turn; those with a faster program, as far as that is known, are kept.

    Raises KeyboardInterrupt after a search that was interrupted.
    Events: those of `run_search`, and "region" {number, paths, budget} before each.
    """
    for one in outcomes:
        listener("region", {"number": one.number, "paths": list(one.region.paths), "budget": one.budget})
        request = SearchRequest(
            task=TaskSource(NAME, text=one.region.text),
            targets=machine.targets,
            budget=one.budget,
            seed=seed,
            max_minutes=max_minutes,
            unsafe=machine.unsafe,
        )
        try:
            one.result = answered(request, machine, listener)
        except (TaskError, BadInput) as error:
            one.drop(f"no search: {error.message}")
            continue
        if one.result.search.interrupted:  # the archive has what was found, and the same command goes on
            raise KeyboardInterrupt
        _weigh(one, clock)


def answered(request: SearchRequest, machine: Machine, listener: Listener) -> Result:
    """The archive's answer, else the search of this task that was interrupted, else a new one."""
    found = archived(request)
    if found is not None:
        listener("stage", {"text": f"the archive has the answer: run {found.run}"})
        return found
    if run := interrupted(request):
        request = replace(request, resume=run)
    return run_search(request, on=machine, listener=listener)


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
