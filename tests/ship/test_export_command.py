"""The command lines of docs/ship.md that need no verification."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hipwright.cli.main import main
from tests.ship import subjects


@pytest.fixture
def pair(tmp_path: Path) -> list[str]:
    (tmp_path / "3_Scale.py").write_text(subjects.SCALE_TASK)
    (tmp_path / "program.py").write_text(subjects.SCALE)
    return [str(tmp_path / "3_Scale.py"), str(tmp_path / "program.py")]


def test_a_program_is_exported_in_both_forms(
    pair: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "package"
    assert main(["export", *pair, "--format", "torch-op", "--out", str(out), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert "src/op_3_scale/plan.py" in said["files"] and (out / "src/op_3_scale/include/hip/hip_runtime.h").is_file()
    assert main(["export", *pair, "--format", "modelnew", "--out", str(out)]) == 0
    assert "class ModelNew" in (out / "model_new.py").read_text()


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--format", "wheel", "--out", "x"], "torch-op, modelnew"),
        (["--format", "torch-op"], "--out says where"),
        (["--format", "torch-op", "--out", "x", "--canonical"], "--canonical and --records are for runs"),
        (["--format", "torch-op", "--out", "x", "--name", "3x"], "no package name"),
    ],
)
def test_what_export_refuses(
    pair: list[str],
    more: list[str],
    said: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["export", *pair, *more]) == 2
    assert said in capsys.readouterr().err


def test_a_task_that_writes_its_inputs_is_no_functional_operator(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    task = "import torch\n\n\nclass Model(torch.nn.Module):\n    def forward(self, x):\n        x.mul_(2.0)\n\n\n"
    (tmp_path / "twice.py").write_text(task + "def get_inputs():\n    return [torch.randn(4, 5)]\n")
    (tmp_path / "program.py").write_text(
        "HIP = r''''''\n\n\ndef forward(self, x):\n    x.copy_(x * 2.0)\n    return None\n"
    )
    pair = [str(tmp_path / "twice.py"), str(tmp_path / "program.py")]
    assert main(["export", *pair, "--format", "torch-op", "--out", str(tmp_path / "package")]) == 2
    assert "writes to its inputs (inputs[0])" in capsys.readouterr().err
    assert main(["export", *pair, "--format", "modelnew", "--out", str(tmp_path)]) == 0
    assert "x.copy_(x * 2.0)" in (tmp_path / "model_new.py").read_text()
