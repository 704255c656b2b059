"""A forward that reads values is refused with its statement, the true reason and the hint for that reason."""

from __future__ import annotations

import pytest
import torch

from hipwright.capture.forward import capture
from hipwright.errors import TaskError


class TakesNumber(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x[:, : int(x.abs().max().item()) + 1]


class TakesNumpy(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.from_numpy(x.numpy() * 2)


@pytest.mark.parametrize(
    ("model", "said"),
    [
        (TakesNumber(), "what is taken as a number depends on the values"),
        (TakesNumpy(), "its values are read on the host"),
    ],
)
def test_a_number_out_of_a_tensor_is_told_as_such(model: torch.nn.Module, said: str) -> None:
    with pytest.raises(TaskError, match=r"^cannot capture: test_value_dependent\.py line \d+: `.*`: ") as refused:
        capture(model, [torch.randn(4, 5)])
    assert said in refused.value.message and "keep it a tensor" in refused.value.hint
    assert "u0" not in refused.value.message and "torch.where" not in refused.value.hint


class Listed(torch.nn.Module):
    """Its parameter is registered, and read from a list; a size follows from its value."""

    def __init__(self) -> None:
        super().__init__()
        self.widths = [torch.nn.Parameter(torch.tensor(1.5))]
        self.register_parameter("width", self.widths[0])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        (width,) = self.widths
        reach = int(float(width) * 2)
        return torch.nn.functional.pad(x, [reach, reach]) * width


def test_a_number_of_a_parameter_in_a_list_is_not_fixed() -> None:
    with pytest.raises(TaskError, match=r"reads self.width from a list|depends on the values of a tensor"):
        capture(Listed(), [torch.randn(3, 4)])
