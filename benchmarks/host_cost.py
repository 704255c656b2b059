"""What a plan costs the host: microseconds of a call of a task's program whose kernels are not launched. Needs no GPU.

    python benchmarks/host_cost.py TASK...

The driver does nothing and tensors lie in host memory, so what is left is the plan's own Python and its allocations:
the fast path of program/lower/fast_launch.py, and the checked path beside it. What the plan leaves to the library runs
on the CPU and counts: take tasks that are all kernels, benchmarks/kernels/networks/token_mixer_fp32.py for one.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path
from typing import Any

import torch

from hipwright.capture.graph import Graph
from hipwright.device.gpu.launcher import GpuLauncher
from hipwright.engine import write
from hipwright.errors import HipwrightError
from hipwright.program import parse
from hipwright.program.lower.closures import lower
from hipwright.sandbox import Zygote
from hipwright.task import open_task
from hipwright.torchio import tree_to_torch

CALLS = 300
KEEP = {"MALLOC_MMAP_THRESHOLD_": "1000000000", "MALLOC_TRIM_THRESHOLD_": "4000000000"}
"""glibc keeps freed memory, as torch's allocator on a GPU does."""


class Nothing:
    """A driver whose launches do nothing."""

    name = "nothing"
    launched = 0

    def load(self, code: bytes) -> int:
        """A module."""
        return 1

    def unload(self, module: int) -> None:
        """Nothing."""

    def function(self, module: int, kernel: str) -> int:
        """A kernel."""
        return 1

    def attributes(self, function: int) -> dict[str, int]:
        """A kernel that needs little."""
        return {"registers": 32, "static_lds": 0, "local_bytes": 0, "max_threads": 1024}

    def allow_lds(self, function: int, bytes_: int) -> None:
        """Nothing."""

    def limits(self) -> dict[str, int]:
        """A device that allows all."""
        most = 2**31 - 1
        return {
            "max_threads": 1024,
            "max_grid_x": most,
            "max_grid_y": most,
            "max_grid_z": most,
            "lds_per_block": most,
            "wave": 32,
        }

    def launch(self, *_: Any) -> None:
        """Counts."""
        self.launched += 1

    def peek_error(self) -> str:
        """Healthy."""
        return ""


class Long:
    """A launcher that offers no short way."""

    def __init__(self, inner: GpuLauncher) -> None:
        self.launch, self.empty = inner.launch, inner.empty


def host_us(text: str, table: Any, inputs: list[Any], *, short: bool) -> tuple[float, int]:
    """(the best of many calls in microseconds, launches of a call)."""
    parsed, driver = parse(text), Nothing()
    launcher = GpuLauncher(driver, b"", parsed.signatures, device="cpu", poison=None, zones=False)
    launcher.record = False
    plan = lower(parsed, {}, table, launcher if short else Long(launcher))
    spent = []
    with torch.no_grad():
        for _ in range(CALLS):
            driver.launched = 0
            start = time.perf_counter()
            plan.forward(*inputs)
            spent.append(time.perf_counter() - start)
    return min(spent) * 1e6, driver.launched


def of_task(path: Path, hosts: Zygote) -> tuple[int, float, float]:
    """(launches of a call, its microseconds the short way, the long way)."""
    with open_task(path, hosts) as handle:
        workload = handle.task.workloads[0].name
        program = write(Graph.from_dict(handle.capture(workload)))
        table, inputs = tree_to_torch(handle.init_state(0)), tree_to_torch(handle.inputs(workload, 0))
    short, launches = host_us(program.text, table, inputs, short=True)
    return launches, short, host_us(program.text, table, inputs, short=False)[0]


def main() -> None:
    """A line for each task."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("tasks", nargs="+", type=Path)
    chosen = options.parse_args()
    if not KEEP.items() <= os.environ.items():
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **KEEP})
    try:
        with Zygote(("torch", "hipwright.task.host.warm"), name="task host") as hosts:
            for path in chosen.tasks:
                launches, short, long = of_task(path, hosts)
                print(
                    f"{path.stem}: {launches} launches, {short:.1f} us a call, {long:.1f} us the long way", flush=True
                )
    except HipwrightError as error:
        sys.exit(f"error: {error.message}")


if __name__ == "__main__":
    main()
