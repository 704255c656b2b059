"""Building programs and calling them in this process, for timings that judge nothing."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from hipwright.api.task_engine import measured_choices
from hipwright.device import topology
from hipwright.device.cpu.launcher import CpuLauncher
from hipwright.device.gpu.launcher import GpuLauncher
from hipwright.device.open import open_driver
from hipwright.program import parse
from hipwright.program.lower.closures import lower
from hipwright.records import Build, Program
from hipwright.targets import TORCH_GPU_0
from hipwright.toolchain.cache import BuildCache
from hipwright.toolchain.cpu import build as cpu
from hipwright.toolchain.nvidia import nvrtc
from hipwright.toolchain.pool import CompilePool


class ProgramRunner:
    """Builds programs for one target and makes functions of them. target: "cuda", or "cpu" to try a benchmark."""

    def __init__(self, target: str, cache: BuildCache) -> None:
        self.target, self._cache = target, cache
        self.device = torch.device("cpu" if target == "cpu" else TORCH_GPU_0)
        self._pool: CompilePool | None = None
        self._driver: Any = None
        self._arch = ""

    @contextmanager
    def opened(self) -> Iterator[ProgramRunner]:
        """The runner with its compilers and its driver, which end with the block."""
        with ExitStack() as stack:
            if self.target != "cpu":
                # the driver counts the GPUs that the environment (CUDA_VISIBLE_DEVICES) allows, as torch does
                self._driver, self._arch = open_driver(self.target, 0), topology.find(self.target)[0].architecture
                host = stack.enter_context(nvrtc.zygote())
                count = max(2, len(os.sched_getaffinity(0)) - 2)
                self._pool = stack.enter_context(CompilePool(host, count))
            yield self

    def base_choices(self) -> dict[str, Any]:
        """The engine's choices that a run on this target's GPU starts from (`measured_choices`)."""
        gpus = {self.target: self._arch} if self._arch else {}
        return measured_choices([self.target], gpus)

    def build(self, program: Program) -> Build:
        """The build of a program with its knobs; a failed one is not `ok`."""
        parsed = parse(program.text)
        defines = parsed.defines(program.knobs)
        if self._pool is None:
            return cpu.build(parsed.hip, defines, cache=self._cache)
        return nvrtc.build(parsed.hip, defines, arch=self._arch, pool=self._pool, cache=self._cache)

    def function(self, program: Program, build: Build, state: Any) -> Callable[..., Any]:
        """The program as a function of forward's arguments. state: the model's parameters and buffers."""
        return self._lowered(program, build, state, record=False)[0]

    def launches(self, program: Program, build: Build, state: Any, inputs: Sequence[Any]) -> list[dict[str, Any]]:
        """The kernel, grid and block of each launch of one call."""
        run, launcher = self._lowered(program, build, state, record=True)
        with torch.no_grad():
            run(*inputs)
        return list(launcher.stats())

    def _lowered(self, program: Program, build: Build, state: Any, *, record: bool) -> tuple[Callable[..., Any], Any]:
        parsed = parse(program.text)
        launcher: Any
        if self._driver is None:
            launcher = CpuLauncher(str(self._cache.path(build.blob)), parsed.signatures)
        else:
            code, where = self._cache.get(build.blob), str(self.device)
            launcher = GpuLauncher(self._driver, code, parsed.signatures, device=where, poison=None, zones=False)
            launcher.record = record
        return lower(parsed, program.knobs, state, launcher, device=str(self.device)).forward, launcher

    def cache_bytes(self) -> int:
        """The size of the device's last-level cache."""
        if self.target == "cpu":
            return 1 << 20
        return int(torch.cuda.get_device_properties(self.device).L2_cache_size)


@contextmanager
def open_runner(target: str) -> Iterator[ProgramRunner]:
    """A runner with an empty build cache of its own."""
    with TemporaryDirectory() as folder, ProgramRunner(target, BuildCache(Path(folder))).opened() as runner:
        yield runner
