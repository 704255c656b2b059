"""Fine-tuning by TRL: the loss, LoRA, and resuming."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from hipwright.errors import BadInput
from hipwright.train import data, hf, sft
from hipwright.train.held_out_samples import HeldOutSampler
from hipwright.train.log import Log
from hipwright.train.records import TrainingProblem
from tests.train import fakes
from tests.train import sft_small as small

pytestmark = pytest.mark.filterwarnings("ignore:.*will be removed in v6.*:FutureWarning")  # peft's use of transformers


def metrics(folder: Path, stage: str) -> dict[int, dict[str, float]]:
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    found: dict[int, dict[str, float]] = {}
    for line in lines:
        if line["stage"] == stage:
            found.setdefault(line["step"], {}).update(line["values"])
    return found


def train(folder: Path, rows: data.ImitationRows, **changes: Any) -> tuple[sft.SftResult, Any]:
    model, tokenizer = small.model()
    settings = msgspec.structs.replace(small.SETTINGS, **changes)
    with Log(folder, ()) as log:
        return sft.train_sft(model, tokenizer, rows, settings, folder, log), model


def completion_loss(rows: list[data.ImitationRow]) -> float:
    """The untrained model's mean loss over all completion tokens, computed row by row."""
    import torch

    model, tokenizer = small.model()
    total, count = 0.0, 0
    for ids, mask in sft.encode_rows(rows, tokenizer):
        with torch.no_grad():
            logits = model(torch.tensor([ids])).logits[0, :-1].log_softmax(-1)
        picked = logits.gather(1, torch.tensor(ids[1:])[:, None])[:, 0]
        wanted = torch.tensor(mask[1:], dtype=torch.bool)
        total, count = total - float(picked[wanted].sum()), count + int(wanted.sum())
    return total / count


@pytest.mark.parametrize("packing", [True, False])
def test_the_loss_is_of_the_completions_and_no_row_sees_another(tmp_path: Path, packing: bool) -> None:
    rows = [small.row(number) for number in range(4)]
    lengths = [len(one.ids) for one in sft.encode_rows(rows, small.model()[1])]
    room = sum(lengths) if packing else max(lengths)
    result, _ = train(
        tmp_path,
        data.ImitationRows({"train": rows}),
        packing=packing,
        batch=1 if packing else 4,
        max_length=room,
        max_steps=1,
        evaluate_every=0,
        save_every=0,
    )
    assert metrics(tmp_path, "sft")[1]["loss"] == pytest.approx(completion_loss(rows), abs=2e-5)
    assert result.steps == 1 and result.too_long == 0


def test_rows_that_are_too_long_are_left_out_and_counted(tmp_path: Path) -> None:
    rows = [small.row(number) for number in range(4)]
    lengths = sorted(len(one.ids) for one in sft.encode_rows(rows, small.model()[1]))
    assert lengths[0] < lengths[-1]
    kept, too_long = sft.rows_that_fit(data.ImitationRows({"train": rows}), small.model()[1], lengths[-1] - 1)
    assert len(kept["train"]) == 4 - too_long and too_long == lengths.count(lengths[-1])
    with pytest.raises(BadInput, match="longer than 3 tokens"):
        sft.rows_that_fit(data.ImitationRows({"train": rows}), small.model()[1], 3)


def test_a_template_that_rewrites_the_prompt_is_refused() -> None:
    _, tokenizer = small.model()
    tokenizer.chat_template = "{{ messages|length }}{% for m in messages %}{{ m['content'] }}{% endfor %}"
    with pytest.raises(BadInput, match="changes the prompt once there is an answer"):
        sft.encode_rows([small.row(1)], tokenizer)


@pytest.mark.slow
def test_the_loss_falls_and_held_out_loss_is_logged(tmp_path: Path) -> None:
    result, _ = train(
        tmp_path, small.imitation_rows(4), max_steps=30, evaluate_every=15, save_every=0, learning_rate=2e-2
    )
    losses = metrics(tmp_path, "sft")
    assert losses[30]["loss"] < 0.5 * losses[1]["loss"]
    assert set(metrics(tmp_path, "eval")) == {15, 30}
    assert result.eval_loss["unseen_shapes"] == metrics(tmp_path, "eval")[30]["unseen_shapes_loss"]
    assert (result.folder / "tokenizer.json").is_file() and (result.folder / "model.safetensors").is_file()


def test_lora_trains_adapters_alone(tmp_path: Path) -> None:
    import torch

    before = {name: value.clone() for name, value in small.model()[0].state_dict().items()}
    result, model = train(tmp_path, small.imitation_rows(), lora_rank=4, max_steps=2, evaluate_every=0, save_every=0)
    trained = [name for name, one in model.named_parameters() if one.requires_grad]
    assert trained and all("lora_" in name for name in trained)
    assert any(bool(one.abs().sum()) for name, one in model.named_parameters() if "lora_B" in name)
    base = {n.replace(".base_layer", ""): v for n, v in model.state_dict().items() if "lora_" not in n}
    for name, value in before.items():
        assert torch.equal(value, base[name]), name
    assert json.loads((result.folder / "adapter_config.json").read_text())["r"] == 4


