"""Launches a recipe's stage: in this process, by accelerate, or by verl.

`launch_command` gives the command, `launch_stage` runs it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import msgspec

from hipwright.errors import BadInput, InfrastructureError
from hipwright.train.launchers import accelerate, verl
from hipwright.train.launchers.command import SINGLE_NODE, LaunchCommand, NodeRank
from hipwright.train.sharded import shard_figures
from hipwright.train.stages.stage_work import DONE, Say, StageWork
from hipwright.train.work import run_stage


def launch_command(work: StageWork, node: NodeRank = SINGLE_NODE) -> LaunchCommand | None:
    """The command that runs the stage; None where this process runs it."""
    launcher = work.launcher
    if launcher == "here":
        return None
    if launcher == "verl" and work.stage == "rft":
        raise BadInput(
            f"recipe {work.recipe.name} reinforces by verl, which has no rejection fine-tuning",
            hint="--set launch.rl=accelerate runs it by TRL, --set launch.rl=here on one GPU",
        )
    return accelerate.accelerate_command(work, node) if launcher == "accelerate" else verl.verl_command(work)


def launch_stage(work: StageWork, say: Say, node: NodeRank = SINGLE_NODE) -> dict[str, Any]:
    """Runs the stage to its end; returns its figures, with the command line as `command`.

    Raises BadInput where a GPU, a package or the model is missing, InfrastructureError where the command fails.
    """
    command = launch_command(work, node)
    if work.dry:
        return {**_dry_run(work, command, say), "command": command.shell() if command else None}
    _require(work, command, node)
    if command is None:
        return {**run_stage(work, say), "command": None}
    _write_inputs(work, command)
    (work.folder / DONE).unlink(missing_ok=True)
    say(command.shell())
    done = subprocess.run(command.argv, env={**os.environ, **command.variables}, stdout=sys.stderr, check=False)
    if done.returncode:
        hint = "the output of the processes is above; --resume continues from the last checkpoint"
        if done.returncode == BadInput.exit_code:
            raise BadInput("a process of the training refused its input", hint=hint)
        raise InfrastructureError(f"the training ended with exit code {done.returncode}", hint=hint)
    result = work.folder / DONE
    figures = json.loads(result.read_bytes()) if result.is_file() else {"stage": work.stage}
    return {**figures, "command": command.shell()}


def _write_inputs(work: StageWork, command: LaunchCommand) -> None:
    work.folder.mkdir(parents=True, exist_ok=True)
    for name, text in command.files.items():
        (work.folder / name).write_text(text, encoding="utf-8")
    if command.needs and command.needs[0] == "verl":
        verl.write_rows(work)


# ---------------------------------------------------------------- requirements


def _require(work: StageWork, command: LaunchCommand | None, node: NodeRank) -> None:
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
    if recipe.launch.machines > 1 and command.needs[0] != "verl" and not node.address:
        raise BadInput(
            f"recipe {recipe.name} is for {recipe.launch.machines} machines",
            hint="--main-address HOST and --machine-rank N on each, or --set launch.machines=1",
        )
    _check_model_loads(work.model or recipe.model.name)


def _install_hint(name: str) -> str:
    if name == "verl":
        return "pip install 'verl[vllm]==0.9.1' in an environment of its own: it needs transformers below 5.11"
    return f"pip install {name}; --dry-run does not need it"


def _check_model_loads(model: str) -> None:
    """Raises BadInput for a model that cannot be loaded, before several processes are started."""
    from transformers import AutoConfig

    try:
        AutoConfig.from_pretrained(model)
    except (OSError, ValueError) as error:
        first = str(error).strip().splitlines()[0]
        hint = "--model FOLDER with the weights, or a network that reaches the Hub"
        raise BadInput(f"the model {model!r} cannot be loaded: {first}", hint=hint) from error


# ---------------------------------------------------------------- dry runs


def _dry_run(work: StageWork, command: LaunchCommand | None, say: Say) -> dict[str, Any]:
    """Writes the launcher's inputs and reads them back, builds the real model on meta devices, and trains a random
    one for an update in a temporary folder.

    The launcher's inputs stay in the stage's folder, so that the command that is printed runs.
    """
    checked: dict[str, Any] = {}
    if command is not None:
        _write_inputs(work, command)
        if accelerate.CONFIG in command.files:
            checked["processes"] = _read_process_count(work.folder / accelerate.CONFIG)
        else:
            checked["rows"] = _score_empty_answer(work)
    checked["real_model"] = shard_figures(work.recipe, work.stage, work.model)
    with tempfile.TemporaryDirectory(prefix="hipwright-dry-") as place:
        done = run_stage(msgspec.structs.replace(work, out=place), say)
    return {**done, **checked}


def _read_process_count(path: Path) -> int:
    """The number of processes in a configuration file, read by accelerate."""
    from accelerate.commands.config.config_args import load_config_from_file

    return int(load_config_from_file(str(path)).num_processes)


def _score_empty_answer(work: StageWork) -> int:
    """Calls verl's reward function with an empty answer to the first row; returns the number of rows."""
    from datasets import Dataset

    from hipwright.train.adapters.verl import compute_score

    rows = Dataset.from_parquet(str(work.folder / verl.ROWS))
    row = rows[0]
    kwargs = verl.overrides_of(work)["+reward.custom_reward_function.reward_kwargs"]
    found = compute_score(row["data_source"], "", row["reward_model"]["ground_truth"], row["extra_info"], **kwargs)
    if found["score"] != 0.0:
        raise InfrastructureError(f"an empty answer got the reward {found['score']}")
    return len(rows)
