"""Recipes, launch commands, and the data of training."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from hipwright.errors import BadInput
from hipwright.train import data, launch, recipe, rewards
from hipwright.train.adapters import verl as verl_adapter
from hipwright.train.launchers import accelerate, verl
from hipwright.train.launchers.command import NodeRank
from hipwright.train.stages import stage_work
from tests.train import fakes

SAMPLE = Path(__file__).parents[2] / "data" / "sample"


def job(name: str, stage: recipe.Stage, out: Path, *changes: str, **more: Any) -> stage_work.StageWork:
    return stage_work.StageWork(stage=stage, recipe=recipe.load(name, changes), data=str(SAMPLE), out=str(out), **more)


def test_every_recipe_is_valid() -> None:
    assert recipe.recipe_names() == [
        "qwen2.5-coder-14b-8gpu",
        "qwen2.5-coder-14b-8gpu-deepspeed",
        "qwen2.5-coder-14b-verl",
        "qwen2.5-coder-7b-lora-1gpu",
        "stanford-hip-14b",
    ]
    for name in recipe.recipe_names():
        chosen = recipe.load(name)
        assert chosen.name == name and chosen.about
        again = recipe.from_tables(msgspec.to_builtins(chosen), "again")
        assert again == chosen, "what a process is handed is what was resolved"


def test_the_sources_own_settings() -> None:
    chosen = recipe.load("stanford-hip-14b")
    assert (chosen.sft.epochs, chosen.sft.batch, chosen.sft.learning_rate) == (3, 2, 2e-5)
    work = chosen.grpo
    assert (work.samples, work.turns, work.baseline, work.clip_rewards) == (4, 4, "loo", True)
    assert rewards.reward(chosen.reward.name) == rewards.PublishedReward(cap=3.0)
    clip = rewards.RewardClip()
    clip.clip([float(one % 2) for one in range(200)])
    assert clip.bounds() == pytest.approx((0.5 - 1.5 * 0.5, 0.5 + 1.5 * 0.5)), "1.5 deviations of the last 100"


def test_values_are_changed_by_set() -> None:
    changes = ["sft.learning_rate=2e-5", "sft.packing=false", "model.name=/models/mine", "reward.options.hack=-1.0"]
    chosen = recipe.load("qwen2.5-coder-7b-lora-1gpu", [*changes, "rl.optim.warmup=9", "judge.targets=['cuda']"])
    assert (chosen.sft.learning_rate, chosen.sft.packing, chosen.model.name) == (2e-5, False, "/models/mine")
    assert (chosen.reward.options, chosen.rl.optim.warmup, chosen.judge.targets) == ({"hack": -1.0}, 9, ("cuda",))
    assert chosen.sft.lora_rank == 32, "the rest stays"


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ("sft.learning_rat=1", r"unknown name sft.learning_rat.*did you mean learning_rate\?"),
        ("sfd.epochs=1", r"unknown name sfd.*did you mean sft\?"),
        ("rl.optim.warm=1", r"unknown name rl.optim.warm.*did you mean warmup\?"),
        ("sft.epochs=many", r"Expected `float`, got `str`.*sft.epochs"),
        ("model.dtype=float16", "float16"),
        ("sft", "not of the form"),
        ("sft.=3", "not of the form"),
        ("about.x=3", "about is no table"),
        ("grpo.samples=1", "samples must be 2 or more"),
        ("grpo.samples=7", "must be a multiple of grpo.samples"),
        ("launch.gpus=0", "launch.gpus must be 1"),
        ("launch.gpus=2", "one process cannot use several GPUs"),
        ("launch.sharding=fsdp", "sharding needs"),
        ("sft.learning_rate=-1", "learning_rate must be above 0"),
        ("dpo.beta=0", "dpo.beta and dpo.learning_rate must be above 0"),
        ("grpo.turns=9", "grpo.turns must be 1 to 8"),
    ],
)
def test_errors_are_one_line(change: str, says: str) -> None:
    with pytest.raises(BadInput) as error:
        recipe.load("qwen2.5-coder-7b-lora-1gpu", [change])
    import re

    assert "\n" not in error.value.message
    assert re.search(says, f"{error.value.message} {error.value.hint}"), (error.value.message, error.value.hint)


def test_a_recipe_file(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text('about = "mine"\n[model]\nname = "/models/mine"\narchitecture = "llama"\n')
    assert recipe.load(str(path)).name == "mine"
    path.write_text("about = ")
    with pytest.raises(BadInput, match="is not TOML"):
        recipe.load(str(path))
    with pytest.raises(BadInput, match="no recipe 'qwen") as error:
        recipe.load("qwen2.5-coder-14b-8gpus")
    assert "did you mean qwen2.5-coder-14b-8gpu?" in error.value.hint


# ---------------------------------------------------------------- launchers


@pytest.mark.parametrize(
    ("name", "kind", "needs"),
    [
        ("qwen2.5-coder-14b-8gpu", "FSDP", {"sft": ("accelerate",), "rl": ("accelerate", "vllm")}),
        (
            "qwen2.5-coder-14b-8gpu-deepspeed",
            "DEEPSPEED",
            {"sft": ("accelerate", "deepspeed"), "rl": ("accelerate", "deepspeed", "vllm")},
        ),
    ],
)
@pytest.mark.parametrize("stage", ["sft", "rl"])
def test_the_command_of_accelerate(
    tmp_path: Path, name: str, kind: str, needs: dict[str, tuple[str, ...]], stage: recipe.Stage
) -> None:
    from accelerate.commands.config.config_args import load_config_from_file

    wanted = job(name, stage, tmp_path)
    command = launch.launch_command(wanted)
    assert command is not None and command.needs == needs[stage]
    assert command.argv[1:3] == ("-m", "accelerate.commands.launch") and command.argv[-2] == "hipwright.train.work"
    handed = msgspec.json.decode(command.files[stage_work.WORK].encode(), type=stage_work.StageWork)
    assert handed.recipe == wanted.recipe and handed.stage == stage, "each process reads what was resolved here"
    path = tmp_path / accelerate.CONFIG
    path.write_text(command.files[accelerate.CONFIG])
    read = load_config_from_file(str(path))
    assert (read.num_processes, read.distributed_type.value, read.mixed_precision) == (8, kind, "bf16")
    plain = yaml.safe_load(path.read_text())
    if kind == "FSDP":
        assert plain["fsdp_config"]["fsdp_version"] == 2 and plain["fsdp_config"]["fsdp_activation_checkpointing"]
    else:
        assert plain["deepspeed_config"]["zero_stage"] == 3


def test_several_machines_share_one_launch(tmp_path: Path) -> None:
    wanted = job("qwen2.5-coder-14b-verl", "sft", tmp_path)
    plain = accelerate.accelerate_config(wanted, NodeRank(1, "10.0.0.7"))
    assert (plain["num_machines"], plain["num_processes"], plain["machine_rank"]) == (2, 16, 1)
    assert plain["main_process_ip"] == "10.0.0.7"


def test_one_gpu_needs_no_launcher(tmp_path: Path) -> None:
    for stage in ("sft", "rl"):
        assert launch.launch_command(job("qwen2.5-coder-7b-lora-1gpu", stage, tmp_path)) is None  # type: ignore[arg-type]


def test_the_overrides_of_verl(tmp_path: Path) -> None:
    changes = ["verl.samples=16", "judge.urls=['http://judge:8417']", "verl.overrides={'trainer.test_freq' = 5}"]
    wanted = job("qwen2.5-coder-14b-verl", "rl", tmp_path / "a run", *changes, resume=True)
    told = verl.overrides_of(wanted)
    assert told["actor_rollout_ref.rollout.n"] == 16 and told["trainer.nnodes"] == 2
    assert told["trainer.test_freq"] == 5, "the recipe's own word is the last"
    assert told["+reward.custom_reward_function.reward_kwargs"]["environment"]["judge"]["urls"] == (
        "http://judge:8417",
    )
    assert Path(told["reward.custom_reward_function.path"]) == Path(verl_adapter.__file__)
    assert told["trainer.resume_mode"] == "auto"
    command = launch.launch_command(wanted)
    assert command is not None and command.variables == {"RAY_ADDRESS": "auto"} and command.needs[0] == "verl"
    assert f"data.train_files='{tmp_path}/a run/problems.parquet'" in command.argv, "a space is quoted for hydra"


def test_the_rows_of_verl_are_the_problems(tmp_path: Path) -> None:
    from datasets import Dataset

    path = verl.write_rows(job("qwen2.5-coder-14b-verl", "rl", tmp_path, "data.problems=3"))
    rows = Dataset.from_parquet(str(path)).to_list()
    known = data.problems(SAMPLE)["train"][:3]
    assert [row["reward_model"]["ground_truth"] for row in rows] == [one.source for one in known]
    assert [row["extra_info"]["task_name"] for row in rows] == [one.name for one in known]
    assert all([one["role"] for one in row["prompt"]] == ["system", "user"] for row in rows)


@pytest.mark.parametrize(
    ("name", "stage", "changes", "says"),
    [
        ("qwen2.5-coder-14b-8gpu", "sft", (), "needs 8 GPUs here; this machine has 0"),
        ("qwen2.5-coder-14b-8gpu", "rl", (), "needs vllm, which is not installed"),
        ("qwen2.5-coder-14b-8gpu-deepspeed", "sft", (), "needs deepspeed, which is not installed"),
        ("qwen2.5-coder-14b-verl", "rl", (), "needs verl, which is not installed"),
        ("qwen2.5-coder-14b-verl", "rft", (), "by verl, which has no rejection fine-tuning"),
        ("qwen2.5-coder-7b-lora-1gpu", "sft", ("model.name=/nowhere/at/all",), "'/nowhere/at/all' cannot be loaded"),
    ],
)
def test_missing_requirements_are_errors_before_the_launch(
    tmp_path: Path, name: str, stage: recipe.Stage, changes: tuple[str, ...], says: str
) -> None:
    with pytest.raises(BadInput, match=says):
        launch.launch_stage(job(name, stage, tmp_path / "run", *changes), lambda text: None)
    assert not (tmp_path / "run" / accelerate.CONFIG).exists()


# ---------------------------------------------------------------- what is read


def test_a_data_set_and_its_exports_give_the_same_rows(tmp_path: Path) -> None:
    from hipwright.dataset.export import ExportOptions, export
    from hipwright.dataset.store import pair_line
    from tests.dataset.pair_sample import sample

    pairs = sample()
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "pairs.jsonl").write_bytes(b"".join(pair_line(pair) for pair in pairs))
    told = ExportOptions(system=data.system_prompt())
    for form in ("jsonl", "sft", "trl"):
        export(form, pairs, tmp_path / form, told)
    expected = data.imitation_rows(tmp_path / "set")
    assert set(expected.splits) == {"train", "test_family", "unseen_shapes"} and expected.train
    assert not any(one.completion[0]["content"] in ("", None) for one in expected.train)

    def plain(found: data.ImitationRows) -> dict[str, list[str]]:
        return {name: sorted(json.dumps(one) for one in rows) for name, rows in found.splits.items()}

    for form in ("jsonl", "sft", "trl"):
        assert plain(data.imitation_rows(tmp_path / form)) == plain(expected), form
    problems = data.problems(tmp_path / "set")
    assert problems == data.problems(tmp_path / "jsonl")
    assert sum(map(len, problems.values())) == len({pair.task for pair in pairs})
    cut = data.imitation_rows(tmp_path / "set", rows=2, held_rows=1)
    assert (len(cut.train), {len(rows) for rows in cut.held.values()}) == (2, {1})


def test_folders_of_the_wrong_kind_are_refused(tmp_path: Path) -> None:
    from hipwright.dataset.export import ExportOptions, export
    from tests.dataset.pair_sample import sample

    export("verl", sample(), tmp_path / "verl", ExportOptions(system=""))
    (tmp_path / "tasks").mkdir()
    (tmp_path / "tasks" / "row_sum.py").write_text(fakes.SOURCE)
    with pytest.raises(BadInput, match="an export as verl, which holds no rows to imitate"):
        data.imitation_rows(tmp_path / "verl")
    with pytest.raises(BadInput, match="an export as verl, which holds no problems"):
        data.problems(tmp_path / "verl")
    with pytest.raises(BadInput, match="a folder of tasks, which holds no rows to imitate"):
        data.imitation_rows(tmp_path / "tasks")
    with pytest.raises(BadInput, match="no such folder of data"):
        data.problems(tmp_path / "nothing")
    assert [one.name for one in data.problems(tmp_path / "tasks")["train"]] == ["row_sum"]


def test_without_splits_every_twentieth_task_is_held_out() -> None:
    rows = [data.ImitationRow([], [], f"task {number // 2}", "") for number in range(80)]
    found = data._by_split(rows)
    assert len(found[data.HELD_OUT]) == 4 and len(found["train"]) == 76
    assert {row.task for row in found[data.HELD_OUT]} & {row.task for row in found["train"]} == set()
    again = data._by_split(rows[::-1])
    assert {row.task for row in again[data.HELD_OUT]} == {row.task for row in found[data.HELD_OUT]}


def test_torn_lines_are_reported(tmp_path: Path) -> None:
    from hipwright.dataset.store import pair_line
    from tests.dataset.pair_sample import sample

    lines = [pair_line(pair) for pair in sample()]
    (tmp_path / "pairs.jsonl").write_bytes(b"".join(lines[:-1]) + lines[-1][:50])
    found = data.imitation_rows(tmp_path)
    assert len(found.bad) == 1 and "pairs.jsonl line" in found.bad[0]
