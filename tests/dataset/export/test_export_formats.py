"""The rows of the chat, reinforcement learning and source formats."""

from __future__ import annotations

import ast
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hipwright.dataset.export import ExportOptions, export
from hipwright.dataset.export.chat import answer, fence, user_prompt
from hipwright.dataset.export.source import kernel_source
from hipwright.errors import ProgramError
from hipwright.program.parse import parse
from hipwright.records import Program
from tests.dataset.pair_sample import CORRECT, pair, program, sample, variant

SPLITS = {"train", "unseen_shapes", "test_family"}
Load = Callable[..., Any]


def test_sft_conversations(tmp_path: Path, load: Load) -> None:
    pairs = sample()
    written = export("sft", pairs, tmp_path / "out", ExportOptions(system="You write HIP."))
    rows = [row for split in load(tmp_path / "out").values() for row in split]
    assert len(rows) == sum(p.correct for p in pairs) == written.total
    assert written.left_out == {"a wrong program is not to be imitated": 2}
    by_key = {p.key: p for p in pairs}
    for row in rows:
        assert [m["role"] for m in row["messages"]] == ["system", "user", "assistant"]
        one = by_key[row["key"]]
        assert one.correct and one.task_source.strip() in row["messages"][1]["content"]
        code = row["messages"][2]["content"].removeprefix("```python\n").removesuffix("\n```")
        assert parse(code).values({}) == parse(one.program.text).values(one.program.knobs)
    repair = next(row for row in rows if row["kind"] == "repair")["messages"][1]["content"]
    assert "failed in the verifier" in repair and "the remainder is missing" in repair
    assert program("odd_tail", "wrong").text.strip() in repair
    step = next(row for row in rows if row["kind"] == "step")["messages"][1]["content"]
    assert "faster" in step and program("row_sum_tree").text.strip() in step


def test_without_a_system_prompt_there_is_no_system_message(tmp_path: Path) -> None:
    export("sft", sample(), tmp_path / "out", ExportOptions(user=lambda p: f"solve {p.task_name}"))
    first = json.loads((tmp_path / "out" / "train.jsonl").read_text().splitlines()[0])
    assert [m["role"] for m in first["messages"]] == ["user", "assistant"]
    assert first["messages"][0]["content"] == "solve layer_norm"


def test_an_answer_is_exported_once_for_each_prompt(tmp_path: Path) -> None:
    one = pair("softmax_block", "softmax")
    written = export("sft", [one, pair("softmax_block", "softmax", kind="variant")], tmp_path / "out")
    assert written.total == 1 and written.left_out == {"the same answer to the same prompt": 1}


def test_code_with_backticks_stays_in_its_block() -> None:
    text = "a = '```'\nb = '````'"
    assert fence(text, "python") == f"`````python\n{text}\n`````"
    assert answer(Program(text="not ( python", knobs={"A": 1})) == "```python\nnot ( python\n```"


def test_trl_tables(tmp_path: Path, load: Load) -> None:
    pairs = sample()
    export("trl", pairs, tmp_path / "out", ExportOptions(system="You write HIP."))
    sft, grpo = load(tmp_path / "out", "sft"), load(tmp_path / "out", "grpo")
    assert set(sft) == set(grpo) == SPLITS
    rows = [row for split in sft.values() for row in split]
    assert len(rows) == sum(p.correct for p in pairs)
    for row in rows:
        assert [m["role"] for m in row["prompt"]] == ["system", "user"]
        assert [m["role"] for m in row["completion"]] == ["assistant"]
    prompts = {row["task_name"]: row for split in grpo.values() for row in split}
    assert prompts.keys() == {p.task_name for p in pairs}, "one prompt a task"
    for name, row in prompts.items():
        mine = [p for p in pairs if p.task_name == name]
        assert row["ground_truth"] == mine[0].task_source and row["ground_truth"].strip() in row["prompt"][1]["content"]
        assert row["prompt"][1]["content"].startswith("Translate"), "asked from nothing, also where a repair is known"
        best = {one["target"]: one["microseconds"] for one in row["best_estimate_us"]}
        assert best == {t: min(p.estimate_us[t] for p in mine if p.correct) for t in ("gfx942", "gfx950")}


def test_verl_columns(tmp_path: Path, load: Load) -> None:
    pairs = sample()
    written = export("verl", pairs, tmp_path / "out")
    assert written.files == ("train.parquet", "test_family.parquet", "unseen_shapes.parquet")
    loaded = load(tmp_path / "out")
    rows = [row for split in loaded.values() for row in split]
    assert len(rows) == len({p.task for p in pairs})
    assert sorted(row["extra_info"]["index"] for row in rows) == list(range(len(rows)))
    for split, some in loaded.items():
        for row in some:
            assert set(row) == {"data_source", "prompt", "ability", "reward_model", "extra_info"}
            assert row["data_source"] == "hipwright" and row["reward_model"]["style"] == "rule"
            assert "class Model(" in row["reward_model"]["ground_truth"] and row["extra_info"]["split"] == split
            assert row["prompt"][-1]["role"] == "user"


def test_source_records(tmp_path: Path, load: Load) -> None:
    pairs = sample()
    written = export("source", pairs, tmp_path / "out")
    rows = [row for split in load(tmp_path / "out").values() for row in split]
    assert written.left_out == {"the same kernel for the same problem": 1}, "the repair is the engine's own program"
    assert len(rows) == len(pairs) - 1
    fields = ["correct", "ref_arch_src", "kernel_src", "level", "problem_id", "problem_name"]
    assert all(list(row) == fields for row in rows)
    assert {row["problem_name"]: row["level"] for row in rows}["linear"] == 3
    assert len({row["problem_id"] for row in rows}) == len({p.task for p in pairs})
    assert [row["correct"] for row in rows].count(False) == 2
    for row in rows:
        names = {node.name for node in ast.parse(row["kernel_src"]).body if isinstance(node, ast.ClassDef)}
        assert "ModelNew" in names and "class Model(" in row["ref_arch_src"]


def test_the_chosen_knobs_are_in_the_source_record() -> None:
    one = variant("scale_bias_guarded", "scale_bias", 3.0)
    ((name, value),) = one.program.knobs.items()
    assert f"-D{name}={value}" in kernel_source(one.program, one.task_source)


def test_programs_without_a_source_record_are_counted(tmp_path: Path) -> None:
    text = program("row_sum_tree").text + "\n\ndef backward(self, grad):\n    return grad\n"
    right = pair("row_sum_tree", "row_sum", program=Program(text=text))
    with pytest.raises(ProgramError):
        kernel_source(right.program, right.task_source)
    wrong = pair("row_sum_tree", "row_sum", kind="negative", program=Program(text="no program"))
    written = export("source", [right, wrong, pair("row_sum_wave", "row_sum")], tmp_path / "out")
    assert written.total == 1 and written.skipped[0].where == right.key
    assert written.left_out == {"a wrong program that has no ModelNew form": 1}


def test_prompts_have_the_reference_and_the_note_on_shapes() -> None:
    text = user_prompt(pair("softmax_block", "softmax"))
    assert "torch.softmax" in text and "read sizes" in text and CORRECT["softmax_block"] == "softmax"
