"""The `hipwright train` command as tests call it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hipwright.cli.main import main

SAMPLE = Path(__file__).parents[2] / "data" / "sample"
LORA, FSDP = "qwen2.5-coder-7b-lora-1gpu", "qwen2.5-coder-14b-8gpu"


def call(capsys: pytest.CaptureFixture[str], *argv: object) -> tuple[int, dict[str, Any], str]:
    """(exit code, the one JSON object on stdout, stderr)."""
    code = main([*map(str, argv), "--json"])
    out, err = capsys.readouterr()
    return code, json.loads(out), err


def stage_argv(name: str, out: Path, *more: object, which: str = "sft", rows: Path = SAMPLE) -> list[object]:
    """`train sft` or `train rl` with a recipe."""
    return ["train", which, "--recipe", name, "--data", rows, "--out", out, *more]
