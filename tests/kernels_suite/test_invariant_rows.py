"""A program of the batch-invariant RMSNorm gives a row the same bits alone and in a batch."""

from __future__ import annotations

from pathlib import Path

import torch

from hipwright.engine import author
from hipwright.task.host.load import TaskModule
from tests.engine.harness import captured, run

TASK = Path(__file__).parents[2] / "benchmarks/serving/norms/invariant_rms_norm_7168_bf16.py"


def test_a_row_has_the_same_bits_in_every_batch() -> None:
    torch.manual_seed(3)
    model = TaskModule(TASK.name, TASK.read_text(encoding="utf-8")).model(0)
    inputs = [torch.randn(64, 7168, dtype=torch.bfloat16)]
    program = author(captured(model, inputs), {}).program
    batch, _ = run(program, model, [inputs[0][:3]], checked=False)
    for row in (0, 2):
        alone, _ = run(program, model, [inputs[0][row : row + 1]], checked=False)
        assert torch.equal(alone[0].view(torch.int16), batch[row].view(torch.int16))
