"""The suite's own tasks: families, sizes and dtypes as a set, and that each can be opened, traced and scored."""

from __future__ import annotations

import ast
import os
from collections import Counter

import pytest

from benchmarks.suite.tasks import SuiteTask, find
from hipwright.measure.cost import tensor_bytes
from hipwright.sandbox import Zygote
from hipwright.task import open_task
from hipwright.verify import Oracle
from tests import warm

TASKS = find()
FAMILIES = {
    "pointwise",
    "reductions",
    "softmax",
    "norms",
    "losses",
    "scans",
    "pooling",
    "transposes",
    "argmax_topk",
    "embedding_segment",
    "stencils",
    "depthwise",
    "convolutions",
    "recurrent",
    "gemv",
    "gemm_epilogue",
    "grouped_gemm",
    "attention",
    "networks",
    "backward",
}
QUICK = {
    "pointwise/masked_lerp_odd_fp32",
    "softmax/long_rows_fp32",
    "norms/rms_residual_fp16",
    "stencils/heat3d_fp32",
    "embedding_segment/bag_mean_bf16",
    "gemv/int4_groups_fp16",
    "backward/layer_norm_fp32",
    "transposes/split_heads_bf16",
}
"""One of each difficulty; the others are opened in the long test."""


def test_there_are_four_of_each_family_and_all_dtypes() -> None:
    counts = Counter(task.family for task in TASKS)
    assert set(counts) == FAMILIES and min(counts.values()) >= 4 and len(TASKS) >= 88
    dtypes = Counter(task.name.rpartition("_")[2] for task in TASKS)
    assert set(dtypes) == {"fp32", "fp16", "bf16"} and min(dtypes.values()) >= 12
    assert sum(task.max_autotune for task in TASKS) >= 20
    assert len({task.key for task in TASKS}) == len(TASKS)


def test_a_run_cut_short_saw_something_of_every_family() -> None:
    assert {task.family for task in TASKS[: len(FAMILIES)]} == FAMILIES


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)
def test_a_file_is_a_plain_task(task: SuiteTask) -> None:
    """Nothing but torch is imported, nothing is run but definitions, and the name says the dtype."""
    tree = ast.parse(task.path.read_text())
    allowed = (ast.Import, ast.ImportFrom, ast.ClassDef, ast.FunctionDef, ast.Assign)
    assert all(isinstance(part, allowed) for part in tree.body)
    assert {part.name for part in tree.body if isinstance(part, ast.ClassDef | ast.FunctionDef)} >= {
        "Model",
        "get_inputs",
    }
    modules = {a.name for p in tree.body if isinstance(p, ast.Import) for a in p.names}
    assert modules | {p.module for p in tree.body if isinstance(p, ast.ImportFrom)} <= {"torch"}
    text = task.path.read_text()
    suffix = task.name.rpartition("_")[2]
    said = {"fp16": (".half()", "float16"), "bf16": ("bfloat16",), "fp32": ("rand",)}[suffix]
    assert any(word in text for word in said)


@pytest.fixture(scope="module")
def host() -> Zygote:
    return warm.host()


def scorable(task: SuiteTask, host: Zygote) -> int:
    """Opens it, asks the task lint, and returns the bytes of its own shapes, which are never filled."""
    with open_task(task.path, host) as handle:
        outline = handle.outline(handle.task.workloads[0].name)
        assert outline.workload.name == handle.task.workloads[0].name, "it cannot be traced at its own shapes"
        status = Oracle(handle, seed=1).status()
        assert status is None, f"{status.status}: {status.message}"
        return sum(tensor_bytes(spec.to_dict()) for spec in outline.specs())


@pytest.mark.matrix(keep=4)
@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(QUICK))
def test_a_task_can_be_scored(name: str, host: Zygote) -> None:
    (task,) = find(names=[name])
    assert scorable(task, host) > 0


@pytest.mark.slow
@pytest.mark.timeout(3000)
@pytest.mark.skipif(not os.environ.get("HIPWRIGHT_EVERY_TASK"), reason="takes many minutes: HIPWRIGHT_EVERY_TASK=1")
def test_every_task_can_be_scored(host: Zygote) -> None:
    sizes = {task.name: scorable(task, host) for task in TASKS}
    assert max(sizes.values()) > 4e9 and min(sizes.values()) < 1e6
