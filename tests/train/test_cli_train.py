"""`hipwright train`: one line for bad input, and dry runs of every recipe."""

from __future__ import annotations

import json
import math
import shlex
from pathlib import Path

import pytest

from hipwright.cli.main import main
from hipwright.train import recipe
from tests.train.commands import FSDP, LORA, SAMPLE, call, stage_argv

# peft and TRL call transformers by names that it is about to drop
pytestmark = pytest.mark.filterwarnings("ignore:.*will be removed in v6.*:FutureWarning")

# ---------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["train", "sft", "--recipe", LORA], "--data"),
        (stage_argv("qwen2.5-coder-7b-lora", Path("out")), "no recipe 'qwen2.5-coder-7b-lora'"),
        (stage_argv(LORA, Path("out"), "--set", "sft.epoch=1"), "unknown name sft.epoch"),
        (stage_argv(LORA, Path("out"), "--set", "epochs"), "not of the form"),
        (stage_argv(LORA, Path("out"), rows=Path("nowhere")), "no such folder of data"),
        (stage_argv(LORA, Path("/proc/nowhere")), "cannot write to /proc/nowhere"),
        (stage_argv(LORA, Path("out"), "--machine-rank", "1"), "--machine-rank without --main-address"),
        (stage_argv(LORA, Path("out"), "--set", "model.name=/nowhere"), "the model '/nowhere' cannot be loaded"),
        (stage_argv(FSDP, Path("out")), "needs 8 GPUs here"),
        (stage_argv(FSDP, Path("out"), which="rl"), "needs vllm"),
        (["train", "mini", "--out", "out", "--target", "tpu"], "no target 'tpu'"),
        (["train", "mini", "--out", "out", "--target", "cpu", "--set", "seed=1"], "unknown name seed"),
        (["train", "mini", "--out", "out", "--target", "cpu", "--set", "rl_deeper=2"], "rl_deeper must be"),
        (["train", "mini", "--out", "out", "--target", "cpu", "--size", "large"], "the large size needs a GPU"),
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


def test_a_refused_training_keeps_an_existing_note(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    (tmp_path / "run.json").write_text('{"recipe": "first"}')
    code, _, _ = call(capsys, *stage_argv(LORA, tmp_path, "--set", "model.name=/nowhere"))
    assert code == 2 and (tmp_path / "run.json").read_text() == '{"recipe": "first"}'


def test_a_missing_extra_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from hipwright.api import train

    monkeypatch.setattr(train, "find_spec", lambda name: None if name in ("trl", "peft") else True)
    code, found, _ = call(capsys, *stage_argv(LORA, tmp_path))
    assert (code, found["error"]) == (2, "training needs trl, peft")
    assert "hipwright[train]" in found["hint"]


# ---------------------------------------------------------------- dry runs

QUICK: list[tuple[str, recipe.Stage]] = [(FSDP, "dpo"), (LORA, "rl")]
STAGES: tuple[recipe.Stage, ...] = ("sft", "dpo", "rl", "rft")
EVERY: list[tuple[str, recipe.Stage]] = [
    (name, which)
    for name in recipe.recipe_names()
    for which in STAGES
    if which != "rft" or recipe.load(name).launch.rl != "verl"
]


def dry(capsys: pytest.CaptureFixture[str], tmp_path: Path, name: str, which: recipe.Stage) -> None:
    code, found, err = call(capsys, *stage_argv(name, tmp_path / "run", "--dry-run", which=which))
    assert code == 0, err
    assert (found["recipe"], found["stage"], found["dry_run"], found["steps"]) == (name, which, True, 1)
    launch = recipe.load(name).launch
    by = launch.of(which)
    assert (found["command"] is None) == (by == "here")
    left = {path.name for path in (tmp_path / "run").glob("*")}
    named = {Path(word.partition("=")[2] or word).name for word in shlex.split(found["command"] or "")}
    assert (
        left
        == {
            "here": set(),
            "accelerate": {"accelerate.yaml", "work.json"},
            "verl": {"problems.parquet"},
        }[by]
    ), "the files of the command stay, and nothing else"
    assert left <= named
    assert found["real_model"]["parameters"] > 7.6e9
    if by == "accelerate":
        assert found["processes"] == launch.gpus * launch.machines
        assert f"--config_file {tmp_path}/run/accelerate.yaml" in found["command"]
        handed = json.loads((tmp_path / "run" / "work.json").read_bytes())
        assert not handed["dry"] and handed["out"] == f"{tmp_path}/run", "the command trains"
    if by == "verl":
        assert found["rows"] == 82 and f"data.train_files={tmp_path}/run/problems.parquet" in found["command"]
    if which == "sft":
        assert found["rows"] == 2 and found["loss"] > 5 and set(found["eval_loss"]) >= {"test_family", "unseen_shapes"}
    elif which == "dpo":
        assert found["rows"] == 2 and found["loss"] == pytest.approx(math.log(2)), "before the first update: even odds"
    else:
        assert found["reward"] == pytest.approx(0.05), "two answers without a program: 0, and a dry run's spread"


@pytest.mark.slow
@pytest.mark.parametrize(("name", "which"), QUICK)
def test_a_dry_run_takes_a_step(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, which: recipe.Stage
) -> None:
    dry(capsys, tmp_path, name, which)


@pytest.mark.exhaustive
@pytest.mark.parametrize(("name", "which"), [one for one in EVERY if one not in QUICK])
def test_every_dry_run_takes_a_step(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, which: recipe.Stage
) -> None:
    dry(capsys, tmp_path, name, which)
