"""Exports: every format loaded by the loader that people use, nothing lost, nothing half written."""

from __future__ import annotations

import ast
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from hipwright.dataset.export import FORMATS, ExportOptions, export, preference, read_export
from hipwright.dataset.export.card import features
from hipwright.dataset.export.chat import answer, fence, user_prompt
from hipwright.dataset.export.grouping import by_task
from hipwright.dataset.export.parquet import schema
from hipwright.dataset.export.rows import COLUMNS, flat, unflat
from hipwright.dataset.export.source import kernel_source
from hipwright.dataset.records import Pair
from hipwright.dataset.store import BadRow
from hipwright.errors import BadInput, ProgramError
from hipwright.program.parse import parse
from hipwright.records import Program
from tests.dataset.pair_sample import HONEST, pair, program, sample, timing, variant

SPLITS = {"train", "unseen_shapes", "test_family"}
Load = Callable[..., Any]


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Load:
    """datasets.load_dataset of a folder, without a network and with a cache of its own."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_DATASETS_OFFLINE", "1")
    datasets = pytest.importorskip("datasets")
    datasets.disable_progress_bars()
    return lambda folder, *name: datasets.load_dataset(str(folder), *name, cache_dir=str(tmp_path / "cache"))


# ---------------------------------------------------------------- nothing lost


@pytest.mark.parametrize("form", ["jsonl", "parquet"])
def test_every_pair_comes_back_equal(tmp_path: Path, load: Load, form: str) -> None:
    pairs = [*sample(), pair("softmax_block", "softmax", kind="variant", timing=timing(1.4, 1.6), us=9.0)]
    written = export(form, pairs, tmp_path / "out")
    assert written.total == written.read == len(pairs) and not written.skipped and not written.left_out
    loaded = load(tmp_path / "out")
    assert set(loaded) == SPLITS
    for split, rows in loaded.items():
        assert [unflat(row) for row in rows] == [p for p in pairs if p.split == split]
        assert [row["key"] for row in rows] == [p.key for p in pairs if p.split == split]


def test_json_lines_are_read_back_without_a_library(tmp_path: Path) -> None:
    pairs = sample()
    export("jsonl", pairs, tmp_path / "out")
    bad: list[BadRow] = []
    assert sorted(read_export(tmp_path / "out", bad), key=lambda p: p.key) == sorted(pairs, key=lambda p: p.key)
    assert not bad


def test_broken_lines_are_named_and_cost_only_themselves(tmp_path: Path) -> None:
    pairs = sample()
    export("jsonl", pairs, tmp_path / "out")
    path = tmp_path / "out" / "train.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    no_map = json.dumps({**json.loads(lines[2]), "knobs": "nothing"}).encode() + b"\n"
    torn = lines[-1][:200]
    path.write_bytes(b"".join([lines[0], b"{not json\n", no_map, b"\xff\xfe\n", b"[]\n", *lines[5:-1], torn]))
    bad: list[BadRow] = []
    found = list(read_export(tmp_path / "out", bad))
    assert len(found) == len(pairs) - 5
    assert [one.line for one in bad] == [2, 3, 4, 5, len(lines)]
    assert "cut off" in bad[-1].why
    again = export("sft", found, tmp_path / "again", ExportOptions(bad=bad))
    assert [one.where for one in again.skipped] == [f"train.jsonl:{one.line}" for one in bad]
    assert len((tmp_path / "again" / "skipped.jsonl").read_text().splitlines()) == 5


def test_bad_rows_are_counted_and_named_with_their_reason(tmp_path: Path) -> None:
    good = sample()
    bad = [
        pair("softmax_online", "softmax", task_source=" \n"),
        pair("softmax_online", "softmax", kind="variant", status="wrong_value"),
        pair("softmax_online", "softmax", kind="variant", program=Program(text="x\udc80")),
        pair("softmax_online", "softmax", kind="variant", us=float("inf"), program=Program(text="# inf")),
        good[0],
    ]
    written = export("parquet", [*good[:4], *bad, *good[4:]], tmp_path / "out")
    assert written.total == len(good) and len(written.skipped) == 5
    reasons = [one.why for one in written.skipped]
    for reason, words in zip(reasons, ("no reference", "correct with", "JSON", "not finite", "twice"), strict=True):
        assert words in reason
    named = [json.loads(line) for line in (tmp_path / "out" / "skipped.jsonl").read_text().splitlines()]
    assert [one["where"] for one in named] == [one.where for one in written.skipped]
    assert "5 bad rows" in (tmp_path / "out" / "README.md").read_text()


def test_text_of_any_kind_survives(tmp_path: Path, load: Load) -> None:
    odd = "# \u202e ünïcode ``` \x00 \r\n" + program("softmax_block").text
    one = variant("softmax_block", "softmax", 3.0, evidence="line\nline \U0001f600")
    one = Pair.from_dict({**one.to_dict(), "program": Program(text=odd).to_dict()})
    for form in ("jsonl", "parquet"):
        export(form, [one], tmp_path / form)
        assert unflat(load(tmp_path / form)["test_family"][0]) == one


def test_many_rows_make_numbered_shards(tmp_path: Path, load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hipwright.dataset.export.parquet.SHARD_ROWS", 20)
    monkeypatch.setattr("hipwright.dataset.export.parquet.GROUP_ROWS", 10)
    pairs = [variant("softmax_block", "softmax", float(us), split="") for us in range(1, 46)]
    written = export("parquet", pairs, tmp_path / "out")
    assert written.files == tuple(f"data/unsplit-0000{n}-of-00003.parquet" for n in range(3))
    rows = load(tmp_path / "out")["unsplit"]
    assert [unflat(row) for row in rows] == pairs
    assert "no split" in (tmp_path / "out" / "README.md").read_text()


# ---------------------------------------------------------------- the formats


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


def test_the_same_lesson_is_taught_once(tmp_path: Path) -> None:
    one = pair("softmax_block", "softmax")
    written = export("sft", [one, pair("softmax_block", "softmax", kind="variant")], tmp_path / "out")
    assert written.total == 1 and written.left_out == {"the same answer to the same prompt": 1}


def test_code_cannot_close_its_block() -> None:
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


def test_a_program_without_a_source_record_is_no_silent_loss(tmp_path: Path) -> None:
    text = program("row_sum_tree").text + "\n\ndef backward(self, grad):\n    return grad\n"
    right = pair("row_sum_tree", "row_sum", program=Program(text=text))
    with pytest.raises(ProgramError):
        kernel_source(right.program, right.task_source)
    wrong = pair("row_sum_tree", "row_sum", kind="negative", program=Program(text="no program"))
    written = export("source", [right, wrong, pair("row_sum_wave", "row_sum")], tmp_path / "out")
    assert written.total == 1 and written.skipped[0].where == right.key
    assert written.left_out == {"a wrong program that has no ModelNew form": 1}


# ---------------------------------------------------------------- preferences


def test_preferences_say_why(tmp_path: Path, load: Load) -> None:
    pairs = sample()
    export("preference", pairs, tmp_path / "out")
    rows = [row for split in load(tmp_path / "out").values() for row in split]
    by_program = {p.program.key: p for p in pairs}
    kinds = {row["preferred"] for row in rows}
    assert kinds == {"correct over wrong", "faster by estimate"}
    for row in rows:
        chosen, rejected = by_program[row["chosen_key"]], by_program.get(row["rejected_key"])
        assert chosen.correct and chosen.task == row["task"] and row["evidence"]
        assert row["chosen"] != row["rejected"] and row["chosen"][0]["role"] == "assistant"
        if row["preferred"] == "faster by estimate":
            assert rejected is not None and rejected.correct and rejected.task == row["task"]
            assert all(chosen.estimate_us[t] <= 0.95 * us for t, us in rejected.estimate_us.items())
        elif rejected is not None:
            assert not rejected.correct and row["evidence"] == rejected.evidence
    mended = [row for row in rows if row["rejected_key"] == program("odd_tail", "wrong").key]
    assert len(mended) == 1 and mended[0]["evidence"] == "- the remainder is missing"


def test_an_estimate_must_be_clearly_lower_on_every_target() -> None:
    slow = pair("softmax_online", "softmax", us=10.0)
    assert preference.verdict(variant("softmax_block", "softmax", 9.4), slow)[0] == "faster by estimate"
    assert preference.verdict(variant("softmax_block", "softmax", 9.6), slow) == ("", "")
    split = variant("softmax_block", "softmax", 5.0, estimate_us={"gfx942": 5.0, "gfx950": 8.1})
    assert preference.verdict(split, slow) == ("", "")
    assert preference.verdict(variant("softmax_block", "softmax", 5.0, estimate_us={}), slow) == ("", "")


def test_a_measurement_outweighs_the_estimate() -> None:
    def one(us: float, low: float, high: float, device: str = "NVIDIA H200") -> Pair:
        return variant("softmax_block", "softmax", us, timing=timing(low, high, device))

    assert preference.verdict(one(20.0, 2.0, 2.2), one(5.0, 1.5, 1.7))[0] == "faster by measurement"
    assert preference.verdict(one(5.0, 1.5, 1.7), one(20.0, 2.0, 2.2)) == ("", "")
    assert preference.verdict(one(5.0, 1.6, 1.9), one(20.0, 1.5, 1.7)) == ("", ""), "the intervals touch"
    assert preference.verdict(one(5.0, 1.0, 1.1, "A"), one(20.0, 2.0, 2.2, "B"))[0] == "faster by estimate"


def test_a_wrong_program_meets_the_right_one_that_it_resembles() -> None:
    right = [pair("softmax_online", "softmax"), pair("softmax_block", "softmax", us=3.0)]
    text = program("softmax_online").text
    wrong = pair("softmax_online", "softmax", kind="negative", program=Program(text=text.replace("expf", "exp2f")))
    assert text != wrong.program.text
    found = [(c, r) for c, r, how, _ in preference.preferences([*right, wrong]) if how == "correct over wrong"]
    assert found == [(right[0], wrong)]
    named = Pair.from_dict({**wrong.to_dict(), "before": right[1].program.to_dict()})
    assert next(preference.preferences([*right, named]))[0] == right[1]


def test_no_task_outweighs_the_others(tmp_path: Path) -> None:
    many = [variant("softmax_block", "softmax", 100.0 / n) for n in range(1, 40)]
    found = list(preference.preferences(many))
    assert {chosen.estimate_us["gfx942"] for chosen, *_ in found} == {100.0 / 39}, "the fastest of all"
    written = export("preference", many, tmp_path / "out")
    assert written.total == preference.MOST_A_TASK
    assert sum(written.left_out.values()) == len(found) - written.total > 0


def test_tasks_without_two_sides_are_counted(tmp_path: Path) -> None:
    lonely = pair("linear_packed", "linear")
    written = export("preference", [*sample()[:2], lonely], tmp_path / "out")
    assert written.left_out == {"nothing to compare": 1}


def test_pairs_are_grouped_by_task_in_their_order(tmp_path: Path) -> None:
    a, b = sample()[0], sample()[2]
    c = variant("softmax_block", "softmax", 2.0)
    assert list(by_task([b, a, c], tmp_path)) == [[b], [a, c]]
    assert list(tmp_path.iterdir()) == []


# ---------------------------------------------------------------- the card


def test_the_card_counts_from_the_rows_and_says_what_was_not_done(tmp_path: Path) -> None:
    pairs = sample()
    export("parquet", pairs, tmp_path / "out", ExportOptions(title="A sample", command="hipwright dataset export d"))
    text = (tmp_path / "out" / "README.md").read_text()
    _, front, body = text.split("---\n", 2)
    head = yaml.safe_load(front)
    assert head["license"] == "apache-2.0" and head["size_categories"] == ["n<1K"]
    assert head["task_categories"] == ["text-generation"]
    counts = {one["name"]: one["num_examples"] for one in head["dataset_info"][0]["splits"]}
    assert counts == {split: sum(p.split == split for p in pairs) for split in counts}
    assert "NOT run and NOT measured on an AMD GPU" in body
    assert f"gfx942: {len(pairs)} built, 0 failed" in body and "static estimates" in body
    assert f"{sum(p.correct for p in pairs)} programs passed" in body and "hipwright dataset export d" in body


def test_the_card_says_what_was_measured(tmp_path: Path) -> None:
    amd = timing(1.0, 1.2, "AMD MI300X")
    amd = type(amd).from_dict({**amd.to_dict(), "architecture": "gfx942"})
    rows = [pair("softmax_block", "softmax", timing=timing(1, 2)), pair("softmax_online", "softmax", timing=amd)]
    export("jsonl", rows, tmp_path / "out")
    text = (tmp_path / "out" / "README.md").read_text()
    assert "1 row on AMD MI300X (gfx942)" in text and "1 row on NVIDIA H200 (sm_90)" in text
    assert "NOT measured" not in text
    export("jsonl", [pair("softmax_block", "softmax", builds={})], tmp_path / "none")
    export("jsonl", [pair("softmax_block", "softmax", licence="")], tmp_path / "bare")
    text_of_bare = (tmp_path / "bare" / "README.md").read_text()
    assert "license: unknown" in text_of_bare and "no licence named (1 pair)" in text_of_bare
    assert "NOT compiled for any AMD target" in (tmp_path / "none" / "README.md").read_text()


@pytest.mark.parametrize("form", FORMATS)
def test_the_cards_columns_are_those_that_the_loader_sees(tmp_path: Path, load: Load, form: str) -> None:
    export(form, sample(), tmp_path / "out")
    head = yaml.safe_load((tmp_path / "out" / "README.md").read_text().split("---\n")[1])
    for info in head["dataset_info"]:
        for name, rows in load(tmp_path / "out", info["config_name"]).items():
            assert rows.features._to_yaml_list() == info["features"]
            assert len(rows) == next(s["num_examples"] for s in info["splits"] if s["name"] == name)


def test_columns_are_the_librarys_own_types() -> None:
    datasets = pytest.importorskip("datasets")
    assert datasets.Features.from_arrow_schema(schema(COLUMNS))._to_yaml_list() == features(COLUMNS)
    assert set(flat(sample()[0])) == set(COLUMNS)


# ---------------------------------------------------------------- whole or not at all


def leftovers(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.name.startswith("."))


def test_an_export_replaces_an_earlier_one_whole(tmp_path: Path) -> None:
    export("jsonl", sample(), tmp_path / "out")
    export("parquet", sample()[:2], tmp_path / "out")
    assert not list((tmp_path / "out").glob("*.jsonl")) and leftovers(tmp_path) == []
    assert json.loads((tmp_path / "out" / "export.json").read_text())["format"] == "parquet"


def test_other_peoples_files_are_never_replaced(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "thesis.tex").write_text("years of work")
    with pytest.raises(BadInput, match="other files"):
        export("jsonl", sample(), tmp_path / "out")
    (tmp_path / "file").write_text("x")
    with pytest.raises(BadInput, match="is a file"):
        export("jsonl", sample(), tmp_path / "file")
    assert (tmp_path / "out" / "thesis.tex").read_text() == "years of work" and leftovers(tmp_path) == []


@pytest.mark.parametrize("form", FORMATS)
def test_a_reader_that_fails_leaves_the_earlier_export(tmp_path: Path, form: str) -> None:
    export("jsonl", sample(), tmp_path / "out")
    before = {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()}

    def broken() -> Iterator[Pair]:
        yield from sample()
        raise OSError("the disk went away")

    with pytest.raises(OSError, match="went away"):
        export(form, broken(), tmp_path / "out")
    assert {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()} == before
    assert leftovers(tmp_path) == []


def test_no_rows_and_no_such_format_are_said(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no row") as error:
        export("sft", [p for p in sample() if not p.correct], tmp_path / "out")
    assert "2 x a wrong program" in error.value.hint and not (tmp_path / "out").exists()
    with pytest.raises(BadInput, match="unknown format"):
        export("csv", sample(), tmp_path / "out")


KILLED = """
import sys
from pathlib import Path
sys.path.insert(0, {folder!r})
from tests.dataset.pair_sample import sample, variant
from hipwright.dataset.export import export
def endless():
    for n in range(1, 10**9):
        if n == 600:  # past the first row group
            print("half way", flush=True)
        yield variant("softmax_block", "softmax", float(n))
