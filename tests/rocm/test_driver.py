"""RocmDriver against a stub HIP runtime: what it calls, what it makes of errors, what it gives back."""

from __future__ import annotations

import ctypes
import ctypes.util
import signal
import struct
from collections.abc import Callable

import pytest
import torch

from hipwright.device import hip_check
from hipwright.device.amd import hip_api
from hipwright.device.amd.abort_messages import error_of_abort
from hipwright.device.amd.driver import RocmDriver, built_for
from hipwright.device.gpu.faults import fault_status
from hipwright.device.gpu.launcher import GpuLauncher
from hipwright.device.gpu.pack import pack
from hipwright.errors import CandidateError, DeviceError, ToolchainError
from hipwright.program.signature import parse_signatures
from hipwright.sandbox import WorkerDied
from hipwright.verify.candidate import fault_of

from .conftest import Stub

SOURCE = """#include <hip/hip_runtime.h>
extern "C" __global__ void mix(const float* x, char c, double d, bool b, short s, float f, unsigned char u, long n) {
    if (threadIdx.x == 0) ((float*)x)[n] = c + d + b + s + f + u;
}
"""
MIX = parse_signatures(SOURCE).signatures["mix"]


@pytest.fixture
def mix(code: Callable[..., bytes], stub: Stub) -> tuple[RocmDriver, int, int]:
    """(driver, module, function) of `mix`."""
    image = code(SOURCE)
    stub.knows(image)
    driver = stub.driver()
    module = driver.load(image)
    return driver, module, driver.function(module, "mix")


def test_the_device_is_told_in_hipwrights_words(stub: Stub) -> None:
    driver = stub.driver()
    assert (driver.arch, driver.features) == ("gfx942", "gfx942:sramecc+:xnack-")
    assert driver.limits() == {
        "max_grid_x": 2147483647,
        "max_grid_y": 65536,
        "max_grid_z": 65536,
        "max_threads": 1024,
        "units": 304,
        "lds_per_block": 65536,
        "wave": 64,
    }


def test_properties_have_the_layout_of_the_c_structure(stub: Stub) -> None:
    found = stub.driver().hip.properties(0)
    assert found.name == b"Stub GPU 0" and found.architecture == b"gfx942:sramecc+:xnack-"
    assert (found.memory_bytes, found.wave, found.units) == (192 << 30, 64, 304)
    assert (found.lds_per_block, found.lds_per_unit, found.lds_opt_in) == (65536, 65537, 65538)
    size = ctypes.CDLL(str(stub.path)).stub_properties_size()
    assert size == 1472  # hipDeviceProp_tR0600
    assert hip_api.Properties.rest.offset < size <= ctypes.sizeof(hip_api.Properties)


def test_a_launch_passes_geometry_stream_and_arguments(stub: Stub, mix: tuple[RocmDriver, int, int]) -> None:
    driver, _, function = mix
    x = torch.zeros(4)
    packed = pack(MIX, [x, -3, 2.5, True, -300, 1.5, 200, 7])
    driver.launch(function, (3, 2, 1), (64, 4, 1), 1024, 0x55, packed.pointers)
    seen = stub.launched()
    assert seen == {
        "grid": (3, 2, 1),
        "block": (64, 4, 1),
        "lds": 1024,
        "stream": 0x55,
        "function": function,
        "extra": 0,
        "params": 8,
        "captured": 0,
    }
    wanted = struct.pack("<Qb7xd?xhfB7xq", x.data_ptr(), -3, 2.5, True, -300, 1.5, 200, 7)
    got = bytearray(stub.segment(len(wanted)))
    gaps = [*range(9, 16), 25, *range(33, 40)]
    assert all(got[i] == 0xEE for i in gaps), "left untouched"
    for i in gaps:
        got[i] = 0
    assert bytes(got) == wanted, "and nothing else: an address may hold that byte itself"


def test_attributes_and_lds(stub: Stub, mix: tuple[RocmDriver, int, int]) -> None:
    driver, _, function = mix
    assert driver.attributes(function) == {"max_threads": 1024, "static_lds": 512, "local_bytes": 16, "registers": 40}
    driver.allow_lds(function, 65024)
    with pytest.raises(CandidateError, match="512 static \\+ 65025 dynamic LDS bytes; the limit is 65536"):
        driver.allow_lds(function, 65025)


def test_more_threads_than_a_dispatch_counts(stub: Stub, mix: tuple[RocmDriver, int, int]) -> None:
    driver, _, function = mix
    packed = pack(MIX, [None, 0, 0, 0, 0, 0, 0, 0])
    params = packed.pointers
    with pytest.raises(CandidateError, match=r"less than 2\^32 threads") as caught:
        driver.launch(function, (1 << 24, 1, 1), (256, 1, 1), 0, 0, params)
    assert caught.value.status == "launch_error"
    assert stub.calls("hipModuleLaunchKernel") == 0
    driver.launch(function, ((1 << 24) - 1, 1, 1), (256, 1, 1), 0, 0, params)
    assert stub.calls("hipModuleLaunchKernel") == 1


