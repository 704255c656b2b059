"""popcorn: the directives, task.yml as libkernelbot reads it, the reference's checks, and the submission's values."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from hipwright.program.convert.modelnew import from_modelnew
from tests.ship import subjects
from tests.ship.formats.made import exported, module, with_kernels

PLAIN_TASK = """
import torch

class Model(torch.nn.Module):
    def forward(self, x):
        return x * 2

def get_input_groups():
    return [[torch.rand(5, 8)], [torch.rand(7, 8)]]
"""
PLAIN = """HIP = r'''
#include <hip/hip_runtime.h>
extern "C" __global__ void twice(const float* x, float* y, long n) {
    long i = blockIdx.x * 64L + threadIdx.x;
    if (i < n) y[i] = 2.f * x[i];
}
'''

def forward(self, x):
    y = torch.empty_like(x)
    twice[cdiv(x.numel(), 64), 64](x, y, x.numel())
    return y
"""


def definition(folder: Path) -> dict[str, Any]:
    """task.yml, held against the fields that libkernelbot's task module knows; its package is on no index."""
    raw: dict[str, Any] = yaml.safe_load((folder / "task.yml").read_text())
    known = {"files", "lang", "description", "config", "templates", "tests", "benchmarks", "ranking_by", "gpus"}
    assert set(raw) <= known | {"test_timeout", "benchmark_timeout", "ranked_timeout", "seed", "multi_gpu"}
    assert raw["lang"] == "py" and raw["config"] == {"main": "eval.py"}
    assert raw["ranking_by"] in ("last", "mean", "geom") and set(raw["templates"]) <= {"Python", "HIP"}
    for file in raw["files"]:
        assert file["source"] in ("@SUBMISSION@", "../eval.py", "../utils.py") or (folder / file["source"]).is_file()
    return raw


def directives(text: str) -> dict[str, list[str]]:
    """The directives of the first comment, by name."""
    found = {}
    for line in text.splitlines():
        if not line.startswith("#"):
            break
        if line.startswith("#!POPCORN "):
            _, name, *values = line.split()
            assert values and name not in found
            found[name] = values
    return found


@pytest.mark.parametrize(
    ("task", "program", "cases"), [(subjects.SCALE_TASK, subjects.SCALE, 1), (PLAIN_TASK, PLAIN, 2)]
)
def test_a_submission_answers_its_own_problem(task: str, program: str, cases: int, tmp_path: Path) -> None:
    folder = exported(tmp_path, "popcorn", task, program, "--name", "my_problem")
    text = (folder / "submission.py").read_text()
    assert directives(text) == {"leaderboard": ["my_problem"], "gpus": ["MI300"]}
    tests = definition(folder)["tests"]
    assert len(tests) == cases
    problem = module(folder / "reference.py", "popcorn_reference")
    submission = with_kernels(folder / "submission.py", "popcorn_submission", program)
    for test in tests:
        data = problem.generate_input(**test)
        good = submission.custom_kernel(data)
        assert problem.check_implementation(data, good) == (True, "")
        assert problem.check_implementation(data, problem.ref_kernel(data)) == (True, "")
        assert not problem.check_implementation(data, good * 1.001)[0]
        assert not problem.check_implementation(data, good.double())[0]
        assert not problem.check_implementation(data, torch.full_like(good, float("nan")))[0]
    assert "class TestSpec" in (folder / "task.py").read_text()


def test_new_weights_are_used_at_each_call(tmp_path: Path) -> None:
    folder = exported(tmp_path, "popcorn", subjects.LAYERS_TASK, subjects.LAYERS)
    problem = module(folder / "reference.py", "popcorn_layers_reference")
    submission = with_kernels(folder / "submission.py", "popcorn_layers", subjects.LAYERS)
    for seed in (1, 2):
        data = problem.generate_input(workload=0, seed=seed)
        for _ in range(2):
            assert problem.check_implementation(data, submission.custom_kernel(data)) == (True, "")


def test_it_is_read_back_as_the_program(tmp_path: Path) -> None:
    folder = exported(tmp_path, "popcorn", subjects.SCALE_TASK, subjects.SCALE)
    again = from_modelnew((folder / "submission.py").read_text(), subjects.SCALE_TASK)
    assert "scale[cdiv(x.numel(), BLOCK), BLOCK]" in again.text
