"""The GPU launcher against a fake driver: packing, checks, faults (docs/cuda-target.md)."""

from __future__ import annotations

import pytest
import torch

from hipwright.device.gpu.faults import fault_status
from hipwright.device.gpu.launcher import GpuLauncher
from hipwright.errors import CandidateError
from hipwright.program import parse
from hipwright.program.lower.closures import lower
from hipwright.program.signature import parse_signatures

from .copy_kernels import BLOCK, GRID, HIP, copy_driver
from .fake_driver import FakeDriver, pointer


@pytest.fixture
def driver() -> FakeDriver:
    return copy_driver()


@pytest.fixture
def launcher(driver: FakeDriver) -> GpuLauncher:
    return GpuLauncher(driver, b"code", parse_signatures(HIP).signatures, device="cpu")


def test_a_launch_reaches_the_driver(driver: FakeDriver, launcher: GpuLauncher) -> None:
    x, y = torch.arange(8.0), launcher.empty((8,), torch.float32)
    launcher.launch("copy", (3, 2, 1), (64, 1, 1), 128, [x, y, 8])
    launcher.launch("copy", (3, 2, 1), (64, 1, 1), 128, [x, y, 8])
    told = driver.launches[0]
    assert (told.kernel, told.grid, told.block, told.lds_bytes, told.stream) == ("copy", (3, 2, 1), (64, 1, 1), 128, 0)
    assert [pointer(told.values[0]), pointer(told.values[1])] == [x.data_ptr(), y.data_ptr()]
    assert torch.equal(x, y)
    assert driver.asked == 1  # the handle is looked up once
    assert launcher.stats()[0] == {"kernel": "copy", "grid": [3, 2, 1], "block": [64, 1, 1], "argument_bytes": 64}


def test_bytes_of_the_same_tensor_count_once(launcher: GpuLauncher) -> None:
    x = torch.zeros(8)
    launcher.launch("copy", GRID, BLOCK, 0, [x, x, 8])
    assert launcher.stats()[0]["argument_bytes"] == 32


def test_recording_can_be_turned_off(launcher: GpuLauncher) -> None:
    launcher.record = False
    launcher.launch("copy", GRID, BLOCK, 0, [None, None, 0])
    assert launcher.stats() == []


def test_a_plan_runs_through_it(driver: FakeDriver) -> None:
    text = f"HIP = r'''{HIP}'''\n" + (
        "def forward(self, x):\n    y = torch.empty_like(x)\n"
        "    copy[cdiv(x.numel(), 256), 256](x, y, x.numel())\n    return y\n"
    )
    parsed = parse(text)
    run = GpuLauncher(driver, b"code", parsed.signatures, device="cpu")
    table = {"params": {}, "buffers": {}, "attrs": {}, "modules": {}, "training": False}
    x = torch.randn(3, 5)
    assert torch.equal(lower(parsed, {}, table, run).forward(x), x)
    run.sync()
    run.check_zones()


@pytest.mark.parametrize(
    ("kernel", "grid", "block", "lds", "says"),
    [
        ("copy", (0, 1, 1), BLOCK, 0, "at least 1"),
        ("copy", (1, 70000, 1), BLOCK, 0, "over the limit"),
        ("copy", GRID, (1024, 2, 1), 0, "2048 threads; the most for this kernel is 1024"),
        ("copy", GRID, BLOCK, 228 << 10, "the limit is 232448"),
        ("copy", GRID, BLOCK, -1, "LDS"),
        ("absent", GRID, BLOCK, 0, "no kernel absent"),
        ("other", GRID, BLOCK, 0, "declares no kernel of this name"),
    ],
)
def test_what_cannot_be_launched(
    driver: FakeDriver,
    launcher: GpuLauncher,
    kernel: str,
    grid: tuple[int, int, int],
    block: tuple[int, int, int],
    lds: int,
    says: str,
) -> None:
    with pytest.raises(CandidateError, match=says) as caught:
        launcher.launch(kernel, grid, block, lds, [None, None, 0])
    assert caught.value.status == "launch_error"
    assert driver.launches == []


def test_the_kernel_s_own_limits_count(driver: FakeDriver, launcher: GpuLauncher) -> None:
    driver.max_threads, driver.static_lds = 256, 200 << 10
    with pytest.raises(CandidateError, match="the most for this kernel is 256"):
        launcher.launch("copy", GRID, (512, 1, 1), 0, [None, None, 0])
    with pytest.raises(CandidateError, match="204800 static \\+ 40960 dynamic"):
        launcher.launch("copy", GRID, (256, 1, 1), 40 << 10, [None, None, 0])


def test_much_dynamic_lds_is_opted_in_to(driver: FakeDriver, launcher: GpuLauncher) -> None:
    launcher.launch("copy", GRID, BLOCK, 48 << 10, [None, None, 0])
    assert driver.allowed == {}
    launcher.launch("copy", GRID, BLOCK, 100 << 10, [None, None, 0])
    launcher.launch("copy", GRID, BLOCK, 90 << 10, [None, None, 0])
    assert driver.allowed == {"copy": 100 << 10}


def test_a_tensor_of_another_device_is_refused(driver: FakeDriver, launcher: GpuLauncher) -> None:
    with pytest.raises(CandidateError, match="a tensor on meta"):
        launcher.launch("copy", GRID, BLOCK, 0, [torch.empty(3, device="meta"), None, 0])
    assert driver.launches == []


def test_a_bad_image_is_the_candidate_s(driver: FakeDriver) -> None:
    with pytest.raises(CandidateError, match="does not load"):
        GpuLauncher(driver, b"junk", {}, device="cpu")


def test_close_unloads_unless_the_context_is_gone(driver: FakeDriver, launcher: GpuLauncher) -> None:
    launcher.close()
    assert driver.modules == {}


# ---------------------------------------------------------------- faults


@pytest.mark.parametrize(
    ("said", "status"),
    [
        ("CUDA_ERROR_ILLEGAL_ADDRESS (an illegal memory access was encountered)", "out_of_bounds"),
        ("CUDA_ERROR_MISALIGNED_ADDRESS (misaligned address)", "out_of_bounds"),
        ("CUDA_ERROR_LAUNCH_TIMEOUT (the launch timed out and was terminated)", "timeout"),
        ("CUDA_ERROR_LAUNCH_FAILED (unspecified launch failure)", "launch_error"),
        ("hipErrorIllegalAddress", "out_of_bounds"),
    ],
)
def test_a_sticky_error_is_typed_and_breaks_the_launcher(
    driver: FakeDriver, launcher: GpuLauncher, said: str, status: str
) -> None:
    launcher.launch("copy", GRID, BLOCK, 0, [None, None, 0])
    launcher.sync()
    assert not launcher.broken
    driver.error = said
    with pytest.raises(CandidateError, match="kernels launched: copy") as caught:
        launcher.sync()
    assert caught.value.status == status == fault_status(said)
    assert launcher.broken
    launcher.close()
    assert driver.modules  # nothing is asked of a broken context


def test_an_exception_of_torch_is_explained(driver: FakeDriver, launcher: GpuLauncher) -> None:
    own = CandidateError("mine")
    assert launcher.explain(own) is own
    plain = launcher.explain(RuntimeError("shapes cannot be multiplied\nmore"))
    assert plain.message == "the plan raised RuntimeError: shapes cannot be multiplied"
    assert not launcher.broken
    fault = launcher.explain(RuntimeError("CUDA error: an illegal memory access was encountered\nlong text"))
    assert fault.status == "out_of_bounds"
    assert launcher.broken
