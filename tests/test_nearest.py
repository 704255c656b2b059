"""Near names: for a path that is no file, what is there instead and what takes it."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hipwright.errors import BadInput
from hipwright.machine import existing_file
from hipwright.nearest import did_you_mean, file_hint, nearest


@given(st.text(max_size=12), st.lists(st.text(max_size=12), max_size=8))
def test_a_near_name_is_always_a_known_one(name: str, known: list[str]) -> None:
    found = nearest(name, known)
    assert found is None or found in known
    assert did_you_mean(name, known) == (f": did you mean {found}?" if found else "")


def test_files_and_folders(tmp_path: Path) -> None:
    (tmp_path / "tasks").mkdir()
    for name in ("softmax.py", "layernorm.py"):
        (tmp_path / "tasks" / name).write_text("")
    assert file_hint(tmp_path / "tasks" / "sofmax.py", "task") == f"did you mean {tmp_path}/tasks/softmax.py?"
    assert file_hint(tmp_path / "tasks" / "layernorm", "task") == f"did you mean {tmp_path}/tasks/layernorm.py?"
    assert "layernorm.py, softmax.py; `hipwright bench`" in file_hint(tmp_path / "tasks", "task")
    assert f"did you mean {tmp_path}/tasks?" in file_hint(tmp_path / "task" / "softmax.py", "task")
    assert file_hint(tmp_path / "nothing like it.xyz", "task") == ""


@pytest.mark.parametrize(
    ("given_", "says", "hint"),
    [
        ("net.ipynb", "a notebook, not a task", "hipwright.optimize(module, example_inputs)"),
        ("softmax.cu", "CUDA or HIP source, not a task", "--start softmax.cu"),
        ("model.safetensors", "a file of weights, not a task", ".py file"),
        ("meta-llama/Llama-3.1-8B", "no such task file", "hipwright model"),
        ("nowhere/task.py", "no such task file", "there is no folder nowhere"),
    ],
)
def test_what_is_often_given_for_a_task(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given_: str, says: str, hint: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BadInput) as caught:
        existing_file(Path(given_), "task")
    assert says in caught.value.message and hint in caught.value.hint


def test_a_kernel_is_still_a_kernel(tmp_path: Path) -> None:
    (tmp_path / "softmax.cu").write_text("x")
    assert existing_file(tmp_path / "softmax.cu", "program") == tmp_path / "softmax.cu"
