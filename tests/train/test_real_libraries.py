"""The adapters against the real pinned libraries, each in its own environment (venvs.py)."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from hipwright.train import data, launch, recipe
from hipwright.train.launchers import verl
from hipwright.train.stages.stage_work import StageWork
from tests.train import fakes, venvs
from tests.train.test_adapters import served

REAL = Path(__file__).parent / "real"
SAMPLE = venvs.REPO / "data" / "sample"

pytestmark = [pytest.mark.exhaustive, pytest.mark.timeout(1800)]


def last_line(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    assert done.returncode == 0, done.stderr[-3000:]
    return dict(json.loads(done.stdout.splitlines()[-1]))


def test_verifiers_loads_the_taskset_and_scores_traces() -> None:
    interpreter = venvs.python("verifiers", venvs.VERIFIERS)
    told = last_line(venvs.run(interpreter, REAL / "verifiers_taskset.py", SAMPLE))
    known = data.problems(SAMPLE)["train"]
    assert told["count"] == len(known) and told["names"] == [one.name for one in known[:3]]
    assert told["type"] == "ProgramTask" and told["keys"] == 3 and told["roundtrip"]
    fast, wrong, broken = (told["scores"][word] for word in ("fast", "wrong", "broken"))
    assert fast["rewards"] == {"program": 3.0} and fast["metrics"]["fast_1"] == 1.0
    assert wrong["rewards"] == {"program": 1.0} and wrong["metrics"]["correct"] == 0.0
    assert broken["rewards"] == {"program": None}, "not zero"
    assert "Unscorable" in broken["error"] and "fell off the bus" in broken["error"]


def test_verl_takes_the_overrides_and_leaves_the_unscorable_out(tmp_path: Path) -> None:
    chosen = recipe.load("qwen2.5-coder-14b-verl", ["reward.name=milestones", "verl.samples=4", "verl.turns=3"])
    work = StageWork(stage="rl", recipe=chosen, data=str(SAMPLE), out=str(tmp_path / "run"))
    command = launch.launch_command(work)
    assert command is not None
    launch._write_inputs(work, command)
    overrides = tmp_path / "overrides.json"
    overrides.write_text(json.dumps(command.argv[3:]))
    interpreter = venvs.python("verl", venvs.VERL)
    told = last_line(venvs.run(interpreter, REAL / "verl_reward.py", overrides))
    assert told["version"].startswith("0.9.1")
    assert told["scores"] == {"fast": 3.0, "wrong": 1.0, "slow": 2.0}
    assert len(told["errors"]) == 1 and told["errors"][0].startswith("VerlUnscorable: row_sum: device")
    assert told["advantages"] == pytest.approx({"fast": 1.5, "wrong": -1.5, "slow": 0.0}), "of the three that are left"
    assert told["correction"] == ["token", 2.0] and told["worst"] == 3.0
    repaired, twice, once, unjudged, dropped = told["conversations"].values()
    assert (repaired["spans"], repaired["reward"], repaired["before"]) == ("101", 3.0, 0.0)
    assert "off by one" in repaired["findings"] and repaired["max_tokens"] == 4096
    assert repaired["second_prompt"].startswith(repaired["first_prompt"]) and "off by one" in repaired["second_prompt"]
    assert (twice["spans"], twice["reward"]) == ("10101", 3.0)
    assert (once["spans"], once["findings"], once["reward"]) == ("1", "", 3.0), "a correct answer ends a conversation"
    assert (unjudged["spans"], unjudged["reward"]) == ("1", 1.0), "what has no verdict is left out"
    assert dropped["error"].startswith("VerlUnscorable: row_sum: device")
    assert (told["model"], told["samples"]) == ("Qwen/Qwen2.5-Coder-14B-Instruct", 4)
    assert (told["machines"], told["refill"], told["resume"]) == (2, True, "disable")
    assert told["files"] == str(tmp_path / "run" / verl.ROWS) and told["logger"] == ["console", "tensorboard"]


def test_openenv_speaks_to_the_server() -> None:
    interpreter = venvs.python("openenv", venvs.OPENENV, whole=True)
    answers = json.dumps([fakes.answer("broken"), fakes.answer("fast")])
    with served(fakes.environment("milestones", faults=2)) as url:
        told = last_line(venvs.run(interpreter, REAL / "openenv_client.py", url, answers))
    assert told["http"] is None and told["problem"] == "row_sum"
    assert told["rewards"] == [None, 3.0] and told["dones"] == [False, True]
    assert told["state"]["step_count"] == 1
