"""Searches for one task: started, resumed or repeated; confirms the winner on fresh inputs and caches its choices."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from hipwright import config, search
from hipwright.agents.learned import learned_setting
from hipwright.api import models, targets
from hipwright.api.fleet.choice import FleetChoice, away
from hipwright.api.fleet.machine import fleet_machine
from hipwright.api.inputs import TaskSource
from hipwright.api.models import ModelOptions
from hipwright.api.outcome import last_rejection
from hipwright.api.result import Result
from hipwright.api.runs.counters import check_far_counters, counters_setting, recorded_counters, run_counters
from hipwright.api.runs.faults import keep_run_faults
from hipwright.api.start.comparison import start_comparison
from hipwright.api.start.reading import FORMS, KernelFile, read_start
from hipwright.api.task_engine import TaskEngine, task_engine
from hipwright.api.workbench import open_on, open_workbench
from hipwright.archive import Archive, Counted, show
from hipwright.engine.tuned import Tuned, TuningCache
from hipwright.errors import BadInput, FleetAway, HipwrightError
from hipwright.events import Listener, silent
from hipwright.machine import Machine, Workbench
from hipwright.measure.gain import mean_microseconds
from hipwright.records import Estimate, Evaluation, Program, Run, Task, content_key
from hipwright.search.loop import ROUND
from hipwright.search.start import SETTING
from hipwright.search.stop import ROOFLINE
from hipwright.verify import Oracle

BUDGET, POLICY, SEED = 40, "islands", 0
TEXT_KEY = "task_text"
"""The setting of a run by which it is found without opening its task: the key of the task's text."""


@dataclass(frozen=True)
class SearchRequest:
    """A search to run; None takes the default, or the run's own setting where one is resumed or repeated.

    resume: a run to continue. replay: a run, or the file of an exported one, to repeat with its models' answers. start:
    a file with a kernel to begin with, in any form (docs/start.md). counters: on, off or auto. stop_at: the share of
    the roofline at which a new run ends (docs/search.md). workers: evaluations at a time; None for one, or as many as
    a round has on a fleet. fleet: where programs are judged.
    """

    task: TaskSource
    targets: tuple[str, ...] | None = None
    budget: int | None = None
    policy: str | None = None
    seed: int | None = None
    resume: str | None = None
    replay: str | None = None
    models: ModelOptions = field(default_factory=ModelOptions)
    start: Path | None = None
    counters: str | None = None
    stop_at: float | None = None
    max_minutes: float | None = None
    workers: int | None = None
    unsafe: bool = False
    fleet: FleetChoice = field(default_factory=FleetChoice)


def text_key(text: str) -> str:
    """The key of a task's text."""
    return content_key("task text", text)


def policy_name(given: str | None) -> str | None:
    """The policy as the archive writes it. Raises BadInput for an unknown one."""
    if given is None:
        return None
    name = given.replace("-", "_")
    search.policy(name)
    return name


def _never() -> bool:
    """The search that nobody stops."""
    return False


def run_search(
    request: SearchRequest,
    *,
    on: Machine | None = None,
    listener: Listener = silent,
    stop_requested: Callable[[], bool] = _never,
) -> Result:
    """Runs, resumes or repeats a search. Every evaluation is in the archive as soon as it ends.

    on: the machine that judges, of the request's targets; without it one is started for this search alone. Events for
    the listener: first "planned" {task, budget, targets}, then those listed in docs/search.md.
    stop_requested: polled between evaluations; True interrupts the search, as Ctrl-C does.
    """
    with Archive(config.archive(), create=request.resume is None) as archive:
        plan = _plan(archive, request)
        listener("planned", {"task": request.task.shown, "budget": plan.budget, "targets": list(plan.targets)})
        how: dict[str, Any] = {"seed": plan.seed, "listener": listener}
        if on is None and not request.fleet:
            opening = open_workbench(request.task, plan.targets, unsafe=request.unsafe, **how)
        elif on is None:
            opening = _open_on_fleet(request, plan, listener)
        else:
            opening = open_on(on, request.task, **how)
        with opening as bench:
            return _search(archive, bench, request, plan, listener, stop_requested)


