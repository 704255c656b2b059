"""Launches a recipe's stage: in this process, by accelerate, or by verl.

`launch_command` gives the command, `launch_stage` runs it.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import msgspec
import yaml

from hipwright.errors import BadInput, InfrastructureError
from hipwright.train import data
from hipwright.train.recipe import Recipe
from hipwright.train.work import DONE, WORK, Say, StageWork, run_stage

ACCELERATE, ROWS = "accelerate.yaml", "problems.parquet"


@dataclass(frozen=True)
class NodeRank:
    """This machine's rank among several, from 0, and the address of the machine with rank 0."""

    rank: int = 0
    address: str = ""


@dataclass(frozen=True)
class LaunchCommand:
    """A command line with further environment variables.

    files: texts by name, written to the run's folder first. needs: packages that it requires.
    """

    argv: tuple[str, ...]
    variables: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    needs: tuple[str, ...] = ()

    def shell(self) -> str:
        """The command as a line of shell."""
        return " ".join([*(f"{name}={value}" for name, value in self.variables.items()), shlex.join(self.argv)])


def launch_command(work: StageWork, place: NodeRank = NodeRank()) -> LaunchCommand | None:
    """The command that runs the stage; None where this process runs it."""
    recipe = work.recipe
    by = recipe.launch.sft if work.stage == "sft" else recipe.launch.rl
    if by == "here":
        return None
    return _accelerate(work, place) if by == "accelerate" else _verl(work)


def launch_stage(work: StageWork, say: Say, place: NodeRank = NodeRank()) -> dict[str, Any]:
    """Runs the stage to its end; returns its figures, with the command line as `command`.

    Raises BadInput where a GPU, a package or the model is missing, InfrastructureError where the command fails.
    """
    command = launch_command(work, place)
    if work.dry:
        return {**_dry_run(work, command, say), "command": command.shell() if command else None}
    _require(work, command, place)
    if command is None:
        return {**run_stage(work, say), "command": None}
    _write_inputs(work, command)
    say(command.shell())
    done = subprocess.run(command.argv, env={**os.environ, **command.variables}, stdout=sys.stderr, check=False)
    if done.returncode:
        hint = "what the processes said stands above; --resume goes on from the last checkpoint"
        if done.returncode == BadInput.exit_code:
            raise BadInput("a process of the training refused its input", hint=hint)
        raise InfrastructureError(f"the training ended with exit code {done.returncode}", hint=hint)
    result = work.folder / DONE
    figures = json.loads(result.read_bytes()) if result.is_file() else {"stage": work.stage}
    return {**figures, "command": command.shell()}


def _write_inputs(work: StageWork, command: LaunchCommand) -> None:
    work.folder.mkdir(parents=True, exist_ok=True)
    (work.folder / DONE).unlink(missing_ok=True)
    for name, text in command.files.items():
        (work.folder / name).write_text(text, encoding="utf-8")
    if command.needs and command.needs[0] == "verl":
        write_verl_rows(work)


# ---------------------------------------------------------------- requirements


def _require(work: StageWork, command: LaunchCommand | None, place: NodeRank) -> None:
    """Raises BadInput where a package, a GPU, the address of the first machine or the model is missing."""
    recipe = work.recipe
    for name in command.needs if command else ():
        if find_spec(name) is None:
            raise BadInput(f"recipe {recipe.name} needs {name}, which is not installed", hint=_install_hint(name))
    if command is None:
        return
    import torch

    found = torch.cuda.device_count()
    if found < recipe.launch.gpus:
        raise BadInput(
            f"recipe {recipe.name} needs {recipe.launch.gpus} GPUs here; this machine has {found}",
            hint="--dry-run needs none; --set launch.gpus=N for fewer",
        )
    if recipe.launch.machines > 1 and command.needs[0] != "verl" and not place.address:
        raise BadInput(
            f"recipe {recipe.name} is for {recipe.launch.machines} machines",
            hint="--main-address HOST and --machine-rank N on each, or --set launch.machines=1",
        )
    _check_model_loads(work.model or recipe.model.name)


def _install_hint(name: str) -> str:
    if name == "verl":
        return "pip install 'verl[vllm]==0.9.1' in an environment of its own: it needs transformers below 5.11"
    return f"pip install {name}; --dry-run needs it not"


def _check_model_loads(model: str) -> None:
    """Raises BadInput for a model that cannot be loaded, before several processes are started."""
    from transformers import AutoConfig

    try:
        AutoConfig.from_pretrained(model)
    except (OSError, ValueError) as error:
        first = str(error).strip().splitlines()[0]
        hint = "--model FOLDER with the weights, or a network that reaches the Hub"
        raise BadInput(f"the model {model!r} cannot be loaded: {first}", hint=hint) from error


# ---------------------------------------------------------------- accelerate


def _accelerate(work: StageWork, place: NodeRank) -> LaunchCommand:
    recipe, folder = work.recipe, work.folder.absolute()
    kept = msgspec.structs.replace(work, data=str(Path(work.data).absolute()), out=str(folder))
    needs = ["accelerate"]
    if recipe.launch.sharding == "deepspeed":
        needs.append("deepspeed")
    if work.stage == "rl" and recipe.grpo.vllm:
        needs.append("vllm")
    files = {
        ACCELERATE: yaml.safe_dump(accelerate_config(work, place), sort_keys=True),
        WORK: json.dumps(msgspec.to_builtins(kept), indent=1),
    }
    argv = (
        sys.executable,
        "-m",
        "accelerate.commands.launch",
        "--config_file",
        str(folder / ACCELERATE),
        "-m",
        "hipwright.train.work",
        str(folder / WORK),
    )
    return LaunchCommand(argv, files=files, needs=tuple(needs))


