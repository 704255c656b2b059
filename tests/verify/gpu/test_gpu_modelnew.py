"""ModelNew files through verify_gpu on device "cpu": host code of the candidate, in a process of its own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from hipwright.records import Program, Verdict
from hipwright.sandbox import Limits, Zygote
from hipwright.toolchain.cache import BuildCache
from hipwright.verify.gpu.client import CandidateWorker
from hipwright.verify.gpu.verifier import verify_gpu
from tests.load import Watch

HEAD = "import torch\nimport torch.nn as nn\n\n\nclass ModelNew(nn.Module):\n"
HONEST = HEAD + "    def forward(self, x):\n        return x.sum(-1)\n"
BY_VERSION = HEAD + (
    "    seen = {}\n\n    def forward(self, x):\n        key = x.data_ptr(), x._version, tuple(x.shape)\n"
    "        if key not in self.seen:\n            self.seen[key] = x.sum(-1)\n        return self.seen[key].clone()\n"
)
LAZY = HEAD + (
    "    def forward(self, x):\n        class Later(torch.Tensor):\n            pass\n"
    "        return x.sum(-1).as_subclass(Later)\n"
)
RAISES = HEAD + "    def forward(self, x):\n        raise KeyError('no')\n"
WRITES = HEAD + "    def forward(self, x):\n        y = x.sum(-1)\n        x.zero_()\n        return y\n"
FORGES = HEAD + (
    "    def forward(self, x):\n        import os\n        for fd in range(3, 64):\n            try:\n"
    "                os.write(fd, b'done and right')\n            except OSError:\n                pass\n"
    "        return x.sum(-1)\n"
)
SLEEPS = HEAD + "    def forward(self, x):\n        import time\n        time.sleep(1000)\n"
EXITS = HEAD + "    def forward(self, x):\n        import os\n        os._exit(0)\n"


@pytest.fixture(scope="module")
def workers(cache: BuildCache) -> Iterator[Zygote]:
    modules = ("torch", "hipwright.verify.gpu.worker", "hipwright.verify.worker.warm")
    with Zygote(modules, ro=[cache.folder], name="ModelNew workers") as zygote:
        yield zygote


def verdict_of(text: str, tasks: Any, workers: Zygote, cache: BuildCache, **load_options: Any) -> Verdict:
    with CandidateWorker(workers, "cpu", "cpu", cache, limit_s=load_options.pop("limit_s", None)) as worker:
        program = Program(text=text, form="modelnew")
        return verify_gpu(None, program, None, tasks.oracle("row_sum"), None, worker, **load_options)


@pytest.mark.parametrize("gate", ["full", "fast"])
def test_an_honest_file_passes(gate: Any, tasks: Any, workers: Zygote, cache: BuildCache) -> None:
    verdict = verdict_of(HONEST, tasks, workers, cache, gate=gate)
    assert verdict.passed and verdict.checks["second_call"] == "pass", verdict.message
    assert "noop_right" not in verdict.checks, "its kernels cannot be left out"


@pytest.mark.parametrize(
    ("text", "status"),
    [
        (BY_VERSION, "wrong_value"),
        (LAZY, "bad_output_spec"),
        (RAISES, "launch_error"),
        (WRITES, "input_mutated"),
        ("def nothing(): pass\n", "parse_error"),
        (HEAD, "launch_error"),
    ],
)
def test_wrong_files_are_refused(text: str, status: str, tasks: Any, workers: Zygote, cache: BuildCache) -> None:
    verdict = verdict_of(text, tasks, workers, cache)
    assert (verdict.status, verdict.fault) == (status, "candidate"), verdict.message


def test_one_that_answers_for_the_worker_is_a_hack(tasks: Any, workers: Zygote, cache: BuildCache) -> None:
    verdict = verdict_of(FORGES, tasks, workers, cache)
    assert verdict.status == "hack" and verdict.fault == "candidate", verdict.message


def test_one_that_sleeps_or_leaves(tasks: Any, workers: Zygote, cache: BuildCache) -> None:
    tasks.oracle("row_sum").status()
    with Watch() as watch:
        assert verdict_of(SLEEPS, tasks, workers, cache, limit_s=1.0).status == "timeout"
    assert watch.seconds < 1.0 + 5.0
    assert verdict_of(EXITS, tasks, workers, cache).status == "hack"


def test_the_next_candidate_has_a_process_of_its_own(tasks: Any, workers: Zygote, cache: BuildCache) -> None:
    oracle = tasks.oracle("row_sum")
    with CandidateWorker(workers, "cpu", "cpu", cache, Limits(memory_mb=4096, cpu_s=600)) as worker:
        for text, passes in ((HONEST, True), (WRITES, False), (HONEST + "# again\n", True)):
            before = worker.session
            program = Program(text=text, form="modelnew")
            assert verify_gpu(None, program, None, oracle, None, worker, gate="fast").passed is passes
            assert worker.session is not before
