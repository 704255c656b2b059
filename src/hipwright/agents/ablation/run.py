"""Runs an ablation: the same tasks, seeds and budget for every arm, in archives that make it resumable.

    OUT/fill     short runs of every task with the bare engine, the source of retrieval and archive parents
    OUT/runs     one run per (task, arm, seed); finished runs and evaluations of any arm are reused

A run's id is a hash of all its inputs, so another budget, target or version starts new runs.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hipwright.agents.ablation import arms as table
from hipwright.agents.ablation.arms import Ablation, Arm, ArmOutcome
from hipwright.agents.engine_author import EngineAuthor
from hipwright.agents.learned import learned_setting
from hipwright.agents.pipeline import NEIGHBOURS, Pipeline, snapshot
from hipwright.archive import Archive, read_log
from hipwright.errors import BadInput, ProviderError
from hipwright.events import Listener, silent
from hipwright.records import Run, Task, content_key
from hipwright.search import (
    EngineSource,
    EvaluatorLike,
    NoProposal,
    Proposal,
    ProposalRequest,
    ProposalSource,
    resume,
    run,
)
from hipwright.search.counters import CountersLike

FILL_SEED = 999_983
"""The seed of the runs that fill the archive; no arm uses it."""


@dataclass(frozen=True)
class Opened:
    """An opened task with its engine source and evaluator. counters: a run's settings -> what reads its counters."""

    task: Task
    engine: EngineSource
    evaluator: EvaluatorLike
    counters: Callable[[Mapping[str, Any]], CountersLike | None] = lambda settings: None


Open = Callable[[Path], AbstractContextManager[Opened]]
Source = Callable[[Archive, Run, Task, EngineSource], AbstractContextManager[ProposalSource]]


@contextmanager
def engine_source(archive: Archive, run: Run, task: Task, engine: EngineSource) -> Iterator[ProposalSource]:
    """The source of the arms without models."""
    settings = dict(run.settings.get("agents") or {})
    yield Pipeline(EngineAuthor(engine, settings, run.targets), None, settings)


@dataclass(frozen=True)
class _Known:
    """What every arm of a task gets: from the fill archive, and taught to each policy. stop: whether to end."""

    offer: Mapping[str, Any]
    taught: Mapping[str, Mapping[str, Any]]
    stop: Callable[[], bool]


@dataclass
class AblationPlan:
    """The comparison to run. settings: of the models, merged into every run's setting "agents"; empty without.

    workers: tasks at a time, None for one; evaluations: of each task at a time. counters: run settings
    (`search.counters`) of the arms with roles; an arm without the role "counters" has none.
    """

    tasks: Sequence[Path]
    arms: Sequence[Arm]
    reference: str
    targets: tuple[str, ...]
    budget: int
    seeds: int
    out: Path
    fill: int = 6
    workers: int | None = None
    evaluations: int = 1
    settings: Mapping[str, Any] = field(default_factory=dict)
    counters: Mapping[str, Any] = field(default_factory=dict)
    source: Source = engine_source
    listener: Listener = silent


def ablate(plan: AblationPlan, open_task: Open) -> Ablation:
    """Runs what is missing and compares. Ctrl-C keeps all evaluations; the same call continues."""
    _check(plan)
    with Archive(plan.out / "fill") as fill, Archive(plan.out / "runs") as archive:
        if plan.fill:
            for path in plan.tasks:
                with open_task(path) as opened:
                    _fill(plan, fill, opened)
        outcomes = _each(plan, lambda path, stop: _task(plan, fill, archive, open_task, path, stop))
    return compared(plan, outcomes)