@pytest.mark.parametrize(
    ("number", "kind", "status", "sticky"),
    [
        (700, CandidateError, "out_of_bounds", True),
        (702, CandidateError, "timeout", True),
        (719, CandidateError, "launch_error", True),
        (710, CandidateError, "launch_error", True),
        (701, CandidateError, "launch_error", False),
        (9, CandidateError, "launch_error", False),
        (2, DeviceError, "unscorable", False),
        (214, DeviceError, "unscorable", True),
        (999, DeviceError, "unscorable", True),
        (801, DeviceError, "unscorable", False),
        (12345, DeviceError, "unscorable", False),
    ],
)
def test_errors_of_a_launch(
    stub: Stub, mix: tuple[RocmDriver, int, int], number: int, kind: type[Exception], status: str, sticky: bool
) -> None:
    driver, _, function = mix
    packed = pack(MIX, [None, 0, 0, 0, 0, 0, 0, 0])
    params = packed.pointers
    stub.fail("hipModuleLaunchKernel", number)
    with pytest.raises(kind) as caught:
        driver.launch(function, (1, 1, 1), (64, 1, 1), 0, 0, params)
    assert caught.value.status == status  # type: ignore[attr-defined]
    assert str(number) in str(caught.value)
    assert bool(driver.broken) == sticky
    assert bool(driver.peek_error()) == sticky


@pytest.mark.parametrize(("number", "status"), [(700, "out_of_bounds"), (702, "timeout"), (719, "launch_error")])
def test_a_fault_of_a_kernel_shows_at_the_synchronize_and_stays(
    stub: Stub, mix: tuple[RocmDriver, int, int], number: int, status: str
) -> None:
    driver, _, _ = mix
    assert driver.peek_error() == ""
    stub.fail("hipDeviceSynchronize", number)
    with pytest.raises(CandidateError) as caught:
        driver.synchronize()
    assert caught.value.status == status
    assert fault_status(driver.broken) == status  # the launcher reads the words
    with pytest.raises((CandidateError, DeviceError)):  # the context is gone for every later call
        driver.attributes(1)


def test_peek_finds_a_fault_that_torch_has_already_read(stub: Stub, mix: tuple[RocmDriver, int, int]) -> None:
    driver, _, _ = mix
    stub.fail("hipDeviceSynchronize", 700)
    assert "illegal address" in driver.peek_error()
    assert "hipErrorIllegalAddress (700)" in driver.peek_error()


def test_a_harmless_last_error_is_not_a_broken_device(stub: Stub, mix: tuple[RocmDriver, int, int]) -> None:
    driver, module, _ = mix
    with pytest.raises(CandidateError):
        driver.function(module, "absent")
    assert driver.peek_error() == "" and not driver.broken


def test_images_that_do_not_load(stub: Stub, code: Callable[..., bytes]) -> None:
    driver = stub.driver()
    with pytest.raises(ToolchainError, match=r"not readable.*no AMD GPU"):
        driver.load(b"nonsense" * 20)
    stub.fail("hipModuleLoadData", 209)
    with pytest.raises(ToolchainError, match=r"another GPU.*built for gfx90a, the device is gfx942:sramecc") as caught:
        driver.load(code(SOURCE, "gfx90a"))
    assert caught.value.fault == "toolchain"
    assert stub.live()["modules"] == 0


def test_a_machine_without_a_gpu(stub: Stub) -> None:
    stub.device(0, "")
    with pytest.raises(DeviceError, match=r"counting the devices: .*100") as caught:
        stub.driver()
    assert "HIP_VISIBLE_DEVICES" in caught.value.hint
    stub.device(2, "gfx90a")
    with pytest.raises(DeviceError, match="no AMD GPU 2: the HIP runtime sees 2"):
        stub.driver(2)


def test_a_library_that_is_no_hip_runtime() -> None:
    with pytest.raises(DeviceError, match="cannot use the HIP runtime"):
        RocmDriver(0, library="/nowhere/libamdhip64.so")
    with pytest.raises(DeviceError, match="cannot use the HIP runtime"):
        RocmDriver(0, library=ctypes.util.find_library("c") or "libc.so.6")


def test_names_of_errors_that_the_runtime_does_not_know(stub: Stub) -> None:
    hip = stub.driver().hip
    assert hip.error_name(719) == "hipErrorLaunchFailure"
    assert hip.error_name(710) == "hipErrorAssert"
    assert hip.error_name(4242) == "error 4242"


def test_the_launcher_drives_it(stub: Stub, code: Callable[..., bytes]) -> None:
    """GpuLauncher on CPU tensors: the stub's one kernel computes on host memory."""
    image = code(hip_check.SOURCE)
    stub.knows(image)
    signatures = parse_signatures(hip_check.SOURCE).signatures
    launcher = GpuLauncher(stub.driver(), image, signatures, device="cpu", zones=False, poison=None)
    x, y = torch.arange(1000, dtype=torch.float32), torch.zeros(1000)
    launcher.launch("trial", (4, 1, 1), (256, 1, 1), 0, [x, y, 1000, 0.5])
    launcher.sync()
    assert torch.equal(y, x * 0.5 + 1)
    with pytest.raises(CandidateError, match="a block of 2048 threads"):
        launcher.launch("trial", (4, 1, 1), (2048, 1, 1), 0, [x, y, 1000, 0.5])
    stub.fail("hipDeviceSynchronize", 700)
    with pytest.raises(CandidateError, match="illegal address") as caught:
        launcher.sync()
    assert caught.value.status == "out_of_bounds" and launcher.broken


