"""accelerate's command and configuration file for a stage."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import msgspec
import yaml

from hipwright.train.launchers.command import SINGLE_NODE, LaunchCommand, NodeRank
from hipwright.train.stages.stage_work import WORK, StageWork

CONFIG = "accelerate.yaml"


def accelerate_command(work: StageWork, node: NodeRank) -> LaunchCommand:
    """The command that runs the stage in accelerate's processes."""
    recipe, folder = work.recipe, work.folder.absolute()
    kept = msgspec.structs.replace(work, data=str(Path(work.data).absolute()), out=str(folder), dry=False)
    needs = ["accelerate"]
    if recipe.launch.sharding == "deepspeed":
        needs.append("deepspeed")
    if work.stage in ("rl", "rft") and recipe.grpo.vllm:
        needs.append("vllm")
    files = {
        CONFIG: yaml.safe_dump(accelerate_config(work, node), sort_keys=True),
        WORK: json.dumps(msgspec.to_builtins(kept), indent=1),
    }
    argv = (
        sys.executable,
        "-m",
        "accelerate.commands.launch",
        "--config_file",
        str(folder / CONFIG),
        "-m",
        "hipwright.train.work",
        str(folder / WORK),
    )
    return LaunchCommand(argv, files=files, needs=tuple(needs))


def accelerate_config(work: StageWork, node: NodeRank = SINGLE_NODE) -> dict[str, Any]:
    """The content of accelerate's configuration file for the launch."""
    launch = work.recipe.launch
    recipe = work.recipe
    chosen = recipe.sft if work.stage == "sft" else recipe.dpo if work.stage == "dpo" else recipe.grpo
    plain: dict[str, Any] = {
        "compute_environment": "LOCAL_MACHINE",
        "distributed_type": {"none": "MULTI_GPU", "fsdp": "FSDP", "deepspeed": "DEEPSPEED"}[launch.sharding],
        "mixed_precision": "bf16",
        "num_machines": launch.machines,
        "num_processes": launch.machines * launch.gpus,
        "machine_rank": node.rank,
        "use_cpu": False,
    }
    if node.address:
        plain |= {"main_process_ip": node.address, "main_process_port": 29500, "rdzv_backend": "static"}
    if launch.sharding == "fsdp":
        plain["fsdp_config"] = {
            "fsdp_version": 2,
            "fsdp_auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
            "fsdp_reshard_after_forward": True,
            "fsdp_cpu_ram_efficient_loading": True,  # one process reads the weights and sends each its shard
            "fsdp_activation_checkpointing": chosen.checkpoint_activations,
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
