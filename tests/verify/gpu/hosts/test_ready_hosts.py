"""Device hosts that are started ahead: one process for each task, which ends with it; the next one starts meanwhile."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from hipwright.errors import TaskError
from hipwright.evaluation.gpu.ahead import ProcessesAhead
from hipwright.evaluation.gpu.timing_lock import TimingLock
from hipwright.sandbox import Session, Zygote
from hipwright.verify.gpu.client import CandidateWorker
from hipwright.verify.gpu.hosts.ready_hosts import ReadyHosts
from hipwright.verify.gpu.reference import LIMITS, open_reference
from hipwright.verify.standby import Standby
from tests.verify.conftest import Tasks


@pytest.fixture(scope="module")
def hosts() -> Iterator[Zygote]:
    with Zygote(("torch", "hipwright.task.device.server"), name="device host") as it:
        yield it


def waits_for(standby: Standby, count: int) -> None:
    until = time.monotonic() + 60
    while standby.ready != count:
        assert time.monotonic() < until, f"{standby.ready} processes are ready, not {count}"
        time.sleep(0.01)


def test_each_task_has_a_process_that_ends_with_it(hosts: Zygote, tasks: Tasks) -> None:
    handles = [tasks.oracle(name).handle for name in ("softmax", "row_sum")]
    started: list[Session] = []
    with ReadyHosts(hosts, "cpu", 1, LIMITS) as ready:
        start = ready.standby._start

        def noted() -> Session:
            started.append(start())
            return started[-1]

        ready.standby._start = noted  # type: ignore[method-assign]
        first = open_reference(handles[0], ready, "cpu")
        waits_for(ready.standby, 1)
        second = open_reference(handles[1], ready, "cpu")
        waits_for(ready.standby, 1)
        assert len(started) == 3 and all(one.alive for one in started)
        assert [one.info["device"] for one in (first, second)] == ["cpu", "cpu"]
        first.close()
        assert [one.alive for one in started].count(False) == 1
        assert first.ask("describe")[0]["device"] == "cpu", "a closed reference starts again"
        first.close()
        second.close()
        waits_for(ready.standby, 1)
    assert not any(one.alive for one in started)


def test_a_file_that_fails_leaves_no_process(hosts: Zygote, tasks: Tasks, tmp_path: Path) -> None:
    path = tmp_path / "fails.py"
    path.write_text(
        "import sys, torch\nif 'hipwright.task.device.server' in sys.modules: raise RuntimeError('only elsewhere')\n"
        "class Model(torch.nn.Module):\n    def forward(self, x):\n        return x.exp()\n"
        "def get_inputs():\n    return [torch.randn(64)]\n"
    )
    handle = tasks.handle(path)
    with ReadyHosts(hosts, "cpu", 1, LIMITS) as ready:
        waits_for_session = ready.standby.take()
        waits_for(ready.standby, 1)
        idle = ready.standby._ready[0]
        with pytest.raises(TaskError, match="only elsewhere"):
            open_reference(handle, ready, "cpu")
        assert not idle.alive
        waits_for_session.close()


def test_processes_start_while_no_timing_runs(hosts: Zygote, workers: Zygote, cache, tasks: Tasks) -> None:
    lock = TimingLock()
    ahead = ProcessesAhead(hosts, "cpu", CandidateWorker(workers, "cpu", "cpu", cache), 1, lock.shared)
    try:
        with lock.exclusive(), CandidateWorker(workers, "cpu", "cpu", cache, standby=ahead.workers) as worker:
            worker.open()
            assert worker.session is not None and worker.session.alive
            time.sleep(0.3)
            assert ahead.workers.ready == 0
        waits_for(ahead.workers, 1)
        idle = ahead.workers._ready[0]
        with CandidateWorker(workers, "cpu", "cpu", cache, standby=ahead.workers) as worker:
            worker.open()
            assert worker.session is idle
    finally:
        ahead.close()
    assert ProcessesAhead.nbytes(2) == 3 << 30 and ahead.workers.ready == 0