export({form!r}, endless(), Path({out!r}))
"""


@pytest.mark.parametrize("form", ["parquet", "preference"])
def test_a_killed_export_loses_nothing(tmp_path: Path, form: str) -> None:
    out = tmp_path / "out"
    export("jsonl", sample(), out)
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    script = KILLED.format(folder=str(Path(__file__).parents[2]), form=form, out=str(out))
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "half way\n"
        process.send_signal(signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before
    assert len(leftovers(tmp_path)) == 1, "what it had written so far"
    export(form, sample(), out)
    assert json.loads((out / "export.json").read_text())["format"] == form
    assert leftovers(tmp_path) == []


def test_a_kill_between_the_two_renames_loses_nothing(tmp_path: Path) -> None:
    out = tmp_path / "out"
    export("jsonl", sample(), out)
    out.rename(tmp_path / ".out.old")  # as a kill between the renames leaves it
    with pytest.raises(BadInput, match="no row"):
        export("sft", [], out)
    assert len(list(read_export(out, []))) == len(sample())


def test_a_swap_that_fails_half_way_is_taken_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out, rename = tmp_path / "out", Path.rename
    export("jsonl", sample(), out)
    before = {path.name: path.read_bytes() for path in out.iterdir()}

    def fails(self: Path, target: Path) -> Path:
        if Path(target) == out and self.name != ".out.old":
            raise OSError("no")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", fails)
    with pytest.raises(OSError, match="no"):
        export("sft", sample(), out)
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before and leftovers(tmp_path) == []


def test_another_export_at_work_is_left_alone(tmp_path: Path) -> None:
    mine = tmp_path / f".out.{os.getppid()}.abc"
    mine.mkdir()
    export("jsonl", sample(), tmp_path / "out")
    assert mine.exists()


def test_prompts_hold_what_a_writer_needs() -> None:
    text = user_prompt(pair("softmax_block", "softmax"))
    assert "torch.softmax" in text and "read sizes" in text and HONEST["softmax_block"] == "softmax"
