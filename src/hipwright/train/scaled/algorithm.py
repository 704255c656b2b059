"""The parts of the algorithm that are equal in all processes: curriculum, context, clipping, and advantages.

Every process sees the answers of all, so that each has the same state; it is saved in the trainer's checkpoints.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from hipwright.train.records import ScoredOutcome, TrainingProblem
from hipwright.train.rewards import RewardClip
from hipwright.train.rl.advantage import advantages, has_no_variance, is_own_work, returns
from hipwright.train.rl.curriculum import Curriculum
from hipwright.train.rl.exemplars import RolloutContext
from hipwright.train.scaled.settings import GrpoSettings

Weights = list[list[float]]
"""The advantage of each answer, by conversation and turn."""


class JudgedConversation(NamedTuple):
    """A judged conversation as processes exchange it: the problem's index, and each turn's text and scored outcome."""

    problem: int
    turns: list[tuple[str, ScoredOutcome]]


class SharedAlgorithm:
    """The state of a run. problems: in the order of the data set; prompts: problems an update."""

    def __init__(self, problems: Sequence[TrainingProblem], settings: GrpoSettings, prompts: int) -> None:
        self.problems, self.settings, self.prompts = list(problems), settings, prompts
        self.index = {one.key: place for place, one in enumerate(problems)}
        self.curriculum = Curriculum(len(self.problems), settings.curriculum)
        self.context = RolloutContext(settings.exemplars, settings.lessons)
        self.clip = RewardClip()
        self.draws: list[list[int]] = []
        self.batches = 0

    def draw(self, number: int) -> list[int]:
        """The problems of one batch. A batch that was drawn before a resume is drawn again."""
        while len(self.draws) <= number:
            rng = random.Random(f"{self.settings.seed}/{len(self.draws)}/draw")
            self.draws.append(self.curriculum.draw(self.prompts, rng))
        return self.draws[number]

    def contexts(self, problems: Sequence[TrainingProblem]) -> list[str]:
        """The context of each row's prompt, equal for equal problems."""
        found: dict[str, str] = {}
        for problem in problems:
            if problem.key not in found:
                rng = random.Random(f"{self.settings.seed}/{self.batches}/{problem.key}/context")
                found[problem.key] = self.context.text(problem, rng)
        return [found[problem.key] for problem in problems]

    def update(
        self, everyone: Sequence[Sequence[JudgedConversation]], process: int
    ) -> tuple[Weights, dict[str, float]]:
        """Records a judged batch of all processes; returns the advantages of this process's answers, and figures."""
        rewards = self._clipped([one for own in everyone for one in own])
        before = sum(len(own) for own in everyone[:process])
        mine = everyone[process]
        weights, figures = group_weights(mine, rewards[before : before + len(mine)], self.settings)
        for own in everyone:
            for group in _groups(own, self.settings.samples):
                first = [one.turns[0][1] for one in group if one.turns[0][1].reward is not None]
                self.curriculum.update(group[0].problem, sum(one.outcome.correct for one in first), len(first))
                for one in group:
                    for text, scored in one.turns:
                        self.context.add(self.problems[one.problem], text, scored)
        self.batches += 1
        return weights, figures

    def _clipped(self, conversations: Sequence[JudgedConversation]) -> list[list[float | None]]:
        """The rewards by conversation and turn, clipped to the bounds of the run's last rewards."""
        rewards = [scored.reward for one in conversations for _, scored in one.turns]
        if self.settings.clip_rewards:
            rewards = self.clip.clip(rewards)
        flat = iter(rewards)
        return [[next(flat) for _ in one.turns] for one in conversations]

    def state(self) -> dict[str, Any]:
        """The state for a checkpoint, in plain JSON types."""
        return {
            "curriculum": self.curriculum.state(),
            "context": self.context.state(),
            "clip": self.clip.state(),
            "draws": self.draws,
            "batches": self.batches,
        }

    def load(self, state: Mapping[str, Any]) -> None:
        """Restores `state()`."""
        self.curriculum.load(state["curriculum"])
        self.context.load(state["context"])
        self.clip.load(state["clip"])
        self.draws, self.batches = [list(one) for one in state["draws"]], int(state["batches"])


def group_weights(
    conversations: Sequence[JudgedConversation], rewards: Sequence[Sequence[float | None]], settings: GrpoSettings
) -> tuple[Weights, dict[str, float]]:
    """(the advantage of each answer, {zero_variance: share of the groups of two rewards or more without variance}).

    A group is the answers of one prompt and turn. rewards: clipped, by conversation and turn. An unscorable answer, and
    one whose own kernels do less than `min_own`, is in no baseline and has advantage 0.
    """
    weights: Weights = [[0.0] * len(one.turns) for one in conversations]
    groups = still = 0
    places = list(range(len(conversations)))
    for group in _groups(places, settings.samples):
        if settings.update == "rejection":
            _imitate_best(group, conversations, weights, settings)
            continue
        values = {at: returns(rewards[at], settings.turn_discount) for at in group}
        for turn in range(max(len(conversations[at].turns) for at in group)):
            members = [at for at in group if len(conversations[at].turns) > turn]
            known = [
                values[at][turn] if is_own_work(conversations[at].turns[turn][1].outcome, settings.min_own) else None
                for at in members
            ]
            groups += sum(value is not None for value in known) > 1
            if has_no_variance(known):
                still += 1
                continue
            for at, weight in zip(members, advantages(known, settings.baseline), strict=True):
                weights[at][turn] = weight or 0.0
    return weights, {"zero_variance": still / max(groups, 1)}


def _imitate_best(
    group: Sequence[int], conversations: Sequence[JudgedConversation], weights: Weights, settings: GrpoSettings
) -> None:
    """Advantage 1 for the group's best correct answer of any turn: its gradient is that of SFT on this answer."""
    best: tuple[float, int, int] | None = None
    for at in group:
        for turn, (_, scored) in enumerate(conversations[at].turns):
            found = scored.outcome
            fit = found.correct and not found.hack and is_own_work(found, settings.min_own)
            if scored.reward is not None and fit and (best is None or scored.reward > best[0]):
                best = scored.reward, at, turn
    if best is not None:
        weights[best[1]][best[2]] = 1.0


def _groups(values: Sequence[Any], samples: int) -> Iterator[Sequence[Any]]:
    for at in range(0, len(values), samples):
        yield values[at : at + samples]
