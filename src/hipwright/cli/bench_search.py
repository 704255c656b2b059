"""A search inside a benchmark: the engine's own for one row, or the whole pipeline's for one sample of its models."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from hipwright import search
from hipwright.archive import Archive
from hipwright.capture.graph import Graph
from hipwright.engine.write import space, write
from hipwright.errors import ProviderError, WorkerError
from hipwright.evaluation.bench import ModelSample
from hipwright.machine import Workbench
from hipwright.records import Evaluation, Program, content_key
from hipwright.search import EngineSource, ProposalSource

if TYPE_CHECKING:
    from hipwright.cli.bench_llm import ModelConnection, Models

POLICY = "islands"


@dataclass(frozen=True)
class Searched:
    """The best program, or the last rejection where nothing passed; evaluations spent; what the models were asked."""

    program: Program | Evaluation
    evaluations: int
    asked: ModelSample | None = None


@dataclass(frozen=True)
class Searcher:
    """Searches of one benchmark. stop: asked often, and ends a search early."""

    archive: Archive
    targets: tuple[str, ...]
    budget: int
    seed: int
    stop: Callable[[], bool]

    def engine(self, bench: Workbench) -> Searched:
        """By the engine alone."""
        return self._search(bench, lambda engine: engine, self.seed, {})

    def pipeline(self, bench: Workbench, models: Models, line: ModelConnection, sample: int) -> Searched:
        """By engine and models together. Nothing of the archive is shown to them: samples stay independent.

        Raises ProviderError; what was answered by then is found again when the sample is begun anew.
        """
        from hipwright.agents.base import Tools
        from hipwright.agents.engine_author import EngineAuthor
        from hipwright.agents.llm_author import LlmAuthor
        from hipwright.agents.pipeline import Pipeline, llm_screener
        from hipwright.agents.sampler import SampleClient

        task = bench.handle.task
        settings: dict[str, Any] = {"llm": True, "specs": models.lineup.specs()}
        asker = SampleClient(line.client, line.log, " ".join(models.lineup.specs()), sample, models.temperature)
        roles = frozenset(one.role for one in models.lineup.members if one.role)
        tools = Tools(asker, models.lineup, task, task.source, self.targets, self.archive, llm_roles=roles)

        def source(engine: EngineSource) -> ProposalSource:
            mind = EngineAuthor(engine, settings, self.targets)
            return Pipeline(mind, LlmAuthor(tools), settings, llm_screener(tools))

        seed = int(content_key("bench pipeline", str(self.seed), task.name, str(sample))[:7], 16)
        found = self._search(bench, source, seed, {"agents": settings})
        return Searched(found.program, found.evaluations, asker.asked(isinstance(found.program, Program)))

    def _search(
        self, bench: Workbench, source: Callable[[EngineSource], ProposalSource], seed: int, settings: dict[str, Any]
    ) -> Searched:
        handle = bench.handle
        graph = Graph.from_dict(handle.capture(handle.task.workloads[0].name))
        run = search.new_run(
            handle.task, self.targets, budget=self.budget, policy_name=POLICY, seed=seed, settings=settings
        )
        rejections: list[str] = []
        stages = [""]

        def listen(kind: str, data: dict[str, Any]) -> None:
            if kind == "evaluated" and data.get("status") != "pass":
                rejections.append(str(data.get("message") or data.get("status")))
            elif kind == "stage":
                stages.append(str(data.get("text")))

        found = search.run(
            self.archive,
            run,
            handle.task,
            evaluator=bench.evaluator,
            source=source(search.EngineSource(space(graph), partial(write, graph))),
            listener=listen,
            stop_requested=self.stop,
        )
        if found.reason == "provider":
            raise ProviderError(f"the search was {stages[-1]}", retryable=True, hint="--resume asks again")
        if found.interrupted:
            raise WorkerError(f"the search for {handle.task.name} was stopped")
        if found.program is None:
            why = rejections[-1] if rejections else "nothing was written for this task"
            rejected = Evaluation(task=handle.task.key, program="", status="unscorable", fault="candidate", message=why)
            return Searched(rejected, found.evaluations)
        return Searched(found.program, found.evaluations)
