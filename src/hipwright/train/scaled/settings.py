"""Settings of GRPO by TRL."""

from __future__ import annotations

from typing import Literal

from hipwright.train.hf import TrlSettings
from hipwright.train.rl.settings import Baseline, CurriculumSettings

Mismatch = Literal["", "token_truncate", "token_mask", "sequence_truncate", "sequence_mask"]


class GrpoSettings(TrlSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of GRPO by TRL. steps: updates; batch counts conversations.

    samples: conversations of one prompt, a group; batch * accumulate is a multiple of it. update: "gradient", the
    clipped policy gradient, or "rejection", which imitates the best correct answer of each group. loss, clip_low,
    clip_high: as in TRL; clip_worst: TRL's delta. baseline, turn_discount, turns, stop_when_right, clip_rewards,
    exemplars, lessons, min_own, max_new_tokens, max_prompt_tokens, curriculum: as in RLSettings (rl/settings.py); a
    prompt's tokens include earlier turns. mismatch: how the ratio of the trainer's probability to vLLM's corrects the
    loss, as in TRL, clipped or masked beyond mismatch_max; "" for no correction. vllm: "colocate" in the training
    processes, "server" for `trl vllm-serve`, "" for generation by transformers. vllm_memory: share of a GPU.
    """

    steps: int = 200
    update: Literal["gradient", "rejection"] = "gradient"
    learning_rate: float = 1e-6
    batch: int = 8
    samples: int = 8
    turns: int = 1
    stop_when_right: bool = True
    max_new_tokens: int = 4096
    max_prompt_tokens: int = 8192
    temperature: float = 1.0
    loss: Literal["dr_grpo", "dapo", "grpo", "bnpo"] = "dr_grpo"
    baseline: Baseline = "loo"
    turn_discount: float = 0.4
    clip_low: float = 0.2
    clip_high: float = 0.28
    clip_worst: float = 3.0
    clip_rewards: bool = True
    exemplars: float = 0.0
    lessons: int = 0
    min_own: float = 0.0
    curriculum: CurriculumSettings = CurriculumSettings()
    mismatch: Mismatch = "token_truncate"
    mismatch_max: float = 2.0
    vllm: Literal["", "colocate", "server"] = ""
    vllm_memory: float = 0.3
    save_every: int = 20
    log_every: int = 1
