"""Two processes of accelerate on the CPU: the launch of an 8-GPU recipe."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from hipwright.train import hf, launch, recipe
from hipwright.train.launchers import accelerate
from hipwright.train.stages import stage_work
from tests.train.commands import FSDP, SAMPLE

CHANGES = [
    "sft.max_steps=2",
    "sft.accumulate=1",
    "sft.evaluate_every=0",
    "sft.log_every=1",
    "sft.save_every=1",
    "data.rows=4",
    "data.held_rows=1",
    "dpo.max_steps=2",
    "dpo.accumulate=1",
    "dpo.evaluate_every=0",
    "dpo.log_every=1",
    "dpo.save_every=1",
    "grpo.steps=3",
    "grpo.turns=2",
    "grpo.lessons=2",
    "grpo.save_every=1",
    "grpo.batch=2",
    "grpo.accumulate=1",
    "grpo.samples=2",
    "grpo.max_new_tokens=5",
    "grpo.vllm=",
    "judge.targets=['cpu','gfx942']",
]


def run(wanted: stage_work.StageWork) -> None:
    """Launches the stage in two processes on the CPU."""
    command = launch.launch_command(wanted)
    assert command is not None
    launch._write_inputs(wanted, command)
    config = accelerate.accelerate_config(wanted) | {"num_processes": 2, "mixed_precision": "no"}
    (wanted.folder / accelerate.CONFIG).write_text(yaml.safe_dump(config))
    variables = {**os.environ, "ACCELERATE_USE_CPU": "true", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command.argv, env=variables, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-9000:]


def logged(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.exhaustive
@pytest.mark.parametrize("sharding", ["none", "fsdp"])
@pytest.mark.parametrize("which", ["sft", "dpo", "rl"])
def test_two_processes_write_one_log_and_one_model(
    tmp_path: Path, small_model: Path, tasks: Path, which: recipe.Stage, sharding: str
) -> None:
    wanted = stage_work.StageWork(
        stage=which,
        recipe=recipe.load(FSDP, [f"launch.sharding={sharding}", *CHANGES]),
        data=str(tasks if which == "rl" else SAMPLE),
        out=str(tmp_path / "run"),
        model=str(small_model),
        trackers=(),
    )
    run(wanted)
    steps = [1, 2, 3] if which == "rl" else [1, 2]
    assert json.loads((wanted.folder / stage_work.DONE).read_text())["steps"] == len(steps)
    lines = logged(wanted.folder)
    assert [line["step"] for line in lines if line["stage"] == which] == steps
    assert (wanted.folder / hf.FINAL / "model.safetensors").is_file()
    marker = json.loads(next(iter(wanted.folder.glob("checkpoint-*/whole.json"))).read_text())
    assert marker["processes"] == 2, "a resume with another number of processes is refused"
    if sharding == "fsdp":
        shutil.rmtree(wanted.folder / f"checkpoint-{len(steps)}")
        run(msgspec.structs.replace(wanted, resume=True))
        for before, after in zip(lines, logged(wanted.folder), strict=True):
            assert after["values"] == pytest.approx(before["values"], rel=1e-5), "weights and optimizer are restored"
