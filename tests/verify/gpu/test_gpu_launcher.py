"""The worker with the GPU's launcher, in this process, over a fake driver: launches are Python functions."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from hipwright.errors import DeviceError
from hipwright.program import parse
from hipwright.records import Build, Program
from hipwright.tensors import HostTensor
from hipwright.toolchain.cache import BuildCache
from hipwright.verify.candidate import Rejected
from hipwright.verify.case_draws import VerificationCase
from hipwright.verify.expected import Expected
from hipwright.verify.gpu import worker as gpu_worker
from hipwright.verify.gpu.client import CandidateWorker
from hipwright.verify.gpu.side import GpuSide
from hipwright.verify.gpu.verifier import verify_gpu
from tests.verify.gpu.host_source import HostSource, read_whole

TEXT = """
HIP = r'''
#include <hip/hip_runtime.h>
extern "C" __global__ void copy(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i];
}
'''


def forward(self, x):
    y = torch.empty(x.shape)
    copy[cdiv(x.numel(), 64), 64](x, y, x.numel())
    return y
"""
X = HostTensor.of(np.arange(40, dtype=np.float32).reshape(5, 8))
CASE = VerificationCase("5x8", "given", 1, [X], {}, Expected({}))
STATE = {"params": {"w": HostTensor.of(np.ones(3, np.float32))}, "buffers": {}, "attrs": {}, "modules": {}}


class Driver:
    """One kernel, `act(x, y, n)` on addresses. error: the context's status from then on."""

    name = "cuda"

    def __init__(self) -> None:
        self.act: Callable[[Any, int, int, int], None] = lambda driver, x, y, n: ctypes.memmove(y, x, 4 * n) and None
        self.error = ""
        self.loaded: list[int] = []
        self.count = 0

    def load(self, code: bytes) -> int:
        assert code == b"code"
        self.count += 1
        self.loaded.append(self.count)
        return self.count

    def unload(self, module: int) -> None:
        self.loaded.remove(module)

    def function(self, module: int, kernel: str) -> int:
        return 1

    def attributes(self, function: int) -> dict[str, int]:
        return {"registers": 8, "static_lds": 0, "local_bytes": 0, "max_threads": 1024}

    def allow_lds(self, function: int, bytes_: int) -> None:
        pass

    def limits(self) -> dict[str, int]:
        return {
            "max_threads": 1024,
            "max_grid_x": 2**31 - 1,
            "max_grid_y": 65535,
            "max_grid_z": 65535,
            "lds_per_block": 65536,
            "wave": 32,
        }

    def launch(self, function: int, grid: Any, block: Any, lds_bytes: int, stream: int, params: Any) -> None:
        if self.error:
            raise DeviceError(f"the launch fails: {self.error}")
        x, y = (ctypes.c_void_p.from_address(params[i]).value or 0 for i in (0, 1))
        self.act(self, x, y, ctypes.c_int.from_address(params[2]).value)

    def peek_error(self) -> str:
        return self.error


class InProcess:
    """A zygote whose sessions are objects of this process; their ends are recorded."""

    def __init__(self) -> None:
        self.worker: Any = None
        self.ended = 0

    def session(self, service: str, init: dict[str, Any], *_: object, **__: object) -> InProcess:
        self.worker = gpu_worker.GpuWorker(init, None)
        return self

    @property
    def alive(self) -> bool:
        return self.worker is not None

    def call(self, method: str, header: Any, bundle: Any = None, *, timeout_s: float) -> Any:
        return getattr(self.worker, method)(header, bundle)

    def call_json(self, method: str, header: Any, *, timeout_s: float) -> Any:
        return getattr(self.worker, method)(header, None)[0]

    def close(self) -> None:
        self.worker, self.ended = None, self.ended + 1


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Driver:
    made = Driver()
    monkeypatch.setattr(gpu_worker, "open_driver", lambda name, index: made)
    monkeypatch.setattr(gpu_worker, "lockdown", lambda profile: None)
    return made


@pytest.fixture
def worker(driver: Driver, tmp_path: Any) -> CandidateWorker:
    cache = BuildCache(tmp_path)
    zygote: Any = InProcess()
    return CandidateWorker(zygote, "cpu", "cuda", cache)


def load(worker: CandidateWorker) -> Any:
    build = Build(target="cuda", ok=True, blob=worker.cache.put(b"code"))
    return worker.load(Program(text=TEXT), build, STATE)


def rejected(worker: CandidateWorker) -> Any:
    with load(worker) as loaded, pytest.raises(Rejected) as caught:
        loaded.run(CASE)
    return caught.value.verdict


def test_a_run_is_launched_settled_and_told(worker: CandidateWorker, driver: Driver) -> None:
    with load(worker) as loaded:
        answer = loaded.run(CASE)
        assert np.array_equal(answer.tree["outputs"].bits(), X.bits())
        assert answer.stats[0]["kernel"] == "copy" and answer.stats[0]["argument_bytes"] == 320
        loaded.run(CASE, poison=0x5A)
        assert len(driver.loaded) == 1, "settings share a module"
    assert driver.loaded == [], "modules go back with the program"


