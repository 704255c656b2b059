"""TRL's `reward_funcs`: (prompts, completions, **columns) -> list[float | None]; None is unscorable (TRL 1.16).

The completions of one prompt are one group, wherever they stand in the list, since rewards may look at a whole group.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from hipwright.errors import BadInput
from hipwright.train.records import AnswerOutcome, ScoredOutcome, TrainingProblem

if TYPE_CHECKING:
    from hipwright.train.environment import Environment
    from hipwright.train.rl.training import Metrics

COLUMN = "problem"
"""The data set's column with the key of a row's problem; without it `ground_truth` holds the reference's source."""

SHOWN = 2
"""Answers of a call that are logged."""


class TrlReward:
    """A reward function over an environment; give it to `GRPOTrainer(reward_funcs=...)` and keep the environment open.

    problems: those that the column `problem` names. log: examples go to it. Columns that `hipwright dataset export
    --format trl` writes (`ground_truth`, `task_name`) serve as well.
    """

    __name__ = "hipwright"  # what TRL logs it under

    def __init__(
        self, environment: Environment, problems: Sequence[TrainingProblem] = (), log: Metrics | None = None
    ) -> None:
        self._environment = environment
        self._problems = {one.key: one for one in problems}
        self._log = log

    def __call__(self, prompts: Sequence[Any], completions: Sequence[Any], **columns: Any) -> list[float | None]:
        """A reward for each completion, in order. Everything is submitted first, so that it is judged side by side."""
        texts = [text_of(one) for one in completions]
        asked = self._asked(len(texts), columns)
        waiting = [self._environment.submit(problem, text) for problem, text in zip(asked, texts, strict=True)]
        scored = self._scored(asked, prompts, waiting)
        self._tell(asked, texts, scored, columns)
        return [one.reward for one in scored]

    def _asked(self, count: int, columns: Mapping[str, Any]) -> list[TrainingProblem]:
        """The problem of each row."""
        if COLUMN in columns:
            keys = columns[COLUMN]
            if missing := sorted(set(keys) - self._problems.keys()):
                raise BadInput(f"the data set names problems that were not given: {', '.join(missing[:3])}")
            return [self._problems[key] for key in keys]
        if "ground_truth" not in columns:
            raise BadInput("the data set has neither a column `problem` nor `ground_truth`")
        names = columns.get("task_name") or ["task"] * count
        return [
            TrainingProblem(name=name, source=src) for name, src in zip(names, columns["ground_truth"], strict=True)
        ]

    def _scored(
        self, asked: Sequence[TrainingProblem], prompts: Sequence[Any], waiting: Sequence[Future[AnswerOutcome]]
    ) -> list[ScoredOutcome]:
        groups: dict[tuple[str, str], list[int]] = {}
        for place, (problem, prompt) in enumerate(zip(asked, prompts, strict=True)):
            groups.setdefault((problem.key, text_of(prompt)), []).append(place)
        found: dict[int, ScoredOutcome] = {}
        for places in groups.values():
            rewarded = self._environment.reward([waiting[place].result() for place in places])
            found.update(zip(places, rewarded, strict=True))
        return [found[place] for place in range(len(asked))]

    def _tell(
        self,
        asked: Sequence[TrainingProblem],
        texts: Sequence[str],
        scored: Sequence[ScoredOutcome],
        columns: Mapping[str, Any],
    ) -> None:
        """Rates as metrics of the trainer's own, and examples to our log."""
        if (metric := columns.get("log_metric")) is not None:
            for name, value in rates([one.outcome for one in scored]).items():
                metric(name, value)
        state = columns.get("trainer_state")
        if self._log is None or state is None:
            return
        for problem, text, one in list(zip(asked, texts, scored, strict=True))[:SHOWN]:
            record = {"problem": problem.name, "completion": text, "outcome": one.outcome, "reward": one.reward}
            self._log.sample("rl", state.global_step + 1, record)


def rates(outcomes: Sequence[AnswerOutcome]) -> dict[str, float]:
    """Shares of the scorable answers, and of all that the machine kept from being judged."""
    good = [one for one in outcomes if one.scorable]
    count = max(len(good), 1)
    return {
        "compiled": sum(one.compiled for one in good) / count,
        "correct": sum(one.correct for one in good) / count,
        "fast_1": sum(one.correct and (one.speedup or 0.0) > 1.0 for one in good) / count,
        "hack": sum(one.hack for one in good) / count,
        "infrastructure": 1.0 - len(good) / max(len(outcomes), 1),
    }


def columns(problems: Sequence[TrainingProblem], tokenizer: Any) -> Any:
    """A `datasets.Dataset` of conversational prompts, with the column that names the problem."""
    from datasets import Dataset

    from hipwright.train.forms import ChatForm

    form = ChatForm(tokenizer)
    return Dataset.from_list([{"prompt": form.messages(one), COLUMN: one.key} for one in problems])


def text_of(message: Any) -> str:
    """A plain text as it is; of a conversation, what was said, one message after the other."""
    if isinstance(message, str):
        return message
    return "\n".join(str(one.get("content") or "") for one in message)
