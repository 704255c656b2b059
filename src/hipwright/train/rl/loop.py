"""The loop of reinforcement learning: draw problems, sample, judge, update; in pieces, and safe to kill (docs/rl.md).

What an update does with a judged batch is a part of its own: the clipped policy gradient here, rejection fine-tuning
and the gathering of preference pairs in arms.py. Each is checkpointed and logged in the same way.
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
from hipwright.train.rl.best import Best
from hipwright.train.rl.checkpoint import digest
from hipwright.train.rl.curriculum import Curriculum
from hipwright.train.rl.exemplars import ExemplarSettings
from hipwright.train.rl.gradient import PolicyGradient
from hipwright.train.rl.policy import PolicyModel
from hipwright.train.rl.rollout import OutcomeScorer, PhaseSeconds, Roller, RolloutBatch
from hipwright.train.rl.settings import RLSettings
from hipwright.train.rl.training import LoopResult, Metrics, Stateful, TrainingRun

STAGE = "rl"
BLIND = 3
"""Batches in a row without a single reward after which the run is given up: the machine is at fault."""


class Update(Stateful, Protocol):
    """What is done with a judged batch: gradients and one `training.apply()`, or `training.skip()`."""

    name: str

    def __call__(self, batch: RolloutBatch, training: TrainingRun) -> dict[str, float]:
        """The update's own figures."""
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
    """Train by clipped policy gradient on the environment's rewards; resumes from FOLDER's checkpoint.

    Call it again, with the same arguments, until the result is `finished`. Raises BadInput where the folder is another
    run's, and InfrastructureError after three batches in a row that nothing of could be scored.
    """
    update = PolicyGradient(policy, settings)
    loop = TrainingLoop(update, policy, problems, environment, form, settings, folder, log, piece_minutes)
    return loop.run(allow_device_change=allow_device_change)


