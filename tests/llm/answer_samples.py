"""The recorded answers of models in `answers/`, and what reading each must give."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from hipwright.llm.answers.read import UnusableAnswer, UsableAnswer, read_answer

ANSWERS = Path(__file__).parent / "answers"
EXPECTED: dict[str, dict[str, Any]] = tomllib.loads((ANSWERS / "expected.toml").read_text())
READ = [name for name, e in EXPECTED.items() if e["kind"] == "read"]
REFUSED = [name for name, e in EXPECTED.items() if e["kind"] != "read"]
KINDS = {
    "no_code",
    "truncated",
    "two_programs",
    "no_kernel",
    "hip_only",
    "host_code",
    "unknown_api",
    "not_python",
    "patch",
    "unsafe_python",
    "forbidden",
    "not_a_program",
    "own_parameters",
    "elided",
    "filtered",
    "too_long",
}


TASK = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x)

def get_inputs():
    return [torch.rand(8, 8)]

def get_init_inputs():
    return []
"""


def answer(name: str) -> str:
    return (ANSWERS / f"{name}.txt").read_bytes().decode()


def read(name: str) -> UsableAnswer | UnusableAnswer:
    return read_answer(answer(name), EXPECTED[name].get("finish", "stop"))
