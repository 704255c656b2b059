"""`hipwright dataset` end to end: real tasks, real workers, complete files, exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import cli_tools
import pytest
from msgspec.structs import replace

from hipwright.cli.display.dataset import DatasetProgress, print_problems
from hipwright.cli.output import CommandOutput
from hipwright.dataset.records import Pair
from hipwright.dataset.store import DatasetStore, TaskOutcome, pair_line, read_pairs
from hipwright.records import Program

TASK = """import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.tanh(x) * {number}


def get_inputs():
    return [torch.randn(5, {width})]


def get_init_inputs():
    return []
"""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


def made_up(folder: Path, count: int = 6) -> list[Pair]:
    """A data set of unverified rows, for the commands that only read."""
    task = TASK.format(number=2, width=31)
    about = {"operators": ("aten.tanh.default",), "families": ("pointwise",), "dtype": "float32", "composition": "tanh"}
    pairs = [
        Pair(
            task=f"t{n // 2}",
            task_name=f"task_{n // 2}",
            task_source=task,
            program=Program(text=f"HIP = r'''{n}'''\n"),
            kind="engine" if n % 2 == 0 else "variant",
            correct=True,
            status="pass",
            coverage=1.0,
            split="train",
            estimate_us={"gfx942": 2.0 + n},
            **about,  # type: ignore[arg-type]
        )
        for n in range(count)
    ]
    folder.mkdir()
    with DatasetStore(folder, {"seed": 0}, resume=False) as store:
        store.add(TaskOutcome(entry="e", name="e", status="verified", pairs=tuple(p.key for p in pairs)), pairs)
        store.finish(["e"], {})
    return pairs


@pytest.mark.slow
def test_build_check_stats_and_export(home: Path, tmp_path: Path) -> None:
    tasks, data = tmp_path / "tasks", tmp_path / "data"
    tasks.mkdir()
    for number in range(2):
        (tasks / f"t{number}.py").write_text(TASK.format(number=number + 2, width=29 + number))
    (tasks / "torn.py").write_bytes(b"\xff")
    done = cli_tools.process(home, "dataset", "build", tasks, "--out", data, "--variants", "1", "--workers", "2")
    assert done.returncode == 0, done.stderr
    assert cli_tools.left_behind(home) == []
    assert "pairs an hour" in done.stdout and "tasks: 2 verified" in done.stdout
    assert "torn.py cannot be read" in done.stderr and "pairs," in done.stderr
    pairs = list(read_pairs(data))
    assert all(pair.split for pair in pairs) and {"engine", "negative"} <= {pair.kind for pair in pairs}
    again = cli_tools.hipwright(home, "dataset", "build", tasks, "--out", data)
    assert again.returncode == 2 and "--resume" in again.stderr
    other = cli_tools.hipwright(home, "dataset", "build", tasks, "--out", data, "--resume", "--variants", "2")
    assert other.returncode == 2 and "variants 1" in other.stderr

    checked = cli_tools.hipwright(home, "dataset", "check", data, "--sample", "4", "--workers", "1", "--json")
    printed = cli_tools.one_object(checked.stdout)
    assert checked.returncode == 0 and printed["checked"] == 4 and printed["wrong"] == [], checked.stderr
    broken = next(pair for pair in pairs if pair.kind == "negative")
    planted = replace(broken, kind="variant", correct=True, status="pass")
    (tmp_path / "planted.jsonl").write_bytes(pair_line(planted) + pair_line(pairs[0]))
    found = cli_tools.hipwright(home, "dataset", "check", tmp_path / "planted.jsonl", "--workers", "1")
    assert found.returncode == 1 and planted.key in found.stderr and "1 wrong" in found.stdout


@pytest.mark.slow
def test_tasks_and_pairs_by_one_command_that_goes_on(home: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    few = ("dataset", "build", "--out", data, "--variants", "0", "--negatives", "0", "--seed", "3", "--workers", "1")
    done = cli_tools.hipwright(home, *few, "--count", "1")
    assert done.returncode == 0 and "tasks: 1 verified" in done.stdout, done.stderr
    assert "1/1" in done.stderr and "pairs an hour" in done.stdout
    refused = cli_tools.hipwright(home, *few, "--count", "2")
    assert refused.returncode == 2 and "--resume" in refused.stderr
    more = cli_tools.hipwright(home, *few, "--count", "2", "--resume")
    assert more.returncode == 0 and "tasks: 2 verified" in more.stdout, more.stderr
    assert "1 of 2 tasks are there already" in more.stderr and "1 of 2 tasks are done already" in more.stderr
    assert len({pair.task_name for pair in read_pairs(data)}) == 2
    assert len(list((data / "synth" / "tasks").glob("*.py"))) == 2


@pytest.mark.slow
def test_overlap_is_told_and_taken_out(home: Path, tmp_path: Path) -> None:
    made_up(tmp_path / "data")
    bench = tmp_path / "bench"
    bench.mkdir()
    copied = TASK.format(number=2, width=40).replace("x", "value")
    (bench / "copy.py").write_text(copied)
    found = cli_tools.hipwright(
        home, "dataset", "overlap", tmp_path / "data", "--against", bench, "--json", "--out", tmp_path / "rest.jsonl"
    )
    printed = cli_tools.one_object(found.stdout)
    assert found.returncode == 1 and printed["others"] == 1 and printed["tasks"] == 3, found.stderr
    assert (
        printed["found"] == ["task_0", "task_1", "task_2"]
        and printed["hits"][0]["other"] == "copy"
        and printed["rows_kept"] == 0
    )
    assert (tmp_path / "rest.jsonl").read_bytes() == b""
    (bench / "copy.py").write_text(TASK.format(number=2, width=40).replace("torch.tanh(x) *", "x.cumsum(0).sum() +"))
    itself = cli_tools.hipwright(home, "dataset", "overlap", tmp_path / "data", "--out", tmp_path / "once.jsonl")
    assert itself.returncode == 1 and "3 tasks compared with each other: 2 overlap" in itself.stdout, itself.stderr
    assert {pair.task_name for pair in read_pairs(tmp_path / "once.jsonl")} == {"task_0"}
    clean = cli_tools.hipwright(home, "dataset", "overlap", tmp_path / "data", "--against", bench)
    assert clean.returncode == 0 and "0 overlap (0.0 %)" in clean.stdout, clean.stderr
    (bench / "again.py").write_text((bench / "copy.py").read_text().replace("40", "41"))
    alike = cli_tools.hipwright(home, "dataset", "overlap", bench)
    assert alike.returncode == 1 and "2 tasks compared with each other: 1 overlap" in alike.stdout, alike.stderr
    rows = cli_tools.hipwright(home, "dataset", "overlap", bench, "--out", tmp_path / "rows.jsonl")
    assert rows.returncode == 2 and "a folder of tasks has none" in rows.stderr


def test_stats_count_and_say_what_cannot_be_read(home: Path, tmp_path: Path) -> None:
    pairs = made_up(tmp_path / "data")
    page = tmp_path / "pages" / "stats.html"
    done = cli_tools.hipwright(home, "dataset", "stats", tmp_path / "data", "--json", "--out", page)
    printed = cli_tools.one_object(done.stdout)
    assert done.returncode == 0 and printed["rows"] == len(pairs) and printed["kinds"] == {"engine": 3, "variant": 3}
    assert "<script" not in page.read_text()
    with (tmp_path / "data" / "pairs.jsonl").open("ab") as stream:
        stream.write(b"{]\n")
    torn = cli_tools.hipwright(home, "dataset", "stats", tmp_path / "data")
    assert torn.returncode == 1 and "pairs.jsonl line 7" in torn.stderr and "rows: 6" in torn.stdout


def test_export_writes_and_says_how_many(home: Path, tmp_path: Path) -> None:
    made_up(tmp_path / "data")
    done = cli_tools.hipwright(
        home, "dataset", "export", tmp_path / "data", "--format", "sft", "--out", tmp_path / "out", "--json"
    )
    printed = cli_tools.one_object(done.stdout)
    assert done.returncode == 0 and printed["read"] == 6, done.stderr
    lines = [
        json.loads(line) for name in printed["files"] for line in (tmp_path / "out" / name).read_text().splitlines()
    ]
    assert len(lines) == printed["total"] > 0
    assert "fast and correct HIP kernels" in lines[0]["messages"][0]["content"]
    unknown = cli_tools.hipwright(home, "dataset", "export", tmp_path / "data", "--format", "xml", "--out", tmp_path)
    assert unknown.returncode == 2 and "formats: " in unknown.stderr


def test_bad_input_is_told(home: Path, tmp_path: Path) -> None:
    for command in (
        ["build", tmp_path / "none", "--out", tmp_path / "out"],
        ["build", tmp_path, "--out", tmp_path / "out", "--target", "gfx942"],
        ["build", "--out", tmp_path / "out"],
        ["build", tmp_path, "--count", "2", "--out", tmp_path / "out"],
        ["overlap", tmp_path / "none"],
        ["check", tmp_path],
        ["stats", tmp_path],
    ):
        done = cli_tools.hipwright(home, "dataset", *command)
        assert done.returncode == 2 and done.stderr.startswith("error: bad input"), done.stderr


def test_progress_without_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with DatasetProgress(CommandOutput(), "rows") as progress:
        progress("planned", {"total": 4, "done": 1})
        for done in (2, 3, 4):
            progress("checked", {"done": done, "total": 4, "wrong": 7})
        progress("unheard of", {})
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2 and "2/4 rows" in lines[0] and "7 wrong" in lines[0] and "4/4 rows, 0 s left" in lines[1]


def test_long_lists_of_problems_are_cut(capsys: pytest.CaptureFixture[str]) -> None:
    print_problems(CommandOutput(), "rows are wrong", [f"row {n}" for n in range(12)])
    print_problems(CommandOutput(), "rows are worse", [])
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "12 rows are wrong:" and lines[-1] == "  and 2 more" and len(lines) == 12
