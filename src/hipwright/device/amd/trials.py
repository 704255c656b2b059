"""What an AMD GPU and its runtime must do for the rocm target, one trial a process; needs no torch (docs/contact.md).

`python -m hipwright.device.amd.trials NAME INDEX CODE` runs one trial on GPU INDEX with the code object of `SOURCE` in
the file CODE, and prints one JSON object: "ok", facts by name, or the error. The runtime may end the process.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import sys
import time
from array import array
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from hipwright.device.amd.driver import RocmDriver
from hipwright.errors import CandidateError, DeviceError, HipwrightError

SOURCE = """#include <hip/hip_runtime.h>
extern "C" __global__ void add(int* x, int count, int value) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) x[i] += value;
}
extern "C" __global__ void times(int* x, int count, int value) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) x[i] *= value;
}
extern "C" __global__ void arguments(int* out, signed char a, short b, bool c, float d, double e,
                                     long long f, const int* g) {
    if (threadIdx.x || blockIdx.x) return;
    out[0] = a; out[1] = b; out[2] = c; out[3] = (int)(d * 4.0f); out[4] = (int)(e * 8.0);
    out[5] = (int)(f >> 33); out[6] = g[1];
}
extern "C" __global__ void geometry(int* out) {
    if (threadIdx.x + threadIdx.y + threadIdx.z) return;
    int at = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
    out[at] = blockDim.x + 100 * blockDim.y + 10000 * blockDim.z;
}
extern "C" __global__ __launch_bounds__(64) void bounded(int* x, int count, int value) {
    if ((int)threadIdx.x < count) x[threadIdx.x] += value;
}
extern "C" __global__ void reversed(int* x, int count, int value) {
    extern __shared__ int kept[];
    for (int i = threadIdx.x; i < count; i += blockDim.x) kept[i] = x[i];
    __syncthreads();
    for (int i = threadIdx.x; i < count; i += blockDim.x) x[i] = kept[count - 1 - i] + value;
}
extern "C" __global__ void beyond(int* x, int count, int value) {
    if (threadIdx.x == 0 && blockIdx.x == 0) x[(long long)count << 20] = value;
}
"""
COUNT, BLOCK, REPLAYS = 4096, 256, 10
ZONE = 0x5A5A5A5A


class Bench:
    """A driver with the trial's code object loaded."""

    def __init__(self, driver: RocmDriver, code: bytes) -> None:
        self.driver, self.hip = driver, driver.hip
        self.module = driver.load(code)

    @contextlib.contextmanager
    def ints(self, values: Sequence[int]) -> Iterator[int]:
        """The address of integers on the device."""
        with self.hip.memory(4 * len(values)) as address:
            data = array("i", values)
            self.hip.call(
                "hipMemcpy", address, data.buffer_info()[0], 4 * len(values), 1, doing="copying to the device"
            )
            yield address

    def read(self, address: int, count: int) -> list[int]:
        """Integers from the device; waits for it."""
        self.driver.synchronize()
        data = array("i", [0] * count)
        self.hip.call("hipMemcpy", data.buffer_info()[0], address, 4 * count, 2, doing="copying from the device")
        return list(data)

    def launch(
        self,
        kernel: str,
        values: Sequence[Any],
        blocks: Any = 1,
        threads: Any = BLOCK,
        *,
        lds: int = 0,
        stream: int = 0,
    ) -> None:
        """Launch a kernel with ctypes values."""
        function = self.driver.function(self.module, kernel)
        params = (ctypes.c_void_p * len(values))(*(ctypes.addressof(value) for value in values))
        self.driver.launch(function, _three(blocks), _three(threads), lds, stream, params)

    def change(self, kernel: str, x: int, count: int, value: int, **more: Any) -> None:
        """Launch one of the kernels of (x, count, value)."""
        values = [ctypes.c_void_p(x), ctypes.c_int(count), ctypes.c_int(value)]
        self.launch(kernel, values, more.pop("blocks", -(-count // BLOCK)), **more)


def _three(value: Any) -> tuple[int, int, int]:
    return (value, 1, 1) if isinstance(value, int) else value


def _expect(got: Sequence[int], wanted: Sequence[int], what: str) -> None:
    for at, (one, other) in enumerate(zip(got, wanted, strict=True)):
        if one != other:
            raise DeviceError(f"{what}: element {at} is {one}, not {other}", hint="send the archive: this is a finding")


# ---------------------------------------------------------------- trials


def arguments(bench: Bench) -> dict[str, Any]:
    """Arguments of every size reach a kernel, and grids and blocks of three dimensions are what was asked for."""
    with bench.ints([0] * 32) as out, bench.ints([5, 6]) as given:
        values = [ctypes.c_void_p(out), ctypes.c_byte(-3), ctypes.c_short(-300), ctypes.c_bool(True)]
        values += [ctypes.c_float(1.25), ctypes.c_double(-2.5), ctypes.c_longlong(7 << 33), ctypes.c_void_p(given)]
        bench.launch("arguments", values)
        _expect(bench.read(out, 7), [-3, -300, 1, 5, -20, 7, 6], "arguments")
        bench.launch("geometry", [ctypes.c_void_p(out)], (4, 3, 2), (8, 4, 2))
        _expect(bench.read(out, 24), [8 + 400 + 20000] * 24, "geometry")
    return {"arguments": 8, "blocks": 24}


def bounds(bench: Bench) -> dict[str, Any]:
    """A block larger than a kernel's __launch_bounds__, and a kernel that is not there, are refused."""
    said = {}
    with bench.ints([0] * 64) as x:
        bench.change("bounded", x, 64, 1, threads=64)
        _expect(bench.read(x, 64), [1] * 64, "a full block")
        for what, kernel, threads in (("a block of 65", "bounded", 65), ("no such kernel", "missing", 64)):
            try:
                bench.change(kernel, x, 64, 1, threads=threads)
                bench.driver.synchronize()
            except CandidateError as error:
                said[what] = f"refused: {error.evidence.get('hip_error', '')}"
            else:
                said[what] = "not refused"
    if said["no such kernel"] == "not refused":
        raise DeviceError("a kernel that does not exist was launched", evidence=said)
    return said  # hipwright checks blocks by the code object, whether or not the runtime does


def lds(bench: Bench) -> dict[str, Any]:
    """Dynamic LDS up to the device's limit holds what is written to it."""
    most = bench.driver.limits()["lds_per_block"]
    for size in (1 << 10, 48 << 10, most):
        count = size // 4
        with bench.ints(range(count)) as x:
            bench.change("reversed", x, count, 1, blocks=1, lds=size)
            _expect(bench.read(x, count), [count - i for i in range(count)], f"{size} bytes of LDS")
    return {"largest_bytes": most}


def streams(bench: Bench) -> dict[str, Any]:
    """Launches of a stream keep their order; two streams work at a time on memory of their own."""
    with bench.ints([1] * COUNT) as x, bench.ints([1] * COUNT) as y, bench.hip.stream() as a, bench.hip.stream() as b:
        wanted = 1
        for turn in range(20):
            for at, stream in ((x, a), (y, b)):
                bench.change("add" if turn % 2 else "times", at, COUNT, 3, stream=stream)
            wanted = wanted + 3 if turn % 2 else wanted * 3
        for at in (x, y):
            _expect(bench.read(at, COUNT), [wanted] * COUNT, "launches in turn")
    return {"launches": 40, "streams": 2}


def graphs(bench: Bench) -> dict[str, Any]:
    """A graph of captured launches runs as often as it is launched, in order."""
    with bench.ints([1] * COUNT) as x, bench.hip.stream() as stream:

        def record() -> None:
            bench.change("times", x, COUNT, 2, stream=stream)
            bench.change("add", x, COUNT, 1, stream=stream)

        with bench.hip.graph(stream, record) as graph:
            _expect(bench.read(x, COUNT), [1] * COUNT, "a capture, which must not run")
            wanted = 1
            for _ in range(REPLAYS):
                bench.hip.call("hipGraphLaunch", graph, stream, doing="launching a graph")
                wanted = 2 * wanted + 1
            _expect(bench.read(x, COUNT), [wanted] * COUNT, "a graph's launches")
    return {"replays": REPLAYS}


def events(bench: Bench) -> dict[str, Any]:
    """Times between events grow with the work, and agree with the host's clock."""
    found = {}
    with (
        bench.ints([0] * COUNT) as x,
        bench.hip.stream() as stream,
        bench.hip.event() as begin,
        bench.hip.event() as end,
    ):
        bench.change("add", x, COUNT, 1, stream=stream)
        bench.driver.synchronize()
        for launches in (10, 100, 1000):
            started = time.perf_counter()
            bench.hip.call("hipEventRecord", begin, stream, doing="recording an event")
            for _ in range(launches):
                bench.change("add", x, COUNT, 1, stream=stream)
            bench.hip.call("hipEventRecord", end, stream, doing="recording an event")
            found[launches] = bench.hip.elapsed_ms(begin, end), (time.perf_counter() - started) * 1e3
    if not 0 < found[10][0] < found[1000][0]:
        raise DeviceError(f"events do not grow with the work: {found[10][0]} and {found[1000][0]} ms")
    device, host = found[1000]
    return {"us_a_launch": device, "device_ms": device, "host_ms": host, "launches": 1000}


def guards(bench: Bench) -> dict[str, Any]:
    """A write beside a buffer changes the zone that hipwright compares, at the place where it was."""
    zone, body = 128, 1000
    with bench.ints([ZONE] * (2 * zone + body)) as start:
        x = start + 4 * zone
        bench.change("times", x, body, 0, blocks=4)
        bench.change("add", x, body + 1, 1, blocks=4)  # one element too many
        found = bench.read(start, 2 * zone + body)
    changed = [at - zone for at, value in enumerate(found) if value == ZONE + 1 or value not in (ZONE, 1)]
    _expect(found[zone : zone + body], [1] * body, "the buffer")
    if changed != [body]:
        raise DeviceError(f"the write beside the buffer is at {changed[:4]}, not at {body}")
    return {"found_at": body}


def fault(bench: Bench) -> dict[str, Any]:
    """A write to an address that is not mapped is reported, or ends the process. Returns only where neither happens."""
    with bench.ints([0] * 64) as x:
        bench.change("beyond", x, 1 << 20, 1, blocks=1)
        bench.driver.synchronize()
        bench.read(x, 1)
    raise DeviceError(
        "a write 4 TiB beyond a buffer went unnoticed", hint="faults are not reported here: use --target gfx942@sim too"
    )


TRIALS: dict[str, Callable[[Bench], dict[str, Any]]] = {
    trial.__name__: trial for trial in (arguments, bounds, lds, streams, graphs, events, guards, fault)
}
"""By name; `fault` succeeds by failing, and its caller reads how."""


def main(words: Sequence[str]) -> int:
    """Run one trial; prints one JSON object."""
    name, index, path = words
    try:
        facts = TRIALS[name](Bench(RocmDriver(int(index)), Path(path).read_bytes()))
    except HipwrightError as error:
        status = getattr(error, "status", "")
        said = {"fault": error.fault, "status": status, "error": error.message, "hint": error.hint}
        print(json.dumps({"ok": False, **said, "evidence": error.evidence}))
        return error.exit_code
    print(json.dumps({"ok": True, "facts": facts}))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
