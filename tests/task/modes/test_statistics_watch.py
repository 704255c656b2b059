"""Running statistics that a batch norm writes, with values and without."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from hipwright.sandbox import Zygote
from hipwright.task import open_task
from hipwright.task.host.reference import and_written
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


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_what_a_batch_norm_writes(device: str) -> None:
    args = [torch.randn(8, 3, device=device), torch.zeros(3, device=device), torch.ones(3, device=device)]
    found: set[str] = set()
    and_written(norm(True), args, found)
    assert found == {"inputs[1]", "inputs[2]"}
    found.clear()
    and_written(norm(False), args, found)
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
