"""verl's command, hydra overrides and rows for reinforcement learning on a Ray cluster."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import msgspec
import yaml

from hipwright.train import data
from hipwright.train.launchers.command import LaunchCommand
from hipwright.train.recipe import Recipe, VerlSettings
from hipwright.train.stages.stage_work import StageWork

ROWS, AGENTS = "problems.parquet", "agents.yaml"
AGENT = "hipwright"
FINDINGS = 1024
"""Tokens of a conversation that are kept for the findings of one turn."""


def verl_command(work: StageWork) -> LaunchCommand:
    """The command that runs verl's trainer."""
    overrides = [f"{name}={_hydra(value)}" for name, value in overrides_of(work).items()]
    variables = {"RAY_ADDRESS": "auto"} if work.recipe.launch.machines > 1 else {}
    argv = (sys.executable, "-m", "verl.trainer.main_ppo", *overrides)
    files = {AGENTS: yaml.safe_dump(agents(work.recipe, unsafe=work.unsafe))} if work.recipe.verl.turns > 1 else {}
    return LaunchCommand(argv, variables, files=files, needs=("verl", "ray", work.recipe.verl.engine))


def overrides_of(work: StageWork) -> dict[str, Any]:
    """hydra's overrides of verl 0.9.1, by name. Its paths must be valid on every machine of the Ray cluster."""
    from hipwright.train.adapters import verl as adapter

    recipe, folder = work.recipe, work.folder.absolute()
    chosen, launch, rows = recipe.verl, recipe.launch, str(folder / ROWS)
    actor, rollout = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"
    reward = "reward.custom_reward_function"
    return {
        "algorithm.adv_estimator": "rloo" if chosen.baseline == "loo" else "grpo",
        "algorithm.norm_adv_by_std_in_grpo": False,
        **_mismatch(chosen),
        **_turns(chosen, folder / AGENTS),
        "data.train_files": rows,
        "data.val_files": rows,
        "data.train_batch_size": chosen.prompts,
        "data.max_prompt_length": chosen.max_prompt_tokens,
        "data.max_response_length": response_length(chosen),
        "data.filter_overlong_prompts": True,
        "actor_rollout_ref.model.path": work.model or recipe.model.name,
        "actor_rollout_ref.model.enable_gradient_checkpointing": True,
        f"{actor}.optim.lr": chosen.learning_rate,
        f"{actor}.ppo_mini_batch_size": chosen.prompts,
        f"{actor}.ppo_micro_batch_size_per_gpu": chosen.micro,
        f"{actor}.clip_ratio_low": chosen.clip_low,
        f"{actor}.clip_ratio_high": chosen.clip_high,
        f"{actor}.clip_ratio_c": chosen.clip_worst,
        f"{actor}.loss_agg_mode": "seq-mean-token-sum-norm",  # no length bias, as in dr_grpo
        f"{actor}.use_kl_loss": False,
        f"{rollout}.name": chosen.engine,
        f"{rollout}.n": chosen.samples,
        f"{rollout}.temperature": chosen.temperature,
        f"{rollout}.tensor_model_parallel_size": chosen.tensor_parallel,
        f"{rollout}.gpu_memory_utilization": chosen.gpu_memory,
        f"{rollout}.log_prob_micro_batch_size_per_gpu": chosen.micro,
        f"{reward}.path": str(Path(adapter.__file__).absolute()),
        f"{reward}.name": "compute_score",
        f"+{reward}.reward_kwargs": {"environment": environment_arguments(recipe, unsafe=work.unsafe)},
        "trainer.v1.sampler.sync_refill_failed_groups": True,  # failed groups are replaced by another prompt's
        "trainer.nnodes": launch.machines,
        "trainer.n_gpus_per_node": launch.gpus,
        "trainer.total_training_steps": chosen.steps,
        "trainer.save_freq": chosen.save_every,
        "trainer.test_freq": -1,
        "trainer.val_before_train": False,
        "trainer.logger": ["console", *(work.trackers if work.trackers is not None else ("tensorboard",))],
        "trainer.project_name": "hipwright",
        "trainer.experiment_name": folder.name,
        "trainer.default_local_dir": str(folder / "checkpoints"),
        "trainer.resume_mode": "auto" if work.resume else "disable",
        **chosen.overrides,
    }


