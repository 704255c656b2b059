"""The CUDA driver's ctypes calls against a library with the driver API's ABI (stub_cuda.c): handles and errors."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from hipwright.device.gpu.launcher import GpuLauncher
from hipwright.device.nvidia import driver as cuda
from hipwright.device.open import open_driver
from hipwright.errors import BadInput, CandidateError, DeviceError
from hipwright.program.signature import parse_signatures

HIP = 'extern "C" __global__ void k(float* x, int n) {}\nextern "C" __global__ void norm(float* x) {}\n'


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler")
    out = tmp_path_factory.mktemp("stub") / "libcuda.so.1"
    source = Path(__file__).parent / "stub_cuda.c"
    subprocess.run([compiler, "-shared", "-fPIC", "-Wall", "-Werror", str(source), "-o", str(out)], check=True)
    return out


@pytest.fixture
def stub(library: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.setattr(cuda, "LIBRARY", str(library))
    loaded = ctypes.CDLL(str(library))
    loaded.stub_first.restype = loaded.stub_stream.restype = ctypes.c_uint64
    loaded.stub_geometry.restype = ctypes.c_uint
    loaded.stub_fail(0, 0)
    yield loaded
    loaded.stub_fail(0, 0)


def test_a_launch_passes_everything_whole(stub: Any) -> None:
    driver = cuda.CudaDriver()
    launcher = GpuLauncher(driver, b"code", parse_signatures(HIP).signatures, device="cpu")
    x = torch.zeros(4)
    launcher._stream = lambda: 0x5566778899AABBCC
    launcher.launch("k", (2**31 - 1, 3, 4), (64, 2, 1), 1000, [x, -5])
    assert [stub.stub_geometry(i) for i in range(7)] == [2**31 - 1, 3, 4, 64, 2, 1, 1000]
    assert stub.stub_first() == x.data_ptr()
    assert stub.stub_second() == -5
    assert stub.stub_stream() == 0x5566778899AABBCC  # 64 bits, not cut to an int
    unloaded = stub.stub_counts(2)
    launcher.close()
    assert stub.stub_counts(2) == unloaded + 1


def test_limits_and_attributes(stub: Any) -> None:
    driver = cuda.CudaDriver()
    assert driver.arch == "sm_90"
    assert driver.limits() == {
        "max_threads": 1024,
        "max_grid_x": 2**31 - 1,
        "max_grid_y": 65535,
        "max_grid_z": 65535,
        "lds_per_block": 232448,
        "wave": 32,
    }
    function = driver.function(driver.load(b"code"), "k")
    assert driver.attributes(function) == {"max_threads": 512, "static_lds": 4096, "local_bytes": 16, "registers": 40}
    driver.allow_lds(function, 100_000)
    assert [stub.stub_attribute(i) for i in range(2)] == [8, 100_000]
    with pytest.raises(CandidateError, match="dynamic LDS are refused"):
        driver.allow_lds(function, 300_000)


def test_a_renamed_kernel_is_found_again(stub: Any) -> None:
    driver = cuda.CudaDriver()
    module = driver.load(b"code")
    assert driver.function(module, "norm")
    with pytest.raises(CandidateError, match="no kernel other") as caught:
        driver.function(module, "other")
    assert caught.value.status == "launch_error"


def test_whose_fault_an_error_is(stub: Any) -> None:
    driver = cuda.CudaDriver()
    with pytest.raises(CandidateError, match="does not load"):
        driver.load(b"junk")
    function = driver.function(driver.load(b"code"), "k")
    params = (ctypes.c_void_p * 2)(*(ctypes.addressof(ctypes.c_uint64(0)),) * 2)
    for status, kind in ((701, "launch_error"), (700, "out_of_bounds"), (702, "timeout"), (719, "launch_error")):
        stub.stub_fail(0, status)
        with pytest.raises(CandidateError) as caught:
            driver.launch(function, (1, 1, 1), (1, 1, 1), 0, 0, params)
        assert caught.value.status == kind
        assert caught.value.evidence["cuda"] == status
    stub.stub_fail(0, 999)
    with pytest.raises(DeviceError, match="unknown"):
        driver.launch(function, (1, 1, 1), (1, 1, 1), 0, 0, params)


def test_a_thread_without_a_context_gets_one(stub: Any) -> None:
    driver = cuda.CudaDriver()
    function = driver.function(driver.load(b"code"), "k")
    value = ctypes.c_uint64(7)
    params = (ctypes.c_void_p * 2)(*(ctypes.addressof(value),) * 2)
    entered = stub.stub_counts(0)
    stub.stub_fail(0, 201)
    driver.launch(function, (1, 1, 1), (1, 1, 1), 0, 0, params)
    assert stub.stub_counts(0) == entered + 1
    assert stub.stub_first() == 7


def test_a_sticky_error_is_peeked(stub: Any) -> None:
    driver = cuda.CudaDriver()
    assert driver.peek_error() == ""  # "not ready" is healthy
    launcher = GpuLauncher(driver, b"code", parse_signatures(HIP).signatures, device="cpu")
    stub.stub_fail(700, 0)
    assert driver.peek_error() == "CUDA_ERROR_ILLEGAL_ADDRESS (an illegal memory access was encountered)"
    with pytest.raises(CandidateError) as caught:
        launcher.sync()
    assert caught.value.status == "out_of_bounds"
    assert launcher.broken


def test_a_launch_that_meets_a_dead_context_breaks_the_launcher(stub: Any) -> None:
    launcher = GpuLauncher(cuda.CudaDriver(), b"code", parse_signatures(HIP).signatures, device="cpu")
    stub.stub_fail(0, 701)
    with pytest.raises(CandidateError):
        launcher.launch("k", (1, 1, 1), (1, 1, 1), 0, [None, 0])
    assert not launcher.broken  # that launch alone was refused
    stub.stub_fail(719, 719)
    with pytest.raises(CandidateError):
        launcher.launch("k", (1, 1, 1), (1, 1, 1), 0, [None, 0])
    assert launcher.broken


def test_devices_that_are_not_there(stub: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DeviceError, match="GPU 5"):
        open_driver("cuda", 5)
    monkeypatch.setattr(cuda, "LIBRARY", "libnothing-of-this-name.so.1")
    with pytest.raises(DeviceError, match="no NVIDIA driver"):
        open_driver("cuda")
    with pytest.raises(BadInput, match="metal"):
        open_driver("metal")
