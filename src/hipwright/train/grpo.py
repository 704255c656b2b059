"""GRPO by TRL, for models that need more than one GPU; rl/loop.py serves one GPU.

The reward is the environment's, through adapters/trl.py. An unscorable answer has reward None, which TRL 1.16 leaves
out of baseline and gradient. Each group is generated and judged within one process.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from hipwright.errors import BadInput
from hipwright.train import hf
from hipwright.train.records import TrainingProblem

if TYPE_CHECKING:
    from hipwright.train.environment import Environment
    from hipwright.train.rl.training import Metrics

STAGE = "rl"


class GrpoSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of GRPO by TRL. steps: updates; batch: answers a device and pass; accumulate: passes an update.

    samples: answers of one prompt, a group; batch * accumulate is a multiple of it. loss, clip_low, clip_high: as in
    TRL; the advantage is the reward less the group's mean, not divided by its deviation. vllm: "colocate" in the
    training processes, "server" for `trl vllm-serve`, "" for generation by transformers. vllm_memory: share of a GPU.
    """

    steps: int = 200
    learning_rate: float = 1e-6
    warmup: float = 0.03
    batch: int = 8
    accumulate: int = 8
    samples: int = 8
    max_new_tokens: int = 4096
    temperature: float = 1.0
    loss: Literal["dr_grpo", "dapo", "grpo", "bnpo"] = "dr_grpo"
    clip_low: float = 0.2
    clip_high: float = 0.28
    vllm: Literal["", "colocate", "server"] = ""
    vllm_memory: float = 0.3
    lora_rank: int = 0
    lora_alpha: int = 32
    checkpoint_activations: bool = True
    save_every: int = 20
    log_every: int = 1
    seed: int = 0

    @property
    def lora(self) -> hf.Lora:
        """The settings of the adapters."""
        return hf.Lora(self.lora_rank, self.lora_alpha, 0.0)


@dataclass(frozen=True)
class GrpoResult:
    """A finished training. folder: of the model and its tokenizer; steps: updates in all; reward: the last mean."""

    folder: Path
    steps: int
    reward: float | None


def train_grpo(
    model: Any,
    tokenizer: Any,
    problems: Sequence[TrainingProblem],
    environment: Environment,
    settings: GrpoSettings,
    folder: Path,
    log: Metrics | None,
    *,
    resume: bool = False,
    allow_device_change: bool = False,
) -> GrpoResult:
    """Trains a loaded model on the problems' rewards. log: None in all processes but the main one.

    Raises BadInput as `train_sft` does, for too few problems, and where vLLM is required but not installed.
    """
    from trl import GRPOTrainer

    from hipwright.train.adapters.trl import TrlReward, prompt_dataset

    hf.silence_libraries()
    _check_problem_count(len(problems), settings)
    if not resume:
        hf.refuse_used(folder)
    found = run_fingerprint(problems, settings)
    point = hf.resume_point(folder, found, allow_device_change=allow_device_change)
    trainer = GRPOTrainer(
        model=model,
        reward_funcs=TrlReward(environment, problems, log),
        args=_arguments(settings, folder),
        train_dataset=prompt_dataset(problems, tokenizer),
        processing_class=tokenizer,
        peft_config=settings.lora.config(),
    )
    hf.attach_callback(trainer, hf.trainer_callback(STAGE, log, found))
    trainer.train(resume_from_checkpoint=str(point) if point is not None else None)
    trainer.save_model(str(folder / hf.FINAL))
    if trainer.is_world_process_zero():
        tokenizer.save_pretrained(folder / hf.FINAL)
    rewards = [one["reward"] for one in trainer.state.log_history if "reward" in one]
    return GrpoResult(folder / hf.FINAL, trainer.state.global_step, rewards[-1] if rewards else None)


def _check_problem_count(problems: int, settings: GrpoSettings) -> None:
    """Raises BadInput for fewer problems than an update takes, with which TRL would end at once without a message."""
    processes = int(os.environ.get("WORLD_SIZE", "1"))
    needed = processes * settings.batch * settings.accumulate // settings.samples
    if problems < needed:
        raise BadInput(
            f"an update takes {needed} problems, and there are {problems}", hint="--set grpo.accumulate=... for fewer"
        )


def run_fingerprint(problems: Sequence[TrainingProblem], settings: GrpoSettings) -> dict[str, Any]:
    """The fingerprint that a resumed training must match."""
    return hf.fingerprint(msgspec.to_builtins(settings), hf.digest([one.to_dict() for one in problems]))


def _arguments(settings: GrpoSettings, folder: Path) -> Any:
    from trl import GRPOConfig

    engine = {}
    if settings.vllm:
        if find_spec("vllm") is None:
            raise BadInput("vLLM is not installed", hint="--set grpo.vllm='' generates by transformers")
        engine = {"vllm_mode": settings.vllm, "vllm_gpu_memory_utilization": settings.vllm_memory}
    return GRPOConfig(
        max_steps=settings.steps,
        learning_rate=settings.learning_rate,
        warmup_steps=settings.warmup,  # below 1: a share of all steps
        per_device_train_batch_size=settings.batch,
        gradient_accumulation_steps=settings.accumulate,
        num_generations=settings.samples,
        max_completion_length=settings.max_new_tokens,
        temperature=settings.temperature,
        loss_type=settings.loss,
        epsilon=settings.clip_low,
        epsilon_high=settings.clip_high,
        scale_rewards="none",
        beta=0.0,  # no reference model
        use_vllm=bool(settings.vllm),
        **engine,
        **hf.common_arguments(
            folder,
            seed=settings.seed,
            checkpoint_activations=settings.checkpoint_activations,
            save_every=settings.save_every,
            log_every=settings.log_every,
        ),
    )
