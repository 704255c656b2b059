"""Programs whose matrices are decomposed: their own roundings decide vectors' signs, and move vectors far.

The error of an eigenvector is its matrix's over the gap to the next value: with one draw of the baseline's error most
honest products before a decomposition were refused.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hipwright.program import parse
from hipwright.records import Program, Verdict
from hipwright.sandbox import Zygote
from hipwright.toolchain.cache import BuildCache
from hipwright.verify import Oracle, verify_cpu
from tests.verify.test_programs import build

TASK = """
import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.linalg.eigh(x @ x.T)


def get_inputs():
    return [torch.randn(6, 6)]
"""

PROGRAM = '''
HIP = r"""
#include <hip/hip_runtime.h>
#include <hip/hip_fp16.h>
extern "C" __global__ void gram(const float* x, float* y, int rows, int terms) {
    int at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= rows * rows) return;
    const float* a = x + (long)(at / rows) * terms;
    const float* b = x + (long)(at % rows) * terms;
    float sum = 0.0f;
    for (int k = 0; k < terms; ++k) sum = fmaf(a[k], b[k], sum);
    y[at] = sum;
}
"""


def forward(self, x):
    x = x.contiguous()
    rows, terms = x.shape[0], x.shape[1]
    product = torch.empty((rows, rows), dtype=torch.float32)
    gram[cdiv(rows * rows, 64), 64](x, product, rows, terms)
    values, vectors = torch.ops.aten.linalg_eigh.default(product)
    return (values, vectors)
'''

WRONG = {
    "the last term is left out": ("k < terms;", "k < terms - 1;"),
    "vectors as rows": ("return (values, vectors)", "return (values, vectors.transpose(0, 1).contiguous())"),
    "values in another order": ("return (values, vectors)", "return (torch.flip(values, [0]), vectors)"),
    "vectors in another order": ("return (values, vectors)", "return (values, torch.flip(vectors, [1]))"),
    "a product in half precision": ("y[at] = sum;", "y[at] = (float)(__half)sum;"),
}


@pytest.fixture(scope="module")
def task(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("task") / "vectors_of_a_product.py"
    path.write_text(TASK)
    return path


def judged(text: str, seed: int, task: Path, tasks: Any, candidates: Zygote, cache: BuildCache) -> Verdict:
    oracle = Oracle(tasks.handle(task), seed=seed)
    builds = build(text, cache)
    assert all(one.ok for one in builds.values()), [one.log for one in builds.values()]
    return verify_cpu(parse(text), Program(text=text), builds, oracle, candidates, cache=cache)


@pytest.mark.parametrize("seed", [1, 6, 17, 21])
def test_an_honest_product_before_a_decomposition_passes(
    seed: int, task: Path, tasks: Any, candidates: Zygote, cache: BuildCache
) -> None:
    verdict = judged(PROGRAM, seed, task, tasks, candidates, cache)
    assert verdict.passed, verdict.message


@pytest.mark.exhaustive
@pytest.mark.timeout(0)
def test_25_seeds_refuse_none(task: Path, tasks: Any, candidates: Zygote, cache: BuildCache) -> None:
    verdicts = {seed: judged(PROGRAM, seed, task, tasks, candidates, cache) for seed in range(25)}
    assert {seed: verdict.message for seed, verdict in verdicts.items() if not verdict.passed} == {}


@pytest.mark.parametrize("fault", WRONG)
def test_a_wrong_one_does_not(fault: str, task: Path, tasks: Any, candidates: Zygote, cache: BuildCache) -> None:
    right, wrong = WRONG[fault]
    text = PROGRAM.replace(right, wrong)
    assert text != PROGRAM
    verdict = judged(text, 0, task, tasks, candidates, cache)
    assert verdict.status == "wrong_value", (verdict.status, verdict.message)
