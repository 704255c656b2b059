"""Microseconds of host time a call of a task's program: its kernels are not launched, so it needs no GPU.

    python -m benchmarks host-cost TASK...

The driver does nothing and tensors lie in host memory, so what is left is the plan's own Python and its allocations:
the fast path of program/lower/fast_launch.py, and the checked path beside it. Then the same program as a drop-in of
`hipwright.optimize`, with its guards: launched kernel by kernel, and as a graph of the GPU that is replayed, whose
copies of inputs and outputs run on the CPU here. What the plan leaves to the library runs on the CPU and counts: take
tasks that are all kernels, benchmarks/kernels/networks/token_mixer_fp32.py for one.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

from benchmarks.common import task_host
from hipwright.api.live.exported import live_task
from hipwright.api.live.graphed import GraphedProgram
from hipwright.api.live.module import OptimizedModule
from hipwright.api.live.packaged import PackagedProgram
from hipwright.api.live.task_file import task_file
from hipwright.capture.forward import capture
from hipwright.capture.graph import Graph
from hipwright.device.gpu.launcher import GpuLauncher
from hipwright.engine import write
from hipwright.program import parse
from hipwright.program.lower.closures import lower
from hipwright.sandbox import Zygote
from hipwright.task import open_task
from hipwright.torchio import tree_to_torch

CALLS = 300
KEEP_MEMORY = {"MALLOC_MMAP_THRESHOLD_": "1000000000", "MALLOC_TRIM_THRESHOLD_": "4000000000"}
"""Environment by which glibc keeps freed memory, as torch's allocator on a GPU does."""


class NullDriver:
    """A driver whose launches do nothing. launched: how many there were."""

    name = "null"
    launched = 0

    def load(self, code: bytes) -> int:
        """A module's handle."""
        return 1

    def unload(self, module: int) -> None:
        """Does nothing."""

    def function(self, module: int, kernel: str) -> int:
        """A kernel's handle."""
        return 1

    def attributes(self, function: int) -> dict[str, int]:
        """The resources of a small kernel."""
        return {"registers": 32, "static_lds": 0, "local_bytes": 0, "max_threads": 1024}

    def allow_lds(self, function: int, bytes_: int) -> None:
        """Does nothing."""

    def limits(self) -> dict[str, int]:
        """The limits of a device that allows every launch."""
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
        """Counts the launch."""
        self.launched += 1

    def peek_error(self) -> str:
        """No error."""
        return ""


class CheckedLauncher:
    """A launcher without the fast path: every launch is checked."""

    def __init__(self, inner: GpuLauncher) -> None:
        self.launch, self.empty = inner.launch, inner.empty


def host_us(text: str, table: Any, inputs: list[Any], *, fast: bool) -> tuple[float, int]:
    """(the best of many calls in microseconds, launches of a call)."""
    parsed, driver = parse(text), NullDriver()
    launcher = GpuLauncher(driver, b"", parsed.signatures, device="cpu", poison=None, zones=False)
    launcher.record = False
    plan = lower(parsed, {}, table, launcher if fast else CheckedLauncher(launcher))
    spent = []
    with torch.no_grad():
        for _ in range(CALLS):
            driver.launched = 0
            start = time.perf_counter()
            plan.forward(*inputs)
            spent.append(time.perf_counter() - start)
    return min(spent) * 1e6, driver.launched


def task_cost(path: Path, hosts: Zygote) -> tuple[int, float, float]:
    """(launches of a call, its microseconds on the fast path, on the checked path)."""
    with open_task(path, hosts) as handle:
        workload = handle.task.workloads[0].name
        program = write(Graph.from_dict(handle.capture(workload)))
        table, inputs = tree_to_torch(handle.init_state(0)), tree_to_torch(handle.inputs(workload, 0))
    fast, launches = host_us(program.text, table, inputs, fast=True)
    return launches, fast, host_us(program.text, table, inputs, fast=False)[0]


class NullKernelDriver:
    """What a package's kernels ask of a driver; launches do nothing."""

    def allow_lds(self, function: int, lds: int) -> None:
        """Does nothing."""

    def launch_kernel(self, *_: Any) -> int:
        """Success."""
        return 0

    def check(self, status: int, doing: str) -> None:
        """Nothing fails."""


class NullGraphs:
    """Graphs (`DeviceGraphs`) whose replays do nothing."""

    def capturing(self, device: torch.device) -> bool:
        """Nobody captures."""
        return False

    def stream(self, device: torch.device) -> int:
        """The one stream."""
        return 0

    def capture(self, device: torch.device, call: Callable[[], Any]) -> tuple[Callable[[], None], Any]:
        """The call's result, and a replay that does nothing."""
        return (lambda: None), call()

    def reserve(self, device: torch.device, size: int) -> bool:
        """There is room."""
        return True

    def release(self, device: torch.device, size: int) -> None:
        """Nothing was taken."""


def drop_in_cost(text: str, name: str) -> tuple[float, float]:
    """Microseconds of a call of a task's drop-in: (kernel by kernel, by a graph)."""
    file = task_file(text)
    module, inputs = file.model.eval(), tuple(file.inputs)
    live = live_task(module, inputs, {}, name)
    own = task_file(live.task.text)
    program = write(Graph.from_dict(capture(own.model, own.inputs)), {})
    made: Any = PackagedProgram(program, live.task.text, own.inputs, own.state)
    made.device, device = "cpu", torch.device("cpu")
    gpu = importlib.import_module(f"{made._module.__name__}.gpu")
    signatures = made._spec.SIGNATURES.items()
    kernels = {name: gpu.Kernel(name, params, 1, NullKernelDriver(), device) for name, params in signatures}
    made._module.KERNELS._made[device] = SimpleNamespace(**kernels)
    torch._C._cuda_getCurrentRawStream = lambda index: 0
    return _best_us(OptimizedModule(module, live, made), inputs), _best_us(
        OptimizedModule(module, live, GraphedProgram(made, NullGraphs())), inputs
    )


def _best_us(module: OptimizedModule, inputs: tuple[Any, ...]) -> float:
    """The best of many calls in microseconds."""
    spent = []
    with torch.no_grad():
        for _ in range(CALLS):
            start = time.perf_counter()
            module(*inputs)
            spent.append(time.perf_counter() - start)
    if module.fallbacks:
        raise SystemExit(f"the drop-in falls back: {dict(module.fallbacks)}")
    return min(spent) * 1e6


def add_options(options: argparse.ArgumentParser) -> None:
    """Adds the command's options."""
    options.add_argument("tasks", nargs="+", type=Path)


def run(options: argparse.Namespace) -> int:
    """Prints a line for each task. The process starts anew with glibc's settings in its environment."""
    if not KEEP_MEMORY.items() <= os.environ.items():
        os.execve(sys.executable, sys.orig_argv, {**os.environ, **KEEP_MEMORY})
    with task_host() as host:
        for path in options.tasks:
            launches, fast, checked = task_cost(path, host)
            line = f"{path.stem}: {launches} launches, {fast:.1f} us a call, {checked:.1f} us on the checked path"
            plain, replayed = drop_in_cost(path.read_text(encoding="utf-8"), path.stem)
            print(f"{line}; as a drop-in {plain:.1f} us, {replayed:.1f} us by a graph", flush=True)
    return 0
