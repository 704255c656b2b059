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
from hipwright.cli import session, targets
from hipwright.cli.output import Face
from hipwright.cli.progress import Progress
from hipwright.cli.results import Found, hand_over
from hipwright.cli.session import Workbench
from hipwright.engine.graph import Graph
from hipwright.engine.write import explain, space, write
from hipwright.errors import BadInput
from hipwright.records import Evaluation, Program, Run
from hipwright.verify import Oracle

BUDGET, POLICY, SEED = 40, "islands", 0


@dataclass(frozen=True)
class Wanted:
    """What the command line asked for; None where it said nothing."""

    task: Path
    targets: tuple[str, ...] | None
    budget: int | None
    policy: str | None
    seed: int | None
    resume: str | None
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


def optimize(face: Face, wanted: Wanted) -> int:
    """Run or resume the search, then write and print its result; returns the exit code."""
    with Archive(config.home(), create=wanted.resume is None) as archive:
        known = archive.run(wanted.resume) if wanted.resume else None
        if known is not None:
            _must_agree(wanted, known)
        chosen = known.targets if known else wanted.targets or targets.default()
        seed = known.seed if known else wanted.seed if wanted.seed is not None else SEED
        budget = known.budget if known else wanted.budget or BUDGET
        with (
            Progress(wanted.task.name, budget) as progress,
            session.workbench(wanted.task, chosen, seed=seed, unsafe=wanted.unsafe, listener=progress) as bench,
        ):
            found = _search(archive, bench, wanted, known, (chosen, budget, seed), progress)
        return hand_over(face, found, wanted.out)


def _must_agree(wanted: Wanted, run: Run) -> None:
    """A resumed run keeps its settings; asking for others is a mistake worth a word."""
    asked: dict[str, tuple[Any, Any]] = {
        "--target": (wanted.targets, run.targets),
        "--budget": (wanted.budget, run.budget),
        "--policy": (wanted.policy, run.policy),
        "--seed": (wanted.seed, run.seed),
    }
    for option, (new, old) in asked.items():
        if new is not None and new != old:
            raise BadInput(f"run {run.id} was begun with {option} {old}, not {new}", hint=f"leave {option} out")


def _search(
    archive: Archive,
    bench: Workbench,
    wanted: Wanted,
    known: Run | None,
    settings: tuple[tuple[str, ...], int, int],
    progress: Progress,
) -> Found:
    chosen, budget, seed = settings
    task = bench.handle.task
    progress("stage", {"text": "capturing the graph"})
    graph = Graph.from_dict(bench.handle.capture(task.workloads[0].name))
    source = search.EngineSource(space(graph), partial(write, graph))
    run = known or search.new_run(task, chosen, budget=budget, policy_name=wanted.policy or POLICY, seed=seed)
    progress("stage", {"text": f"{'resuming' if known else 'starting'} run {run.id}"})
    with _stop_on_interrupt() as stopping:
        options: dict[str, Any] = {
            "evaluator": bench.evaluator,
            "source": source,
            "workers": wanted.workers,
            "listener": progress,
            "confirm": _confirmation(bench, progress),
            "max_minutes": wanted.max_minutes,
            "stop_requested": stopping,
        }
        if known is None:
            result = search.run(archive, run, task, **options)
        else:
            result = search.resume(archive, run.id, task, **options)
    detail = show(archive, run.id)
    choices = next((t.choices for t in detail.trials if t.number == result.number), {})
    explanation = explain(graph, choices) if result.program else {}
    failure = None if result.program else _last_rejection(archive, run.id)
    return Found(wanted.task, task, detail, result, explanation, failure)


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
