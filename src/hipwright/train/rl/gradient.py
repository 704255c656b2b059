"""What an update of the policy gradient does with a judged batch (docs/rl.md)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hipwright.errors import BadInput
from hipwright.train.rewards import Clip
from hipwright.train.rl.advantage import advantages, flat, returns
from hipwright.train.rl.anchor import Anchor, estimate
from hipwright.train.rl.policy import PolicyModel
from hipwright.train.rl.rollout import RolloutAnswer, RolloutBatch
from hipwright.train.rl.settings import RLSettings
from hipwright.train.rl.training import TrainingRun


class PolicyGradient:
    """The clipped, token-level policy gradient with leave-one-out or group-relative advantages.

        L = sum over tokens of (kl D - min(ratio A, clip(ratio, 1 - low, 1 + high) A)) / tokens of all scored answers

    ratio: of the token's probability now and when it was sampled. D: see anchor.py. Token-level sums and the higher
    upper bound are those of DAPO (Yu et al. 2025). Without the KL term (kl 0) answers with advantage 0 are counted, but
    not run: their gradient is 0.
    """

    def __init__(self, policy: PolicyModel, settings: RLSettings) -> None:
        self.name = "policy gradient"
        self.policy, self.settings = policy, settings
        self.clip = Clip()
        self.anchor = Anchor(policy) if settings.kl else None

    def __call__(self, batch: RolloutBatch, training: TrainingRun) -> dict[str, float]:
        """The batch's optimizer updates; the figures are the last one's."""
        weighted, metrics = self.weigh(batch)
        tokens = sum(len(answer.sample.tokens) for answer, _ in weighted)
        used = [(answer, weight) for answer, weight in weighted if weight or self.anchor]
        if not used:
            training.skip()
            return metrics | {"grad_norm": 0.0, "learning_rate": training.optim.rate(training.step - 1)}
        metrics["learning_rate"] = training.optim.rate(training.step)
        start = self._start(used)
        for left in reversed(range(self.settings.updates)):
            metrics |= self._gradient(used, tokens, start)
            metrics["grad_norm"] = float(training.apply(last=not left))
        return metrics

    def weigh(self, batch: RolloutBatch) -> tuple[list[tuple[RolloutAnswer, float]], dict[str, float]]:
        """Every answer that has an advantage, with it; and how many groups have none."""
        clipped = self._clipped(batch)
        found: list[tuple[RolloutAnswer, float]] = []
        groups = still = 0
        for _, _, answers in batch.groups():
            values = [clipped[id(answer)] for answer in answers]
            groups += sum(value is not None for value in values) > 1
            still += flat(values)
            weights = advantages(values, self.settings.baseline)
            if flat(values):
                weights = [None if weight is None else 0.0 for weight in weights]
            found += [(one, weight) for one, weight in zip(answers, weights, strict=True) if weight is not None]
        return found, {"groups": float(groups), "zero_variance": still / max(groups, 1)}

    def _clipped(self, batch: RolloutBatch) -> dict[int, float | None]:
        """What each answer is worth, by its identity: the reward, clipped, with its share of what followed."""
        answers = [answer for talk in batch.talks for answer in talk.answers]
        rewards = [answer.scored.reward if answer.scored else None for answer in answers]
        if self.settings.clip_rewards:
            rewards = self.clip.clip(rewards)
        worth = {id(answer): reward for answer, reward in zip(answers, rewards, strict=True)}
        for talk in batch.talks:
            values = returns([worth[id(answer)] for answer in talk.answers], self.settings.turn_discount)
            worth.update({id(answer): value for answer, value in zip(talk.answers, values, strict=True)})
        return worth

    def _start(self, used: Sequence[tuple[RolloutAnswer, float]]) -> list[list[float]]:
        """What the policy that training began from says of the answers; nothing where nobody asks."""
        if self.anchor is None:
            return []
        pairs = [(answer.prompt, answer.sample.tokens) for answer, _ in used]
        settings = self.settings
        with self.anchor.held():
            return self.policy.logprobs(pairs, temperature=settings.temperature, micro_tokens=settings.micro_tokens)

    def _gradient(
        self, used: Sequence[tuple[RolloutAnswer, float]], tokens: int, start: Sequence[Sequence[float]] = ()
    ) -> dict[str, float]:
        """Accumulate the loss's gradient; figures over the tokens that were run."""
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
            loss = -torch.minimum(ratio * gain, held * gain).sum() / tokens
            if start:
                first = torch.tensor([one for index in part.order for one in start[index]], device=part.logprobs.device)
                away = estimate(part.logprobs, first).sum()
                loss = loss + settings.kl * away / tokens
                sums["kl"] = sums.get("kl", 0.0) + float(away.detach())
            loss.backward()
            with torch.no_grad():
                cut = (ratio * gain > held * gain).sum()
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
        """The history of rewards, and what the KL is taken to."""
        return {"clip": self.clip.state(), "anchor": self.anchor.key if self.anchor else ""}

    def load(self, state: dict[str, Any]) -> None:
        """Put `state()` back. BadInput where the run began from other weights than the policy has now."""
        if self.anchor is not None and state["anchor"] != self.anchor.key:
            raise BadInput(
                "this run began from other weights: its KL was taken to those",
                hint="go on with the model that it began with, or begin anew",
            )
        self.clip.load(state["clip"])