def _task(
    plan: AblationPlan, fill: Archive, archive: Archive, open_task: Open, path: Path, stop: Callable[[], bool]
) -> list[ArmOutcome]:
    """The outcomes of every arm and seed on one task."""
    with open_task(path) as opened:
        offer = {} if not plan.fill else snapshot(fill, opened.task, plan.targets)
        taught = {policy: learned_setting(fill, policy) for policy in {arm.policy for arm in plan.arms}}
        known = _Known(offer, taught, stop)
        return [_one(plan, archive, opened, arm, seed, known) for arm in plan.arms for seed in range(plan.seeds)]


def _each(plan: AblationPlan, work: Callable[[Path, Callable[[], bool]], list[ArmOutcome]]) -> list[ArmOutcome]:
    """The outcomes of the tasks in their order, `plan.workers` tasks at a time; the first error stops the others."""
    stopped = threading.Event()
    workers = plan.workers or 1
    if workers == 1:
        return [one for path in plan.tasks for one in work(path, stopped.is_set)]
    with ThreadPoolExecutor(workers) as pool:
        futures = [pool.submit(work, path, stopped.is_set) for path in plan.tasks]
        try:
            wait(futures, return_when=FIRST_EXCEPTION)
            return [one for future in futures for one in future.result()]
        finally:
            stopped.set()
            pool.shutdown(wait=True, cancel_futures=True)


def compared(plan: AblationPlan, outcomes: Sequence[ArmOutcome]) -> Ablation:
    """Compares the outcomes; adds the notes to report with them."""
    kinds = sorted({o.score_kind for o in outcomes if o.best is not None})
    return Ablation(
        tasks=tuple(path.stem for path in plan.tasks),
        seeds=plan.seeds,
        budget=plan.budget,
        targets=plan.targets,
        reference=plan.reference,
        score_kind=kinds[0] if len(kinds) == 1 else "mixed" if kinds else "none",
        rows=tuple(table.table(outcomes, [arm.name for arm in plan.arms], plan.reference)),
        outcomes=tuple(outcomes),
        notes=_notes(plan, kinds),
    )


def _notes(plan: AblationPlan, kinds: Sequence[str]) -> tuple[str, ...]:
    notes = []
    if plan.fill:
        notes.append(
            f"before any arm, each task had {plan.fill} evaluations of the bare engine (best_of_n): what retrieval and "
            "archive parents draw from, the same for every arm, and outside the arms' budget"
        )
    if len(plan.tasks) == 1:
        notes.append("one task: retrieval had no other task to draw from, and the interval sees seeds only")
    if "estimate" in kinds:
        notes.append("scores are static ESTIMATES in microseconds, not measurements")
    return tuple(notes)


def _check(plan: AblationPlan) -> None:
    names = [arm.name for arm in plan.arms]
    if not plan.tasks or not names:
        raise BadInput("nothing to compare", hint="name tasks, and --arms")
    if plan.reference not in names:
        raise BadInput(f"the reference arm {plan.reference!r} is not among the arms", hint=f"arms: {', '.join(names)}")
    if len({path.stem for path in plan.tasks}) < len(plan.tasks):
        raise BadInput("two tasks have the same name", hint="rename one: results are told apart by the file's name")


# ---------------------------------------------------------------- runs


def _fill(plan: AblationPlan, archive: Archive, opened: Opened) -> None:
    plan.listener("stage", {"text": f"{opened.task.name}: filling the archive"})
    _search(plan, archive, opened, opened.engine, "best_of_n", FILL_SEED, plan.fill, {}, "fill")


