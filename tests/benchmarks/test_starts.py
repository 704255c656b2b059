"""The benchmark of starts: every task has a size, written into its text; rows are described and read again."""

from __future__ import annotations

import ast
import json
from pathlib import Path

from benchmarks.starts.compare import SIZES, at_size, described, known_rows, start_files, task_file
from tests.starts import TASKS, VERIFIED, task_of


def test_every_task_has_a_size_and_every_file_its_task() -> None:
    assert set(SIZES) == set(TASKS)
    assert start_files() == VERIFIED
    assert [task_file(path) for path in VERIFIED] == [task_of(path) for path in VERIFIED]


def test_sizes_replace_those_of_the_tests_alone() -> None:
    for name, path in TASKS.items():
        text = path.read_text()
        changed = at_size(text, *SIZES[name])
        ast.parse(changed)
        assert f"return [{SIZES[name][0]}]" in changed and f"return [{SIZES[name][1]}]" in changed
        assert changed.split("def get_inputs")[0] == text.split("def get_inputs")[0]


def test_rows_are_read_again_by_file(tmp_path: Path) -> None:
    row = {"file": "cuda/a.cu", "status": "pass", "score": 30.0, "winner": 10.0, "speedup": 3.0, "answer": True}
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps(row) + "\n")
    assert known_rows(path) == {"cuda/a.cu": row} and known_rows(tmp_path / "none") == {} and known_rows(None) == {}
    assert "3.00x" in described(row) and described(row).endswith("(the start)")
    assert "nan" in described({"file": "cuda/b.cu", "status": "refused", "speedup": None})
