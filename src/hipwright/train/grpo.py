"""GRPO by TRL, for models that need more than one GPU; rl/loop.py serves one GPU.

The algorithm is that of train/rl (scaled/): leave-one-out by turn, repairs, exemplars, lessons, clipping, curriculum.
An unscorable answer is in no baseline and no gradient. Each group is generated and judged within one process.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from hipwright.errors import BadInput
from hipwright.train import hf
from hipwright.train.records import TrainingProblem
from hipwright.train.scaled.settings import GrpoSettings
from hipwright.train.scaled.trainer import STATE, algorithm_trainer
from hipwright.train.step_times import StepTimes

if TYPE_CHECKING:
    from hipwright.train.environment import Environment
    from hipwright.train.rl.training import Metrics

STAGE = "rl"


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
    hf.silence_libraries()
    _check_problem_count(len(problems), settings)
    if not resume:
        hf.refuse_used(folder)
    found = run_fingerprint(problems, settings)
    point = hf.resume_point(folder, found, allow_device_change=allow_device_change)
    times, arguments = StepTimes(folder), trl_arguments(settings, folder)
    trainer = algorithm_trainer(model, tokenizer, problems, environment, settings, arguments, log, times=times)
    if point is not None:
        trainer.algorithm.load(json.loads((point / STATE).read_bytes()))
    hf.attach_callback(
        trainer,
        hf.trainer_callback(STAGE, log, found, lambda step, _: times.step(step, trainer.state.num_input_tokens_seen)),
    )
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


def for_stage(settings: GrpoSettings, stage: str) -> GrpoSettings:
    """The settings of rl unchanged, and those of rft with the update "rejection"."""
    return msgspec.structs.replace(settings, update="rejection") if stage == "rft" else settings


def mismatch_arguments(settings: GrpoSettings) -> dict[str, Any]:
    """GRPOConfig's arguments of the correction by the ratio of the trainer's probabilities to vLLM's."""
    if not settings.mismatch:
        return {"vllm_importance_sampling_correction": False}
    return {
        "vllm_importance_sampling_correction": True,
        "vllm_importance_sampling_mode": settings.mismatch,
        "vllm_importance_sampling_clip_max": settings.mismatch_max,
    }


def trl_arguments(settings: GrpoSettings, folder: Path) -> Any:
    """The GRPOConfig of the settings. Raises BadInput where vLLM is required but not installed."""
    from trl import GRPOConfig

    engine = {}
    if settings.vllm:
        if find_spec("vllm") is None:
            raise BadInput("vLLM is not installed", hint="--set grpo.vllm='' generates by transformers")
        engine = {
            "vllm_mode": settings.vllm,
            "vllm_gpu_memory_utilization": settings.vllm_memory,
            "vllm_max_model_length": settings.max_prompt_tokens + settings.max_new_tokens,
        }
    return GRPOConfig(
        max_steps=settings.steps,
        num_generations=settings.samples,
        max_completion_length=settings.max_new_tokens,
        temperature=settings.temperature,
        loss_type=settings.loss,
        epsilon=settings.clip_low,
        epsilon_high=settings.clip_high,
        delta=settings.clip_worst,
        scale_rewards="none",
        beta=0.0,  # no reference model
        use_vllm=bool(settings.vllm),
        **mismatch_arguments(settings),
        **engine,
        **settings.common_arguments(folder),
    )