def accelerate_config(work: StageWork, place: NodeRank = NodeRank()) -> dict[str, Any]:
    """The content of accelerate's configuration file for the launch."""
    launch = work.recipe.launch
    checkpointed = (work.recipe.sft if work.stage == "sft" else work.recipe.grpo).checkpoint_activations
    plain: dict[str, Any] = {
        "compute_environment": "LOCAL_MACHINE",
        "distributed_type": {"none": "MULTI_GPU", "fsdp": "FSDP", "deepspeed": "DEEPSPEED"}[launch.sharding],
        "mixed_precision": "bf16",
        "num_machines": launch.machines,
        "num_processes": launch.machines * launch.gpus,
        "machine_rank": place.rank,
        "use_cpu": False,
    }
    if place.address:
        plain |= {"main_process_ip": place.address, "main_process_port": 29500, "rdzv_backend": "static"}
    if launch.sharding == "fsdp":
        plain["fsdp_config"] = {
            "fsdp_version": 2,
            "fsdp_auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
            "fsdp_reshard_after_forward": True,
            "fsdp_cpu_ram_efficient_loading": True,  # one process reads the weights and sends each its shard
            "fsdp_activation_checkpointing": checkpointed,
            "fsdp_offload_params": False,
            "fsdp_state_dict_type": "FULL_STATE_DICT",  # checkpoints that transformers loads
        }
    if launch.sharding == "deepspeed":
        plain["deepspeed_config"] = {
            "zero_stage": 3,
            "zero3_init_flag": True,
            "zero3_save_16bit_model": True,
            "offload_optimizer_device": "none",
            "offload_param_device": "none",
        }
    return plain


# ---------------------------------------------------------------- verl


def _verl(work: StageWork) -> LaunchCommand:
    overrides = [f"{name}={_hydra(value)}" for name, value in verl_overrides(work).items()]
    variables = {"RAY_ADDRESS": "auto"} if work.recipe.launch.machines > 1 else {}
    argv = (sys.executable, "-m", "verl.trainer.main_ppo", *overrides)
    return LaunchCommand(argv, variables, needs=("verl", "ray", work.recipe.verl.engine))


def verl_overrides(work: StageWork) -> dict[str, Any]:
    """hydra's overrides of verl 0.9.1, by name. Its paths must be valid on every machine of the Ray cluster."""
    from hipwright.train.adapters import verl as adapter

    recipe, folder = work.recipe, work.folder.absolute()
    chosen, launch, rows = recipe.verl, recipe.launch, str(folder / ROWS)
    actor, rollout = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"
    reward = "reward.custom_reward_function"
    return {
        "algorithm.adv_estimator": "grpo",
        "algorithm.norm_adv_by_std_in_grpo": False,
        "data.train_files": rows,
        "data.val_files": rows,
        "data.train_batch_size": chosen.prompts,
        "data.max_prompt_length": chosen.max_prompt_tokens,
        "data.max_response_length": chosen.max_new_tokens,
        "data.filter_overlong_prompts": True,
        "actor_rollout_ref.model.path": work.model or recipe.model.name,
        "actor_rollout_ref.model.enable_gradient_checkpointing": True,
        f"{actor}.optim.lr": chosen.learning_rate,
        f"{actor}.ppo_mini_batch_size": chosen.prompts,
        f"{actor}.ppo_micro_batch_size_per_gpu": chosen.micro,
        f"{actor}.clip_ratio_low": chosen.clip_low,
        f"{actor}.clip_ratio_high": chosen.clip_high,
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


def write_verl_rows(work: StageWork) -> Path:
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


# ---------------------------------------------------------------- dry runs


def _dry_run(work: StageWork, command: LaunchCommand | None, say: Say) -> dict[str, Any]:
    """Writes the launcher's inputs and reads them back, then trains a random model for one update."""
    checked: dict[str, Any] = {}
    if command is not None:
        _write_inputs(work, command)
        if ACCELERATE in command.files:
            checked["processes"] = _read_process_count(work.folder / ACCELERATE)
        else:
            checked["rows"] = _score_empty_answer(work)
    return {**run_stage(work, say), **checked}


def _read_process_count(path: Path) -> int:
    """The number of processes in a configuration file, read by accelerate."""
    from accelerate.commands.config.config_args import load_config_from_file

    return int(load_config_from_file(str(path)).num_processes)


def _score_empty_answer(work: StageWork) -> int:
    """Calls verl's reward function with an empty answer to the first row; returns the number of rows."""
    from datasets import Dataset

    from hipwright.train.adapters.verl import compute_score

    rows = Dataset.from_parquet(str(work.folder / ROWS))
    row = rows[0]
    kwargs = verl_overrides(work)["+reward.custom_reward_function.reward_kwargs"]
    found = compute_score(row["data_source"], "", row["reward_model"]["ground_truth"], row["extra_info"], **kwargs)
    if found["score"] != 0.0:
        raise InfrastructureError(f"an empty answer got the reward {found['score']}")
    return len(rows)
