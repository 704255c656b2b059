"""Running statistics that a batch norm writes, with values and without."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from hipwright.sandbox import Zygote
from hipwright.task import open_task
from hipwright.task.host.writes import and_written
from tests import warm

TEXT = """import torch
from torch.nn import functional as F

class Model(torch.nn.Module):
    def forward(self, x, mean, variance):
        return F.batch_norm(x, mean, variance, training={training}, momentum={momentum})

def get_inputs():
    return [torch.randn({shape}), torch.zeros({channels}), torch.ones({channels})]
"""


def norm(training: bool) -> Any:
    return lambda x, mean, variance: F.batch_norm(x, mean, variance, training=training)


def legit(training: bool) -> Any:
    operator = torch.ops.aten._native_batch_norm_legit
    return lambda x, mean, variance: operator(x, None, None, mean, variance, training, 0.1, 1e-5)


@pytest.mark.parametrize("made", [norm, legit])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_what_a_batch_norm_writes(device: str, dtype: torch.dtype, made: Any) -> None:
    given = torch.randn(8, 3), torch.zeros(3), torch.ones(3)
    args = [tensor.to(device, dtype) for tensor in given]
    found: set[str] = set()
    and_written(made(True), args, found)
    assert found == {"inputs[1]", "inputs[2]"}
    found.clear()
    and_written(made(False), args, found)
    assert not found


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn])
def test_a_write_that_counts_no_version_shows_in_the_bits(dtype: torch.dtype) -> None:
    kept = torch.tensor([1.0, float("nan")]).to(dtype)

    def forward(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x.data.view(torch.uint8).fill_(0)  # in no operator's name
        return y

    for shape in ((2, 3), (1,)):
        found: set[str] = set()
        and_written(forward, [torch.ones(shape).to(dtype), kept], found)
        assert found == {"inputs[0]"}
    found.clear()
    and_written(lambda x, y: y, [torch.ones(2, 3).to(dtype).T, kept], found)
    assert not found


@pytest.mark.parametrize(
    ("shape", "channels"), [((8, 3, 4, 4), 3), ((64, 256, 28, 28), 256)], ids=["run", "on shapes alone"]
)
@pytest.mark.parametrize("training", [True, False])
def test_a_task_of_any_size_says_what_it_writes(
    shape: tuple[int, ...], channels: int, training: bool, tmp_path: Path
) -> None:
    path = tmp_path / "task.py"
    path.write_text(TEXT.format(training=training, momentum=0.1, shape=", ".join(map(str, shape)), channels=channels))
    zygote: Zygote = warm.host()
    handle = open_task(path, zygote)
    try:
        assert handle.written == (("inputs[1]", "inputs[2]") if training else ())
    finally:
        handle.close()


def test_statistics_that_are_written_with_their_old_values_are_written(tmp_path: Path) -> None:
    path = tmp_path / "task.py"
    path.write_text(TEXT.format(training=True, momentum=0.0, shape="8, 3, 4, 4", channels=3))
    zygote: Zygote = warm.host()
    handle = open_task(path, zygote)
    try:
        _, buffers, info = handle.reference(handle.inputs("given", 0), handle.init_state(0), dtype="native")
        assert info["mutated_inputs"] == ["inputs[1]", "inputs[2]"] == sorted(buffers)
        assert not buffers["inputs[1]"].to_f64().any()
    finally:
        handle.close()
