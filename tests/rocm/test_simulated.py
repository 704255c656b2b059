"""The simulated ROCm's libraries by themselves: HIP's interface over the executor, in this process and in others."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from array import array
from collections.abc import Callable
from pathlib import Path

import pytest

from hipwright.device import hip_check, topology
from hipwright.device.amd.abort_messages import error_of_abort
from hipwright.device.amd.driver import RocmDriver
from hipwright.device.gpu.kernels import Dim3
from hipwright.errors import BadInput, DeviceError, ToolchainError
from hipwright.toolchain.amd import offline, rocm_paths
from hipwright.toolchain.cache import BuildCache
from hipwright.toolchain.sim_rocm import folder
from tests.rocm import simulated

KERNELS = """
#include <hip/hip_runtime.h>
extern "C" __global__ void add(int* x, int n) { if (threadIdx.x == 0) x[blockIdx.x] += n; }
extern "C" __global__ __launch_bounds__(64) void reversed(int* x) {
    extern __shared__ int kept[];
    kept[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    x[threadIdx.x] = kept[blockDim.x - 1 - threadIdx.x];
}
extern "C" __global__ void geometry(int* out) {
    if (threadIdx.x + threadIdx.y + threadIdx.z) return;
    int at = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
    out[at] = blockDim.x + 100 * blockDim.y + 10000 * blockDim.z;
}
extern "C" __global__ void race(int* x) {
    __shared__ int one[256];
    one[threadIdx.x] = x[0];
    x[threadIdx.x] = one[255 - threadIdx.x];
}
extern "C" __global__ void beyond(int* x, long long at) { x[at] = 1; }
"""
CHILD = """
import sys
from hipwright.device.amd.driver import RocmDriver
from hipwright.device.amd.hip_api import error_of
from pathlib import Path
import ctypes
driver = RocmDriver()
function = driver.function(driver.load(Path(sys.argv[1]).read_bytes()), sys.argv[2])
with driver.hip.memory(4096) as x:
    values = [ctypes.c_void_p(x), ctypes.c_longlong(1024)]  # the page behind is nobody's
    params = (ctypes.c_void_p * 2)(*(ctypes.addressof(value) for value in values))
    driver.launch(function, (1, 1, 1), (256, 1, 1), 0, 0, params)
    print("launched")
    print(driver.peek_error())
"""


@pytest.fixture(scope="module")
def rocm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return simulated.made(tmp_path_factory.mktemp("rocm"))


@pytest.fixture(autouse=True)
def chosen(rocm: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROCM_PATH", str(rocm))


@pytest.fixture(scope="module")
def code(rocm: Path, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ROCM_PATH", str(rocm))
        return simulated.compiler(BuildCache(tmp_path_factory.mktemp("cache")))(KERNELS)


@pytest.fixture
def driver(rocm: Path) -> RocmDriver:
    return RocmDriver(library=rocm / "lib/libamdhip64.so")


class Ints:
    """Integers on the device, and kernels that work on them."""

    def __init__(self, driver: RocmDriver, code: bytes, address: int, count: int) -> None:
        self.driver, self.address, self.count = driver, address, count
        self.module = driver.load(code)
        self.put([0] * count)

    def put(self, values: list[int]) -> None:
        data = array("i", values)
        self.driver.hip.call("hipMemcpy", self.address, data.buffer_info()[0], 4 * self.count, 1)

    def get(self) -> list[int]:
        data = array("i", [0] * self.count)
        self.driver.hip.call("hipMemcpy", data.buffer_info()[0], self.address, 4 * self.count, 2)
        return list(data)

    def launcher(self, kernel: str, grid: Dim3, block: Dim3, *, lds: int = 0) -> Callable[..., None]:
        function = self.driver.function(self.module, kernel)

        def launch(*more: int, stream: int = 0) -> None:
            values = [ctypes.c_void_p(self.address), *map(ctypes.c_int, more)]
            params = (ctypes.c_void_p * len(values))(*(ctypes.addressof(value) for value in values))
            self.driver.launch(function, grid, block, lds, stream, params)

        return launch


@pytest.fixture
def ints(driver: RocmDriver, code: bytes) -> object:
    with driver.hip.memory(256) as address:
        found = Ints(driver, code, address, 64)
        yield found
        driver.unload(found.module)


def test_the_gpu_says_that_it_is_simulated(driver: RocmDriver) -> None:
    found = driver.hip.properties(0)
    assert found.name == b"gfx942 (simulated)" and driver.arch == "gfx942"
    grid = {"max_grid_x": 2**31 - 1, "max_grid_y": 65536, "max_grid_z": 65536}
    assert driver.limits() == grid | {"max_threads": 1024, "units": 304, "lds_per_block": 65536, "wave": 64}
    assert (found.units, found.wave, found.lds_per_block) == (304, 64, 65536)
    (listed,) = topology.find("rocm")
    assert (listed.name, listed.architecture) == ("gfx942 (simulated)", "gfx942")


def test_the_self_check_passes(driver: RocmDriver, tmp_path: Path) -> None:
    found = hip_check.self_check(driver, hip_check.trial_code("gfx942", BuildCache(tmp_path)))
    assert found["values"] == hip_check.COUNT and found["launch_us"] > 0


def test_geometry_and_dynamic_lds(ints: Ints) -> None:
    ints.launcher("geometry", (4, 3, 2), (8, 4, 2))()
    assert ints.get()[:25] == [8 + 400 + 20000] * 24 + [0]
    ints.put(list(range(64)))
    ints.launcher("reversed", (1, 1, 1), (64, 1, 1), lds=256)()
    assert ints.get() == list(reversed(range(64)))


def test_a_graph_keeps_its_arguments(ints: Ints) -> None:
    hip, add = ints.driver.hip, ints.launcher("add", (2, 1, 1), (64, 1, 1))
    with hip.stream() as stream:

        def record() -> None:
            add(5, stream=stream)
            add(7, stream=stream)

        with hip.graph(stream, record) as graph:
            assert ints.get()[:2] == [0, 0]  # captured, not run
            for _ in range(3):
                hip.call("hipGraphLaunch", graph, stream)
            add(100, stream=stream)
    assert ints.get()[:3] == [136, 136, 0]


def test_what_a_device_refuses(ints: Ints, driver: RocmDriver, tmp_path: Path) -> None:
    with pytest.raises(Exception, match="no such kernel"):
        driver.function(ints.module, "missing")
    with pytest.raises(Exception, match="not possible on this device"):
        ints.launcher("reversed", (1, 1, 1), (65, 1, 1))()  # __launch_bounds__(64)
    with pytest.raises(Exception, match="not possible on this device"):
        ints.launcher("reversed", (1, 1, 1), (64, 1, 1), lds=(64 << 10) + 4)()
    cache = BuildCache(tmp_path)
    with pytest.raises(ToolchainError, match=r"built for gfx90a, the device is gfx942"):
        driver.load(cache.get(offline.build(KERNELS, "gfx90a", {}, cache=cache).blob))
    with pytest.raises(ToolchainError, match="not readable"):
        driver.load(b"no code object".ljust(200, b"\0"))
    with pytest.raises(DeviceError, match="hipErrorNotSupported"):  # without the section that is executed
        driver.load(cache.get(offline.build(KERNELS, "gfx942", {}, cache=cache).blob))
    assert driver.peek_error() == "" and driver.broken == ""


def test_a_stray_write_ends_the_process_as_on_an_amd_gpu(code: bytes, tmp_path: Path) -> None:
    done = _child(code, "beyond", tmp_path)
    found = error_of_abort(done.stderr)
    assert done.returncode == -6 and "launched" not in done.stdout, done
    assert found is not None and getattr(found, "status", "") == "out_of_bounds"


def test_a_fault_of_a_kernel_is_reported_after_the_launch(code: bytes, tmp_path: Path) -> None:
    done = _child(code, "race", tmp_path)
    assert done.stdout.splitlines() == ["launched", "a kernel raised a hardware exception: hipErrorLaunchFailure (719)"]
    assert "simulated GPU: " in done.stderr


def _child(code: bytes, kernel: str, folder: Path) -> subprocess.CompletedProcess[str]:
    path = folder / "code"
    path.write_bytes(code)
    return subprocess.run([sys.executable, "-c", CHILD, str(path), kernel], capture_output=True, text=True, check=False)


def test_compilers_and_their_messages(rocm: Path, tmp_path: Path) -> None:
    assert rocm_paths.hipcc() == rocm / "bin/hipcc" and rocm_paths.library("hiprtc") == rocm / "lib/libhiprtc.so"
    (tmp_path / "kernel.hip").write_text("#include <hip/hip_runtime.h>\nint x = nonsense;\n")
    argv = [str(rocm / "bin/hipcc"), "--genco", "--offload-arch=gfx942", "kernel.hip", "-o", "out"]
    done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode and "kernel.hip:2:9: error: use of undeclared identifier 'nonsense'" in done.stderr
    said = subprocess.run([argv[0], "--version"], capture_output=True, text=True, check=True).stdout
    assert "simulated" in said


def test_only_simulated_architectures(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="gfx1201 is not simulated"):
        folder.make(tmp_path, "gfx1201", cache=simulated.CACHE)
