"""A late call does not count against a candidate while the GPU serves no process."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from hipwright.errors import DeviceError, WorkerError
from hipwright.sandbox import Limits, WorkerTimeout, Zygote
from hipwright.verify import canary as canaries
from hipwright.verify.canary import Canary
from hipwright.verify.candidate import Rejected
from hipwright.verify.gpu.client import CandidateWorker
from hipwright.verify.gpu.connection import GPU_WORKER
from tests import warm


class Gpu:
    """A session on a GPU that can be stopped."""

    def __init__(self) -> None:
        self.goes, self.alive, self.asked = threading.Event(), True, 0
        self.goes.set()

    def call_json(self, method: str, header: dict[str, object], *, timeout_s: float) -> dict[str, object]:
        """A reply once the GPU runs again."""
        assert method == "pulse"
        self.asked += 1
        self.goes.wait(timeout_s)
        if not self.alive:
            raise WorkerError("gone")
        return {}

    def close(self) -> None:
        self.alive = False
        self.goes.set()


def a_canary(gpu: Gpu) -> Canary:
    made = Canary(lambda: gpu, pulse_s=0.05, grace_s=0.3)  # type: ignore[arg-type,return-value]
    made.open()
    return made


def test_a_gpu_that_answers_blames_the_late_one_at_once() -> None:
    gpu = Gpu()
    asked = a_canary(gpu)
    start = time.monotonic()
    assert not asked.stalled() and time.monotonic() - start < 0.05
    assert not asked.stalled() and gpu.asked == 2 and not asked.lost


def test_a_standstill_is_waited_for_by_all_and_asked_about_once() -> None:
    gpu = Gpu()
    asked = a_canary(gpu)
    gpu.goes.clear()
    said: list[bool] = []
    waiting = [threading.Thread(target=lambda: said.append(asked.stalled())) for _ in range(8)]
    for one in waiting:
        one.start()
    for one in waiting:
        one.join()
    assert said == [True] * 8 and gpu.asked == 1, "one question for all"
    assert asked.stalled()
    gpu.goes.set()
    time.sleep(0.02)
    assert asked.stalled() and gpu.asked == 1, "those who have waited get their answers first"
    time.sleep(0.35)
    assert not asked.stalled(), "who is late even then hangs by himself"


def test_a_standstill_without_end_is_told_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(canaries, "MOST_S", 0.2)
    gpu = Gpu()
    asked = a_canary(gpu)
    gpu.goes.clear()
    assert asked.stalled() and not asked.lost
    time.sleep(0.2)
    assert not asked.stalled() and asked.lost
    gpu.close()


def test_closed_while_the_gpu_stands_still_its_process_ends_with_the_answer() -> None:
    gpu = Gpu()
    asked = a_canary(gpu)
    gpu.goes.clear()
    assert asked.stalled()
    asked.close()
    assert gpu.alive and not asked.stalled(), "two threads do not share a session"
    gpu.goes.set()
    end = time.monotonic() + 20
    while gpu.alive and time.monotonic() < end:
        time.sleep(0.005)
    assert not gpu.alive
    idle = a_canary(gpu := Gpu())
    idle.close()
    assert not gpu.alive


def test_without_its_process_nobody_is_waited_for() -> None:
    gpu = Gpu()
    asked = Canary(lambda: gpu)  # type: ignore[arg-type,return-value]
    assert not asked.stalled(), "not open"
    asked.open()
    asked.open()
    gpu.alive = False
    assert not asked.stalled()
    asked.close()


SERVICE = """
import time


class Slow:
    def __init__(self, init, bundle):
        pass

    def sleep(self, header, bundle):
        time.sleep(header["seconds"])
        return {"slept": header["seconds"]}, None
"""


@pytest.fixture(scope="module")
def zygote(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Zygote, Path]]:
    """A zygote for the service Slow."""
    folder = tmp_path_factory.mktemp("service")
    (folder / "slow.py").write_text(SERVICE)
    with Zygote((), ro=(folder,)) as made:
        yield made, folder / "slow.py"


def test_a_late_session_lives_while_it_is_excused_and_no_longer(zygote: tuple[Zygote, Path]) -> None:
    host, service = zygote
    with host.session(f"{service}:Slow", {}, limits=Limits(wall_s=30)) as session:
        excused = iter([True, True, True, True, True, True, True, True])
        session.extend = lambda: next(excused, False)
        assert session.call_json("sleep", {"seconds": 0.5}, timeout_s=0.2) == {"slept": 0.5}
        excused = iter([True, True])
        start = time.monotonic()
        with pytest.raises(WorkerTimeout, match=r"took longer than 0\.2 s"):
            session.call_json("sleep", {"seconds": 60}, timeout_s=0.2)
        assert 0.3 < time.monotonic() - start < 5


def test_a_worker_answers_what_a_canary_is_asked() -> None:
    with warm.zygote(("torch", GPU_WORKER.partition(":")[0])) as host:
        worker = CandidateWorker(host, "cpu", "cpu", None)  # type: ignore[arg-type]
        with worker:
            worker.open()
            assert worker.session is not None
            assert worker.session.call_json("pulse", {}, timeout_s=30) == {}


def test_a_worker_asks_the_canary_and_a_lost_gpu_is_no_fault_of_the_program(zygote: tuple[Zygote, Path]) -> None:
    host, service = zygote
    worker = CandidateWorker(host, "cpu", "cpu", None)  # type: ignore[arg-type]
    worker.start = lambda: host.session(f"{service}:Slow", {}, limits=Limits(wall_s=30))  # type: ignore[method-assign]
    asked: list[str] = []
    for lost, error in ((True, DeviceError), (False, Rejected)):
        worker.canary = SimpleNamespace(stalled=lambda: bool(asked.append("still")), lost=lost)  # type: ignore[assignment,func-returns-value]
        worker.open()
        with pytest.raises(error, match="answers no process" if lost else "took longer"):
            worker.call("sleep", {"seconds": 60}, limit_s=0.2, json_only=True)
        assert asked and worker.session is None
