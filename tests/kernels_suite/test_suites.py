"""Suites by file and by name, and the list of benchmarks."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.__main__ import main
from benchmarks.registry import COMMANDS, summary
from benchmarks.suite.tasks import find, suite_in, suite_named
from hipwright.errors import BadInput
from hipwright.evaluation.suite import find_tasks
from hipwright.evaluation.task_suite import open_suite

TASK = "import torch\n"


def write_suite(folder: Path, text: str = 'description = "two tasks"\ntasks = ["tasks/*/*.py"]\n') -> Path:
    (folder / "tasks/rows").mkdir(parents=True)
    for name in ("2_b", "1_a"):
        (folder / f"tasks/rows/{name}.py").write_text(TASK)
    path = folder / "mine.toml"
    path.write_text(text)
    return path


def test_one_file_makes_a_suite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_suite(tmp_path)
    assert [(task.name, task.number) for task in find_tasks(path)] == [("rows/1_a", 1), ("rows/2_b", 2)]
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BadInput, match="no such folder of tasks: mine"):
        find_tasks(Path("mine"))
    (tmp_path / "home/suites").mkdir(parents=True)
    monkeypatch.setenv("HIPWRIGHT_HOME", str(tmp_path / "home"))
    (tmp_path / "home/suites/mine.toml").write_text(path.read_text().replace("tasks/", "../../tasks/"))
    assert [task.name for task in find_tasks(Path("mine"))] == ["rows/1_a", "rows/2_b"]
    assert [task.name for task in find(suite_named("mine"))] == ["rows/1_a", "rows/2_b"]
    with pytest.raises(BadInput, match="has no levels"):
        find_tasks(Path("mine"), 1)


def test_patterns_say_what_a_task_is_compared_with(tmp_path: Path) -> None:
    assert sum(task.max_autotune for task in find()) == 23
    kernels = suite_named()
    assert kernels.gathers("embedding_segment/lookup_fp32") and kernels.gathers("argmax_topk/top50_wide_fp32")
    assert not kernels.gathers("argmax_topk/argmax_rows_fp32")
    write_suite(tmp_path)
    assert [task.name for task in find(suite_in(tmp_path / "tasks"))] == ["rows/1_a", "rows/2_b"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("tasks = 1", "describes no suite"),
        ("[", "describes no suite"),
        ('description = ""\ntasks = ["none/*.py"]', "has no tasks"),
        ('description = ""\ntasks = ["tasks/*/*.py", "tasks/rows/1_a.py"]', "two tasks"),
    ],
)
def test_a_file_that_describes_no_suite_is_bad_input(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        open_suite(write_suite(tmp_path, text))


def test_benchmarks_are_listed_with_a_line_each(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    lines = capsys.readouterr().out.splitlines()[2:]
    assert [line.split()[0] for line in lines] == sorted(COMMANDS)
    assert all(len(summary(name)) > 20 for name in COMMANDS)
    assert main(["none"]) == 2 and "no benchmark" in capsys.readouterr().err
