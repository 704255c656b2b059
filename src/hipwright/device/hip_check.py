"""Self-check of the HIP runtime on a machine with an AMD GPU: launch, events and a graph, without torch.

`python -m hipwright.device.hip_check [INDEX]` prints one JSON object and exits 0 when every value was right. It runs in
a process of its own, because the runtime ends the process on a memory fault.
"""

from __future__ import annotations

import ctypes
import json
import sys
import tempfile
from array import array
from typing import Any

from hipwright import config
from hipwright.device.amd.driver import RocmDriver, check_signatures
from hipwright.device.gpu.pack import ArgumentLayout
from hipwright.errors import DeviceError, HipwrightError, ToolchainError
from hipwright.records import Record
from hipwright.toolchain.amd import hiprtc
from hipwright.toolchain.amd import offline as amdgpu
from hipwright.toolchain.cache import BuildCache
from hipwright.toolchain.pool import CompilePool

KERNEL = "trial"
SOURCE = f"""#include <hip/hip_runtime.h>
extern "C" __global__ void {KERNEL}(const float* x, float* y, int n, float scale) {{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] * scale + 1.0f;
}}
"""
COUNT, BLOCK, SCALE = 4097, 256, 0.5
TIMED = 20


class _Param(Record, frozen=True, kw_only=True):
    name: str
    kind: str
    pointer: bool = False


class _Signature(Record, frozen=True, kw_only=True):
    name: str
    params: tuple[_Param, ...]


SIGNATURE = _Signature(
    name=KERNEL,
    params=(
        _Param(name="x", kind="float32", pointer=True),
        _Param(name="y", kind="float32", pointer=True),
        _Param(name="n", kind="int32"),
        _Param(name="scale", kind="float32"),
    ),
)


class _Address:
    """A device address in place of a tensor."""

    def __init__(self, address: int) -> None:
        self._address = address

    def data_ptr(self) -> int:
        return self._address


def self_check(driver: RocmDriver, code: bytes) -> dict[str, Any]:
    """Run the kernel of `SOURCE` on a stream, timed by events, and from a graph; compare every value exactly.

    Returns architecture, registers, microseconds a launch and how many values were compared. Raises DeviceError when a
    value is wrong, and the errors of the runtime.
    """
    check_signatures(code, {KERNEL: SIGNATURE})
    hip, size = driver.hip, COUNT * 4
    given = array("f", (float(i % 251) - 125.0 for i in range(COUNT)))
    wanted = array("f", (value * SCALE + 1.0 for value in given))
    module = driver.load(code)
    try:
        function = driver.function(module, KERNEL)
        with hip.memory(size) as x, hip.memory(size) as y, hip.stream() as stream:
            layout = ArgumentLayout(SIGNATURE)
            params = layout.pack([_Address(x), _Address(y), COUNT, SCALE])
            _to_device(driver, x, given)

            def launch() -> None:
                driver.launch(function, (-(-COUNT // BLOCK), 1, 1), (BLOCK, 1, 1), 0, stream, params)

            _expect(driver, y, stream, wanted, "a launch", launch)
            launch_us = _time(driver, stream, launch) / TIMED * 1000
            with hip.graph(stream, launch) as graph:
                _expect(driver, y, stream, wanted, "a graph", lambda: _replay(driver, graph, stream))
            registers = driver.attributes(function)["registers"]
    finally:
        driver.unload(module)
    return {"architecture": driver.features, "registers": registers, "launch_us": launch_us, "values": COUNT}


def _replay(driver: RocmDriver, graph: int, stream: int) -> None:
    driver.hip.call("hipGraphLaunch", graph, stream, doing="launching a graph")


def _time(driver: RocmDriver, stream: int, launch: Any) -> float:
    """Milliseconds of `TIMED` launches, by events on the stream."""
    hip = driver.hip
    with hip.event() as start, hip.event() as end:
        hip.call("hipEventRecord", start, stream, doing="recording an event")
        for _ in range(TIMED):
            launch()
        hip.call("hipEventRecord", end, stream, doing="recording an event")
        return hip.elapsed_ms(start, end)


def _expect(driver: RocmDriver, y: int, stream: int, wanted: array[float], what: str, run: Any) -> None:
    """Clear y, run, synchronise, compare."""
    _to_device(driver, y, array("f", [-7.0]) * COUNT)
    run()
    driver.hip.call("hipStreamSynchronize", stream, doing=f"waiting for {what}")
    got = array("f", [0.0]) * COUNT
    driver.hip.call("hipMemcpy", got.buffer_info()[0], y, COUNT * 4, 2, doing="copying from the device")
    if got != wanted:
        at = next(i for i, pair in enumerate(zip(got, wanted, strict=True)) if pair[0] != pair[1])
        message = f"{what} gave {got[at]} instead of {wanted[at]} at element {at}"
        raise DeviceError(message, hint="the HIP runtime or the device is not to be trusted", stage="launch")


def _to_device(driver: RocmDriver, address: int, values: array[float]) -> None:
    source = ctypes.c_void_p(values.buffer_info()[0])
    driver.hip.call("hipMemcpy", address, source, COUNT * 4, 1, doing="copying to the device")


def trial_code(architecture: str, cache: BuildCache) -> bytes:
    """The code object of `SOURCE`: built offline, for a simulated GPU by its own compilers.

    Raises ToolchainError where it cannot be built.
    """
    if config.simulated_rocm() is None:
        build = amdgpu.build(SOURCE, architecture, {}, cache=cache)
    else:
        with hiprtc.zygote() as host, CompilePool(host, 1) as pool:
            build = hiprtc.build(SOURCE, {}, arch=architecture, pool=pool, cache=cache)
    if not build.ok:
        raise ToolchainError(f"the trial kernel does not compile: {build.log[:300]}", hint="see `hipwright doctor`")
    return cache.get(build.blob)


def main(arguments: list[str]) -> int:
    """Build the kernel for GPU `arguments[0]` (0 without) and check it; prints JSON."""
    try:
        driver = RocmDriver(int(arguments[0]) if arguments else 0)
        with tempfile.TemporaryDirectory(prefix="hipwright-check-") as folder:
            found = self_check(driver, trial_code(driver.arch, BuildCache(folder)))
    except HipwrightError as error:
        print(json.dumps({"ok": False, "fault": error.fault, "error": error.message, "hint": error.hint}))
        return error.exit_code
    print(json.dumps({"ok": True, **found}))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
