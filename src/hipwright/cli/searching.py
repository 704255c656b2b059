"""The work behind `optimize`: open the task, run or resume the search, hand over what it found."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from hipwright import config, search
from hipwright.archive import Archive, read_log, show
from hipwright.capture.graph import Graph
from hipwright.cli import minds, session, targets
from hipwright.cli.output import Face
from hipwright.cli.progress import Progress
from hipwright.cli.results import SearchOutcome, hand_over
from hipwright.cli.session import Workbench
from hipwright.engine.tuned import Tuned, TuningCache, estimated_on, tuned_of
from hipwright.engine.write import explain, space, write
from hipwright.errors import BadInput
from hipwright.records import Evaluation, Program, Run, Task
from hipwright.verify import Oracle

BUDGET, POLICY, SEED = 40, "islands", 0


@dataclass(frozen=True)
class SearchRequest:
    """What the command line asked for; None where it said nothing."""

    task: Path
    targets: tuple[str, ...] | None
    budget: int | None
    policy: str | None
    seed: int | None
    resume: str | None
    replay: str | None
    minds: minds.ModelOptions
    out: Path | None
    max_minutes: float | None
    workers: int
    unsafe: bool


def policy_name(given: str | None) -> str | None:
    """The policy as the archive writes it. BadInput for one nobody knows."""
    if given is None:
        return None
    name = given.replace("-", "_")
    search.policy(name)
    return name


def optimize(face: Face, wanted: SearchRequest) -> int:
    """Run or resume the search, then write and print its result; returns the exit code."""
    with Archive(config.home(), create=wanted.resume is None) as archive:
        plan = _plan(archive, wanted)
        with (
            Progress(wanted.task.name, plan.budget) as progress,
            session.workbench(wanted.task, plan.targets, seed=plan.seed, unsafe=wanted.unsafe, listener=progress) as b,
        ):
            found = _search(archive, b, wanted, plan, progress)
        return hand_over(face, found, wanted.out)


@dataclass(frozen=True)
class _Plan:
    """What a search will be. known: the run to go on with; like: the run to do again; recording: its answers."""

    targets: tuple[str, ...]
    budget: int
    policy: str
    seed: int
    known: Run | None = None
    like: Run | None = None
    recording: Any = None


def _plan(archive: Archive, wanted: SearchRequest) -> _Plan:
    like, recording = minds.recorded(archive, wanted.replay) if wanted.replay else (None, None)
    known = archive.run(wanted.resume) if wanted.resume else None
    if (run := known or like) is not None:
        _must_agree(wanted, run)
        return _Plan(run.targets, run.budget, run.policy, run.seed, known, like, recording)
    minds.check(wanted.minds)
    return _Plan(
        wanted.targets or targets.default(),
        wanted.budget or BUDGET,
        wanted.policy or POLICY,
        wanted.seed if wanted.seed is not None else SEED,
    )


def _must_agree(wanted: SearchRequest, run: Run) -> None:
    """A resumed run keeps its settings; asking for others is a mistake worth a word."""
    asked: dict[str, tuple[Any, Any]] = {
        "--target": (wanted.targets, run.targets),
        "--budget": (wanted.budget, run.budget),
        "--policy": (wanted.policy, run.policy),
        "--seed": (wanted.seed, run.seed),
    }
    kept = run.settings.get(minds.KEY) or {}
    for key, value in wanted.minds.settings().items():
        asked[f"the {minds.OPTIONS[key]} option"] = (value, kept.get(key))
    for option, (new, old) in asked.items():
        if new is not None and new != old:
            raise BadInput(f"run {run.id} was begun with {option} {old}, not {new}", hint=f"leave {option} out")


def _search(
    archive: Archive,
    bench: Workbench,
    wanted: SearchRequest,
    plan: _Plan,
    progress: Progress,
) -> SearchOutcome:
    task = bench.handle.task
    progress("stage", {"text": "capturing the graph"})
    graph = Graph.from_dict(bench.handle.capture(task.workloads[0].name))
    engine = search.EngineSource(space(graph), partial(write, graph))
    cache = TuningCache(config.home())
    run = plan.known or _new_run(archive, task, wanted, plan, cache.best(_devices(bench), graph, engine.space))
    progress("stage", {"text": f"{'resuming' if plan.known else 'starting'} run {run.id}"})
    with (
        _stop_on_interrupt() as stopping,
        minds.source(archive, run, task, engine, listener=progress, recording=plan.recording) as source,
    ):
        options: dict[str, Any] = {
            "evaluator": bench.evaluator,
            "source": source,
            "workers": wanted.workers,
            "listener": progress,
            "confirm": _confirmation(bench, progress),
            "max_minutes": wanted.max_minutes,
            "stop_requested": stopping,
        }
        if plan.known is None:
            result = search.run(archive, run, task, **options)
        else:
            result = search.resume(archive, run.id, task, **options)
    detail = show(archive, run.id)
    choices = next((t.choices for t in detail.trials if t.number == result.number), {})
    if result.evaluation is not None and result.confirmed:
        found = tuned_of(graph, engine.space, choices, result.evaluation, result.evaluations)
        if found is not None and cache.remember(found):
            progress("stage", {"text": f"these choices are the first answer from now on, for {found.device}"})
    explanation = explain(graph, choices) if result.program else {}
    failure = None if result.program else _last_rejection(archive, run.id)
    models = minds.models_of(archive, run)
    return SearchOutcome(wanted.task, task, detail, result, explanation, failure, models)


def _devices(bench: Workbench) -> list[str]:
    """Whose tuned choices serve this search: the measured GPU's, else those by estimate for the same targets."""
    evaluator = bench.evaluator
    measured = [str(gpu.reference.info["name"]) for gpu in evaluator.gpus.values()]
    return [*measured, *([] if measured else [estimated_on(evaluator.amd)])]