class TrainingLoop:
    """One run; `update` decides what it learns from a batch."""

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
        self.watch = PhaseSeconds()
        self.curriculum = Curriculum(len(problems), settings.curriculum)
        self.context = ExemplarSettings(settings.exemplars, settings.lessons)
        self.roller = Roller(policy, problems, environment, form, settings, self.context, self.watch)
        self.ahead = Ahead(self.roller)
        self.blind = 0
        self.began: float | None = None
        parts: dict[str, Stateful] = {"curriculum": self.curriculum, "context": self.context, "update": update}
        self.best = Best(policy, settings.keep) if settings.keep else None
        if self.best is not None:
            parts["best"] = self.best
        if hasattr(environment.judge, "state"):
            parts["judge"] = Remembered(environment.judge)
        parts["ahead"] = self.ahead  # last: restoring it asks the judge, which knows most of the answers by then
        identity = {
            "judge": str(environment.judge.device),
            "data": digest(f"{one.name}\n{one.source}" for one in problems),
            "reward": repr(environment.reward),
            "update": update.name,
        }
        self.training = TrainingRun(policy, settings, settings.steps, folder, identity, parts, piece_minutes)

    def run(self, *, allow_device_change: bool = False) -> LoopResult:
        """Go on until the piece or the run is over; a run that is over leaves the policy with its best weights, where
        the settings ask for them."""
        training = self.training
        training.resume(allow_device_change=allow_device_change)
        metrics: dict[str, float] = {}
        while not training.over:
            metrics = self._step()
            if self.best is not None:
                self.best.look(training.step, metrics["reward"])
            if training.checkpoint_due():
                training.save()
        if self.best is not None and training.finished:
            self.best.restore()
            metrics |= {"kept_step": float(self.best.step), "kept_reward": self.best.reward}
        return training.result(metrics)

    def _step(self) -> dict[str, float]:
        training, began = self.training, time.monotonic()
        pace, self.began = began - (self.began or began), began  # what is ahead of a last step is judged for nothing
        batch = self.ahead.batch or self._start(training.step + 1)
        self.ahead.batch = None
        if self.settings.overlap and batch.step < self.settings.steps and not training.ends_within(pace):
            self.ahead.batch = self._start(batch.step + 1)
        self.roller.finish(batch)
        self._look(batch)
        with self.roller.on_gpu("train"):
            metrics = self.update(batch, training)
        metrics |= figures(batch) | {f"seconds_{name}": spent for name, spent in self.watch.taken().items()}
        metrics["seconds_step"] = time.monotonic() - began
        metrics["rewards_an_hour"] = 3600 * metrics["scored"] / max(metrics["seconds_step"], 1e-9)
        metrics["minutes"] = training.minutes
        self.log.metrics(STAGE, training.step, metrics)
        if training.step % self.settings.sample_every == 0:
            self._show(batch)
        return metrics

    def _start(self, step: int) -> RolloutBatch:
        rng = random.Random(f"{self.settings.seed}/{step}/draw")
        return self.roller.start(step, self.curriculum.draw(self.settings.prompts, rng))

    def _look(self, batch: RolloutBatch) -> None:
        """Tell curriculum and context of a judged batch; give up where nothing can be judged any more."""
        scored = 0
        for slot, turn, answers in batch.groups():
            known = [one.scored.outcome for one in answers if one.scored and one.scored.reward is not None]
            scored += len(known)
            if turn == 0:
                self.curriculum.update(batch.drawn[slot], sum(one.correct for one in known), len(known))
            for one in answers:
                if one.scored:
                    self.context.add(self.problems[batch.drawn[slot]], one.text, one.scored)
        self.blind = 0 if scored else self.blind + 1
        if self.blind >= BLIND:
            said = batch.talks[0].answers[-1].outcome
            raise InfrastructureError(
                f"nothing of {BLIND} batches could be scored: {said.message if said else ''}",
                hint="mend the machine; the same command goes on from the last checkpoint",
            )

    def _show(self, batch: RolloutBatch) -> None:
        """Log one conversation of the batch, a different slot each time."""
        talk = batch.talks[(self.training.step // self.settings.sample_every) % len(batch.talks)]
        for turn, answer in enumerate(talk.answers):
            record = {
                "problem": talk.problem.name,
                "source": talk.problem.source,
                "context": talk.context,
                "turn": turn,
                "completion": answer.text,
                "outcome": answer.outcome.to_dict() if answer.outcome else None,
                "reward": answer.scored.reward if answer.scored else None,
            }
            self.log.sample(STAGE, self.training.step, record)


class Remembered:
    """What a judge knows of programs, as one block of JSON: thousands of records are slow to pickle one by one."""

    def __init__(self, judge: Any) -> None:
        self.judge = judge

    def state(self) -> dict[str, Any]:
        """The block, a tensor of bytes."""
        import torch

        return {"json": torch.frombuffer(bytearray(msgspec.json.encode(self.judge.state())), dtype=torch.uint8)}

    def load(self, state: dict[str, Any]) -> None:
        """Put `state()` back."""
        self.judge.load(msgspec.json.decode(state["json"].numpy().tobytes()))


class Ahead:
    """The batch that is judged while the one before it is trained on."""

    def __init__(self, roller: Roller) -> None:
        self.roller = roller
        self.batch: RolloutBatch | None = None

    def state(self) -> dict[str, Any]:
        """What was sampled."""
        return {"batch": self.batch.state() if self.batch else None}

    def load(self, state: dict[str, Any]) -> None:
        """Hand it to the judge again."""
        self.batch = self.roller.restore(state["batch"]) if state["batch"] else None


def figures(batch: RolloutBatch) -> dict[str, float]:
    """What a judged batch came to: shares of all scorable answers, of first turns, and of infrastructure faults."""
    answers = [answer for talk in batch.talks for answer in talk.answers if answer.scored]
    known = [one.scored for one in answers if one.scored and one.scored.reward is not None]
    first = [talk.answers[0].scored for talk in batch.talks if talk.answers[0].scored]
    last = [talk.answers[-1].scored for talk in batch.talks if talk.answers[-1].scored]
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
    """The mean; NaN of nothing, which the log writes as null."""
    known: list[float] = [float(value) for value in values]
    return sum(known) / len(known) if known else float("nan")