@pytest.mark.parametrize("offset", [-4, 160])
def test_a_write_beside_a_buffer(worker: CandidateWorker, driver: Driver, offset: int) -> None:
    driver.act = lambda d, x, y, n: ctypes.memset(y + offset, 1, 4) and None
    verdict = rejected(worker)
    assert verdict.status == "out_of_bounds" and verdict.evidence["argument"] == "y" and worker.recycled == 0


def test_a_fault_of_the_context_ends_the_process_and_nothing_else(worker: CandidateWorker, driver: Driver) -> None:
    def fault(d: Driver, x: int, y: int, n: int) -> None:
        d.error = "an illegal memory access was encountered"

    driver.act = fault
    verdict = rejected(worker)
    assert verdict.status == "out_of_bounds" and verdict.fault == "candidate" and worker.recycled == 1
    driver.error, driver.act = "", Driver().act
    with load(worker) as loaded:
        assert loaded.run(CASE).info["inputs_changed"] == []
    assert worker.recycled == 1


def test_a_fault_that_shows_at_the_next_launch_is_still_the_kernels(worker: CandidateWorker, driver: Driver) -> None:
    twice = TEXT.replace("    return y", "    copy[1, 64](x, y, 1)\n    return y")
    driver.act = lambda d, x, y, n: setattr(d, "error", "unspecified launch failure")
    build = Build(target="cuda", ok=True, blob=worker.cache.put(b"code"))
    with worker.load(Program(text=twice), build, STATE) as loaded, pytest.raises(Rejected) as caught:
        loaded.run(CASE)
    assert caught.value.verdict.status == "launch_error" and caught.value.verdict.fault == "candidate"
    assert worker.recycled == 1


def test_inputs_and_parameters_that_are_written_to(worker: CandidateWorker, driver: Driver) -> None:
    driver.act = lambda d, x, y, n: ctypes.memset(x + 8, 1, 4) and None
    with load(worker) as loaded:
        assert loaded.run(CASE).info["inputs_changed"] == [0]
    reads = TEXT.replace("copy[cdiv(x.numel(), 64), 64](x,", "copy[1, 64](self.w,")
    build = Build(target="cuda", ok=True, blob=worker.cache.put(b"code"))
    with worker.load(Program(text=reads), build, STATE) as loaded:
        assert loaded.run(CASE).info["params_changed"] == [0]
    driver.act = Driver().act
    with load(worker) as loaded:  # the table that programs share was not written to
        assert loaded.run(CASE).info["params_changed"] == []


def test_timing_asks_the_launcher_for_nothing_but_the_plan(worker: CandidateWorker, driver: Driver) -> None:
    calls: list[int] = []

    def counted(d: Driver, x: int, y: int, n: int) -> None:
        calls.append(n)
        ctypes.memmove(y, x, 4 * n)

    driver.act = counted
    late = HostTensor.of(np.full((5, 8), 7, np.float32))
    with load(worker) as loaded:
        loaded.place("timed", HostSource([[X], [X]]), 2)
        side = GpuSide(loaded, "timed", graph=True)
        side.prepare(2)
        calls.clear()
        side.block(4)
        assert 4 <= len(calls) <= 6, "the calls, and what wakes the device"
        side.reveal(1, HostSource([[late]]))
        side.block(2)
        assert np.array_equal(read_whole(loaded, side.timed_output(1))["outputs"].bits(), late.bits())
        assert len(driver.loaded) == 1 and loaded.audit() == []
    assert driver.loaded == []


def test_verify_gpu_through_the_launcher(worker: CandidateWorker, driver: Driver, tasks: Any) -> None:
    """relu_positive's given inputs are not negative; a copy is found by the signed ones."""
    oracle = tasks.oracle("relu_positive")
    build = Build(target="cuda", ok=True, blob=worker.cache.put(b"code"))
    program = Program(text=TEXT)

    def relu(d: Driver, x: int, y: int, n: int) -> None:
        source = np.ctypeslib.as_array((ctypes.c_float * n).from_address(x))
        np.ctypeslib.as_array((ctypes.c_float * n).from_address(y))[:] = np.where(source < 0, np.float32(0), source)

    text = TEXT.replace("    y = torch", "    x = x.contiguous()\n    y = torch")
    for act, passes in ((relu, True), (Driver().act, False)):
        driver.act = act
        for gate in ("full", "fast"):
            program = Program(text=text)
            verdict = verify_gpu(parse(text), program, build, oracle, None, worker, gate=gate)  # type: ignore[arg-type]
            assert verdict.passed is passes, verdict.message
    assert verdict.status == "wrong_value"


def test_a_task_without_room_for_its_inputs_is_no_verdict(
    worker: CandidateWorker, driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise MemoryError

    with load(worker) as loaded:
        monkeypatch.setattr(worker._session.worker._sets, "open", full)  # type: ignore[union-attr]
        with pytest.raises(DeviceError, match="no room"):
            loaded.place("big", HostSource([[X]]))
