"""Programs whose error is that of one ill-conditioned element among a few: a norm of two nearly equal values.

Its size is a single random number, which the honest baseline and three nudged runs may all show as small.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from hipwright.engine import write
from hipwright.program import parse
from hipwright.records import Program, Verdict
from hipwright.sandbox import Zygote
from hipwright.tensors import HostTensor
from hipwright.toolchain.cache import BuildCache
from hipwright.verify import Oracle, verify_cpu
from hipwright.verify.blockwise.redraws import is_concentrated
from tests.engine.capturing import captured
from tests.verify.test_programs import build

TASK = """
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer_0 = nn.ConvTranspose2d(12, 4, (5, 3), stride=1, padding=1, output_padding=0)
        self.layer_1 = nn.GroupNorm(2, 4)
        self.layer_2 = nn.MaxPool2d(4, 4)
        self.layer_3 = nn.GroupNorm(2, 4)
        self.weight_4 = nn.Parameter(torch.randn(4, 1, 1) * 0.5 + 1.0)
        self.layer_5 = nn.LayerNorm([1, 2])

    def forward(self, x):
        x = self.layer_3(self.layer_2(self.layer_1(self.layer_0(x)))) + self.weight_4
        return self.layer_5(x)


def get_inputs():
    return [torch.randn(3, 12, 4, 8)]
"""
WRONG = {
    "another epsilon": ("1e-05f", "1e-04f"),
    "a window without its last column": ("pool_max(acc, value[q])", "pool_max(acc, value[q < 3 ? q : 2])"),
    "a product without the last channels": ("c < 12", "c < 11"),
    "a pair's variance by one element less": ("(float)x_3_out + 1e-05f", "(float)(x_3_out - 1) + 1e-05f"),
}


@pytest.fixture(scope="module")
def task(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("task") / "norms_of_few.py"
    path.write_text(TASK)
    return path


@pytest.fixture(scope="module")
def program() -> str:
    """The engine's program of the task."""
    made: dict[str, Any] = {}
    exec(TASK, made)
    return write(captured(made["Model"](), made["get_inputs"]())).text


def judged(text: str, seed: int, task: Path, tasks: Any, candidates: Zygote, cache: BuildCache) -> Verdict:
    oracle = Oracle(tasks.handle(task), seed=seed)
    builds = build(text, cache)
    assert all(one.ok for one in builds.values()), [one.log for one in builds.values()]
    return verify_cpu(parse(text), Program(text=text), builds, oracle, candidates, cache=cache)


@pytest.mark.parametrize("seed", [8, 17])
def test_an_honest_program_passes(
    seed: int, program: str, task: Path, tasks: Any, candidates: Zygote, cache: BuildCache
) -> None:
    """Two of forty seeds refused it by the errors of four runs alone, by 2 % of the budget."""
    verdict = judged(program, seed, task, tasks, candidates, cache)
    assert verdict.passed, verdict.message


@pytest.mark.parametrize("fault", WRONG)
def test_a_wrong_one_does_not(
    fault: str, program: str, task: Path, tasks: Any, candidates: Zygote, cache: BuildCache
) -> None:
    right, wrong = WRONG[fault]
    text = program.replace(right, wrong)
    assert text != program
    verdict = judged(text, 8, task, tasks, candidates, cache)
    assert verdict.status == "wrong_value", (verdict.status, verdict.message)


def test_only_errors_of_one_ill_conditioned_element_among_few_are_measured_again() -> None:
    exact = torch.linspace(1, 2, 40, dtype=torch.float64)
    one, all_, tiny = (torch.zeros(40, dtype=torch.float64) for _ in range(3))
    one[3], tiny[3] = 1e-4, 1e-8
    all_[:] = 1e-4

    def told(error: torch.Tensor, copies: int = 1, dtype: type = np.float32) -> bool:
        want, base = (HostTensor.of(t.repeat(copies, 1).numpy()) for t in (exact, exact + error))
        return is_concentrated(HostTensor.of(base.to_f64().astype(dtype)), want, [want, base], 4.0)

    assert told(one)
    assert not told(all_), "every element is as far off"
    assert not told(tiny), "the floor covers it"
    assert not told(one, copies=40), "a tenth of so many rows may be as far off"
