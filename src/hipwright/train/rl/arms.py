"""Alternatives to the policy gradient: rejection fine-tuning, and DPO on preference pairs (docs/rl.md)."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from hipwright.records import Record
from hipwright.train.forms import PromptForm
from hipwright.train.records import TrainingProblem
from hipwright.train.rl.advantage import is_own_work
from hipwright.train.rl.checkpoint import digest
from hipwright.train.rl.imitation import Passes, imitate, take_batch
from hipwright.train.rl.loop import TrainingLoop
from hipwright.train.rl.packing import Pair
from hipwright.train.rl.policy import HFPolicy, PolicyModel
from hipwright.train.rl.rollout import OutcomeScorer, RolloutBatch
from hipwright.train.rl.settings import ImitationSettings, RLSettings
from hipwright.train.rl.training import LoopResult, Metrics, TrainingRun

if TYPE_CHECKING:
    from torch import Tensor

MARGIN = 0.1
"""Least difference of two rewards that makes a preference."""


# ---------------------------------------------------------------- rejection fine-tuning


def train_rft(
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
    """Samples and judges as `train_rl` does, and imitates each problem's best verified answer so far.

    Settings, checkpoints and log are those of `train_rl`; the settings of advantages are not used.
    """
    loop = TrainingLoop(
        RejectionFineTuning(policy, settings), policy, problems, environment, form, settings, folder, log, piece_minutes
    )
    return loop.run(allow_device_change=allow_device_change)


class RejectionFineTuning:
    """Keeps the best correct answer of each problem; a step imitates the new ones, and older ones up to half a batch.

    Half a batch is prompts x samples / 2 answers: as many as a policy gradient reinforces where half of the answers are
    better than the mean.
    """

    def __init__(self, policy: PolicyModel, settings: RLSettings) -> None:
        self.name = "rejection fine-tuning"
        self.policy, self.settings = policy, settings
        self._imitation = ImitationSettings(micro_tokens=settings.micro_tokens, row_tokens=0)
        self.best: dict[str, list[Any]] = {}  # problem -> [reward, prompt, completion]

    def __call__(self, batch: RolloutBatch, training: TrainingRun) -> dict[str, float]:
        """Runs the batch's optimizer updates; returns the figures of the last one."""
        new = self._update_best(batch)
        older = [name for name in self.best if name not in new]
        random.Random(f"{self.settings.seed}/{batch.step}/rft").shuffle(older)
        many = max(self.settings.prompts * self.settings.samples // 2, 1)
        chosen = [*new, *older][:many]
        metrics = {"kept": float(len(self.best)), "imitated": float(len(chosen)), "new_best": float(len(new))}
        if not chosen:
            training.skip()
            return metrics
        rows: list[Pair] = [(self.best[name][1], self.best[name][2]) for name in chosen]
        metrics["learning_rate"] = training.optim.rate(training.step)
        for left in reversed(range(self.settings.updates)):
            metrics["loss"] = float(imitate(self.policy, rows, self._imitation))
            metrics["grad_norm"] = float(training.apply(last=not left))
        return metrics

    def _update_best(self, batch: RolloutBatch) -> list[str]:
        """Keeps the batch's best answers; returns the problems whose best answer changed."""
        new: dict[str, None] = {}
        for conversation in batch.conversations:
            for one in conversation.answers:
                if one.scored is None or one.scored.reward is None or not one.scored.outcome.correct:
                    continue
                known = self.best.get(conversation.problem.name)
                fit = not one.scored.outcome.hack and is_own_work(one.scored.outcome, self.settings.min_own)
                if fit and (known is None or one.scored.reward > known[0]):
                    self.best[conversation.problem.name] = [one.scored.reward, one.prompt, one.sample.tokens]
                    new[conversation.problem.name] = None
        return list(new)

    def state(self) -> dict[str, Any]:
        """The best answers, for a checkpoint."""
        return {"best": [[name, *row] for name, row in self.best.items()]}

    def load(self, state: dict[str, Any]) -> None:
        """Restores `state()`."""
        self.best = {name: list(row) for name, *row in state["best"]}


# ---------------------------------------------------------------- preferences


class Preference(Record, frozen=True, kw_only=True):
    """Two answers to one prompt, as tokens: the better one is `chosen`."""

    prompt: list[int]
    chosen: list[int]
    rejected: list[int]


def preferences(batch: RolloutBatch) -> list[Preference]:
    """The best and the worst answer of each group of first turns, where their rewards differ by `MARGIN`."""
    found = []
    for _, turn, answers in batch.groups():
        known = [(one.scored.reward, one) for one in answers if one.scored and one.scored.reward is not None]
        if turn or not known:
            continue
        best, worst = max(known, key=lambda item: item[0]), min(known, key=lambda item: item[0])
        if best[0] - worst[0] >= MARGIN:
            tokens = best[1].sample.tokens, worst[1].sample.tokens
            found.append(Preference(prompt=best[1].prompt, chosen=tokens[0], rejected=tokens[1]))
    return found


def gather_preferences(
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
) -> tuple[list[Preference], LoopResult]:
    """Samples and judges without training; returns the preferences of every group."""
    gather = CollectPreferences()
    loop = TrainingLoop(gather, policy, problems, environment, form, settings, folder, log, piece_minutes)
    result = loop.run(allow_device_change=allow_device_change)
    return gather.found, result


class CollectPreferences:
    """An update without an optimizer step, which collects each batch's preferences."""

    def __init__(self) -> None:
        self.name = "gathering preferences"
        self.found: list[Preference] = []

    def __call__(self, batch: RolloutBatch, training: TrainingRun) -> dict[str, float]:
        """Collects the preferences; returns their number so far."""
        self.found += preferences(batch)
        training.skip()
        return {"preferences": float(len(self.found))}

    def state(self) -> dict[str, Any]:
        """The preferences, for a checkpoint."""
        return {"found": [msgspec.to_builtins(one) for one in self.found]}

    def load(self, state: dict[str, Any]) -> None:
        """Restores `state()`."""
        self.found = [Preference.from_dict(one) for one in state["found"]]


# ---------------------------------------------------------------- DPO


def train_dpo(
    policy: HFPolicy,
    pairs: Sequence[Preference],
    settings: ImitationSettings,
    folder: Path,
    log: Metrics,
    *,
    piece_minutes: float | None = None,
    allow_device_change: bool = False,
) -> LoopResult:
    """Direct preference optimisation (Rafailov et al. 2023): raises the odds of the chosen over the rejected answer.

        L = - log sigmoid(beta ((log p - log p_ref)(chosen) - (log p - log p_ref)(rejected))), the mean over pairs

    The reference is the policy before the first step; its log-probabilities are computed once and are part of the
    checkpoint. Logged at stage "dpo"; margin: the mean difference that is multiplied by beta.
    """
    reference = ReferenceMargins(policy, pairs, settings)

    def gradient(batch: Sequence[int]) -> Mapping[str, Tensor]:
        return dpo_gradient(policy, [pairs[i] for i in batch], [reference.gaps[i] for i in batch], settings)

    sizes = [2 * len(one.prompt) + len(one.chosen) + len(one.rejected) for one in pairs]
    identity = {"data": digest(one.to_json() for one in pairs), "update": "dpo"}
    passes = Passes(policy, sizes, settings, folder, log, identity, piece_minutes)
    passes.training.parts["reference"] = reference
    if not passes.training.resume(allow_device_change=allow_device_change):
        reference.compute()
        passes.training.save()  # the reference weights are gone after the first step
    return passes.run("dpo", gradient, allow_device_change=allow_device_change)


class ReferenceMargins:
    """log p_ref(chosen) - log p_ref(rejected) of each pair."""

    def __init__(self, policy: HFPolicy, pairs: Sequence[Preference], settings: ImitationSettings) -> None:
        self.policy, self.pairs, self.settings = policy, pairs, settings
        self.gaps: list[float] = []

    def compute(self) -> None:
        """Computes the margins with the policy's present weights."""
        both: list[Pair] = [(one.prompt, answer) for one in self.pairs for answer in (one.chosen, one.rejected)]
        sums = [sum(values) for values in self.policy.logprobs(both, micro_tokens=self.settings.micro_tokens)]
        self.gaps = [chosen - rejected for chosen, rejected in zip(sums[::2], sums[1::2], strict=True)]

    def state(self) -> dict[str, Any]:
        """The margins, for a checkpoint."""
        return {"gaps": self.gaps}

    def load(self, state: dict[str, Any]) -> None:
        """Restores `state()`."""
        self.gaps = list(state["gaps"])


def dpo_gradient(
    policy: PolicyModel, pairs: Sequence[Preference], reference: Sequence[float], settings: ImitationSettings
) -> dict[str, Tensor]:
    """Accumulates the gradient of the mean loss; returns loss, accuracy (share of pairs in order) and margin."""
    import torch
    from torch.nn.functional import logsigmoid

    found: dict[str, list[Tensor]] = {"loss": [], "accuracy": [], "margin": []}
    sizes = [2 * len(one.prompt) + len(one.chosen) + len(one.rejected) for one in pairs]
    place = 0
    while place < len(pairs):
        chunk = take_batch(range(place, len(pairs)), sizes, settings.micro_tokens)
        place += len(chunk)
        sums = _sums(policy, [(pairs[i].prompt, one) for i in chunk for one in (pairs[i].chosen, pairs[i].rejected)])
        fixed = torch.tensor([reference[i] for i in chunk], device=sums.device)
        margin = sums[0::2] - sums[1::2] - fixed
        loss = -logsigmoid(settings.beta * margin).sum() / len(pairs)
        torch.autograd.backward(loss)
        found["loss"].append(loss.detach())
        found["accuracy"].append((margin.detach() > 0).float().sum() / len(pairs))
        found["margin"].append(margin.detach().sum() / len(pairs))
    return {name: torch.stack(values).sum() for name, values in found.items()}


def _sums(policy: PolicyModel, rows: Sequence[Pair]) -> Tensor:
    """log p of each completion, all in one pass."""
    import torch

    (part,) = policy.likelihood(rows, micro_tokens=1 << 62)
    sums = torch.stack([values.sum() for values in part.logprobs.split(list(part.counts))])
    back = torch.empty(len(rows), dtype=torch.long)
    back[torch.tensor(part.order)] = torch.arange(len(rows))
    return sums[back.to(sums.device)]
