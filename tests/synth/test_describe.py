"""Descriptions of tasks: axes of reductions, roofline times computed by hand, difficulty by its points."""

from __future__ import annotations

from typing import Any

import pytest

from hipwright.sandbox import Zygote
from hipwright.synth.check import TaskRefused, check_and_capture
from hipwright.synth.describe import DEVICES, difficulty, family, is_fused, reduction_axes, synthetic_task
from hipwright.synth.library import LIBRARY
from hipwright.synth.records import Draft
from tests import warm

TASK = '''"""Bias, GELU, then two statistics over different axes."""
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.bias = nn.Parameter(torch.rand(width))

    def forward(self, x):
        y = nn.functional.gelu(x + self.bias)
        return y.transpose(1, 2), y.mean(dim=1), torch.softmax(y.sum(dim=-1), dim=0)


def get_inputs():
    return [torch.randn(6, 10, 16, dtype=torch.bfloat16)]


def get_init_inputs():
    return [16]
'''


@pytest.fixture(scope="module")
def zygote() -> Zygote:
    return warm.host()


def refused(source: str, zygote: Zygote) -> str:
    with pytest.raises(TaskRefused) as caught:
        check_and_capture("task", source, zygote)
    return f"{caught.value.stage}: {caught.value.message}"


def test_a_description_comes_from_the_captured_graph_and_the_trace(zygote: Zygote) -> None:
    source = TASK.replace("torch.rand(width)", "torch.rand(width, dtype=torch.bfloat16)")
    draft = Draft(name="task", source=source, mode="composition")
    task = synthetic_task(draft, check_and_capture("task", source, zygote), graph="g", provenance={"made_by": "test"})
    assert task.operators == (
        "aten.add.Tensor",
        "aten.gelu.default",
        "aten.transpose.int",
        "aten.mean.dim",
        "aten.sum.dim_IntList",
        "aten.softmax.int",
    )
    assert (
        task.fused == 5
        and task.dtype == "bfloat16"
        and [spec.shape for spec in task.outputs] == [(6, 16, 10), (6, 16), (6, 10)]
    )
    assert task.bytes == 2 * (6 * 10 * 16 + 16 + 6 * 10 * 16 + 6 * 16 + 6 * 10)
    assert task.intensity == round(task.flops / task.bytes, 4) and task.flops > 4 * 960 * 2
    assert task.roofline_us == {
        name: round(1e6 * max(task.bytes / one.bandwidth, task.flops / one.flops["float32"]), 6)
        for name, one in DEVICES.items()
    }
    assert task.provenance == {"made_by": "test", "bound": "memory", "reduction_axes": ["middle", "last", "first"]}
    assert task.difficulty == "hard"  # 5 operators, 2 further outputs, 2 further reductions, an axis that is not last


def test_products_count_at_the_rate_of_matrix_units(zygote: Zygote) -> None:
    text = TASK.replace("nn.functional.gelu(x + self.bias)", "x @ x.transpose(1, 2) * 0.1").replace(
        "y.transpose(1, 2), ", ""
    )
    text = text.replace("self.bias = nn.Parameter(torch.rand(width))", "self.width = width")
    text = text.replace("6, 10, 16, dtype=torch.bfloat16", "2, 400, 1024")
    task = synthetic_task(
        Draft(name="task", source=text, mode="composition"),
        check_and_capture("task", text, zygote),
        graph="",
        provenance={},
    )
    product = 2 * 2 * 400 * 400 * 1024
    assert task.flops >= product and task.provenance["bound"] == "compute"
    assert task.roofline_us["H100"] == pytest.approx(1e6 * task.flops / 67e12, abs=1e-5)
    assert task.roofline_us["MI300X"] == pytest.approx(1e6 * task.flops / 163.4e12, abs=1e-5)


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("y.mean(dim=1)", "y.mean(dim=1) * 0", "degenerate: output[1] is"),
        ("y.mean(dim=1)", "self.bias * 2", "degenerate: output[1] is the same whatever"),
        ("y.mean(dim=1)", "torch.ones_like(y)", "degenerate: output[1] is 1.0 everywhere"),
        ("y.mean(dim=1)", "torch.log(y.mean(dim=1) - 0.2)", "nonfinite: "),
        ("y.mean(dim=1)", "torch.rand_like(y)", "random: forward draws random numbers"),
        ("y.mean(dim=1)", "y[y > 0]", "capture: "),
        ("y.mean(dim=1)", "y.mean(dim=7)", "open: "),
    ],
)
def test_one_bad_output_of_three_refuses_the_task(old: str, new: str, why: str, zygote: Zygote) -> None:
    text = TASK.replace(", dtype=torch.bfloat16", "")
    assert refused(text.replace(old, new), zygote).startswith(why)


def graph(op: str, *args: Any, rank: int = 3, **kwargs: Any) -> dict[str, Any]:
    meta = {"dtype": "float32", "shape": tuple(range(2, 2 + rank))}
    node = {"name": "n", "op": op, "args": ({"node": "x"}, *args), "kwargs": kwargs, "outs": (meta,)}
    return {"inputs": ({"name": "x", "meta": meta},), "nodes": (node,)}


@pytest.mark.parametrize(
    ("captured", "axes"),
    [
        (graph("aten.sum.dim_IntList", [-1]), ("last",)),
        (graph("aten.sum.dim_IntList", [1], rank=4), ("middle",)),
        (graph("aten.amax.default", [0]), ("first",)),
        (graph("aten.amax.default", [0], rank=1), ("last",)),
        (graph("aten.mean.dim", [0, 2]), ("several",)),
        (graph("aten.mean.default"), ("several",)),
        (graph("aten.softmax.int", 1), ("middle",)),
        (graph("aten.var.correction", [1], correction=0), ("middle",)),
        (graph("aten.layer_norm.default", [4], None, None), ("last",)),
        (graph("aten.layer_norm.default", [3, 4], None, None), ("several",)),
        (graph("aten.linalg_vector_norm.default", 2, [0]), ("first",)),
        (graph("aten.mse_loss.default", {"node": "x"}), ("several",)),
        (graph("aten.relu.default"), ()),
        (graph("aten.cumsum.default", 1), ()),
    ],
)
def test_reduction_axes(captured: dict[str, Any], axes: tuple[str, ...]) -> None:
    assert reduction_axes(captured) == axes


def test_families_of_library_operators_and_fused_operators() -> None:
    for one in LIBRARY:
        name = one.aten.removeprefix("aten.").split(".")[0]
        assert family(name) == one.family and is_fused(name) == (not (one.view or one.library)), one.name
    assert not any(map(is_fused, ("view", "mm", "sort", "clone", "permute"))) and is_fused("hardsigmoid")


def test_difficulty_follows_its_points() -> None:
    assert difficulty(["relu", "add"], (), 1) == "easy"
    assert difficulty(["relu"] * 4, (), 1) == "easy" and difficulty(["relu"] * 5, (), 1) == "medium"
    assert difficulty(["relu"] * 4, (), 2) == "medium"
    assert difficulty(["sum"], ("last",), 1) == "easy" and difficulty(["sum"] * 3, ("middle",) * 3, 1) == "medium"
    assert difficulty(["relu"] * 9, ("first",), 1) == "hard" and difficulty(["cumsum"] * 4, (), 1) == "hard"