@contextmanager
def _open_on_fleet(request: SearchRequest, plan: _Plan, listener: Listener) -> Iterator[Workbench]:
    """The task, open here and in a seat. Raises BadInput where profiles of a GPU would guide the search."""
    run = plan.known or plan.like
    settings = run.settings if run is not None else counters_setting(request.counters, plan.targets)
    check_far_counters(settings)
    how: dict[str, Any] = {"unsafe": request.unsafe, "listener": listener}
    with (
        fleet_machine(request.fleet, plan.targets, seats=request.workers or ROUND, **how) as made,
        open_on(made, request.task, seed=plan.seed, listener=listener) as bench,
    ):
        yield bench


@dataclass(frozen=True)
class _Plan:
    """The settings of a search. known: the run to resume; like: the run to repeat; recording: its models' answers.

    start: the kernel that a new run begins with.
    """

    targets: tuple[str, ...]
    budget: int
    policy: str
    seed: int
    known: Run | None = None
    like: Run | None = None
    recording: Any = None
    start: KernelFile | None = None


def _plan(archive: Archive, request: SearchRequest) -> _Plan:
    like, recording = models.recorded_run(archive, request.replay) if request.replay else (None, None)
    known = archive.run(request.resume) if request.resume else None
    if (run := known or like) is not None:
        _must_agree(request, run)
        for option, given in (("--counters", request.counters), ("--stop-at", request.stop_at)):
            if given is not None:
                raise BadInput(f"run {run.id} keeps the {option} that it was begun with", hint=f"leave {option} out")
        if request.start is not None:
            raise BadInput(f"run {run.id} keeps the start that it was begun with", hint="leave --start out")
        return _Plan(run.targets, run.budget, run.policy, run.seed, known, like, recording)
    models.check_options(request.models)
    judged_on = request.targets or targets.default()
    counters_setting(request.counters, judged_on)
    start = None
    if request.start is not None:
        start = read_start(request.start, request.task.read(), judged_on, model=bool(request.models.llm))
    return _Plan(
        judged_on,
        request.budget if request.budget is not None else BUDGET,
        request.policy or POLICY,
        request.seed if request.seed is not None else SEED,
        start=start,
    )


def _must_agree(request: SearchRequest, run: Run) -> None:
    """Raises BadInput for an option that differs from the earlier run's own setting."""
    asked: dict[str, tuple[Any, Any]] = {
        "--target": (request.targets, run.targets),
        "--budget": (request.budget, run.budget),
        "--policy": (request.policy, run.policy),
        "--seed": (request.seed, run.seed),
    }
    kept = run.settings.get(models.SETTING) or {}
    for key, value in request.models.settings().items():
        asked[f"the {models.OPTIONS[key]} option"] = (value, kept.get(key))
    for option, (new, old) in asked.items():
        if new is not None and new != old:
            raise BadInput(f"run {run.id} was begun with {option} {old}, not {new}", hint=f"leave {option} out")


def _search(
    archive: Archive,
    bench: Workbench,
    request: SearchRequest,
    plan: _Plan,
    listener: Listener,
    stop_requested: Callable[[], bool],
) -> Result:
    task = bench.handle.task
    listener("stage", {"text": "capturing the graph"})
    engine, cache = task_engine(bench), TuningCache(config.home())
    for error in engine.errors:
        listener("stage", {"text": f"left to the library, as the engine cannot write it: {engine.given_up} ({error})"})
    reference = _reference(bench, listener)
    run = plan.known or _new_run(archive, task, request, plan, engine.tuned(cache, bench))
    if plan.start is not None:
        _tell_start(plan.start, listener)
    listener("stage", {"text": f"{'resuming' if plan.known else 'starting'} run {run.id}"})
    authors = models.proposal_source(archive, run, task, engine.source, listener=listener, recording=plan.recording)
    with authors as source:
        options: dict[str, Any] = {
            "evaluator": bench.evaluator,
            "source": source,
            "workers": request.workers or (ROUND if request.fleet else 1),
            "shared": bool(request.fleet),
            "listener": listener,
            "confirm": _confirmation(bench, listener),
            "counters": run_counters(run.settings, bench, plan.targets, _recorded(archive, plan)),
            "max_minutes": request.max_minutes,
            "stop_requested": stop_requested,
        }
        try:
            if plan.known is None:
                found = search.run(archive, run, task, **options)
            else:
                found = search.resume(archive, run.id, task, **options)
        except FleetAway as error:
            raise away(error, shlex.join(["hipwright", "resume", run.id, *request.fleet.arguments()])) from error
    if kept := keep_run_faults(archive, engine, task.name, run.id):
        listener("stage", {"text": f"{kept} faults of the engine are kept: `hipwright runs faults`"})
    result = _result(archive, request, engine, cache, task, found, listener)
    return msgspec.structs.replace(result, reference=reference)


