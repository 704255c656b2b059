"""A Taskset of verifiers (0.4): problems as `vf.Task`s whose reward is the environment's.

    taskset = ProgramTaskset(ProgramTasksetConfig(data="DIR", split="train"))

An answer that the machine kept from being judged raises in the reward: verifiers records a TaskError on the trace and
leaves its rewards unset, so no zero is learnt from. Importing this module needs verifiers, which wants an environment
of its own.
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
from hipwright.train.judging.settings import shared
from hipwright.train.records import ScoredOutcome, TrainingProblem

__all__ = ["ProgramTaskset"]


class VerifiersUnscorable(RuntimeError):
    """Nothing was learnt of this answer."""


class ProgramTaskConfig(vf.TaskConfig):
    """environment: as judging.settings.EnvironmentSettings; empty: the variable HIPWRIGHT_ENVIRONMENT, else all
    defaults."""

    environment: dict[str, Any] = {}  # noqa: RUF012  (pydantic copies it)


class ProgramTasksetConfig(vf.TasksetConfig):
    """data: a data set or a folder of tasks; split: which problems of it."""

    data: str
    split: str = "train"
    task: ProgramTaskConfig = ProgramTaskConfig()


class ProgramData(vf.TaskData):
    """source: the reference."""

    source: str


class ProgramTask(vf.Task[ProgramData, vf.State, ProgramTaskConfig]):
    """Write the program of one reference, in one answer."""

    @vf.reward
    async def program(self, trace: vf.Trace) -> float:
        """What the environment pays for the last reply. Raises Unscorable."""
        return (await self._scored(trace)).reward or 0.0

    @vf.metric
    async def found(self, trace: vf.Trace) -> dict[str, float]:
        """compiled, correct, fast_1, hack: each 0 or 1."""
        return rates([(await self._scored(trace)).outcome])

    async def _scored(self, trace: vf.Trace) -> ScoredOutcome:
        """The judge remembers programs: the second look costs nothing."""
        problem = TrainingProblem(name=self.data.name or "task", source=self.data.source)
        opened = shared(self.config.environment or None)
        scored = await asyncio.to_thread(opened.score, problem, trace.last_reply)
        if scored.reward is None:
            raise VerifiersUnscorable(f"{problem.name}: {scored.outcome.fault}: {scored.outcome.message}")
        return scored


class ProgramTaskset(vf.Taskset[ProgramTask, ProgramTasksetConfig]):
    """The problems of a folder."""

    def load(self) -> Iterator[ProgramTask]:
        """One task a problem, in the folder's order. BadInput for a folder without them."""
        form = ChatForm(None)  # messages need no tokenizer
        for one in problems(Path(self.config.data)).get(self.config.split, []):
            system, user = form.messages(one)
            yield ProgramTask(
                ProgramData(name=one.name, prompt=user["content"], system_prompt=system["content"], source=one.source),
                self.config.task,
            )
