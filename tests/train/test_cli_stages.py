"""`hipwright train` with a two-layer model: SFT, RL, the report, and the server."""

from __future__ import annotations

import importlib.metadata
import json
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from hipwright.errors import BadInput
from hipwright.train import hf
from hipwright.train.work import check_versions
from tests.train import fakes
from tests.train.commands import LORA, call, stage_argv

# peft and TRL call transformers by names that it is about to drop
pytestmark = pytest.mark.filterwarnings("ignore:.*will be removed in v6.*:FutureWarning")

SMALL_RL = (
    "rl.prompts=1",
    "rl.samples=2",
    "rl.max_new_tokens=6",
    "rl.turns=1",
    "policy.lora_rank=0",
    "rl.checkpoint_every=1",
    "judge.targets=['cpu','gfx942']",
)


def settings(*changes: str) -> list[str]:
    return [word for change in changes for word in ("--set", change)]


@pytest.mark.slow
def test_sft_then_rl_then_the_report(
    tmp_path: Path, small_model: Path, tasks: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """LoRA by TRL on the sample's rows, and its resume; then train/rl from that model with the real judge."""
    out = tmp_path / "run"
    changes = settings(
        "sft.max_steps=2",
        "sft.accumulate=1",
        "sft.log_every=1",
        "data.rows=3",
        "data.held_rows=1",
        "sft.evaluate_every=2",
    )
    argv = stage_argv(LORA, out / "sft", "--model", small_model, *changes)
    code, sft, err = call(capsys, *argv)
    assert code == 0, err
    assert sft["steps"] == 2 and (Path(sft["model"]) / "adapter_config.json").is_file()
    assert call(capsys, *argv)[1]["error"].endswith("already holds a training")
    again, resumed, _ = call(capsys, *argv, "--resume")
    assert (again, resumed["steps"]) == (0, 2)
    known = [json.loads(line) for line in (out / "sft" / "metrics.jsonl").read_text().splitlines()]
    assert {line["stage"] for line in known} == {"sft", "eval"}
    assert (out / "sft" / "tensorboard").is_dir(), "by default"
    assert sft["watch"] == f"tensorboard --logdir {out}/sft/tensorboard" and f"curves: {sft['watch']}" in err

    more = settings(*SMALL_RL, "rl.steps=2")
    argv = stage_argv(LORA, out / "rl", "--model", sft["model"], *more, which="rl", rows=tasks)
    code, rl, err = call(capsys, *argv)
    assert code == 0, err
    assert rl["steps"] == 2 and rl["finished"] and rl["reward"] == 0.0
    assert hf.load_model(rl["model"], dtype="float32", attention="sdpa")[0].config.num_hidden_layers == 2
    assert call(capsys, *argv)[1]["error"].endswith("already holds a training")

    for which in ("sft", "rl"):
        code, page, err = call(capsys, "train", "report", out / which)
        assert code == 0, err
        assert Path(page["page"]).read_text().startswith("<!doctype html>")


@pytest.mark.slow
def test_serve_answers_until_it_is_interrupted(tmp_path: Path, tasks: Path) -> None:
    """The command with the real judge on a port of the loopback."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    argv = [
        sys.executable,
        "-m",
        "hipwright",
        "train",
        "serve",
        "--data",
        tasks,
        "--port",
        port,
        "--target",
        "cpu",
        "--target",
        "gfx942",
        "--reward",
        "milestones",
    ]
    with (tmp_path / "stderr").open("w") as stream:
        server = subprocess.Popen([str(one) for one in argv], stderr=stream)
    try:
        url = f"http://127.0.0.1:{port}"
        first = _post(f"{url}/reset", {"problem": "row_sum", "episode_id": "e"}, patience=60.0)
        assert first["observation"]["problem"] == "row_sum"
        right = {"completion": f"```python\n{fakes.PROGRAM}\n```"}
        found = _post(f"{url}/step", {"action": right, "episode_id": "e"}, patience=0.0)
        assert found["done"] and found["reward"] >= 2.0 and found["observation"]["outcome"]["status"] == "pass"
    finally:
        server.send_signal(signal.SIGINT)
        code = server.wait(60)
    said = (tmp_path / "stderr").read_text()
    assert code in (0, 130) and "Traceback" not in said, said


def _post(url: str, body: dict[str, Any], *, patience: float) -> dict[str, Any]:
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    until = time.monotonic() + patience
    while True:
        try:
            with urllib.request.urlopen(request, timeout=120) as answer:
                return dict(json.loads(answer.read()))
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(0.3)


def test_a_trainer_of_another_version_is_one_line_of_error():
    check_versions(importlib.metadata.requires("hipwright") or ())
    check_versions(["pytest>=9999", "no-such-distribution>=2; extra == 'train'", "msgspec>=99; extra == 'llm'"])
    with pytest.raises(BadInput, match=r"training needs transformers>=99; .* is installed") as refused:
        check_versions(["transformers>=99; extra == 'train'"])
    assert refused.value.hint == "pip install 'transformers>=99'"