def _recorded(archive: Archive, plan: _Plan) -> Mapping[str, Counted]:
    """The profiles of the run that is repeated with its models' answers, as their prompts quote them."""
    if plan.like is None or plan.recording is None or plan.like.id not in {one.id for one in archive.runs()}:
        return {}
    return recorded_counters(archive, plan.like.id)


def _reference(bench: Workbench, listener: Listener) -> dict[str, Estimate]:
    """The estimates of the task's own operators, unfused, by AMD target; {} where they cannot be traced."""
    try:
        reference = bench.evaluator.reference_estimates()
    except HipwrightError:  # the search meets it again, and says so
        return {}
    if (mean := mean_microseconds(reference)) is not None:
        listener("baseline", {"microseconds": mean, "targets": {n: e.microseconds for n, e in reference.items()}})
    return reference


def _result(
    archive: Archive,
    request: SearchRequest,
    engine: TaskEngine,
    cache: TuningCache,
    task: Task,
    found: search.SearchResult,
    listener: Listener,
) -> Result:
    detail = show(archive, found.run)
    choices = next((trial.choices for trial in detail.trials if trial.number == found.number), {})
    compared = start_comparison(detail)
    written_by_engine = compared is None or not compared.answer
    if found.evaluation is not None and found.confirmed and written_by_engine:
        tuned = engine.remember(cache, choices, found.evaluation, found.evaluations)
        if tuned is not None:
            listener("stage", {"text": f"these choices are the first answer from now on, for {tuned.device}"})
    rejection = None if found.program else last_rejection(archive, found.run)
    unproven = engine.library_form() if rejection is not None and rejection.status == "degenerate" else None
    return Result(
        path=request.task.shown,
        task=task,
        search=found,
        detail=detail,
        explanation=engine.explanation(choices) if found.program and written_by_engine else {},
        rejection=rejection,
        unproven=unproven,
        models=models.models_spent(archive, detail.run),
    )


def _new_run(archive: Archive, task: Task, request: SearchRequest, plan: _Plan, tuned: Tuned | None) -> Run:
    """A new run; one that repeats another takes its settings."""
    if plan.like is not None:
        settings = {**plan.like.settings}
        if plan.like.task != task.key:
            raise BadInput(f"run {plan.like.id} was of another task, or another version of {task.name}")
    else:
        settings = models.run_settings(request.models, archive, task, plan.targets, tuned)
        settings |= counters_setting(request.counters, plan.targets) | learned_setting(archive, plan.policy)
        if request.stop_at is not None:
            settings[ROOFLINE] = request.stop_at
        settings[TEXT_KEY] = text_key(task.source)
        if plan.start is not None:
            settings[SETTING] = plan.start.setting()
            if plan.start.program is not None:
                archive.put(plan.start.program)
    return search.new_run(
        task, plan.targets, budget=plan.budget, policy_name=plan.policy, seed=plan.seed, settings=settings
    )


def _tell_start(start: KernelFile, listener: Listener) -> None:
    """Tells the listener what is begun with, and what its conversion assumes."""
    what = f"the start is {FORMS[start.form]}, {start.name}"
    listener("stage", {"text": what if start.program is not None else f"{what}: text for the models only, {start.why}"})
    for note in start.notes:
        listener("stage", {"text": f"{start.name}: {note}"})


def _confirmation(bench: Workbench, listener: Listener) -> Callable[[Program], Evaluation]:
    """A function that verifies a program on inputs of a seed drawn after the program was fixed."""

    def confirm(program: Program) -> Evaluation:
        listener("stage", {"text": f"verifying {program.key[:8]} on fresh secret inputs"})
        return bench.evaluator.evaluate(program, Oracle(bench.handle, seed=None), thorough=True)

    return confirm