def response_length(chosen: VerlSettings) -> int:
    """The most tokens after the prompt: all answers, and the findings between them."""
    return chosen.turns * chosen.max_new_tokens + (chosen.turns - 1) * FINDINGS


def _turns(chosen: VerlSettings, agents_file: Path) -> dict[str, Any]:
    """The agent loop of repair turns (adapters/verl_agent.py)."""
    if chosen.turns == 1:
        return {}
    agent = "actor_rollout_ref.rollout.agent"
    return {f"{agent}.agent_loop_config_path": str(agents_file), f"{agent}.default_agent_loop": AGENT}


def agents(recipe: Recipe, *, unsafe: bool) -> list[dict[str, Any]]:
    """The content of verl's file of agent loops."""
    told = {
        "name": AGENT,
        "_target_": "hipwright.train.adapters.verl_agent.RepairAgentLoop",
        "turns": recipe.verl.turns,
        "max_new_tokens": recipe.verl.max_new_tokens,
        "environment": json.loads(json.dumps(environment_arguments(recipe, unsafe=unsafe))),
    }
    return [told]


def _mismatch(chosen: VerlSettings) -> dict[str, Any]:
    """The correction of the loss by the ratio of the trainer's probabilities to the sampler's."""
    if not chosen.mismatch:
        return {}
    return {
        "algorithm.rollout_correction.rollout_is": chosen.mismatch,
        "algorithm.rollout_correction.rollout_is_threshold": chosen.mismatch_max,
        "actor_rollout_ref.rollout.calculate_log_probs": True,  # the sampler's, which the ratio needs
    }


def environment_arguments(recipe: Recipe, *, unsafe: bool) -> dict[str, Any]:
    """The `EnvironmentSettings` of the reward function (judging/settings.py), as plain types."""
    judge = {name: value for name, value in msgspec.to_builtins(recipe.judge).items() if value}
    plain = {"reward": msgspec.to_builtins(recipe.reward), "judge": judge}
    return {**plain, "unsafe": True} if unsafe else plain


HYDRA_LITERALS = ("true", "false", "null", "inf", "nan")


def _hydra(value: Any) -> str:
    """A value in hydra's override grammar. Text is quoted where it could be parsed as something else."""
    if isinstance(value, dict):
        return "{" + ",".join(f"{name}:{_hydra(one)}" for name, one in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ",".join(_hydra(one) for one in value) + "]"
    if (
        isinstance(value, str)
        and re.fullmatch(r"[A-Za-z/][A-Za-z0-9_./-]*", value)
        and value.lower() not in HYDRA_LITERALS
    ):
        return value
    if isinstance(value, str):
        return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
    return "null" if value is None else str(value)


def write_rows(work: StageWork) -> Path:
    """Writes the training problems in verl's columns; returns the file."""
    from datasets import Dataset, disable_progress_bars

    from hipwright.dataset.export.rl import ABILITY, SOURCE
    from hipwright.train.forms import ChatForm

    known = data.problems(Path(work.data), limit=work.recipe.data.problems or None)[data.TRAIN]
    form = ChatForm(None)  # messages need no tokenizer
    rows = [
        {
            "data_source": SOURCE,
            "prompt": form.messages(one),
            "ability": ABILITY,
            "reward_model": {"style": "rule", "ground_truth": one.source},
            "extra_info": {"split": one.split, "index": place, "task_name": one.name},
        }
        for place, one in enumerate(known)
    ]
    work.folder.mkdir(parents=True, exist_ok=True)
    path = work.folder / ROWS
    disable_progress_bars()
    Dataset.from_list(rows).to_parquet(path)
    return path
