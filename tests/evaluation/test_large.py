"""Tasks too large to run at their own shapes are judged at smaller ones, and traced without data at their own."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hipwright.capture.graph import Graph
from hipwright.engine import space, write
from hipwright.evaluation import Evaluator
from hipwright.records import Evaluation
from hipwright.sandbox import Zygote
from hipwright.task import TaskHandle, open_task
from hipwright.toolchain.cache import BuildCache
from hipwright.verify import Oracle
from tests import warm
from tests.load import Watch

HEAD = "import torch\n\n\nclass Model(torch.nn.Module):\n    def forward(self, *args):\n        "
INPUTS = "\n\n\ndef get_inputs():\n    return "
GIGABYTE = (
    HEAD + "return torch.relu(args[0] * 2.0 + args[1])" + INPUTS + "[torch.rand(32768, 4096) for _ in range(2)]\n"
)
PRODUCT = HEAD + "return torch.relu(args[0] @ args[1])" + INPUTS + "[torch.randn(4096, 4096) for _ in range(2)]\n"
BY_VALUE = (
    HEAD
    + "x = args[0]\n        return x * 2.0 if x.sum().item() < 1e30 else x"
    + INPUTS
    + "[torch.rand(8192, 16384)]\n"
)
DRAWN_BY_VALUE = (
    HEAD + "return args[0] + 1.0" + "\n\n\ndef get_inputs():\n    x = torch.rand(6, 50)\n"
    "    return [x * 2.0 if x.sum().item() > 0 else x]\n"
)


@pytest.fixture(scope="module")
def host() -> Zygote:
    return warm.host()


@pytest.fixture
def opened(host: Zygote, tmp_path: Path) -> Iterator[Any]:
    handles: list[TaskHandle] = []

    def get(source: str) -> TaskHandle:
        path = tmp_path / f"task{len(handles)}.py"
        path.write_text(source)
        handles.append(open_task(path, host))
        return handles[-1]

    yield get
    for handle in handles:
        handle.close()


def evaluated(handle: TaskHandle, cache: BuildCache) -> Evaluation:
    """The engine's program for a task, evaluated."""
    graph = Graph.from_dict(handle.capture("given"))
    program = write(graph, {key: choice.default for key, choice in space(graph).items()})
    with Zygote(("torch", "hipwright.verify.cpu.worker"), ro=[cache.folder], name="candidates") as candidates:
        return Evaluator(handle, Oracle(handle, seed=1), candidates, cache, ("gfx942", "cpu")).evaluate(program)


@pytest.mark.slow
@pytest.mark.parametrize("source, own", [(GIGABYTE, [32768, 4096]), (PRODUCT, [4096, 4096])], ids=["1GB", "product"])
def test_a_task_beyond_the_laptop_is_evaluated(source: str, own: list[int], opened: Any, tmp_path: Path) -> None:
    with Watch() as watch:
        handle = opened(source)
        result = evaluated(handle, BuildCache(tmp_path / "cache"))
    assert watch.seconds < 60
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < 4 << 20, "KiB of this process, ever"
    assert result.passed, result.message
    verdict = result.targets["cpu"].verdict
    assert verdict is not None and len(verdict.workloads) >= 3
    assert "given" not in verdict.checks["shapes"] and "too many for the cpu target" in verdict.skipped["given"]
    assert verdict.checks["traced_shapes"] == {"given": [f"float32{own}"] * 2}
    estimate = result.targets["gfx942"].estimate
    assert estimate is not None and estimate.microseconds > 50, "it is for the task's own shapes"


def test_nothing_large_is_drawn_or_run_to_open_a_task(opened: Any) -> None:
    with Watch() as watch:
        handle = opened(PRODUCT)
        outline = handle.outline()
    assert watch.seconds < 20, "the product alone takes longer than the rest on a slow machine"
    assert outline.how == "meta" and outline.outputs[0].shape == (4096, 4096)
    assert handle.operations("given") == 2 * 4096**3
    assert [spec.shape for spec in outline.specs()] == [(4096, 4096)] * 3


@pytest.mark.slow
def test_a_large_forward_that_looks_at_values_is_traced_at_a_smaller_shape(opened: Any) -> None:
    outline = opened(BY_VALUE).outline()
    assert outline.how == "run" and outline.workload.origin == "derived"
    assert outline.inputs == list(outline.workload.specs)
    assert "aten.mul.Tensor" in [op["op"] for op in outline.ops]


def test_inputs_that_are_made_by_looking_are_drawn(opened: Any) -> None:
    handle = opened(DRAWN_BY_VALUE)
    assert handle.task.workloads[0].specs[0].shape == (6, 50) and handle.outline().how == "meta"
