"""Settings of the loops; each is part of a checkpoint's identity, except where training.py names it (docs/rl.md)."""

from __future__ import annotations

from typing import Literal

from hipwright.records import Record

Baseline = Literal["loo", "grpo", "grpo_std"]
"""Leave-one-out, the group's mean, or the group's mean with division by the standard deviation."""


class OptimSettings(Record, frozen=True, kw_only=True):
    """AdamW. learning_rate: reached after `warmup` steps; schedule: then constant, or a cosine down to a tenth."""

    learning_rate: float = 1e-5
    warmup: int = 5
    schedule: Literal["constant", "cosine"] = "constant"
    weight_decay: float = 0.0
    max_grad_norm: float = 1.0


class CurriculumSettings(Record, frozen=True, kw_only=True):
    """Problems are drawn with weight p^a (1-p)^b, where p is their decayed pass rate.

    decay: the factor of older visits at each visit. floor: the share of draws that is uniform over all problems.
    """

    a: float = 1.0
    b: float = 1.0
    decay: float = 0.7
    floor: float = 0.1


class LoopSettings(Record, frozen=True, kw_only=True):
    """What all loops have in common. max_minutes: wall time in all, over every piece of the run; None: no limit.

    micro_tokens: tokens in one forward and backward pass. checkpoint_every: steps between two checkpoints.
    """

    seed: int = 0
    max_minutes: float | None = None
    micro_tokens: int = 32768
    checkpoint_every: int
    optim: OptimSettings


class RLSettings(LoopSettings, frozen=True, kw_only=True):
    """A run of reinforcement learning, rejection fine-tuning or collecting preferences.

    steps: optimizer steps in all. prompts, samples: problems a step, and answers for each. turns: the most answers of a
    conversation, 1 to 4; stop_when_right: a correct answer ends its conversation. max_new_tokens: of one answer;
    max_prompt_tokens: of one prompt; repairs with longer prompts are left out. temperature: of sampling, and of the
    log-probabilities.
    baseline: see advantage.py. turn_discount: the factor of a later gain for each turn between.
    updates: optimizer updates on each batch (GRPO's mu), since judging takes much longer than an update.
    clip_low, clip_high: the importance ratio is clipped to [1 - clip_low, 1 + clip_high]; clip_worst: the ratio beyond
    which a token of an answer below the baseline has no gradient (gradient.py: the dual clip). kl: weight of the KL to
    the policy at the start (reference_policy.py); 0 keeps no copy of it. keep: training ends with the weights that
    sampled the last of the best so many consecutive batches (best.py); 0: with the last ones. clip_rewards: clip
    rewards beyond 1.5 standard deviations of the last 100. overlap: the next batch is sampled while answers are judged,
    by weights that are one step older.
    min_own: a correct answer whose own kernels do less of the work is left out of baseline and gradient (advantage.py).
    exemplars: the share of prompts with two scored answers. lessons: the most lessons of a prompt.
    sample_every: steps between two logged examples.
    """

    steps: int = 100
    prompts: int = 16
    samples: int = 8
    turns: int = 1
    stop_when_right: bool = True
    max_new_tokens: int = 384
    max_prompt_tokens: int = 4096
    temperature: float = 1.0
    baseline: Baseline = "loo"
    turn_discount: float = 0.4
    updates: int = 1
    clip_low: float = 0.2
    clip_high: float = 0.28
    clip_worst: float = 3.0
    kl: float = 0.0
    keep: int = 0
    clip_rewards: bool = True
    overlap: bool = True
    min_own: float = 0.0
    exemplars: float = 0.0
    lessons: int = 0
    checkpoint_every: int = 10
    sample_every: int = 10
    optim: OptimSettings = OptimSettings()
    curriculum: CurriculumSettings = CurriculumSettings()

    def __post_init__(self) -> None:
        if self.updates < 1:
            raise ValueError("updates must be 1 or more")
        if self.clip_worst <= 1 + self.clip_high:
            raise ValueError("clip_worst must be greater than 1 + clip_high")
        if self.kl < 0:
            raise ValueError("kl must not be negative")
        if self.keep < 0:
            raise ValueError("keep must not be negative")


class ImitationSettings(LoopSettings, frozen=True, kw_only=True):
    """A run of supervised learning on rows of tokens (`sft_loop`), or of DPO on pairs of them.

    steps: optimizer steps in all; None: `epochs` passes over the rows. batch_tokens: tokens in one optimizer step.
    row_tokens: the length of a packed row (a longer sequence has a row of its own). beta: DPO's weight of the
    reference. evaluate_every: steps between two calls of `evaluate`, and one after the last step.
    """

    epochs: float = 1.0
    steps: int | None = None
    batch_tokens: int = 32768
    row_tokens: int = 1024
    beta: float = 0.1
    checkpoint_every: int = 200
    log_every: int = 10
    evaluate_every: int = 200
    optim: OptimSettings = OptimSettings(learning_rate=2e-4, warmup=20, schedule="cosine", weight_decay=0.01)
