"""TRL's `reward_funcs`: (prompts, completions, **columns) -> list[float | None]; None is unscorable (TRL 1.16).

The completions of one prompt are scored as one group, at whatever positions of the list they are.
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
"""The column with the key of a row's problem; without it `ground_truth` holds the reference's source."""

LOGGED_ANSWERS = 2
"""Answers of each call that are logged."""


class TrlReward:
    """A reward function for `GRPOTrainer(reward_funcs=...)` over an environment, which must stay open.

    problems: those that the column `problem` names; the columns of `hipwright dataset export --format trl`
    (`ground_truth`, `task_name`) are read too. log: receives examples.
    """

    __name__ = "hipwright"  # what TRL logs it under

    def __init__(
        self, environment: Environment, problems: Sequence[TrainingProblem] = (), log: Metrics | None = None
    ) -> None:
        self._environment = environment
        self._problems = {one.key: one for one in problems}
        self._log = log

    def __call__(self, prompts: Sequence[Any], completions: Sequence[Any], **columns: Any) -> list[float | None]:
        """A reward for each completion, in order. All are submitted first, so that they are judged concurrently."""
        texts = [message_text(one) for one in completions]
        problems = self._row_problems(len(texts), columns)
        waiting = [self._environment.submit(problem, text) for problem, text in zip(problems, texts, strict=True)]
        scored = self._scored(problems, prompts, waiting)
        self._log_answers(problems, texts, scored, columns)
        return [one.reward for one in scored]

    def _row_problems(self, count: int, columns: Mapping[str, Any]) -> list[TrainingProblem]:
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
        self, problems: Sequence[TrainingProblem], prompts: Sequence[Any], waiting: Sequence[Future[AnswerOutcome]]
    ) -> list[ScoredOutcome]:
        groups: dict[tuple[str, str], list[int]] = {}
        for place, (problem, prompt) in enumerate(zip(problems, prompts, strict=True)):
            groups.setdefault((problem.key, message_text(prompt)), []).append(place)
        found: dict[int, ScoredOutcome] = {}
        for places in groups.values():
            rewarded = self._environment.reward([waiting[place].result() for place in places])
            found.update(zip(places, rewarded, strict=True))
        return [found[place] for place in range(len(problems))]

    def _log_answers(
        self,
        problems: Sequence[TrainingProblem],
        texts: Sequence[str],
        scored: Sequence[ScoredOutcome],
        columns: Mapping[str, Any],
    ) -> None:
        """Logs rates as metrics of the trainer, and examples in our log."""
        if (metric := columns.get("log_metric")) is not None:
            for name, value in rates([one.outcome for one in scored]).items():
                metric(name, value)
        state = columns.get("trainer_state")
        if self._log is None or state is None:
            return
        for problem, text, one in list(zip(problems, texts, scored, strict=True))[:LOGGED_ANSWERS]:
            record = {"problem": problem.name, "completion": text, "outcome": one.outcome, "reward": one.reward}
            self._log.sample("rl", state.global_step + 1, record)


def rates(outcomes: Sequence[AnswerOutcome]) -> dict[str, float]:
    """Shares of the scorable answers; `infrastructure`: the unscorable share of all answers."""
    good = [one for one in outcomes if one.scorable]
    count = max(len(good), 1)
    return {
        "compiled": sum(one.compiled for one in good) / count,
        "correct": sum(one.correct for one in good) / count,
        "fast_1": sum(one.correct and (one.speedup or 0.0) > 1.0 for one in good) / count,
        "hack": sum(one.hack for one in good) / count,
        "infrastructure": 1.0 - len(good) / max(len(outcomes), 1),
    }


def prompt_dataset(problems: Sequence[TrainingProblem], tokenizer: Any) -> Any:
    """A `datasets.Dataset` of conversational prompts, with the column `problem`."""
    from datasets import Dataset

    from hipwright.train.forms import ChatForm

    form = ChatForm(tokenizer)
    return Dataset.from_list([{"prompt": form.messages(one), COLUMN: one.key} for one in problems])


def message_text(message: Any) -> str:
    """A plain text unchanged; the contents of a conversation's messages, one a line."""
    if isinstance(message, str):
        return message
    return "\n".join(str(one.get("content") or "") for one in message)
