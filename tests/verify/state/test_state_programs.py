"""Inputs that the task writes are outputs: honest ways to write a cache's slots pass, planted ones are refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from hipwright.machine import Machine
from tests.verify.written_tasks import HEAD, judged

FOLDER = Path(__file__).parents[2] / "programs/state"
HONEST, WRONG = (sorted((FOLDER / kind).glob("*.py")) for kind in ("honest", "wrong"))
TASK = f"""{HEAD}class Model(nn.Module):
    def forward(self, cache, keys, slots):
        cache.index_copy_(0, slots, keys)
        return keys.sum(-1)


def get_inputs():
    return [torch.randn(32, 2, 8), torch.randn(12, 2, 8), torch.randperm(32)[:12]]
"""
REFUSED = {"other_input": "input_mutated", "other_input_restored": "input_mutated"}


@pytest.mark.parametrize("path", HONEST, ids=lambda path: path.stem)
def test_an_honest_update_passes(path: Path, made: Machine) -> None:
    found = judged(made, TASK, path.read_text(encoding="utf-8"))
    assert found.passed, (found.status, found.message)


@pytest.mark.parametrize("path", WRONG, ids=lambda path: path.stem)
def test_a_wrong_update_is_refused(path: Path, made: Machine) -> None:
    found = judged(made, TASK, path.read_text(encoding="utf-8"))
    assert found.status == REFUSED.get(path.stem, "wrong_value") and found.fault == "candidate", found.message
