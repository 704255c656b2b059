"""DPO by TRL: the preferences that are read, and a training of a two-layer model."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from hipwright.errors import BadInput
from hipwright.train import data, dpo, hf, preference_rows, tiny
from hipwright.train.log import Log
from hipwright.train.preference_rows import PreferenceRow

# peft and TRL call transformers by names that it is about to drop
pytestmark = pytest.mark.filterwarnings("ignore:.*will be removed in v6.*:FutureWarning")


def row(number: int, split: str = "train") -> PreferenceRow:
    """Prefers "yes N" to "no N"."""
    asked = [{"role": "user", "content": f"say {number}"}]
    answers = [[{"role": "assistant", "content": f"{word} {number}"}] for word in ("yes", "no")]
    return PreferenceRow(asked, *answers, "correct over wrong", f"task {number}", split)  # type: ignore[call-arg, arg-type]


def test_a_data_set_and_its_export_give_the_same_preferences(tmp_path: Path) -> None:
    from hipwright.dataset.export import ExportOptions, export
    from hipwright.dataset.store import pair_line
    from tests.dataset.pair_sample import sample

    pairs = sample()
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "pairs.jsonl").write_bytes(b"".join(pair_line(pair) for pair in pairs))
    told = ExportOptions(system=data.system_prompt())
    for form in ("jsonl", "preference"):
        export(form, pairs, tmp_path / form, told)
    expected = preference_rows.read(tmp_path / "set")
    assert {one.preferred for one in expected["train"]} >= {"correct over wrong", "faster by estimate"}
    assert all(one.chosen != one.rejected for rows in expected.values() for one in rows)

    def plain(found: preference_rows.PreferenceSplits) -> dict[str, list[str]]:
        return {name: sorted(json.dumps(one) for one in rows) for name, rows in found.items()}

    for form in ("jsonl", "preference"):
        assert plain(preference_rows.read(tmp_path / form)) == plain(expected), form
    assert len(preference_rows.read(tmp_path / "set", rows=1)["train"]) == 1


def test_what_holds_no_preference_is_refused(tmp_path: Path) -> None:
    from tests.train import fakes

    (tmp_path / "tasks").mkdir()
    (tmp_path / "tasks" / "row_sum.py").write_text(fakes.SOURCE)
    with pytest.raises(BadInput, match="a folder of tasks, which holds no preferences"):
        preference_rows.read(tmp_path / "tasks")
    (tmp_path / "export.json").write_text('{"format": "preference"}')
    (tmp_path / "train.jsonl").write_text('{"prompt": []}\n')
    with pytest.raises(BadInput, match=r"train.jsonl line 1 is no preference: KeyError"):
        preference_rows.read(tmp_path)
    _, tokenizer = tiny.tiny_model("qwen2", ["say yes no"])
    with pytest.raises(BadInput, match="every preference is longer than 3 tokens"):
        dpo.pairs_that_fit({"train": [row(1)]}, tokenizer, 3)


@pytest.mark.slow
def test_the_preferred_answers_become_likelier_and_a_killed_run_resumes(tmp_path: Path) -> None:
    """Odds are even at first; after eight updates every pair is in order, and the loss is that of a resumed run."""
    rows = {"train": [row(one) for one in range(8)], "held": [row(9, "held")]}
    settings = dpo.DpoSettings(
        max_steps=8,
        learning_rate=3e-3,
        schedule="constant",
        warmup=0.0,
        batch=4,
        accumulate=1,
        evaluate_every=8,
        save_every=4,
        log_every=1,
        checkpoint_activations=False,
    )

    def train(folder: Path, **more: Any) -> dpo.DpoResult:
        model, tokenizer = tiny.tiny_model("qwen2", ["say yes no 0 1 2 3 4 5 6 7 8 9"])
        with Log(folder, (), resume_step=4 if more else -1) as log:
            return dpo.train_dpo_by_trl(model, tokenizer, rows, settings, folder, log, reference=lambda: model, **more)

    done = train(tmp_path)
    assert (done.steps, done.accuracy, done.too_long) == (8, 1.0, 0) and done.margin is not None and done.margin > 0.1
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    losses = [one["values"]["loss"] for one in lines if one["stage"] == "dpo"]
    assert losses[0] == pytest.approx(math.log(2)) and losses[-1] < 0.6
    assert [one["values"].keys() for one in lines if one["stage"] == "eval"] == [{"held_loss"}]
    assert (done.folder / "model.safetensors").is_file()
    with pytest.raises(BadInput, match="already holds a training"):
        train(tmp_path)
    import shutil

    shutil.rmtree(tmp_path / hf.FINAL)
    shutil.rmtree(tmp_path / "checkpoint-8")
    again = train(tmp_path, resume=True)
    assert again.loss == pytest.approx(losses[-1], rel=1e-5), "the reference is the model before the first update"
