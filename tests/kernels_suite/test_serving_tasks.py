"""Tasks of serving (benchmarks/serving): each workload runs on tensors without data; the texts name sizes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from torch.utils._pytree import tree_leaves

from benchmarks.suite.tasks import SuiteTask, find, suite_named
from hipwright.evaluation.suite import find_tasks
from hipwright.task.host.load import TaskModule

ROOT = Path(__file__).parents[2]
TASKS = find(suite_named("serving"))
FAMILIES = {"activations", "attention", "experts", "norms", "products", "rotary", "sampling", "training"}
FAMILIES |= {"quantisation", "scientific", "sparse"}
WRITE = {
    "paged_kv_write_8_128_bf16",
    "rotary_kv_write_8_128_bf16",
    "mla_cache_write_512_64_bf16",
    "conv1d_state_update_2048_bf16",
    "adamw_in_place_16m_fp32",
    "axpy_67108864_fp32",
    "gated_delta_step_32_128_fp32",
    "qk_norm_rotary_fp8_write_4_128_bf16",
    "rotary_fp8_kv_write_8_128_bf16",
}
"""Tasks that write their inputs; batch norm's statistics too, of which torch counts no version."""
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16, "uint8": torch.uint8}


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)
def test_every_workload_runs_without_data_and_has_the_dtype_of_its_name(task: SuiteTask) -> None:
    file = TaskModule(task.path.name, task.path.read_text(encoding="utf-8"))
    with torch.device("meta"), torch.no_grad():
        model = file.model(0)
        groups = file._names.get("get_input_groups", list)()
        for inputs in (file.inputs(0), *groups):
            given = [one for one in inputs if isinstance(one, torch.Tensor)]
            outputs = [one for one in tree_leaves(model(*inputs)) if isinstance(one, torch.Tensor)]
            written = [one for one in given if one._version]
            assert (outputs or written) and all(one.is_meta for one in outputs), "it makes tensors on another device"
            assert DTYPES[task.name.rpartition("_")[2]] in {one.dtype for one in given}
            assert bool(written) == (Path(task.name).stem in WRITE), "it writes to its inputs"


def test_every_file_says_what_it_is() -> None:
    for task in TASKS:
        line = TaskModule(task.path.name, task.path.read_text(encoding="utf-8"))._names["__doc__"]
        assert 40 <= len(line) <= 120 and line.endswith(".") and "\n" not in line, task.name
        assert re.search(r"\d", line), f"{task.name} names no size"


def test_the_folder_the_suite_and_the_page_are_the_same_tasks() -> None:
    assert {task.name for task in find_tasks(ROOT / "benchmarks/serving")} == {task.name for task in TASKS}
    assert {task.family for task in TASKS} == FAMILIES
    suite = suite_named("serving")
    assert f"{len(TASKS)} tasks" in suite.file.description
    assert f"`benchmarks/serving/` has {len(TASKS)} tasks" in (ROOT / "docs/suite.md").read_text(encoding="utf-8")
    for pattern in suite.file.gathers:
        assert any(Path(task.name).match(pattern) for task in TASKS), f"{pattern} names no task"