# ---------------------------------------------------------------- lifetimes


def test_the_self_check_passes_and_gives_everything_back(stub: Stub, code: Callable[..., bytes]) -> None:
    image = code(hip_check.SOURCE)
    stub.knows(image)
    driver = stub.driver()
    found = hip_check.self_check(driver, image)
    assert found["architecture"] == "gfx942:sramecc+:xnack-" and found["launch_us"] == 0.25 / hip_check.TIMED * 1000
    assert stub.calls("hipModuleLaunchKernel") == 1 + hip_check.TIMED + 1  # checked, timed, captured
    assert stub.launched()["captured"] == 1
    assert set(stub.live().values()) == {0}


@pytest.mark.parametrize(
    "function",
    [
        "hipMalloc",
        "hipStreamCreate",
        "hipEventCreate",
        "hipEventRecord",
        "hipEventElapsedTime",
        "hipMemcpy",
        "hipModuleLaunchKernel",
        "hipStreamSynchronize",
        "hipStreamBeginCapture",
        "hipStreamEndCapture",
        "hipGraphInstantiate",
        "hipGraphLaunch",
        "hipModuleGetFunction",
        "hipFuncGetAttribute",
    ],
)
@pytest.mark.parametrize("after", [0, 1])
def test_a_failing_call_leaks_nothing(stub: Stub, code: Callable[..., bytes], function: str, after: int) -> None:
    image = code(hip_check.SOURCE)
    stub.knows(image)
    driver = stub.driver()
    stub.fail(function, 1, after=after)
    try:
        hip_check.self_check(driver, image)
    except DeviceError:
        pass
    else:
        assert stub.calls(function) <= after  # it was never called often enough to fail
    assert set(stub.live().values()) == {0}


def test_a_wrong_value_is_the_devices_fault(stub: Stub, code: Callable[..., bytes]) -> None:
    image = code(hip_check.SOURCE)
    stub.knows(image)
    driver = stub.driver()
    stub.wrong_at(4096)
    with pytest.raises(DeviceError, match=r"a launch gave .* at element 4096"):
        hip_check.self_check(driver, image)
    assert set(stub.live().values()) == {0}


# ---------------------------------------------------------------- what a dead process said


@pytest.mark.parametrize(
    ("stderr", "kind", "status"),
    [
        (
            "Memory access fault by GPU node-2 (Agent handle: 0x5581d0) on address 0x7f2c00000000. Reason: Page not "
            "present or supervisor privilege.\n",
            CandidateError,
            "out_of_bounds",
        ),
        (
            "Memory access fault by GPU node-1 (Agent handle: 0x1) on address (nil). Reason: Unknown.",
            CandidateError,
            "out_of_bounds",
        ),
        ("HW Exception by GPU node-1 (Agent handle: 0x55) reason :GPU Hang\n", CandidateError, "timeout"),
        (
            ":0:rocdevice.cpp :2984: Callback: Queue 0x7f aborting with error : HSA_STATUS_ERROR_EXCEPTION: An HSAIL "
            "operation resulted in a hardware exception. code: 0x1016\n",
            CandidateError,
            "launch_error",
        ),
        ("HSA_STATUS_ERROR_OUT_OF_RESOURCES: The runtime failed to allocate", DeviceError, "unscorable"),
    ],
)
def test_the_error_of_an_abort(stderr: str, kind: type[Exception], status: str) -> None:
    found = error_of_abort(f"some noise\n{stderr}\nmore")
    assert type(found) is kind and found.status == status


def test_a_worker_that_the_runtime_ended_has_its_verdict() -> None:
    said = "Memory access fault by GPU node-1 (Agent handle: 0x1) on address 0x7000. Reason: Page not present."
    found = fault_of(WorkerDied(signal.SIGABRT, None, said))
    assert found is not None and (found.status, found.fault) == ("out_of_bounds", "candidate")
    words = "HSA_STATUS_ERROR_OUT_OF_RESOURCES"  # a candidate that prints this does not acquit itself
    acquitted = fault_of(WorkerDied(signal.SIGABRT, None, words))
    assert acquitted is not None and (acquitted.status, acquitted.fault) == ("launch_error", "candidate")


def test_other_messages_give_no_error() -> None:
    assert error_of_abort("Segmentation fault (core dumped)") is None


def test_what_a_code_object_is_for(code: Callable[..., bytes]) -> None:
    assert built_for(code(SOURCE, "gfx1100")) == "gfx1100"
    assert built_for(b"\x7fELF").startswith("no AMD GPU")


def test_the_runtime_that_is_already_loaded_is_taken(stub: Stub) -> None:
    """Two HIP runtimes in one process would each think that they own the GPU."""
    stub.driver()
    assert hip_api.find_library.__wrapped__() == str(stub.path)
