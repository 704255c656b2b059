"""Programs that draw random numbers in the GPU's worker."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from hipwright.sandbox import Zygote
from hipwright.task import open_task
from hipwright.verify import Oracle
from hipwright.verify.gpu.client import CandidateWorker
from hipwright.verify.gpu.reference import open_reference
from hipwright.verify.gpu.reference_handles import DRAWS
from hipwright.verify.worker.seeded import generator_state, seeded
from tests.verify.gpu.judged_programs import verdict_of

TASK = """
import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.tanh(torch.nn.functional.dropout(x, 0.25, True)) + torch.randn(x.shape[1])


def get_inputs():
    return [torch.randn(12, 33)]
"""
PLAN = "HIP = r''''''\n\n\ndef forward(self, x):\n    {}\n    return {}\n"
DROPPED = "y = torch.tanh(F.dropout(x, 0.25, True))"


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory, task_zygote: Zygote) -> Iterator[Oracle]:
    path = tmp_path_factory.mktemp("drawn") / "task.py"
    path.write_text(TASK)
    with open_task(path, task_zygote) as handle:
        yield Oracle(handle, seed=3)


@pytest.mark.parametrize("gate", ["full", "fast"])
def test_the_modules_draws_pass(gate: Any, drawn: Oracle, worker: CandidateWorker) -> None:
    verdict = verdict_of(PLAN.format(DROPPED, "y + torch.randn(x.shape[1])"), drawn, worker, gate=gate)
    assert verdict.passed, verdict.message


@pytest.mark.parametrize(
    "first, then", [("y = torch.randn(x.shape[1])", "torch.tanh(F.dropout(x, 0.25, True)) + y"), (DROPPED, "y")]
)
def test_other_draws_are_refused(first: str, then: str, drawn: Oracle, worker: CandidateWorker) -> None:
    verdict = verdict_of(PLAN.format(first, then), drawn, worker, gate="fast")
    assert verdict.status == "wrong_value", verdict.message


def test_shapes_that_only_a_device_holds_are_left_with_the_reason(drawn: Oracle) -> None:
    with (
        Zygote(("torch", "hipwright.task.device.server"), name="reference host") as hosts,
        open_reference(drawn.handle, hosts, "cpu") as reference,
    ):
        expected = reference.expect("given", 4, drawn.state, drawn.handle.task.tolerance)
    assert expected.random and expected.rejected == DRAWS and not expected.counts


def test_draws_on_a_device_take_the_numbers_of_the_cpu() -> None:
    """On the meta device, which has no generator: what is drawn on the CPU is moved there."""
    with seeded(7, "cpu"):
        wanted = torch.rand(8, 5)
    state = generator_state()
    with seeded(7, "meta"):
        noise = torch.rand(8, 5, device="meta")
        torch.zeros(3, device="meta").uniform_(0.0, 1.0, generator=torch.Generator())  # the poison's own
    assert noise.device.type == "meta" and noise.shape == wanted.shape
    assert generator_state() == state


def test_without_a_seed_nothing_is_watched() -> None:
    before = generator_state()
    with seeded(None, "cuda"):
        assert torch.utils._python_dispatch._get_current_dispatch_mode() is None
    assert generator_state() == before
