"""`hipwright train`: one line for bad input, dry runs of every recipe, and a small training for real."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from hipwright.cli.main import main
from hipwright.train import hf, recipe, tiny, work
from tests.train import fakes

SAMPLE = Path(__file__).parents[2] / "data" / "sample"
LORA, FSDP = "qwen2.5-coder-7b-lora-1gpu", "qwen2.5-coder-14b-8gpu"

# peft and TRL call transformers by names that it is about to drop
pytestmark = pytest.mark.filterwarnings("ignore:.*will be removed in v6.*:FutureWarning")


def told(capsys: pytest.CaptureFixture[str], *argv: object) -> tuple[int, dict[str, Any], str]:
    """(exit code, the one JSON object on stdout, stderr)."""
    code = main([*map(str, argv), "--json"])
    out, err = capsys.readouterr()
    return code, json.loads(out), err


def stage(name: str, out: Path, *more: object, which: str = "sft", rows: Path = SAMPLE) -> list[object]:
    return ["train", which, "--recipe", name, "--data", rows, "--out", out, *more]


# ---------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["train", "sft", "--recipe", LORA], "--data"),
        (stage("qwen2.5-coder-7b-lora", Path("out")), "no recipe 'qwen2.5-coder-7b-lora'"),
        (stage(LORA, Path("out"), "--set", "sft.epoch=1"), "unknown name sft.epoch"),
        (stage(LORA, Path("out"), "--set", "epochs"), "not of the form"),
        (stage(LORA, Path("out"), rows=Path("nowhere")), "no such folder of data"),
        (stage(LORA, Path("/proc/nowhere")), "cannot write to /proc/nowhere"),
        (stage(LORA, Path("out"), "--machine-rank", "1"), "--machine-rank without --main-address"),
        (stage(LORA, Path("out"), "--set", "model.name=/nowhere"), "the model '/nowhere' cannot be loaded"),
        (stage(FSDP, Path("out")), "needs 8 GPUs here"),
        (stage(FSDP, Path("out"), which="rl"), "needs vllm"),
        (["train", "mini", "--out", "out", "--target", "tpu"], "no target 'tpu'"),
        (["train", "mini", "--out", "out", "--target", "cpu", "--set", "seed=1"], "unknown name seed"),
        (["train", "report", "nowhere"], "no such folder: nowhere"),
        (["train", "serve", "--data", "nowhere"], "no such folder of data"),
        (["train", "serve", "--data", SAMPLE, "--split", "holdout"], "no split 'holdout'"),
        (["train", "serve", "--data", SAMPLE, "--target", "cuda"], "no NVIDIA GPU here"),
        (["train", "dance"], "dance"),
    ],
    ids=lambda value: value[:30] if isinstance(value, str) else None,
)
def test_bad_input_is_one_line_and_exit_2(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], argv: list[object], says: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert main([str(one) for one in argv]) == 2
    out, err = capsys.readouterr()
    lines = [line for line in err.splitlines() if line.startswith("error: ")]
    assert out == "" and len(lines) == 1 and "Traceback" not in err, err
    assert lines[0].startswith("error: bad input: ") and says in lines[0]
    assert not [path for path in (tmp_path / "out").rglob("*") if path.is_file()], "a refused training leaves nothing"


def test_a_refused_training_leaves_the_note_of_the_one_that_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    (tmp_path / "run.json").write_text('{"recipe": "first"}')
    code, _, _ = told(capsys, *stage(LORA, tmp_path, "--set", "model.name=/nowhere"))
    assert code == 2 and (tmp_path / "run.json").read_text() == '{"recipe": "first"}'


def test_a_missing_extra_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from hipwright.api import train

    monkeypatch.setattr(train, "find_spec", lambda name: None if name in ("trl", "peft") else True)
    code, found, _ = told(capsys, *stage(LORA, tmp_path))
    assert (code, found["error"]) == (2, "training needs trl, peft")
    assert "hipwright[train]" in found["hint"]


# ---------------------------------------------------------------- dry runs

QUICK = [(FSDP, "sft"), (LORA, "rl")]
EVERY = [(name, which) for name in recipe.names() for which in ("sft", "rl")]


def dry(capsys: pytest.CaptureFixture[str], tmp_path: Path, name: str, which: str) -> None:
    code, found, err = told(capsys, *stage(name, tmp_path / "run", "--dry-run", which=which))
    assert code == 0, err
    assert (found["recipe"], found["stage"], found["dry_run"], found["steps"]) == (name, which, True, 1)
    assert not (tmp_path / "run").exists(), "a dry run leaves nothing"
    launch = recipe.load(name).launch
    by = launch.sft if which == "sft" else launch.rl
    assert (found["command"] is None) == (by == "here")
    if by == "accelerate":
        assert found["processes"] == launch.gpus * launch.machines
        assert f"--config_file {tmp_path}/run/accelerate.yaml" in found["command"]
    if by == "verl":
        assert found["rows"] == 82 and f"data.train_files={tmp_path}/run/problems.parquet" in found["command"]
    if which == "sft":
        assert found["rows"] == 2 and found["loss"] > 5 and set(found["eval_loss"]) >= {"test_family", "unseen_shapes"}
    else:
        assert found["reward"] == pytest.approx(0.05), "two answers without a program: 0, and a dry run's spread"


@pytest.mark.slow
@pytest.mark.parametrize(("name", "which"), QUICK)
def test_a_dry_run_takes_a_step(tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, which: str) -> None:
    dry(capsys, tmp_path, name, which)


@pytest.mark.exhaustive
@pytest.mark.parametrize(("name", "which"), [one for one in EVERY if one not in QUICK])
def test_every_dry_run_takes_a_step(tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, which: str) -> None:
    dry(capsys, tmp_path, name, which)


# ---------------------------------------------------------------- for real


@pytest.fixture
def small_model(tmp_path: Path) -> Path:
    """A model folder as any other, of two layers."""
    from hipwright.train import data

    folder = tmp_path / "tiny model"
    model, tokenizer = tiny.tiny("qwen2", [data.system_prompt(), fakes.SOURCE])
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture
def tasks(tmp_path: Path) -> Path:
    folder = tmp_path / "tasks"
    folder.mkdir()
    for name in ("row_sum", "row_max", "softmax"):
        (folder / f"{name}.py").write_text((fakes.CORPUS / f"tasks/{name}.py").read_text())
    return folder


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
    """LoRA by TRL on the sample's rows, then our own loop from what it left, with the real judge; and resumed."""
    out = tmp_path / "run"
    changes = settings(
        "sft.max_steps=2",
        "sft.accumulate=1",
        "sft.log_every=1",
        "data.rows=3",
        "data.held_rows=1",
        "sft.evaluate_every=2",
    )
    argv = stage(LORA, out / "sft", "--model", small_model, *changes)
    code, sft, err = told(capsys, *argv)
    assert code == 0, err
    assert sft["steps"] == 2 and (Path(sft["model"]) / "adapter_config.json").is_file()
    assert told(capsys, *argv)[1]["error"].endswith("already holds a training")
    again, resumed, _ = told(capsys, *argv, "--resume")
    assert (again, resumed["steps"]) == (0, 2)
    known = [json.loads(line) for line in (out / "sft" / "metrics.jsonl").read_text().splitlines()]
    assert {line["stage"] for line in known} == {"sft", "eval"}
    assert (out / "sft" / "tensorboard").is_dir(), "by default"

    more = settings(*SMALL_RL, "rl.steps=2")
    argv = stage(LORA, out / "rl", "--model", sft["model"], *more, which="rl", rows=tasks)
    code, rl, err = told(capsys, *argv)
    assert code == 0, err
    assert rl["steps"] == 2 and rl["finished"] and rl["reward"] == 0.0
    assert hf.load_model(rl["model"], dtype="float32", attention="sdpa")[0].config.num_hidden_layers == 2
    assert told(capsys, *argv)[1]["error"].endswith("already holds a training")

    for which in ("sft", "rl"):
        code, page, err = told(capsys, "train", "report", out / which)
        assert code == 0, err
        assert Path(page["page"]).read_text().startswith("<!doctype html>")