def _one(
    plan: AblationPlan,
    archive: Archive,
    opened: Opened,
    arm: Arm,
    seed: int,
    known: _Known,
) -> ArmOutcome:
    """The outcome of one (task, arm, seed), run now or found in the archive."""
    settings: dict[str, Any] = {}
    alone = arm.kind in ("single-shot", "best-of-n")
    if plan.settings or not alone:
        settings = {"agents": {**plan.settings, **({} if alone else known.offer), "without": list(arm.without)}}
    if arm.kind == "plain":
        settings = {}
    if arm.kind == "pipeline" and "counters" not in arm.without:
        settings |= plan.counters
    if arm.kind == "pipeline":
        settings |= known.taught[arm.policy]
    if alone and plan.settings:
        settings["agents"]["llm"] = (
            False  # the policy assigns nothing to models, since every ask goes to them (TranslationOnly)
        )
    budget = 1 if arm.kind == "single-shot" else plan.budget
    plan.listener("stage", {"text": f"{opened.task.name}: {arm.name}, seed {seed}"})
    how = (arm.policy, seed, budget, settings, arm.name)
    name, finished = _search(plan, archive, opened, None, *how, stop=known.stop)
    log = read_log(archive.events(name))
    return table.outcome(
        log, task=opened.task.name, arm=arm.name, seed=seed, run=name, budget=plan.budget, known=finished
    )


def _search(
    plan: AblationPlan,
    archive: Archive,
    opened: Opened,
    source: ProposalSource | None,
    policy: str,
    seed: int,
    budget: int,
    settings: Mapping[str, Any],
    arm: str,
    stop: Callable[[], bool] = lambda: False,
) -> tuple[str, bool]:
    """Returns (the run's id, whether it was finished before). source: None for the one of the settings."""
    task, evaluator = opened.task, opened.evaluator
    wanted = Run(
        id="", task=task.key, targets=plan.targets, budget=budget, policy=policy, seed=seed, settings=dict(settings)
    )
    name = f"ablate-{content_key(wanted.to_json(), evaluator.fingerprint, arm)}"
    wanted = Run(**{**wanted.to_dict(), "id": name, "targets": plan.targets})
    existing = name in {one.id for one in archive.runs()}
    if existing and read_log(archive.events(name)).finished is not None:
        return name, True
    with _source(plan, archive, wanted, opened, source) as chosen:
        options: dict[str, Any] = {"evaluator": evaluator, "source": chosen, "stop_requested": stop}
        options |= {"counters": opened.counters(wanted.settings), "workers": plan.evaluations}
        if existing:
            result = resume(archive, name, task, **options)
        else:
            result = run(archive, wanted, task, **options)
    if result.reason == "provider":
        raise ProviderError("the models' provider stays away", hint="the same command goes on where it stopped")
    if result.interrupted:
        raise KeyboardInterrupt
    return name, False


@contextmanager
def _source(
    plan: AblationPlan, archive: Archive, wanted: Run, opened: Opened, given: ProposalSource | None
) -> Iterator[ProposalSource]:
    agents = wanted.settings.get("agents")
    if given is not None or agents is None:
        yield given or opened.engine
        return
    with plan.source(archive, wanted, opened.task, opened.engine) as source:
        yield TranslationOnly(source) if plan.settings and not agents.get("llm") else source


class TranslationOnly:
    """Turns every ask into a translation of the reference: repeated independent prompting, without other roles."""

    def __init__(self, source: ProposalSource) -> None:
        self._source = source

    def initial(self) -> Sequence[dict[str, Any]]:
        """Returns one empty action."""
        return [{}]

    def prepare(self, asks: Sequence[ProposalRequest]) -> None:
        """Prepares the round's translations."""
        self._source.prepare([_translation(ask) for ask in asks])

    def propose(self, ask: ProposalRequest, rng: Any) -> Proposal:
        """Returns the model's program. NoProposal where the engine proposed in its place."""
        made = self._source.propose(_translation(ask), rng)
        if "instead_of" in made.notes:
            raise NoProposal(f"the models wrote nothing: {made.notes.get('why', '')}", made.notes)
        return made


def _translation(ask: ProposalRequest) -> ProposalRequest:
    from msgspec.structs import replace

    return ProposalRequest(replace(ask.expansion, operator="translate", parents=(), action={}), (), ask.view)


__all__ = ["NEIGHBOURS", "AblationPlan", "Opened", "TranslationOnly", "ablate", "compared", "engine_source"]
