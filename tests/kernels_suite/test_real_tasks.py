"""Tasks of real size (benchmarks/real): each runs on tensors without data; the set is what docs/suite.md says."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from benchmarks.suite.tasks import SuiteTask, find, suite_named
from hipwright.evaluation.suite import find_tasks
from hipwright.task.host.load import TaskModule

ROOT = Path(__file__).parents[2]
TASKS = find(suite_named("real"))
FAMILIES = ("language", "vision", "diffusion", "speech", "recommendation", "scientific")
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
SMALLEST, LARGEST = 1e6, 16 * 2**30
BANDS = (1, 4, 16, 64, 256, 1024, 4096)
"""Megabytes from which a band of sizes begins; it ends where the next one begins."""
DEVICE_BYTES = 64e9
"""What a task may allocate in its own dtype, of a GPU's 80 GB."""


class Allocations(TorchDispatchMode):
    """The most bytes alive at a time: of what is there before, and of what operators make."""

    def __init__(self, before: Iterable[torch.Tensor]) -> None:
        super().__init__()
        self._alive: dict[int, tuple[Any, int]] = {}
        self.most = 0
        self._seen(before)

    def __torch_dispatch__(self, operator: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = operator(*args, **(kwargs or {}))
        self._seen(one for one in tree_leaves(made) if isinstance(one, torch.Tensor))
        return made

    def _seen(self, tensors: Iterable[torch.Tensor]) -> None:
        alive = {key: held for key, held in self._alive.items() if not held[0].expired()}
        for storage in (one.untyped_storage() for one in tensors):
            alive[storage._cdata] = (torch.multiprocessing.reductions.StorageWeakRef(storage), storage.nbytes())
        self._alive = alive
        self.most = max(self.most, sum(size for _, size in alive.values()))


@dataclass(frozen=True)
class Sizes:
    """Bytes of a task: of parameters, buffers, inputs and outputs once, and the most that are alive in eager mode."""

    moved: int
    most: int
    dtypes: frozenset[torch.dtype]
    trains: bool


@cache
def sizes(task: SuiteTask) -> Sizes:
    """Runs a task's forward on the meta device, from its own file."""
    file = TaskModule(task.path.name, task.path.read_text(encoding="utf-8"))
    with torch.device("meta"), torch.no_grad():
        model, inputs = file.model(0), file.inputs(0)
        given = [one for one in inputs if isinstance(one, torch.Tensor)]
        state = [*model.parameters(), *model.buffers()]
        versions = [one._version for one in given]
        with Allocations([*given, *state]) as allocations:
            outputs = [one for one in tree_leaves(model(*inputs)) if isinstance(one, torch.Tensor)]
    assert [one._version for one in given] == versions, "it writes to its inputs"
    assert outputs and all(one.is_meta for one in (*given, *state, *outputs)), "it makes tensors on another device"
    assert not any(one.requires_grad for one in outputs)
    floats = frozenset(one.dtype for one in (*given, *state) if one.is_floating_point())
    moved = sum(one.numel() * one.element_size() for one in (*given, *state, *outputs))
    source = task.path.read_text(encoding="utf-8")
    working = (torch.nn.Dropout, torch.nn.modules.batchnorm._BatchNorm)
    trains = any(isinstance(one, working) and one.training for one in model.modules())
    return Sizes(moved, allocations.most, floats, trains or "autograd.grad" in source)


@pytest.mark.parametrize("family", FAMILIES)
def test_every_task_runs_without_data_in_its_dtype_and_fits_a_device(family: str) -> None:
    for task in (one for one in TASKS if one.family == family):
        found = sizes(task)
        assert SMALLEST <= found.moved <= LARGEST, task.name
        assert found.most <= DEVICE_BYTES, task.name
        wanted = DTYPES[task.name.rpartition("_")[2]]
        assert wanted in found.dtypes and found.dtypes <= {wanted, torch.float32}, task.name


def test_every_file_says_what_it_is() -> None:
    for task in TASKS:
        file = TaskModule(task.path.name, task.path.read_text(encoding="utf-8"))
        line = file._names["__doc__"]
        assert 40 <= len(line) <= 120 and line.endswith(".") and "\n" not in line, task.name
        assert re.search(r"\d", line), f"{task.name} names no size"
    assert len({task.key for task in TASKS}) == len(TASKS) and len({task.path.stem for task in TASKS}) == len(TASKS)


def test_the_folder_and_the_suite_are_the_same_tasks() -> None:
    assert {task.name for task in find_tasks(ROOT / "benchmarks/real")} == {task.name for task in TASKS}
    suite = suite_named("real")
    assert f"{len(TASKS)} tasks" in suite.file.description
    for pattern in suite.file.gathers:
        assert any(Path(task.name).match(pattern) for task in TASKS), f"{pattern} names no task"


def test_the_set_spans_families_dtypes_sizes_and_training() -> None:
    assert len(TASKS) >= 80 and {task.family for task in TASKS} == set(FAMILIES)
    for family in FAMILIES:
        dtypes = Counter(task.name.rpartition("_")[2] for task in TASKS if task.family == family)
        assert set(dtypes) == set(DTYPES), family
    moved = sorted(sizes(task).moved for task in TASKS)
    assert min(banded([size / 1e6 for size in moved])) >= 5, "a factor of four in size has few tasks"
    assert moved[0] < 2e6 and sum(size >= 1e9 for size in moved) >= 12 and sum(size >= 8e9 for size in moved) == 3
    assert sum(sizes(task).trains for task in TASKS) >= 10


def test_the_page_has_the_figures_of_the_set() -> None:
    page = (ROOT / "docs/suite.md").read_text(encoding="utf-8")
    for line in table():
        assert line in page, f"docs/suite.md lacks the line\n{line}"


def table() -> list[str]:
    """The rows of the page's table."""
    return [_row(f"`{family}`", [t for t in TASKS if t.family == family]) for family in FAMILIES] + [_row("all", TASKS)]


def _row(name: str, tasks: list[SuiteTask]) -> str:
    dtypes = Counter(task.name.rpartition("_")[2] for task in tasks)
    moved = sorted(sizes(task).moved / 1e6 for task in tasks)
    cells = [len(tasks), *(dtypes[one] for one in DTYPES), sum(sizes(task).trains for task in tasks), *banded(moved)]
    return f"| {name} | {' | '.join(map(str, cells))} | {moved[0]:.3g} MB to {moved[-1] / 1e3:.3g} GB |"


def banded(megabytes: list[float]) -> list[int]:
    """How many sizes are in each of BANDS; the last has no end."""
    ends = (*BANDS[1:], float("inf"))
    return [sum(low <= size < high for size in megabytes) for low, high in zip(BANDS, ends, strict=True)]