@pytest.mark.slow
def test_samples_are_scored_while_sft_goes_on(tmp_path: Path, small_model: Path) -> None:
    """The model is looked at, and trains as if it had not been: equal losses with and without."""
    import msgspec

    from hipwright.train import data, sft
    from hipwright.train.log import Log
    from hipwright.train.records import TrainingProblem
    from hipwright.train.watch import SampleWatch
    from tests.train import sft_small as small

    settings = msgspec.structs.replace(small.SETTINGS, max_steps=4, evaluate_every=0, save_every=0, lora_dropout=0.0)
    losses = {}
    for watched in (False, True):
        folder = tmp_path / str(watched)
        model, tokenizer = small.model()
        problems = [TrainingProblem(name=name, source="import torch") for name in ("one", "two", "three")]
        with Log(folder, ()) as log:
            watch = SampleWatch(problems, fakes.environment(), tokenizer, log, every=2, new_tokens=5)
            sft.train_sft(model, tokenizer, small.lessons(8), settings, folder, log, watch=watch if watched else None)
        lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
        losses[watched] = [line["values"]["loss"] for line in lines if line["stage"] == "sft"]
        looked = [(line["step"], line["values"]) for line in lines if line["stage"] == "eval"]
    assert losses[True] == losses[False] and len(losses[True]) == 4
    assert [step for step, _ in looked] == [2, 4]
    assert looked[0][1]["compiled"] == 0.0 and looked[0][1]["reward"] == 0.0
    samples = [json.loads(line) for line in (tmp_path / "True" / "samples.jsonl").read_text().splitlines()]
    assert [one["record"]["problem"] for one in samples] == ["one", "two"] * 2
    assert data.TRAIN in small.lessons(2).splits


