"""Searches for one task: started, resumed or repeated; confirms the winner on fresh inputs and caches its choices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hipwright import config, search
from hipwright.api import models, targets
from hipwright.api.files import prepare_folder
from hipwright.api.inputs import TaskSource, no_inputs, task_source
from hipwright.api.models import ModelOptions
from hipwright.api.outcome import last_rejection
from hipwright.api.result import Result
from hipwright.api.runs.faults import keep_run_faults
from hipwright.api.task_engine import TaskEngine, task_engine
from hipwright.api.workbench import open_workbench
from hipwright.archive import Archive, show
from hipwright.engine.tuned import Tuned, TuningCache
from hipwright.errors import BadInput
from hipwright.events import Listener, silent
from hipwright.machine import Workbench
from hipwright.records import Evaluation, Program, Run, Task
from hipwright.verify import Oracle

BUDGET, POLICY, SEED = 40, "islands", 0


@dataclass(frozen=True)
class SearchRequest:
    """A search to run; None takes the default, or the run's own setting where one is resumed or repeated.

    resume: a run to continue. replay: a run, or the file of an exported one, to repeat with its models' answers.
    """

    task: TaskSource
    targets: tuple[str, ...] | None = None
    budget: int | None = None
    policy: str | None = None
    seed: int | None = None
    resume: str | None = None
    replay: str | None = None
    models: ModelOptions = field(default_factory=ModelOptions)
    max_minutes: float | None = None
    workers: int = 1
    unsafe: bool = False


def optimize(
    module_or_path: object,
    inputs: object = None,
    *,
    budget: int | None = None,
    targets: Sequence[str] | None = None,
    policy: str | None = None,
    seed: int | None = None,
    llm: str | Sequence[str] | None = None,
    llm_share: float | None = None,
    max_usd: float | None = None,
    max_tokens: int | None = None,
    prices: Sequence[str] = (),
    without: Sequence[str] = (),
    out: str | Path | None = None,
    max_minutes: float | None = None,
    workers: int = 1,
    resume: str | None = None,
    replay: str | None = None,
    unsafe: bool = False,
    listener: Listener = silent,
) -> Result:
    """Searches for a fast, verified HIP program for one task.

    module_or_path: a task file in the KernelBench form (docs/tasks.md), or its source text. budget: evaluations at
    most (40). targets: gfx942, gfx950 and cpu, or the GPU of this machine, without it. llm: models that write
    programs beside the engine, as `--llm` takes them. out: a folder for program.py, model_new.py, result.json and
    report.html. The other options are those of `hipwright optimize` (docs/cli.md).

    Raises BadInput, TaskError and InfrastructureError (`hipwright.errors`); TypeError for a module in memory. A
    search in which nothing passed returns a Result without a program.

    >>> import hipwright
    >>> result = hipwright.optimize("examples/rmsnorm_swiglu.py", budget=2, targets=["gfx942", "cpu"])
    >>> result.passed, result.evaluations, round(result.evaluation.coverage, 2)
    (True, 2, 1.0)
    >>> "__global__" in result.program.text
    True
    """
    no_inputs(inputs)
    request = SearchRequest(
        task=task_source(module_or_path),
        targets=_targets(targets, resume or replay),
        budget=budget,
        policy=policy_name(policy),
        seed=seed,
        resume=resume,
        replay=replay,
        models=ModelOptions.of(llm, llm_share, max_usd, max_tokens, prices, without),
        max_minutes=max_minutes,
        workers=workers,
        unsafe=unsafe,
    )
    if out is None:
        return run_search(request, listener=listener)
    prepare_folder(Path(out))
    result = run_search(request, listener=listener)
    result.write(Path(out), listener=listener)
    return result


def _targets(names: Sequence[str] | None, earlier: str | None) -> tuple[str, ...] | None:
    """The chosen targets; None for those of the earlier run."""
    return targets.choose(names) if names or not earlier else None


def policy_name(given: str | None) -> str | None:
    """The policy as the archive writes it. Raises BadInput for an unknown one."""
    if given is None:
        return None
    name = given.replace("-", "_")
    search.policy(name)
    return name


def run_search(request: SearchRequest, *, listener: Listener = silent) -> Result:
    """Runs, resumes or repeats a search. Every evaluation is in the archive as soon as it ends.

    Events for the listener: first "planned" {task, budget, targets}, then those listed in docs/search.md.
    """
    with Archive(config.home(), create=request.resume is None) as archive:
        plan = _plan(archive, request)
        listener("planned", {"task": request.task.shown, "budget": plan.budget, "targets": list(plan.targets)})
        opening = open_workbench(request.task, plan.targets, seed=plan.seed, unsafe=request.unsafe, listener=listener)
        with opening as bench:
            return _search(archive, bench, request, plan, listener)


@dataclass(frozen=True)
class _Plan:
    """The settings of a search. known: the run to resume; like: the run to repeat; recording: its models' answers."""

    targets: tuple[str, ...]
    budget: int
    policy: str
    seed: int
    known: Run | None = None
    like: Run | None = None
    recording: Any = None


def _plan(archive: Archive, request: SearchRequest) -> _Plan:
    like, recording = models.recorded_run(archive, request.replay) if request.replay else (None, None)
    known = archive.run(request.resume) if request.resume else None
    if (run := known or like) is not None:
        _must_agree(request, run)
        return _Plan(run.targets, run.budget, run.policy, run.seed, known, like, recording)
    models.check_options(request.models)
    return _Plan(
        request.targets or targets.default(),
        request.budget if request.budget is not None else BUDGET,
        request.policy or POLICY,
        request.seed if request.seed is not None else SEED,
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


def _search(archive: Archive, bench: Workbench, request: SearchRequest, plan: _Plan, listener: Listener) -> Result:
    task = bench.handle.task
    listener("stage", {"text": "capturing the graph"})
    engine, cache = task_engine(bench), TuningCache(config.home())
    for error in engine.errors:
        listener("stage", {"text": f"left to the library, as the engine cannot write it: {engine.given_up} ({error})"})
    run = plan.known or _new_run(archive, task, request, plan, engine.tuned(cache, bench))
    listener("stage", {"text": f"{'resuming' if plan.known else 'starting'} run {run.id}"})
    authors = models.proposal_source(archive, run, task, engine.source, listener=listener, recording=plan.recording)
    with authors as source:
        options: dict[str, Any] = {
            "evaluator": bench.evaluator,
            "source": source,
            "workers": request.workers,
            "listener": listener,
            "confirm": _confirmation(bench, listener),
            "max_minutes": request.max_minutes,
        }
        if plan.known is None:
            found = search.run(archive, run, task, **options)
        else:
            found = search.resume(archive, run.id, task, **options)
    if kept := keep_run_faults(archive, engine, task.name, run.id):
        listener("stage", {"text": f"{kept} faults of the engine are kept: `hipwright runs faults`"})
    return _result(archive, request, engine, cache, task, found, listener)


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
    if found.evaluation is not None and found.confirmed:
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
        explanation=engine.explanation(choices) if found.program else {},
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
    return search.new_run(
        task, plan.targets, budget=plan.budget, policy_name=plan.policy, seed=plan.seed, settings=settings
    )


def _confirmation(bench: Workbench, listener: Listener) -> Callable[[Program], Evaluation]:
    """A function that verifies a program on inputs of a seed drawn after the program was fixed."""

    def confirm(program: Program) -> Evaluation:
        listener("stage", {"text": f"verifying {program.key[:8]} on fresh secret inputs"})
        return bench.evaluator.evaluate(program, Oracle(bench.handle, seed=None), thorough=True)

    return confirm
