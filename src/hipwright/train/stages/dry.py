"""Dry runs: a stage reduced to one update, a reward that differs, and the real model built on meta devices."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from hipwright.train.records import AnswerOutcome, ScoredOutcome
from hipwright.train.rewards import RewardFunction
from hipwright.train.stages.stage_work import StageWork


def dry_run_work(work: StageWork) -> StageWork:
    """The stage reduced to one small update; settings that select code paths are kept."""
    recipe = work.recipe
    replace = msgspec.structs.replace
    fast = {"save_every": 1, "log_every": 1}
    imitated = {"max_steps": 1, "accumulate": 1, "evaluate_every": 1, "warmup": 0.0, **fast}
    small = replace(
        recipe,
        data=replace(recipe.data, problems=2),
        sft=replace(recipe.sft, **imitated),
        dpo=replace(recipe.dpo, **imitated),
        grpo=replace(
            recipe.grpo, steps=1, batch=2, accumulate=1, samples=2, max_new_tokens=8, vllm="", warmup=0.0, **fast
        ),
        rl=replace(
            recipe.rl,
            steps=1,
            prompts=1,
            samples=2,
            max_new_tokens=8,
            max_prompt_tokens=32_000,
            overlap=False,
            checkpoint_every=1,
            sample_every=1,
        ),
    )
    return replace(work, recipe=small, trackers=())


class DryRunReward:
    """A dry run's reward, which differs between answers: a group of equal rewards would cause no update."""

    def __init__(self, plain: RewardFunction) -> None:
        self._plain = plain
        self.name = plain.name

    def __call__(self, outcomes: Sequence[AnswerOutcome]) -> list[ScoredOutcome]:
        """The plain rewards, plus 0.1 for each earlier answer of the group."""
        return [
            one if one.reward is None else msgspec.structs.replace(one, reward=one.reward + place / 10)
            for place, one in enumerate(self._plain(outcomes))
        ]
