"""A small model folder and a folder of tasks."""

from __future__ import annotations

from pathlib import Path

import pytest

from hipwright.train import tiny
from tests.train import fakes


@pytest.fixture
def small_model(tmp_path: Path) -> Path:
    """The folder of a random model of two layers, in transformers' form."""
    from hipwright.train import data

    folder = tmp_path / "tiny model"
    model, tokenizer = tiny.tiny_model("qwen2", [data.system_prompt(), fakes.SOURCE])
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture
def tasks(tmp_path: Path) -> Path:
    folder = tmp_path / "tasks"
    folder.mkdir()
    for name in ("row_sum", "row_max", "softmax"):
        (folder / f"{name}.py").write_text((fakes.CORPUS / f"tasks/{name}.py").read_text())
    return folder
