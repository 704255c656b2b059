"""What the library would add to a product or convolution is added by the kernel that reads it."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from hipwright.engine import write
from tests.engine.harness import Op, captured, check

ADDED = {
    "one row a batch": (torch.baddbmm, (2, 1, 5)),
    "a vector": (torch.baddbmm, (5,)),
    "all": (torch.baddbmm, (2, 7, 5)),
    "a matrix": (torch.addmm, (7, 5)),
    "a column": (torch.addmm, (7, 1)),
    "a row of addmm": (torch.addmm, (5,)),
}


@pytest.mark.parametrize("name", ADDED)
def test_a_sum_is_taken_behind_the_product(name: str) -> None:
    torch.manual_seed(0)
    function, shape = ADDED[name]
    lead = (2,) if function is torch.baddbmm else ()
    operands = [torch.randn(*lead, 7, 6), torch.randn(*lead, 6, 5)]
    stays = not lead and len(shape) == 1
    kind = "bmm" if lead else "addmm" if stays else "mm"
    model, own = Op(lambda c, a, b: torch.relu(function(c, a, b))), function.__name__
    text = check(
        model, [torch.randn(shape), *operands], choices={f"call:{own}": "library"}, library=[f"aten.{own}.default"]
    )
    assert f"torch.{kind}(" in text


def test_scaled_sums_and_sums_that_are_the_result_stay() -> None:
    c, a, b = torch.randn(2, 1, 5), torch.randn(2, 7, 6), torch.randn(2, 6, 5)
    library = {"call:baddbmm": "library"}
    for function in (lambda c, a, b: torch.baddbmm(c, a, b, beta=0.5).relu(), torch.baddbmm):
        assert "torch.baddbmm(" in write(captured(Op(function), [c, a, b]), library).text


def test_the_bias_of_a_transposed_convolution() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.ConvTranspose3d(4, 6, 3, stride=2), nn.ReLU())
    text = check(
        model,
        [torch.randn(2, 4, 3, 4, 5)],
        choices={"call:conv_transpose3d": "library"},
        library=["aten.conv_transpose3d.input"],
    )
    assert "weight, None, [2, 2, 2])" in text


def test_the_bias_of_a_convolution_that_no_kernel_reads() -> None:
    """Returned, and read by another convolution; that of a depthwise one stays in the library's kernel."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv1d(4, 6, 3), nn.Conv1d(6, 6, 3, stride=2), nn.Conv1d(6, 6, 3, groups=6))
    calls = {f"call:{name}": "library" for name in ("conv1d", "conv1d_1", "conv1d_2")}
    text = check(model, [torch.randn(2, 4, 19)], choices=calls, library=["aten.conv1d.default"])
    assert "self[1].weight, None, [2])" in text and "self[2].weight, self[2].bias, " in text
    assert text.count("conv1d_conv1d_bias[") == 2