def _new_run(archive: Archive, task: Task, wanted: SearchRequest, plan: _Plan, tuned: Tuned | None) -> Run:
    """A fresh run, or the recorded one's twin."""
    if plan.like is not None:
        settings = {**plan.like.settings}
        if plan.like.task != task.key:
            raise BadInput(f"run {plan.like.id} was of another task, or another version of {task.name}")
    else:
        settings = minds.new_settings(wanted.minds, archive, task, plan.targets, tuned)
    return search.new_run(
        task, plan.targets, budget=plan.budget, policy_name=plan.policy, seed=plan.seed, settings=settings
    )


def _last_rejection(archive: Archive, run: str) -> Evaluation | None:
    """The latest evaluation that did not pass, in full."""
    evaluated = read_log(archive.events(run)).evaluated
    return next(
        (evaluated[n].evaluation for n in sorted(evaluated, reverse=True) if not evaluated[n].evaluation.passed), None
    )


def _confirmation(bench: Workbench, progress: Progress) -> Callable[[Program], Evaluation]:
    """The winner is verified once more, on a seed drawn after it was fixed."""

    def confirm(program: Program) -> Evaluation:
        progress("stage", {"text": f"verifying {program.key[:8]} once more, on fresh secret inputs"})
        return bench.evaluator.evaluate(program, Oracle(bench.handle, seed=None), thorough=True)

    return confirm


@contextmanager
def _stop_on_interrupt() -> Iterator[Callable[[], bool]]:
    """The first Ctrl-C (or SIGTERM) lets the evaluations under way finish; the second stops at once."""
    asked = threading.Event()

    def on_signal(number: int, frame: Any) -> None:
        if asked.is_set():
            raise KeyboardInterrupt
        asked.set()
        print("\nstopping after the evaluations under way; once more to stop now", file=sys.stderr, flush=True)

    old = {number: signal.signal(number, on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield asked.is_set
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)
