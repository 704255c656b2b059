"""The command line of `hipwright export`: what it refuses, in one line (tests/ship/test_formats.py has the formats)."""

from __future__ import annotations

from pathlib import Path

import pytest

from hipwright.cli.main import main
from hipwright.ship.formats.registry import FORMATS
from tests import warm
from tests.ship import subjects


@pytest.fixture
def pair(tmp_path: Path) -> list[str]:
    (tmp_path / "3_Scale.py").write_text(subjects.SCALE_TASK)
    (tmp_path / "program.py").write_text(subjects.SCALE)
    return [str(tmp_path / "3_Scale.py"), str(tmp_path / "program.py")]


def test_the_name_is_the_files(pair: list[str], tmp_path: Path) -> None:
    done = warm.hipwright(tmp_path, "export", *pair, "--format", "torch-op", "--out", "package", "--unverified")
    assert done.returncode == 0 and "NOT verified" in done.stderr
    assert (tmp_path / "package/src/op_3_scale/include/hip/hip_runtime.h").is_file()


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--format", "wheel", "--out", "x"], ", ".join(FORMATS)),
        (["--out", "x"], "--format is one of"),
        (["--format", "torch-op"], "--out says where"),
        (["--format", "torch-op", "--out", "x", "--canonical"], "--canonical and --records are for runs"),
        (["--format", "torch-op", "--out", "x", "--name", "3x", "--unverified"], "no package name"),
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
    with warm.zygotes():
        assert main(["export", *pair, *more]) == 2
    assert said in capsys.readouterr().err


def test_a_run_is_verified_already(tmp_path: Path) -> None:
    done = warm.hipwright(tmp_path, "export", "latest", "--format", "modelnew", "--out", "x", "--unverified")
    assert done.returncode == 2 and "--unverified is for TASK PROGRAM" in done.stderr


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
    assert main(["export", *pair, "--format", "modelnew", "--out", str(tmp_path / "file")]) == 0
    assert "x.copy_(x * 2.0)" in (tmp_path / "file" / "model_new.py").read_text()
