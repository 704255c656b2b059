"""LocalJudge and its parts without starting a process."""

from __future__ import annotations

import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, nullcontext
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from hipwright.errors import BadInput
from hipwright.measure.profiling.profile import Profile
from hipwright.records import Evaluation, Program
from hipwright.train.environment import Environment
from hipwright.train.judging.backends import GpuJudgeBackend, TimingWorker
from hipwright.train.judging.counters import shares
from hipwright.train.judging.judges import LocalJudge
from hipwright.train.records import TrainingProblem
from hipwright.train.rewards import REWARDS
from tests.train.judging.judged import problem


@pytest.mark.parametrize("targets", [("cuda", "cpu"), ("gfx942",), ("rocm", "cuda"), ()])
def test_targets_that_cannot_be_combined_are_refused(targets: tuple[str, ...]) -> None:
    with pytest.raises(BadInput) as caught:
        LocalJudge(targets)
    assert caught.value.hint
    with pytest.raises(BadInput, match="on a GPU"):
        LocalJudge(("cpu",), counters=True)


def test_an_environment_opens_and_closes_its_judge() -> None:
    class Counted:
        device, clock = "", ""
        opened = 0

        def __enter__(self) -> Counted:
            self.opened += 1
            return self

        def __exit__(self, *_: object) -> None:
            self.opened -= 1

    judge = Counted()
    with Environment(judge, REWARDS["source"]):  # type: ignore[arg-type]
        assert judge.opened == 1
    assert judge.opened == 0


def test_an_invalid_state_is_refused() -> None:
    judge = LocalJudge(("cpu",))
    state = judge.state()
    with pytest.raises(msgspec.ValidationError):
        judge.load({**state, "known": {"x": {"status": "fine"}}})


def test_programs_waiting_to_be_timed_do_not_block_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """All of 200 programs of one task are in progress at once."""
    inside, all_in = threading.Semaphore(0), threading.Event()

    class Waits:
        device, clock, open = "", "", nullcontext

        def judge(self, problem: TrainingProblem, program: Program, shelf: object) -> Evaluation:
            inside.release()
            all_in.wait(60)
            return Evaluation(task="t", program=program.key, status="pass")

        def close(self) -> None:
            pass

    monkeypatch.setattr(LocalJudge, "_open_backend", lambda self, made: nullcontext(Waits()))
    with LocalJudge(("cpu",), open_tasks=1, opener=nullcontext) as judge:  # type: ignore[arg-type]
        asked = [judge.submit(problem("row_sum"), Program(text=f"{n}")) for n in range(200)]
        assert all(inside.acquire(timeout=30) for _ in asked)
        all_in.set()
        assert all(future.result(timeout=30).passed for future in asked)


def test_programs_are_distributed_over_the_timing_processes() -> None:
    """Small inputs are placed in all processes, large ones in two; each process prepares one program at a time."""
    backend = object.__new__(GpuJudgeBackend)
    backend._target, backend._timers = "cuda", [TimingWorker(None) for _ in range(8)]  # type: ignore[arg-type]

    def bench(nbytes: int) -> Any:
        return SimpleNamespace(evaluator=SimpleNamespace(gpus={"cuda": SimpleNamespace(timed_bytes=nbytes)}))

    def spread(nbytes: int) -> list[int]:
        taken = []
        with ExitStack() as stack:
            for _ in range(24):
                timer = backend._choose_timer(problem("row_sum"), bench(nbytes))
                taken.append(backend._timers.index(timer))
                timer.waiting += 1
                stack.callback(setattr, timer, "waiting", 0)
        return sorted(Counter(taken).values())

    assert spread(1 << 10) == [3] * 8 and spread(1 << 30) == [12] * 2
    timer, inside = backend._timers[0], []

    def ready(number: int) -> None:
        with timer.turn():
            inside.append(number)
            assert len(inside) == 1
            time.sleep(0.01)
            inside.remove(number)

    with ThreadPoolExecutor(4) as pool:
        assert not any(future.exception() for future in [pool.submit(ready, n) for n in range(8)])
    assert timer.waiting == 0


def test_counters_are_shares_by_device_time_of_own_kernels() -> None:
    own = Profile(kernel="a", target="cuda", duration_us=30.0, occupancy_pct=50.0, dram_throughput_pct=120.0)
    short = Profile(kernel="b", target="cuda", duration_us=10.0, occupancy_pct=10.0)
    library = Profile(kernel="gemm", target="cuda", own=False, duration_us=900.0, occupancy_pct=100.0, valu_pct=5.0)
    assert shares([own, short, library]) == {"occupancy": 0.4, "dram_throughput": 1.0}
    assert shares([library]) == {}
