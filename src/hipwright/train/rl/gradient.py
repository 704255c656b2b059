"""The update of the policy gradient on a judged batch (docs/rl.md)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hipwright.errors import BadInput
from hipwright.train.rewards import RewardClip
from hipwright.train.rl.advantage import advantages, has_no_variance, is_own_work, returns
from hipwright.train.rl.policy import PolicyModel
from hipwright.train.rl.reference_policy import ReferencePolicy, kl_estimate
from hipwright.train.rl.rollout import RolloutAnswer, RolloutBatch
from hipwright.train.rl.settings import RLSettings
from hipwright.train.rl.training import TrainingRun


class PolicyGradient:
    """The clipped, token-level policy gradient with leave-one-out or group-relative advantages.

        L = sum over tokens of (kl D - G) / tokens of all scored answers
        G = min(ratio A, clip(ratio, 1 - low, 1 + high) A), and at least worst A where A < 0

    ratio: of the token's probability now and when it was sampled. D: `kl_estimate` in reference_policy.py. Token-level
    sums and the higher upper bound are those of DAPO (Yu et al. 2025). The bound by `worst` is the dual clip (Ye et al.
    2020, "Mastering Complex Control in MOBA Games", equation 5): a token of a bad answer that became far more probable
    since it was sampled has no gradient, where it would outweigh all others. Without the KL term (kl 0) answers with
    advantage 0 are counted but not run, since their gradient is 0.
    """

    def __init__(self, policy: PolicyModel, settings: RLSettings) -> None:
        self.name = "policy gradient"
        self.policy, self.settings = policy, settings
        self.clip = RewardClip()
        self.reference = ReferencePolicy(policy) if settings.kl else None

    def __call__(self, batch: RolloutBatch, training: TrainingRun) -> dict[str, float]:
        """Runs the batch's optimizer updates; returns the figures of the last one."""
        weighted, metrics = self.weighted_answers(batch)
        tokens = sum(len(answer.sample.tokens) for answer, _ in weighted)
        used = [(answer, weight) for answer, weight in weighted if weight or self.reference]
        if not used:
            training.skip()
            return metrics | {"grad_norm": 0.0, "learning_rate": training.optim.rate(training.step - 1)}
        metrics["learning_rate"] = training.optim.rate(training.step)
        reference = self._reference_logprobs(used)
        for left in reversed(range(self.settings.updates)):
            metrics |= self._gradient(used, tokens, reference)
            metrics["grad_norm"] = float(training.apply(last=not left))
        return metrics

    def weighted_answers(self, batch: RolloutBatch) -> tuple[list[tuple[RolloutAnswer, float]], dict[str, float]]:
        """(every answer with its advantage, {groups: with two rewards or more, zero_variance: share of them})."""
        returns_of = self._returns(batch)
        found: list[tuple[RolloutAnswer, float]] = []
        groups = still = 0
        for _, _, answers in batch.groups():
            values = [returns_of[id(answer)] if self._own_work(answer) else None for answer in answers]
            groups += sum(value is not None for value in values) > 1
            still += has_no_variance(values)
            weights = advantages(values, self.settings.baseline)
            if has_no_variance(values):
                weights = [None if weight is None else 0.0 for weight in weights]
            found += [(one, weight) for one, weight in zip(answers, weights, strict=True) if weight is not None]
        return found, {"groups": float(groups), "zero_variance": still / max(groups, 1)}

    def _own_work(self, answer: RolloutAnswer) -> bool:
        return answer.outcome is None or is_own_work(answer.outcome, self.settings.min_own)

    def _returns(self, batch: RolloutBatch) -> dict[int, float | None]:
        """The return of each answer, by its `id`, of the clipped rewards."""
        answers = [answer for conversation in batch.conversations for answer in conversation.answers]
        rewards = [answer.scored.reward if answer.scored else None for answer in answers]
        if self.settings.clip_rewards:
            rewards = self.clip.clip(rewards)
        worth = {id(answer): reward for answer, reward in zip(answers, rewards, strict=True)}
        for conversation in batch.conversations:
            values = returns([worth[id(answer)] for answer in conversation.answers], self.settings.turn_discount)
            worth.update({id(answer): value for answer, value in zip(conversation.answers, values, strict=True)})
        return worth

    def _reference_logprobs(self, used: Sequence[tuple[RolloutAnswer, float]]) -> list[list[float]]:
        """The reference policy's log-probability of each token of the answers; empty without a KL term."""
        if self.reference is None:
            return []
        pairs = [(answer.prompt, answer.sample.tokens) for answer, _ in used]
        settings = self.settings
        with self.reference.active():
            return self.policy.logprobs(pairs, temperature=settings.temperature, micro_tokens=settings.micro_tokens)

    def _gradient(
        self, used: Sequence[tuple[RolloutAnswer, float]], tokens: int, reference: Sequence[Sequence[float]] = ()
    ) -> dict[str, float]:
        """Accumulates the loss's gradient; returns figures over the tokens that were run.

        tokens: of all scored answers, by which the loss is divided. reference: the reference log-probabilities.
        """
        import torch

        settings, sums = self.settings, dict.fromkeys(("loss", "entropy", "clipped", "drift"), 0.0)
        pairs = [(answer.prompt, answer.sample.tokens) for answer, _ in used]
        run = sum(len(completion) for _, completion in pairs)
        options: dict[str, Any] = {"temperature": settings.temperature, "micro_tokens": settings.micro_tokens}
        for part in self.policy.likelihood(pairs, **options, entropy=True):
            old = [logprob for index in part.order for logprob in used[index][0].sample.logprobs]
            weights = [
                weight
                for index, count in zip(part.order, part.counts, strict=True)
                for weight in [used[index][1]] * count
            ]
            before, gain = (torch.tensor(values, device=part.logprobs.device) for values in (old, weights))
            drift = part.logprobs - before
            ratio = drift.exp()
            held = ratio.clamp(1 - settings.clip_low, 1 + settings.clip_high)
            earned = torch.minimum(ratio * gain, held * gain)
            earned = torch.where(gain < 0, earned.clamp(min=settings.clip_worst * gain), earned)
            loss = -earned.sum() / tokens
            if reference:
                known = [one for index in part.order for one in reference[index]]
                distance = kl_estimate(part.logprobs, torch.tensor(known, device=part.logprobs.device)).sum()
                loss = loss + settings.kl * distance / tokens
                sums["kl"] = sums.get("kl", 0.0) + float(distance.detach())
            loss.backward()
            with torch.no_grad():
                cut = (ratio * gain != earned).sum()
                kl = (ratio - 1 - drift).sum()
                for name, value in (
                    ("loss", loss * run),
                    ("entropy", part.entropy.sum()),
                    ("clipped", cut),
                    ("drift", kl),
                ):
                    sums[name] += float(value)
        return {name: value / run for name, value in sums.items()}

    def state(self) -> dict[str, Any]:
        """The reward history, and the hash of the reference policy ("" without one)."""
        return {"clip": self.clip.state(), "anchor": self.reference.key if self.reference else ""}

    def load(self, state: dict[str, Any]) -> None:
        """Restores `state()`. Raises BadInput where the run started from other weights than this one."""
        if self.reference is not None and state["anchor"] != self.reference.key:
            raise BadInput(
                "this run started from other weights, which its KL refers to",
                hint="resume with the model that it started from, or start a new run",
            )
        self.clip.load(state["clip"])
