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
