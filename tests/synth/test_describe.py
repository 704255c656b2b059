"""What a task does: axes of its reductions, roofline times worked out by hand, difficulty by the stated points."""

from __future__ import annotations

from typing import Any

import pytest

from hipwright.sandbox import Zygote
from hipwright.synth.check import TaskRefused, examine
from hipwright.synth.describe import DEVICES, describe, difficulty, family, is_fused, reduction_axes
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
        examine("task", source, zygote)
    return f"{caught.value.stage}: {caught.value.message}"


def test_a_task_is_described_by_what_it_really_does(zygote: Zygote) -> None:
    source = TASK.replace("torch.rand(width)", "torch.rand(width, dtype=torch.bfloat16)")
    draft = Draft(name="task", source=source, mode="composition")
    made = describe(draft, examine("task", source, zygote), graph="g", provenance={"made_by": "test"})
    assert made.operators == (
        "aten.add.Tensor",
        "aten.gelu.default",
        "aten.transpose.int",
        "aten.mean.dim",
        "aten.sum.dim_IntList",
        "aten.softmax.int",
    )
    assert (
        made.fused == 5
        and made.dtype == "bfloat16"
        and [spec.shape for spec in made.outputs] == [(6, 16, 10), (6, 16), (6, 10)]
    )
    assert made.bytes == 2 * (6 * 10 * 16 + 16 + 6 * 10 * 16 + 6 * 16 + 6 * 10)
    assert made.intensity == round(made.flops / made.bytes, 4) and made.flops > 4 * 960 * 2
    assert made.roofline_us == {
        name: round(1e6 * max(made.bytes / one.bandwidth, made.flops / one.flops["float32"]), 6)
        for name, one in DEVICES.items()
    }
    assert made.provenance == {"made_by": "test", "bound": "memory", "reduction_axes": ["middle", "last", "first"]}
    assert made.difficulty == "hard"  # 5 operators, 2 further outputs, 2 further reductions, an axis that is not last


def test_products_count_at_the_rate_of_matrix_units(zygote: Zygote) -> None:
    text = TASK.replace("nn.functional.gelu(x + self.bias)", "x @ x.transpose(1, 2) * 0.1").replace(
        "y.transpose(1, 2), ", ""
    )
    text = text.replace("self.bias = nn.Parameter(torch.rand(width))", "self.width = width")
    text = text.replace("6, 10, 16, dtype=torch.bfloat16", "2, 400, 1024")
    made = describe(
        Draft(name="task", source=text, mode="composition"), examine("task", text, zygote), graph="", provenance={}
    )
    product = 2 * 2 * 400 * 400 * 1024
    assert made.flops >= product and made.provenance["bound"] == "compute"
    assert made.roofline_us["H100"] == pytest.approx(1e6 * made.flops / 67e12, abs=1e-5)
    assert made.roofline_us["MI300X"] == pytest.approx(1e6 * made.flops / 163.4e12, abs=1e-5)


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
def test_one_bad_output_of_three_is_enough(old: str, new: str, why: str, zygote: Zygote) -> None:
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


def test_every_operator_of_the_library_has_its_family_and_views_are_no_work() -> None:
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