@pytest.mark.slow
def test_kill_9_then_resume_gives_the_same_batches_and_losses(tmp_path: Path) -> None:
    """The process is killed in its sixth update, three after a checkpoint."""
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    command = [sys.executable, "-m", "tests.train.sft_small", str(killed), "6"]
    done = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, text=True, timeout=280)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert max(metrics(killed, "sft")) == 5
    small.run(whole)
    result = small.run(killed, resume=True)
    assert result.steps == 8
    expected = (whole / "batches.txt").read_text().splitlines()
    found = (killed / "batches.txt").read_text().splitlines()
    assert found[:5] == expected[:5] and found[5:] == expected[3:], "after the resume: from the fourth update on"
    for stage in ("sft", "eval"):
        one, other = metrics(whole, stage), metrics(killed, stage)
        assert one.keys() == other.keys()
        for step, values in one.items():
            assert other[step] == pytest.approx(values, rel=1e-5), (stage, step)


def test_resuming_needs_equal_settings_data_and_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = small.imitation_rows(8)
    train(tmp_path, rows, max_steps=3)
    model, tokenizer = small.model()
    settings = msgspec.structs.replace(small.SETTINGS, max_steps=3)
    with pytest.raises(BadInput, match="already holds a training"):
        sft.train_sft(model, tokenizer, rows, settings, tmp_path, None)
    with pytest.raises(BadInput, match=r"learning_rate 0\.003, and this is 0\.1"):
        other = msgspec.structs.replace(settings, learning_rate=0.1)
        sft.train_sft(model, tokenizer, rows, other, tmp_path, None, resume=True)
    with pytest.raises(BadInput, match="with data"):
        sft.train_sft(model, tokenizer, small.imitation_rows(9), settings, tmp_path, None, resume=True)
    real = hf.fingerprint
    monkeypatch.setattr(hf, "fingerprint", lambda *args: {**real(*args), "device": "NVIDIA A100"})
    with pytest.raises(BadInput, match="with device cpu, and this is NVIDIA A100"):
        sft.train_sft(model, tokenizer, rows, settings, tmp_path, None, resume=True)
    point = hf.resume_point(
        tmp_path, hf.fingerprint({}, "") | sft.run_fingerprint(rows, settings), allow_device_change=True
    )
    assert point == tmp_path / "checkpoint-3"


def test_an_incomplete_checkpoint_is_ignored(tmp_path: Path) -> None:
    found = {"device": "cpu"}
    for step in (3, 6, 12):
        (tmp_path / f"checkpoint-{step}").mkdir()
        if step < 12:
            (tmp_path / f"checkpoint-{step}" / hf.COMPLETE).write_text(json.dumps(found))
    assert hf.resume_point(tmp_path, found) == tmp_path / "checkpoint-6"
    assert not (tmp_path / "checkpoint-12").exists()
    assert hf.resume_point(tmp_path / "none", found) is None and hf.step_of(None) == -1


def test_a_missing_model_is_a_one_line_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(os.environ, "HF_HUB_OFFLINE", "1")
    with pytest.raises(BadInput, match="cannot be loaded") as error:
        hf.load_model(str(tmp_path / "nothing"), dtype="float32", attention="sdpa")
    assert "\n" not in error.value.message and "--dry-run" in error.value.hint


@pytest.mark.slow
def test_sampling_during_sft_changes_no_loss(tmp_path: Path) -> None:
    """Held-out problems are sampled and scored every second step; losses are equal with and without it."""
    settings = msgspec.structs.replace(small.SETTINGS, max_steps=4, evaluate_every=0, save_every=0)
    losses = {}
    for watched in (False, True):
        folder = tmp_path / str(watched)
        model, tokenizer = small.model()
        problems = [TrainingProblem(name=name, source="import torch") for name in ("one", "two", "three")]
        with Log(folder, ()) as log:
            sampler = HeldOutSampler(problems, fakes.environment(), tokenizer, log, every=2, new_tokens=5)
            sft.train_sft(
                model, tokenizer, small.imitation_rows(8), settings, folder, log, callback=sampler if watched else None
            )
        losses[watched] = [values["loss"] for values in metrics(folder, "sft").values()]
    assert losses[True] == losses[False] and len(losses[True]) == 4
    scored = metrics(tmp_path / "True", "eval")
    assert list(scored) == [2, 4]
    assert scored[2]["compiled"] == 0.0 and scored[2]["reward"] == 0.0
    samples = [json.loads(line) for line in (tmp_path / "True" / "samples.jsonl").read_text().splitlines()]
    assert [one["record"]["problem"] for one in samples] == ["one", "two"] * 2
