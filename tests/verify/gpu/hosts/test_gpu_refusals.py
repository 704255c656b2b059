"""Inputs that the reference itself refuses on a device, while it runs on the processor: no evidence of a program that
raises there too. With device "cpu" in place of a GPU, whose host alone holds that host's code.
"""

from __future__ import annotations

from typing import Any

import pytest

from hipwright.records import Program, Verdict
from hipwright.sandbox import Zygote
from hipwright.toolchain.cache import BuildCache
from hipwright.verify import Oracle
from hipwright.verify.gpu.client import CandidateWorker
from hipwright.verify.gpu.reference import open_reference
from hipwright.verify.gpu.refusals import REFUSED
from hipwright.verify.gpu.verifier import verify_gpu
from tests.verify.conftest import Tasks

RAISES = 'raise RuntimeError("expected data_ptr to be aligned to 16 bytes")'
MISALIGNED = "x.data_ptr() % 16"
TASK = """
import torch
import sys


class Model(torch.nn.Module):
    def forward(self, x):
        if {when}:
            {what}
        return x.sum(-1)


def get_inputs():
    return [torch.randn(24, 36)]
"""
ON_THE_DEVICE = '"hipwright.task.device.server" in sys.modules and x.storage_offset() % 4'
PROGRAM = """
import torch


class ModelNew(torch.nn.Module):
    def forward(self, x):
        if {when}:
            {what}
        return x.sum(-1)
"""


@pytest.fixture(scope="module")
def hosts() -> Any:
    with Zygote(("torch", "hipwright.task.device.server"), name="reference host") as found:
        yield found


@pytest.fixture(scope="module", params=["the reference refuses", "the reference runs"])
def oracle(request: pytest.FixtureRequest, tasks: Tasks, tmp_path_factory: pytest.TempPathFactory) -> Oracle:
    path = tmp_path_factory.mktemp("refusals") / "row_sum_aligned.py"
    refuses = request.param == "the reference refuses"
    path.write_text(TASK.format(when=ON_THE_DEVICE if refuses else "False", what=RAISES))
    return tasks.oracle(path)


def verdict_of(
    oracle: Oracle, when: str, hosts: Zygote, workers: Zygote, cache: BuildCache, what: str = RAISES, gate: Any = "full"
) -> Verdict:
    program = Program(text=PROGRAM.format(when=when, what=what), form="modelnew")
    with (
        open_reference(oracle.handle, hosts, "cpu") as reference,
        CandidateWorker(workers, "cpu", "cpu", cache) as worker,
    ):
        judging = reference if gate == "full" else None
        return verify_gpu(None, program, None, oracle, judging, worker, gate=gate, asked=lambda: reference)


def _refuses(oracle: Oracle) -> bool:
    return ON_THE_DEVICE in oracle.handle.task.source


@pytest.mark.parametrize("gate", ["full", "fast"])
def test_what_the_reference_refuses_too_is_skipped(
    oracle: Oracle, gate: Any, hosts: Zygote, workers: Zygote, cache: BuildCache
) -> None:
    verdict = verdict_of(oracle, MISALIGNED, hosts, workers, cache, gate=gate)
    if not _refuses(oracle):
        assert (verdict.status, verdict.fault) == ("launch_error", "candidate"), verdict.message
        assert "aligned to 16 bytes" in verdict.message
        return
    assert verdict.passed, verdict.message
    why = {name: text for name, text in verdict.skipped.items() if text.startswith(REFUSED)}
    assert "aligned to 16 bytes" in next(iter(why.values()))
    assert {name.rpartition("/")[2] for name in why} <= {"offset", "strided"} and why
    ran = verdict.checks["families"]
    assert "permuted" in ran and "offset" not in ran, "what comes after a refusal is judged"


@pytest.mark.parametrize(
    ("when", "what", "status"),
    [
        ("x.shape[0] > 1 and float(x.min()) >= 0", RAISES, "launch_error"),  # on values, where the reference runs
        (MISALIGNED, "return x.sum(-1) + 1", "wrong_value"),  # raises nothing, so it is judged
        ("True", RAISES, "launch_error"),
    ],
)
def test_what_fails_elsewhere_too_is_refused(
    oracle: Oracle, when: str, what: str, status: str, hosts: Zygote, workers: Zygote, cache: BuildCache
) -> None:
    verdict = verdict_of(oracle, when, hosts, workers, cache, what=what)
    assert (verdict.status, verdict.fault) == (status, "candidate"), verdict.message
