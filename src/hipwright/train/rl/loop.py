"""The loop of reinforcement learning: draws problems, samples, judges and updates (docs/rl.md).

A run may be continued in several calls, and resumes after a kill. The `Update` decides what is done with a judged
batch: the clipped policy gradient (gradient.py), rejection fine-tuning or collecting preferences (arms.py).
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Protocol

import msgspec

from hipwright.errors import InfrastructureError
from hipwright.train.forms import PromptForm
from hipwright.train.records import TrainingProblem
from hipwright.train.rl.best import BestWeights
from hipwright.train.rl.checkpoint import digest
from hipwright.train.rl.curriculum import Curriculum
from hipwright.train.rl.exemplars import RolloutContext
from hipwright.train.rl.gradient import PolicyGradient
from hipwright.train.rl.policy import PolicyModel
from hipwright.train.rl.rollout import OutcomeScorer, PhaseSeconds, RolloutBatch, RolloutRunner
from hipwright.train.rl.settings import RLSettings
from hipwright.train.rl.training import LoopResult, Metrics, Stateful, TrainingRun

STAGE = "rl"
MAX_UNSCORED_BATCHES = 3
"""Consecutive batches without any reward after which the run ends with an infrastructure error."""


class Update(Stateful, Protocol):
    """An update on a judged batch: gradients with `training.apply()`, or `training.skip()`."""

    name: str

    def __call__(self, batch: RolloutBatch, training: TrainingRun) -> dict[str, float]:
        """Runs the update; returns its figures."""
        ...


def train_rl(
    policy: PolicyModel,
    problems: Sequence[TrainingProblem],
    environment: OutcomeScorer,
    form: PromptForm,
    settings: RLSettings,
    folder: Path,
    log: Metrics,
    *,
    piece_minutes: float | None = None,
    allow_device_change: bool = False,
) -> LoopResult:
    """Trains by the clipped policy gradient on the environment's rewards; resumes from FOLDER's checkpoint.

    piece_minutes: the limit of this call; the same call continues until the result is `finished`. Raises BadInput where
    the folder holds another run, and InfrastructureError after three consecutive batches without a scorable answer.
    """
    update = PolicyGradient(policy, settings)
    loop = TrainingLoop(update, policy, problems, environment, form, settings, folder, log, piece_minutes)
    return loop.run(allow_device_change=allow_device_change)


class TrainingLoop:
    """One run with an `Update`."""

    def __init__(
        self,
        update: Update,
        policy: PolicyModel,
        problems: Sequence[TrainingProblem],
        environment: OutcomeScorer,
        form: PromptForm,
        settings: RLSettings,
        folder: Path,
        log: Metrics,
        piece_minutes: float | None = None,
    ) -> None:
        self.settings, self.log, self.update, self.problems = settings, log, update, problems
        self.times = PhaseSeconds()
        self.curriculum = Curriculum(len(problems), settings.curriculum)
        self.context = RolloutContext(settings.exemplars, settings.lessons)
        self.runner = RolloutRunner(policy, problems, environment, form, settings, self.context, self.times)
        self.prefetched = PrefetchedBatch(self.runner)
        self.unscored = 0
        self.began: float | None = None  # the last step
        parts: dict[str, Stateful] = {"curriculum": self.curriculum, "context": self.context, "update": update}
        self.best = BestWeights(policy, settings.keep) if settings.keep else None
        if self.best is not None:
            parts["best"] = self.best
        if hasattr(environment.judge, "state"):
            parts["judge"] = JudgeState(environment.judge)
        parts["ahead"] = self.prefetched  # last, since restoring it submits to the judge, which must have its cache
        identity = {
            "judge": str(environment.judge.device),
            "data": digest(f"{one.name}\n{one.source}" for one in problems),
            "reward": repr(environment.reward),
            "update": update.name,
        }
        self.training = TrainingRun(policy, settings, settings.steps, folder, identity, parts, piece_minutes)

    def run(self, *, allow_device_change: bool = False) -> LoopResult:
        """Trains until the piece or the run is over. A finished run with `keep` leaves the policy with its best
        weights."""
        training = self.training
        training.resume(allow_device_change=allow_device_change)
        metrics: dict[str, float] = {}
        while not training.over:
            metrics = self._step()
            if self.best is not None:
                self.best.update(training.step, metrics["reward"])
            if training.checkpoint_due():
                training.save()
        if self.best is not None and training.finished:
            self.best.restore()
            metrics |= {"kept_step": float(self.best.step), "kept_reward": self.best.reward}
        return training.result(metrics)

    def _step(self) -> dict[str, float]:
        training, began = self.training, time.monotonic()
        # seconds of the last step: the batch after the run's last step is not started
        last_step_s, self.began = began - (self.began or began), began
        batch = self.prefetched.batch or self._start(training.step + 1)
        self.prefetched.batch = None
        if self.settings.overlap and batch.step < self.settings.steps and not training.ends_within(last_step_s):
            self.prefetched.batch = self._start(batch.step + 1)
        self.runner.finish(batch)
        self._record(batch)
        with self.runner.on_gpu("train"):
            metrics = self.update(batch, training)
        metrics |= batch_figures(batch) | {f"seconds_{name}": spent for name, spent in self.times.take().items()}
        metrics["seconds_step"] = time.monotonic() - began
        metrics["rewards_an_hour"] = 3600 * metrics["scored"] / max(metrics["seconds_step"], 1e-9)
        metrics["minutes"] = training.minutes
        self.log.metrics(STAGE, training.step, metrics)
        if training.step % self.settings.sample_every == 0:
            self._log_conversation(batch)
        return metrics

    def _start(self, step: int) -> RolloutBatch:
        rng = random.Random(f"{self.settings.seed}/{step}/draw")
        if self.best is not None:
            self.best.sampled(step)
        return self.runner.start(step, self.curriculum.draw(self.settings.prompts, rng))

    def _record(self, batch: RolloutBatch) -> None:
        """Updates curriculum and context; raises InfrastructureError after too many batches without a reward."""
        scored = 0
        for slot, turn, answers in batch.groups():
            known = [one.scored.outcome for one in answers if one.scored and one.scored.reward is not None]
            scored += len(known)
            if turn == 0:
                self.curriculum.update(batch.drawn[slot], sum(one.correct for one in known), len(known))
            for one in answers:
                if one.scored:
                    self.context.add(self.problems[batch.drawn[slot]], one.text, one.scored)
        self.unscored = 0 if scored else self.unscored + 1
        if self.unscored >= MAX_UNSCORED_BATCHES:
            last = batch.conversations[0].answers[-1].outcome
            raise InfrastructureError(
                f"no answer of {MAX_UNSCORED_BATCHES} batches could be scored: {last.message if last else ''}",
                hint="repair the machine; the same command continues from the last checkpoint",
            )

    def _log_conversation(self, batch: RolloutBatch) -> None:
        """Logs one conversation of the batch, of another slot each time."""
        conversation = batch.conversations[
            (self.training.step // self.settings.sample_every) % len(batch.conversations)
        ]
        for turn, answer in enumerate(conversation.answers):
            record = {
                "problem": conversation.problem.name,
                "source": conversation.problem.source,
                "context": conversation.context,
                "turn": turn,
                "completion": answer.text,
                "outcome": answer.outcome.to_dict() if answer.outcome else None,
                "reward": answer.scored.reward if answer.scored else None,
            }
            self.log.sample(STAGE, self.training.step, record)


class JudgeState:
    """A judge's cached verdicts as one block of JSON, since pickling thousands of records is slow."""

    def __init__(self, judge: Any) -> None:
        self.judge = judge

    def state(self) -> dict[str, Any]:
        """The block, as a tensor of bytes."""
        import torch

        return {"json": torch.frombuffer(bytearray(msgspec.json.encode(self.judge.state())), dtype=torch.uint8)}

    def load(self, state: dict[str, Any]) -> None:
        """Restores `state()`."""
        self.judge.load(msgspec.json.decode(state["json"].numpy().tobytes()))


