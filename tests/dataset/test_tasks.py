"""Reading folders of tasks: what is readable is read, and problems are reported."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from hipwright.api.bench.tasks import keep_texts
from hipwright.api.data.synth import parent_texts
from hipwright.dataset.tasks import DatasetTask, read_tasks
from hipwright.errors import BadInput
from hipwright.evaluation.suite import find_tasks
from hipwright.synth.records import Draft, SyntheticTask
from tests.dataset import tiny

FORMATS = Path(__file__).parents[2] / "examples" / "formats"


def made(name: str, source: str) -> SyntheticTask:
    return SyntheticTask(
        draft=Draft(name=name, source=source, mode="composition"), task="", operators=("aten.tanh.default",)
    )


def synthesised(folder: Path) -> list[SyntheticTask]:
    """Write a folder like that of `hipwright synth`."""
    tasks = [made("rows", tiny.ROWS), made("points", tiny.POINTS), made("raises", tiny.RAISES)]
    (folder / "tasks").mkdir()
    (folder / "tasks.jsonl").write_text("".join(one.to_json() + "\n" for one in tasks))
    for one in tasks:
        (folder / "tasks" / f"{one.draft.name}.py").write_text(one.draft.source)
    return tasks


def test_a_whole_folder_has_no_problems(tmp_path: Path) -> None:
    tasks = synthesised(tmp_path)
    assert read_tasks(tmp_path) == ([DatasetTask(one.draft.name, one.draft.source, one) for one in tasks], [])


def test_unreadable_missing_and_changed_files_are_reported(tmp_path: Path) -> None:
    tasks = synthesised(tmp_path)
    lines = [one.to_json() for one in tasks]
    (tmp_path / "tasks.jsonl").write_text("\n".join([lines[0], "{]", lines[1], lines[2][:60]]))
    (tmp_path / "tasks" / "rows.py").unlink()
    (tmp_path / "tasks" / "points.py").write_text("# edited\n")
    entries, problems = read_tasks(tmp_path)
    assert [(one.name, one.synthetic is not None) for one in entries] == [
        ("rows", True),
        ("points", True),
        ("raises", False),
    ]
    assert entries[2].source == tiny.RAISES
    reported = "\n".join(problems)
    for part in ("line 2", "line 4", "rows.py is missing", "points.py differs", "raises.py has no line"):
        assert part in reported
    assert len(problems) == 5


def test_a_plain_folder_and_a_task_given_twice(tmp_path: Path) -> None:
    (tmp_path / "level1").mkdir()
    (tmp_path / "2_b.py").write_text(tiny.ROWS)
    (tmp_path / "level1" / "2_b.py").write_text(tiny.ROWS)
    (tmp_path / "level1" / "1_a.py").write_text(tiny.POINTS)
    (tmp_path / "bad.py").write_bytes(b"\xff")
    entries, problems = read_tasks(tmp_path)
    assert [one.name for one in entries] == ["2_b", "1_a"]
    assert len(problems) == 1 and "bad.py cannot be read" in problems[0]


def test_folders_without_tasks_are_bad_input(tmp_path: Path) -> None:
    (tmp_path / "tasks.jsonl").write_text("{]\n")
    with pytest.raises(BadInput, match="no task in"):
        read_tasks(tmp_path)
    with pytest.raises(BadInput, match="no such folder"):
        read_tasks(tmp_path / "none")


def test_the_key_depends_on_the_text() -> None:
    entry = DatasetTask("rows", tiny.ROWS)
    assert entry.key == DatasetTask("rows", tiny.ROWS, made("rows", tiny.ROWS)).key
    assert entry.key != DatasetTask("rows", tiny.POINTS).key


def test_what_a_licence_keeps_out_is_left_out_with_a_line(tmp_path: Path) -> None:
    shutil.copytree(FORMATS / "sol-execbench", tmp_path / "sol")
    with pytest.raises(BadInput, match="no task in") as caught:
        read_tasks(tmp_path / "sol")
    assert "2 tasks are left out of data sets: its problems are under NVIDIA's evaluation" in caught.value.hint
    with pytest.raises(BadInput, match="must not be mutated: its problems are under NVIDIA's"):
        list(parent_texts(tmp_path / "sol"))


def test_a_copy_of_such_a_task_is_kept_out_too(tmp_path: Path) -> None:
    keep_texts(tmp_path, find_tasks(FORMATS / "sol-execbench"))
    (tmp_path / "tasks" / "L1" / "mine.py").write_text(tiny.ROWS)
    entries, problems = read_tasks(tmp_path / "tasks")
    assert [one.name for one in entries] == ["mine"] and problems[0].startswith("2 tasks are left out of data sets")
    with pytest.raises(BadInput, match="must not be mutated"):
        list(parent_texts(tmp_path / "tasks" / "L2" / "ragged_mean.py"))


def test_tasks_of_another_format_are_read_and_malformed_ones_reported(tmp_path: Path) -> None:
    folder = tmp_path / "trace"
    shutil.copytree(FORMATS / "flashinfer-trace", folder)
    (folder / "definitions" / "norm" / "rms_rows_h96.json").write_text("{}")
    entries, problems = read_tasks(folder)
    assert [one.name for one in entries] == ["gather_pages_p4_d16", "turn_halves_d32"] and "def get_inputs" in entries[
        0
    ].source
    assert problems == ["definitions/norm/rms_rows_h96.json: name: missing"]
