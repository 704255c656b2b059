"""The suite from opening a task to its records, with the cpu in the GPU's place: no speed means anything."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.suite.measure import SuiteSettings
from benchmarks.suite.records import Records
from benchmarks.suite.run import SuiteRun
from benchmarks.suite.tasks import find, suite_in
from hipwright.engine.tuned import TuningCache
from hipwright.machine import Machine
from hipwright.sandbox import Zygote
from hipwright.targets import CUDA
from hipwright.verify.gpu.connection import GPU_WORKER
from tests import warm
from tests.evaluation.test_gpu_task import Processor

pytestmark = pytest.mark.slow
TASK = """import torch
class Model(torch.nn.Module):
    def forward(self, x):
        return torch.softmax(x * 2.0, dim=-1)
def get_inputs():
    return [torch.randn(64, 96)]
"""


@pytest.fixture(scope="module")
def machine() -> Iterator[Machine]:
    cache = warm.builds()
    with (
        warm.host() as host,
        Zygote(("torch", "hipwright.task.device.server"), name="device host") as hosts,
        Zygote(("torch", GPU_WORKER.partition(":")[0]), ro=(cache.folder,), name="worker") as workers,
        warm.candidates() as candidates,
    ):
        gpu = Processor(CUDA, 0, "sm_90", cache, None, hosts, workers)  # type: ignore[arg-type]
        yield Machine(host, candidates, cache, ("cuda",), False, {"cuda": gpu})


def test_a_task_is_measured_searched_and_not_measured_again(machine: Machine, tmp_path: Path) -> None:
    (tmp_path / "tasks/softmax").mkdir(parents=True)
    (tmp_path / "tasks/softmax/rows.py").write_text(TASK)
    (tmp_path / "tasks/softmax/broken.py").write_text(TASK.replace("softmax", "softmux"))
    tasks = find(suite_in(tmp_path / "tasks"))
    records = Records(tmp_path / "r.jsonl")

    def run() -> int:
        late = time.monotonic() + 280
        return SuiteRun(machine, records, SuiteSettings(evaluations=3, judges=1), late, tmp_path).run(tasks)

    assert run() == 1  # the broken one has no search
    rows = {(one.task, one.stage): one for one in records.rows}
    first, search = rows["softmax/rows", "first"], rows["softmax/rows", "search"]
    assert first.passed and search.passed, (first.message, search.message)
    assert {"eager", "copy"} <= set(first.sides) and first.first_s is not None and 0 < first.first_s < first.seconds
    assert (first.bytes, first.operations) == (2 * 64 * 96 * 4, 2 * 64 * 96)
    # three, and the forms left to the library that are owed where a processor's times find the first answer slower
    assert 3 <= len(search.trials) <= 5 and search.trials[0].speedup is not None
    assert search.choices
    assert rows["softmax/broken", "first"].fault == "task"
    (tuned,) = TuningCache(tmp_path).entries()
    kernels = {name: value for name, value in search.choices.items() if name != "given_up"}
    assert tuned.choices == kernels and tuned.kind == "measured" and tuned.device == first.device
    count = len(records.rows)
    run()
    assert [one.task for one in records.rows[count:]] == ["softmax/broken"] * (len(records.rows) - count)
