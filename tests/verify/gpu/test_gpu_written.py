"""Tasks that write their inputs in the GPU's workers (driver "cpu"): verified, and timed on copies of their own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hipwright.sandbox import Zygote
from hipwright.task import open_task
from hipwright.toolchain.cache import BuildCache
from hipwright.verify import Oracle
from hipwright.verify.gpu.client import CandidateWorker
from hipwright.verify.gpu.reference import open_reference
from hipwright.verify.gpu.side import GpuSide
from tests.verify.gpu.judged_programs import built, verdict_of
from tests.verify.state.test_state_programs import HONEST, TASK, WRONG

SCALED = """import torch


class Model(torch.nn.Module):
    def forward(self, x, y):
        x.mul_(0.5).add_(y)
        return x.sum(-1)


def get_inputs():
    return [torch.randn(24, 16), torch.randn(24, 16)]
"""
PLAN = "HIP = r''''''\n\n\ndef forward(self, x, y):\n    x.copy_(x * 0.5 + y)\n    return x.sum(-1)\n"


@pytest.fixture(scope="module")
def slots_oracle(task_zygote: Zygote, tmp_path_factory: pytest.TempPathFactory) -> Any:
    path = tmp_path_factory.mktemp("task") / "slots.py"
    path.write_text(TASK, encoding="utf-8")
    with open_task(path, task_zygote) as handle:
        yield Oracle(handle, seed=21)


@pytest.mark.parametrize("path", [HONEST[0], *WRONG[::3]], ids=lambda path: path.stem)
def test_a_gpus_worker_judges_what_is_written(path: Path, slots_oracle: Oracle, worker: CandidateWorker) -> None:
    verdict = verdict_of(path.read_text(encoding="utf-8"), slots_oracle, worker)
    assert verdict.passed == (path in HONEST), (path.stem, verdict.status, verdict.message)
    assert verdict.passed or verdict.fault == "candidate"


def test_timed_calls_write_to_copies(task_zygote: Zygote, workers: Zygote, cache: BuildCache, tmp_path: Path) -> None:
    path = tmp_path / "scaled.py"
    path.write_text(SCALED, encoding="utf-8")
    with (
        open_task(path, task_zygote) as handle,
        Zygote(("torch", "hipwright.task.device.server"), name="device host") as hosts,
        open_reference(handle, hosts, "cpu") as reference,
        CandidateWorker(workers, "cpu", "cpu", cache, fresh=False) as worker,
    ):
        assert handle.written == ("inputs[0]",)
        state = handle.init_state(0)
        eager = reference.side("eager", "given", state=state, seed=3, slots=2)
        eager.prepare(4)
        eager.block(6)
        _, program, build = built(PLAN, cache)
        with worker.load(program, build, state) as loaded:
            loaded.place("timed", reference.inputs("given", 3), 2)  # digests agree: the baseline wrote to copies
            side = GpuSide(loaded, "timed", graph=True, written=handle.written)
            side.prepare(4)
            side.block(9)
            assert not loaded.audit()
        expected = reference.expect("given", 3, state, handle.task.tolerance)
        assert "writes to its inputs" in expected.rejected
