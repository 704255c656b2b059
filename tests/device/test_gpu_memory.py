"""Guarded device memory behind the launcher, with a fake driver: poison, red zones, checks in one synchronisation."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from typing import Any

import pytest
import torch

from hipwright.device.gpu.launcher import GpuLauncher
from hipwright.device.gpu.memory import GuardedDevice, zone_bytes
from hipwright.device.poison import pattern
from hipwright.errors import CandidateError
from hipwright.program import parse
from hipwright.program.signature import parse_signatures
from hipwright.torchio import to_torch, tree_from_torch
from hipwright.verify.worker import program_subject, trees
from hipwright.verify.worker.program_subject import ProgramSubject
from hipwright.verify.worker.staging import PinnedStaging
from hipwright.verify.worker.watched import RunSetting, WatchedCandidate

from .copy_kernels import BLOCK, GRID, HIP, copy_driver
from .fake_driver import FakeDriver


@pytest.fixture
def driver() -> FakeDriver:
    return copy_driver()


@pytest.fixture
def launcher(driver: FakeDriver) -> GpuLauncher:
    return GpuLauncher(driver, b"code", parse_signatures(HIP).signatures, device="cpu")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64])
def test_fresh_memory_is_nan(launcher: GpuLauncher, dtype: torch.dtype) -> None:
    out = launcher.empty((3, 5), dtype)
    assert torch.isnan(out).all()
    assert out.untyped_storage().nbytes() == 15 * dtype.itemsize
    assert out.storage_offset() == 0
    assert out.data_ptr() % 16 == 0


@pytest.mark.parametrize("zones", [True, False])
@pytest.mark.parametrize("dtype", [torch.bool, torch.int8, torch.uint8, torch.int64])
def test_two_poisons_differ_everywhere(driver: FakeDriver, dtype: torch.dtype, zones: bool) -> None:
    first, second = (
        GpuLauncher(driver, b"code", {}, device="cpu", poison=poison, zones=zones).empty((7,), dtype)
        for poison in (0xA5, 0x42)
    )
    if dtype == torch.bool:
        assert set(first.view(torch.uint8).tolist()) | set(second.view(torch.uint8).tolist()) == {0, 1}
    else:
        words = [int.from_bytes(bytes(t.view(torch.uint8).tolist()[:6])[:2], "little") for t in (first, second)]
        assert words == [pattern(0xA5), pattern(0x42)]


@pytest.mark.parametrize("shape", [(), (0,), (3, 0), (1,)])
def test_empty_and_tiny_shapes(launcher: GpuLauncher, shape: tuple[int, ...]) -> None:
    assert launcher.empty(shape, torch.float32).shape == shape
    launcher.check_zones()


@pytest.mark.parametrize("size", [1, 7, 15, 16, 1000, 100_000])
@pytest.mark.parametrize("far", [0, 1, 2, 7, 400])
@pytest.mark.parametrize("behind", [True, False])
def test_every_stray_byte_is_found(launcher: GpuLauncher, size: int, far: int, behind: bool) -> None:
    y = launcher.empty((size,), torch.int8)
    at = size + far if behind else -1 - far
    launcher.launch("poke", GRID, BLOCK, 0, [y, at])
    with pytest.raises(CandidateError, match="kernel poke: a write outside y") as caught:
        launcher.check_zones()
    assert caught.value.status == "out_of_bounds"
    assert caught.value.evidence["argument"] == "y"
    assert abs(caught.value.evidence["element"] - at) <= 1  # zones are compared in words of two bytes
    launcher.check_zones()  # told once


def test_writes_inside_are_fine(launcher: GpuLauncher) -> None:
    y = launcher.empty((15,), torch.int8)
    for at in range(15):
        launcher.launch("poke", GRID, BLOCK, 0, [y, at])
    launcher.check_zones()


def test_a_stray_write_is_found_after_the_buffer_is_gone(launcher: GpuLauncher) -> None:
    y = launcher.empty((64,), torch.float32)
    launcher.launch("poke", GRID, BLOCK, 0, [y, 256])
    del y
    gc.collect()
    with pytest.raises(CandidateError, match="outside y"):
        launcher.check_zones()


def test_memory_goes_back_with_its_last_view(launcher: GpuLauncher) -> None:
    y = launcher.empty((64, 4), torch.float32)
    view = y[3:5].t()
    del y
    assert len(launcher._memory._alive) == 1
    del view
    assert len(launcher._memory._alive) == 0
    launcher.check_zones()


def test_a_guarded_copy_keeps_strides_offset_and_is_watched(launcher: GpuLauncher) -> None:
    base = torch.arange(24.0)
    x = base[2:].as_strided((3, 4), (5, 1), 2)
    copy = launcher.guard(x)
    assert torch.equal(copy, x)
    assert (copy.stride(), copy.storage_offset()) == (x.stride(), 2)
    assert copy.untyped_storage().nbytes() == base.untyped_storage().nbytes()
    launcher.launch("poke", GRID, BLOCK, 0, [copy, -8])  # its storage begins there: not outside
    launcher.check_zones()
    launcher.launch("poke", GRID, BLOCK, 0, [copy, -9])
    with pytest.raises(CandidateError) as caught:
        launcher.check_zones()
    assert caught.value.evidence["element"] == -3


def test_without_zones_there_is_no_overhead(driver: FakeDriver) -> None:
    plain = GpuLauncher(driver, b"code", {}, device="cpu", poison=None, zones=False)
    out = plain.empty((5,), torch.float32)
    assert out.untyped_storage().nbytes() == 20
    x = torch.arange(6.0)[1:]
    assert torch.equal(plain.guard(x), x)
    assert plain.guard(x).storage_offset() == 1
    plain.check_zones()


def test_zones_are_proportional_and_bounded() -> None:
    assert zone_bytes(0) == zone_bytes(1000) == 512
    assert zone_bytes(1 << 20) == 32 << 10
    assert zone_bytes(17 << 30) == 1 << 20
    assert all(zone_bytes(n) % 512 == 0 for n in (1, 12345, 999_999, 123_456_789))


def test_a_launch_costs_little(launcher: GpuLauncher) -> None:
    """The budget is 10 us on a quiet machine; a tenfold margin for a busy one still catches a wrong design."""
    launcher.record = False
    launcher._driver.launch = lambda *args: None  # type: ignore[method-assign]
    args = [torch.zeros(8), torch.zeros(8), 8]
    best = 1.0
    for _ in range(20):
        began = time.perf_counter()
        for _ in range(100):
            launcher.launch("copy", GRID, BLOCK, 0, args)
        best = min(best, (time.perf_counter() - began) / 100)
    assert best < 100e-6


def test_one_look_tells_of_strays_and_flags(launcher: GpuLauncher) -> None:
    y = launcher.empty((64,), torch.float32)
    assert launcher.deferred_check([torch.tensor(True), torch.tensor(False)])() == [True, False]
    assert launcher.deferred_check([])() == []
    launcher.launch("poke", GRID, BLOCK, 0, [y, 256])
    with pytest.raises(CandidateError, match="outside y"):
        launcher.deferred_check([torch.tensor(True)])()
    assert launcher.deferred_check([torch.tensor(True)])() == [True]


def test_a_fault_of_the_device_is_raised_by_the_check(launcher: GpuLauncher, monkeypatch: pytest.MonkeyPatch) -> None:
    y = launcher.empty((4,), torch.float32)

    def raising(error: Exception) -> Callable[..., Any]:
        def look(*_: Any) -> Any:
            raise error

        return look

    monkeypatch.setattr(launcher._memory, "deferred_check", raising(torch.OutOfMemoryError("no room")))
    with pytest.raises(torch.OutOfMemoryError):
        launcher.deferred_check([])()
    assert not launcher.broken
    fault = RuntimeError("CUDA error: an illegal memory access")
    monkeypatch.setattr(launcher._memory, "deferred_check", raising(fault))
    with pytest.raises(CandidateError) as caught:
        launcher.deferred_check([])()
    assert (caught.value.status, launcher.broken) == ("out_of_bounds", True), y


def test_a_call_is_waited_for_once(driver: FakeDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each wait for a GPU that many processes share is a change of process: red zones, inputs and parameters are looked
    at together."""
    text = f"HIP = r'''{HIP}'''\n" + (
        "def forward(self, x):\n    y = torch.empty_like(x)\n    copy[1, 32](x, y, x.numel())\n    return y\n"
    )
    parsed, waits = parse(text), []
    run = GpuLauncher(driver, b"code", parsed.signatures, device="cpu")
    params = {"w": torch.ones(3)}
    buffers = {"b": torch.zeros(2)}
    table = {"params": params, "buffers": buffers, "attrs": {}, "modules": {}, "training": False}
    subject = ProgramSubject(parsed, {}, {**table, "params": {"w": params["w"].clone()}}, run, "cpu")
    candidate = WatchedCandidate(
        lambda setting, state: subject, {"params": {}, "buffers": {}}, "cpu", PinnedStaging("cpu")
    )
    candidate.table = table
    candidate.prepare(RunSetting())
    for owner, name in ((GuardedDevice, "deferred_check"), (GpuLauncher, "sync")):
        inner = getattr(owner, name)
        monkeypatch.setattr(owner, name, lambda *a, f=inner, n=name: (waits.append(n), f(*a))[1])
    for module in (program_subject, trees):
        plain = trees.read
        monkeypatch.setattr(module, "read", lambda flags, f=plain: (waits.extend(["read"][: len(flags)]), f(flags))[1])
    x = torch.randn(5)
    given = [subject.guard(x)]
    info, out = candidate.call(given, [x])
    assert torch.equal(out, x) and (info["inputs_changed"], info["params_changed"]) == ([], [])
    assert waits == ["deferred_check"]
    waits.clear()
    inputs = tree_from_torch([x])
    staged, download = [], PinnedStaging.download
    monkeypatch.setattr(PinnedStaging, "download", lambda own, flat: (staged.append(flat), download(own, flat))[1])
    info, told = candidate.run({}, inputs)
    assert torch.equal(to_torch(told["outputs"]), x) and torch.equal(to_torch(told["buffers"]["b"]), torch.zeros(2))
    assert waits == ["deferred_check", "sync"], "buffers are written back without a look"
    assert len(staged) == 3, "results and flags do not wait"
    subject.params["w"][1] = 7.0
    given[0][2] = 9.0
    info, _ = candidate.call(given, [x])
    assert (info["inputs_changed"], info["params_changed"]) == ([0], [0])