class PrefetchedBatch:
    """The batch that is judged while the policy is trained on the previous one; None where there is none."""

    def __init__(self, runner: RolloutRunner) -> None:
        self.runner = runner
        self.batch: RolloutBatch | None = None

    def state(self) -> dict[str, Any]:
        """The batch's sampled answers."""
        return {"batch": self.batch.state() if self.batch else None}

    def load(self, state: dict[str, Any]) -> None:
        """Restores the batch and submits it to the judge again."""
        self.batch = self.runner.restore(state["batch"]) if state["batch"] else None


def batch_figures(batch: RolloutBatch) -> dict[str, float]:
    """The figures of a judged batch: means over scorable answers, first and last turns, and the share of faults."""
    answers = [answer for conversation in batch.conversations for answer in conversation.answers if answer.scored]
    known = [one.scored for one in answers if one.scored and one.scored.reward is not None]
    first = [conversation.answers[0].scored for conversation in batch.conversations if conversation.answers[0].scored]
    last = [conversation.answers[-1].scored for conversation in batch.conversations if conversation.answers[-1].scored]
    return {
        "reward": mean(one.reward for one in known if one.reward is not None),
        "compiled": mean(one.outcome.compiled for one in known),
        "correct": mean(one.outcome.correct for one in known),
        "correct_first": mean(one.outcome.correct for one in first if one.reward is not None),
        "correct_last": mean(one.outcome.correct for one in last if one.reward is not None),
        "hack": mean(one.outcome.hack for one in known),
        "infra": 1 - len(known) / max(len(answers), 1),
        "speedup": mean(one.outcome.speedup for one in known if one.outcome.correct and one.outcome.speedup),
        "tokens": mean(len(answer.sample.tokens) for answer in answers),
        "ended": mean(answer.sample.ended for answer in answers),
        "answers": float(len(answers)),
        "scored": float(len(known)),
    }


def mean(values: Iterable[float]) -> float:
    """The mean; NaN without values, which the log writes as null."""
    known: list[float] = [float(value) for value in values]
    return sum(known) / len(known) if known else float("nan")
