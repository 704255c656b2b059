"""A search inside a benchmark: the engine's own for one row, or engine and models together for one sample."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from hipwright import search
from hipwright.api.outcome import given_up, last_rejection
from hipwright.api.runs.faults import keep_run_faults
from hipwright.api.task_engine import TaskEngine, task_engine
from hipwright.archive import Archive, show
from hipwright.errors import ProviderError, WorkerError
from hipwright.evaluation.bench import ModelSample
from hipwright.events import Listener, silent
from hipwright.machine import Workbench
from hipwright.records import Evaluation, Program, content_key
from hipwright.search import EvaluatorLike, ProposalSource, SearchResult
from hipwright.verify import Oracle

if TYPE_CHECKING:
    from hipwright.api.bench.models import MeasuredModels
    from hipwright.api.model_access import LoggedClient

POLICY = "islands"


@dataclass(frozen=True)
class SearchSetup:
    """The settings of searches in a benchmark.

    settings: of the run (docs/search.md); stop: ends a search early; seed: of proposals; inputs: seed of the inputs
    that judge the winner, None for one drawn then.
    """

    archive: Archive
    targets: tuple[str, ...]
    budget: int
    seed: int
    stop: Callable[[], bool]
    policy: str = POLICY
    settings: Mapping[str, Any] | None = None
    inputs: int | None = None


def search_task(
    setup: SearchSetup,
    bench: Workbench,
    source: ProposalSource,
    *,
    evaluator: EvaluatorLike | None = None,
    confirm: Callable[[Program], Evaluation] | None = None,
    listener: Listener = silent,
) -> SearchResult:
    """A new run on an open task. evaluator: the workbench's own without one; confirm: verifies the winner again."""
    task = bench.handle.task
    run = search.new_run(
        task,
        setup.targets,
        budget=setup.budget,
        policy_name=setup.policy,
        seed=setup.seed,
        settings=setup.settings,
    )
    return search.run(
        setup.archive,
        run,
        task,
        evaluator=evaluator or bench.evaluator,
        source=source,
        listener=listener,
        confirm=confirm,
        stop_requested=setup.stop,
    )


@dataclass(frozen=True)
class SearchedProgram:
    """The best program, or the last rejection where nothing passed; evaluations spent; the models' spending.

    judged: the program's evaluation on inputs drawn after it was fixed, timed in a fresh process; None where it is
    still to be made. given_up: operators left to the library, kernels for them refused or slower.
    """

    program: Program | Evaluation
    evaluations: int
    judged: Evaluation | None = None
    asked: ModelSample | None = None
    given_up: tuple[str, ...] = ()


def engine_search(setup: SearchSetup, bench: Workbench) -> SearchedProgram:
    """The best program of a search by the engine alone. Raises WorkerError where it was stopped."""
    engine = task_engine(bench)
    return _searched(setup, bench, engine, engine.source)


def pipeline_search(
    setup: SearchSetup, bench: Workbench, models: MeasuredModels, logged: LoggedClient, sample: int
) -> SearchedProgram:
    """The best program of a search by engine and models together, which is one sample of the models.

    The models get nothing from the archive, so samples are independent. Raises ProviderError; when the sample is
    started again, the log answers the calls that were answered before.
    """
    from hipwright.agents.base import Tools
    from hipwright.agents.engine_author import EngineAuthor
    from hipwright.agents.llm_author import LlmAuthor
    from hipwright.agents.pipeline import Pipeline, llm_screener
    from hipwright.agents.sampler import SampleClient

    task, lineup = bench.handle.task, models.access.lineup
    settings: dict[str, Any] = {"llm": True, "specs": lineup.specs()}
    client = SampleClient(logged.client, logged.log, " ".join(lineup.specs()), sample, models.temperature)
    roles = frozenset(one.role for one in lineup.members if one.role)
    tools = Tools(client, lineup, task, task.source, setup.targets, setup.archive, llm_roles=roles)
    engine = task_engine(bench)
    author = EngineAuthor(engine.source, settings, setup.targets)
    source = Pipeline(author, LlmAuthor(tools), settings, llm_screener(tools))
    seed = int(content_key("bench pipeline", str(setup.seed), task.name, str(sample))[:7], 16)
    found = _searched(replace(setup, seed=seed, settings={"agents": settings}), bench, engine, source)
    return replace(found, asked=client.asked(isinstance(found.program, Program)))


def _searched(setup: SearchSetup, bench: Workbench, engine: TaskEngine, source: ProposalSource) -> SearchedProgram:
    task = bench.handle.task
    stages = [""]

    def listen(kind: str, data: dict[str, Any]) -> None:
        if kind == "stage":
            stages.append(str(data.get("text")))

    def confirm(program: Program) -> Evaluation:
        return bench.evaluator.evaluate(program, Oracle(bench.handle, seed=setup.inputs), thorough=True)

    found = search_task(setup, bench, source, confirm=confirm, listener=listen)
    keep_run_faults(setup.archive, engine, task.name, found.run)
    if found.reason == "provider":
        raise ProviderError(f"the search was {stages[-1]}", retryable=True, hint="--resume asks again")
    if found.interrupted:
        raise WorkerError(f"the search for {task.name} was stopped")
    spent = found.evaluations + found.confirmations
    if found.program is None:
        nothing: Any = {"status": "unscorable", "fault": "candidate", "message": "nothing was written for this task"}
        refused = last_rejection(setup.archive, found.run) or Evaluation(task=task.key, program="", **nothing)
        return SearchedProgram(refused, spent)
    detail = show(setup.archive, found.run)
    steps = given_up(detail.trials, found.number)
    names = tuple(name for step in steps for name in step["operators"])
    return SearchedProgram(found.program, spent, found.confirmation, given_up=names)
