"""Programs of archived runs as files: by the run's name or the program's key, which is the same in every export."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import hipwright
from hipwright.records import Program
from tests import warm

TASK = """
import torch

class Model(torch.nn.Module):
    def forward(self, x):
        return torch.softmax(x * 3, -1) + 1

def get_inputs():
    return [torch.rand(6, 20)]
"""


@pytest.mark.slow
def test_one_key_in_every_export(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HIPWRIGHT_HOME", str(tmp_path / "archive"))
    with warm.zygotes():
        result = hipwright.optimize(TASK, budget=1, target="cpu", out=tmp_path / "out")
    key = Program(text=(tmp_path / "out/program.py").read_text()).key
    assert result.program_key == key == json.loads((tmp_path / "out/result.json").read_text())["program_key"]

    def said(*command: str) -> dict[str, object]:
        done = warm.hipwright(tmp_path, *command, "--json")
        assert done.returncode == 0, done.stderr
        return dict(json.loads(done.stdout))

    assert said("show", "latest")["program_key"] == key
    for number, name in enumerate(("latest", result.run, key, key[:8])):
        for form in ("modelnew", "torch-op"):
            found = said("export", name, "--format", form, "--out", f"{form}{number}")
            assert found["program_key"] == key
    assert key in (tmp_path / "modelnew0/model_new.py").read_text()
    assert key in (tmp_path / "torch-op0/README.md").read_text()
    assert (tmp_path / "modelnew0/model_new.py").read_text() == (tmp_path / "out/model_new.py").read_text()
    (tmp_path / "task.py").write_text(TASK)
    again = said("export", "task.py", "out/program.py", "--format", "modelnew", "--out", "again")
    assert again["program_key"] == key


@pytest.mark.slow
def test_an_import_without_a_toolkit_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    if torch.version.cuda or torch.version.hip:
        pytest.skip("torch for a GPU may build the kernels")
    monkeypatch.setenv("HIPWRIGHT_HOME", str(tmp_path / "archive"))
    with warm.zygotes():
        hipwright.optimize(TASK, budget=1, target="cpu", out=tmp_path)
    done = subprocess.run([sys.executable, "-c", "import model_new"], cwd=tmp_path, capture_output=True, text=True)
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("ImportError: its kernels are built on import") and "CUDA_HOME" not in done.stderr


@pytest.mark.parametrize("name", ["0123456789abcdef0123", "no-such-run"])
def test_what_the_archive_does_not_hold(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HIPWRIGHT_HOME", str(tmp_path / "archive"))
    done = warm.hipwright(tmp_path, "export", name, "--format", "modelnew", "--out", "x")
    assert done.returncode == 2 and done.stderr.startswith("error: ")
