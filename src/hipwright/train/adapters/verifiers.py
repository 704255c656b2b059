"""A Taskset of verifiers (0.4): problems as `vf.Task`s whose reward is the environment's.

    taskset = ProgramTaskset(ProgramTasksetConfig(data="DIR", split="train"))

The reward of an unscorable answer raises: verifiers then records a TaskError on the trace and leaves its rewards unset.
Importing this module needs verifiers, whose pins require an environment of its own.
"""

# mypy: disable-error-code="misc,untyped-decorator"
# (its base classes and decorators are unknown where verifiers is not installed)

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import verifiers.v1 as vf

from hipwright.train.adapters.trl import rates
from hipwright.train.data import problems
from hipwright.train.forms import ChatForm
from hipwright.train.judging.settings import shared_environment
from hipwright.train.records import ScoredOutcome, TrainingProblem

__all__ = ["ProgramTaskset"]


class VerifiersUnscorable(RuntimeError):
    """An answer without a verdict: the machine, the task or a provider failed."""


class ProgramTaskConfig(vf.TaskConfig):
    """environment: as judging.settings.EnvironmentSettings; empty: the variable HIPWRIGHT_ENVIRONMENT, else the
    defaults."""

    environment: dict[str, Any] = {}  # noqa: RUF012  (pydantic copies it)


class ProgramTasksetConfig(vf.TasksetConfig):
    """data: a data set or a folder of tasks; split: of its problems."""

    data: str
    split: str = "train"
    task: ProgramTaskConfig = ProgramTaskConfig()


class ProgramData(vf.TaskData):
    """source: the reference's text."""

    source: str


class ProgramTask(vf.Task[ProgramData, vf.State, ProgramTaskConfig]):
    """Write the program of one reference, in one answer."""

    @vf.reward
    async def program(self, trace: vf.Trace) -> float:
        """The environment's reward of the last reply. Raises VerifiersUnscorable."""
        return (await self._scored(trace)).reward or 0.0

    @vf.metric
    async def found(self, trace: vf.Trace) -> dict[str, float]:
        """compiled, correct, fast_1, hack: each 0 or 1."""
        return rates([(await self._scored(trace)).outcome])

    async def _scored(self, trace: vf.Trace) -> ScoredOutcome:
        """The scored outcome of the last reply; the judge caches verdicts, so that further calls are cheap."""
        problem = TrainingProblem(name=self.data.name or "task", source=self.data.source)
        opened = shared_environment(self.config.environment or None)
        scored = await asyncio.to_thread(opened.score, problem, trace.last_reply)
        if scored.reward is None:
            raise VerifiersUnscorable(f"{problem.name}: {scored.outcome.fault}: {scored.outcome.message}")
        return scored


class ProgramTaskset(vf.Taskset[ProgramTask, ProgramTasksetConfig]):
    """The problems of a folder."""

    def load(self) -> Iterator[ProgramTask]:
        """A task for each problem, in the folder's order. Raises BadInput for a folder without problems."""
        form = ChatForm(None)  # messages need no tokenizer
        for one in problems(Path(self.config.data)).get(self.config.split, []):
            system, user = form.messages(one)
            yield ProgramTask(
                ProgramData(name=one.name, prompt=user["content"], system_prompt=system["content"], source=one.source),
                self.config.task,
            )
