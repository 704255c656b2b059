"""Starts and resumes searches."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from typing import Any, TypedDict, Unpack

from hipwright.archive import Archive, Finished, RunLog, keep_digests, new_id, read_log
from hipwright.errors import BadInput
from hipwright.events import Listener
from hipwright.records import Evaluation, Program, Record, Run, Task
from hipwright.search.confirm import Confirm
from hipwright.search.counters import CountersLike
from hipwright.search.interfaces import EvaluatorLike, ProposalSource, SearchPolicy
from hipwright.search.loop import Search
from hipwright.search.policies import POLICIES, policy
from hipwright.search.policies.llm_share import LlmShare


class SearchResult(Record, frozen=True, kw_only=True):
    """The result of a search.

    reason: budget, exhausted, patience, max_minutes, interrupted, or provider (a model's provider is unavailable; the
    run is paused). program, evaluation: of the best program, None when nothing was verified. confirmed: whether the
    best passed the second verification; None without one. confirmation: that verification; confirmations: evaluations
    that were made for it alone. cached: evaluations reused from earlier runs.
    """

    run: str
    reason: str
    program: Program | None = None
    evaluation: Evaluation | None = None
    number: int = -1
    evaluations: int = 0
    rounds: int = 0
    cached: int = 0
    interrupted: bool = False
    confirmed: bool | None = None
    confirmation: Evaluation | None = None
    confirmations: int = 0

    @property
    def best(self) -> str:
        """The best program's key, "" when nothing was verified."""
        return self.program.key if self.program else ""


def new_run(
    task: Task,
    targets: tuple[str, ...],
    *,
    budget: int,
    policy_name: str = "islands",
    seed: int | None = None,
    settings: Mapping[str, Any] | None = None,
) -> Run:
    """Returns a Run with a new id (UTC time and four hex digits). BadInput for a bad budget or policy.

    settings, all optional: round, margin, patience, islands, migrate, agents (docs/search.md). seed: drawn when None.
    """
    if budget < 1:
        raise BadInput(f"a budget of {budget} evaluations finds nothing", hint="--budget 1 or more")
    policy(policy_name)
    return Run(
        id=new_id(),
        task=task.key,
        targets=targets,
        budget=budget,
        policy=policy_name,
        seed=secrets.randbits(31) if seed is None else seed,
        settings=dict(settings or {}),
    )


class SearchOptions(TypedDict, total=False):
    """How to run a search. Only counters and max_minutes can change the result, the latter by ending it earlier.

    workers: concurrent evaluations. confirm: verifies the winner again on fresh inputs. counters: what limits parents
    (search/counters.py), which guides the proposals. stop_requested: polled; True
    ends the search with reason "interrupted", as KeyboardInterrupt does, and `resume` continues it. shared: other
    searches of this archive run now, and what one of them evaluates is waited for, not evaluated again.
    """

    workers: int
    listener: Listener
    confirm: Confirm | None
    counters: CountersLike | None
    max_minutes: float | None
    stop_requested: Callable[[], bool]
    shared: bool


def run(
    archive: Archive,
    run: Run,
    task: Task,
    *,
    evaluator: EvaluatorLike,
    source: ProposalSource,
    **options: Unpack[SearchOptions],
) -> SearchResult:
    """Runs a new search. BadInput when the run's id is taken; `run.task` must be `task.key`."""
    if run.task != task.key:
        raise ValueError("run.task must be the key of the task")
    with archive.lock(run.id):
        started = {"task_name": task.name, "fingerprint": evaluator.fingerprint}
        log = read_log([archive.begin_run(run, started, [task])])
        search = Search(archive, run, log, _policy(run), source, evaluator, **options)
        search.listener("run_started", {"run": run.id, "budget": run.budget})
        return _result(search, *_ended(search))


def resume(
    archive: Archive,
    name: str,
    task: Task,
    *,
    evaluator: EvaluatorLike,
    source: ProposalSource,
    **options: Unpack[SearchOptions],
) -> SearchResult:
    """Continues a run ("latest" or an id); a finished one returns its result at once.

    BadInput when there is no such run, another process holds it, or the task or the evaluator has changed.
    """
    known = archive.run(name)
    if known.policy not in POLICIES:
        raise BadInput(f"run {known.id} was no search ({known.policy}): nothing is left to do", hint="start a new run")
    with archive.lock(known.id):
        log = read_log(archive.events(known.id))
        _check_same(known, log, task, evaluator)
        search = Search(archive, known, log, _policy(known), source, evaluator, **options)
        if log.finished is None:
            done = {"evaluations": len(log.evaluated)}
            archive.append(known.id, "resumed", -1, done)
            search.listener("resumed", {"run": known.id, "budget": known.budget, **done})
        return _result(search, *_ended(search))


def _ended(search: Search) -> tuple[Finished, bool]:
    with search.claims:
        return search.go()


def _policy(run: Run) -> SearchPolicy:
    """The run's policy; with the setting "agents", models write a share of its expansions."""
    named = policy(run.policy)
    return LlmShare(named) if "agents" in run.settings else named


def _check_same(known: Run, log: RunLog, task: Task, evaluator: EvaluatorLike) -> None:
    """Raises BadInput where the task or the evaluator differs from the run's: results must not be mixed."""
    changed = ""
    if known.task != task.key:
        changed = "another task, or another version of it"
    elif log.finished is None and log.started.get("fingerprint") != evaluator.fingerprint:
        changed = "another device, another version of hipwright, or another compiler"
    if changed:
        raise BadInput(f"run {known.id} was begun with {changed}", hint="start a new run")


def _result(search: Search, finished: Finished, interrupted: bool) -> SearchResult:
    log, number = search.log, finished.number
    if not interrupted:
        keep_digests(search.archive, search.run, log)
    confirmed = log.confirmed.get(number)
    return SearchResult(
        run=search.run.id,
        reason=finished.reason,
        program=search.archive.program(finished.best) if finished.best else None,
        evaluation=log.evaluated[number].evaluation if finished.best else None,
        number=number,
        evaluations=finished.evaluations,
        rounds=finished.rounds,
        cached=sum(item.cached for item in log.evaluated.values()),
        interrupted=interrupted,
        confirmed=confirmed.passed if confirmed else None,
        confirmation=confirmed.evaluation if confirmed else None,
        confirmations=sum(not log.evaluated[number].secret for number in log.confirmed),
    )