@pytest.mark.exhaustive
@pytest.mark.parametrize("sharding", ["none", "fsdp"])
@pytest.mark.parametrize("which", ["sft", "rl"])
def test_two_processes_of_accelerate(
    tmp_path: Path, small_model: Path, tasks: Path, which: recipe.Stage, sharding: str
) -> None:
    """The launch that eight GPUs get, with two processes on the processor: one log, one model, whole groups."""
    import yaml

    from hipwright.train import launch

    changes = [
        f"launch.sharding={sharding}",
        "sft.max_steps=2",
        "sft.accumulate=1",
        "sft.evaluate_every=0",
        "data.rows=4",
        "data.held_rows=1",
        "sft.log_every=1",
        "grpo.steps=1",
        "grpo.batch=2",
        "grpo.accumulate=1",
        "grpo.samples=2",
        "grpo.max_new_tokens=5",
        "grpo.vllm=",
        "judge.targets=['cpu','gfx942']",
    ]
    rows = SAMPLE if which == "sft" else tasks
    changes += ["sft.save_every=1"]

    def once(*, resume: bool) -> work.StageWork:
        wanted = work.StageWork(
            stage=which,
            recipe=recipe.load(FSDP, changes),
            data=str(rows),
            out=str(tmp_path / "run"),
            model=str(small_model),
            trackers=(),
            resume=resume,
        )
        command = launch.plan(wanted)
        assert command is not None
        launch._prepare(wanted, command)
        plain = launch.accelerate_config(wanted) | {"num_processes": 2, "mixed_precision": "no"}
        (wanted.folder / launch.ACCELERATE).write_text(yaml.safe_dump(plain))
        variables = {**os.environ, "ACCELERATE_USE_CPU": "true", "OMP_NUM_THREADS": "1"}
        done = subprocess.run(command.argv, env=variables, capture_output=True, text=True, timeout=600)
        assert done.returncode == 0, done.stderr[-3000:]
        return wanted

    wanted = once(resume=False)
    result = json.loads((wanted.folder / work.DONE).read_text())
    assert result["steps"] == (2 if which == "sft" else 1)
    lines = [json.loads(line) for line in (wanted.folder / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines if line["stage"] == which] == ([1, 2] if which == "sft" else [1])
    assert (wanted.folder / hf.FINAL / "model.safetensors").is_file()
    marker = json.loads(next(iter(wanted.folder.glob("checkpoint-*/whole.json"))).read_text())
    assert marker["processes"] == 2, "another number of processes is another run"
    if (which, sharding) == ("sft", "fsdp"):
        shutil.rmtree(wanted.folder / "checkpoint-2")
        once(resume=True)
        again = [json.loads(line) for line in (wanted.folder / "metrics.jsonl").read_text().splitlines()]
        for one, other in zip(lines, again, strict=True):
            assert other["values"] == pytest.approx(one["values"], rel=1e-5), (
                "sharded weights and optimizer are restored"
            )


@pytest.mark.slow
def test_serve_answers_and_ends_in_good_order(tmp_path: Path, tasks: Path) -> None:
    """The real command with the real judge on a real port."""
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
