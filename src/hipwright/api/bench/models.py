"""The language models that a benchmark measures, and the settings of their calls."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from hipwright.api.model_access import ModelAccess, model_access
from hipwright.errors import BadInput

Agent = Literal["single-shot", "pipeline"]
AnswerForm = Literal["program", "modelnew"]


@dataclass(frozen=True)
class MeasuredModels:
    """The models that a benchmark measures. samples: of each task. agent: one call a sample, or a search with all
    roles.

    form: the candidate form that they are asked for. temperature: of every call; None for the provider's default.
    """

    access: ModelAccess
    samples: int = 1
    agent: Agent = "single-shot"
    form: AnswerForm = "program"
    temperature: float | None = None

    @property
    def settings(self) -> str:
        """The settings that determine a sample besides its model, for a row's key."""
        return f"{self.agent} {self.form} temperature {self.temperature}"

    def model(self, seed: int | None, task: str, number: int) -> str:
        """The model of one sample; for the pipeline, whose roles may have several, all of them."""
        from hipwright.agents.sampler import sample_model

        lineup = self.access.lineup
        if self.agent == "pipeline":
            return " ".join(lineup.specs())
        return sample_model(lineup, seed or 0, task, number)


def measured_models(
    specs: Sequence[str],
    *,
    samples: int = 1,
    agent: Agent = "single-shot",
    form: AnswerForm = "program",
    max_usd: float | None = None,
    max_tokens: int | None = None,
    prices: Sequence[str] = (),
    temperature: float | None = None,
    replay: Path | None = None,
) -> MeasuredModels:
    """The models that specs name, and the settings of their calls.

    Raises BadInput for options that cannot be combined.
    """
    if form == "modelnew" and agent == "pipeline":
        raise BadInput("the pipeline writes programs, not ModelNew files", hint="leave --form out, or --agent")
    access = model_access(specs, max_usd=max_usd, max_tokens=max_tokens, prices=prices, replay=replay)
    return MeasuredModels(access, samples, agent, form, temperature)
