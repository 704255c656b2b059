"""One GPU of this machine: what is warm there for all tasks, compilers, candidate workers and zygotes."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Literal

from hipwright.errors import InfrastructureError
from hipwright.evaluation.gpu.timing_lock import TimingLock
from hipwright.records import Build
from hipwright.sandbox import GpuAccess, OneShotPool, Zygote
from hipwright.targets import TORCH_GPU_0, Target
from hipwright.task import TaskHandle
from hipwright.toolchain.cache import BuildCache
from hipwright.toolchain.gpu_compilers import GPU_COMPILERS
from hipwright.toolchain.pool import COMPILE_LIMIT_S, CompilePool
from hipwright.verify.gpu.client import CandidateWorker
from hipwright.verify.gpu.connection import GPU_WORKER, MODELNEW_PRELOAD
from hipwright.verify.gpu.reference import DeviceReference, open_reference
from hipwright.verify.gpu.shared_hosts import SharedHosts

CANDIDATES, REFERENCES = 0.4325, 0.5475
"""Shares of a limit on device memory; what is left is for what the driver keeps for each process. A candidate holds its
inputs and outputs; the reference holds the same, and for each float of an output the honest error in 2 bytes."""
SWITCH_S = 0.0005  # that a thread keeps the interpreter while others want it


@dataclass
class GpuContext:
    """What all tasks on one GPU share. architecture: as the compiler names it ("sm_90", "gfx942").

    memory_bytes: of the device, for all processes together; 0 for all there is. shared: where tasks that trust each
    other have their references; None: a process for each.
    """

    target: Target
    index: int
    architecture: str
    cache: BuildCache
    pool: CompilePool
    hosts: Zygote
    workers: Zygote
    unsafe: bool = False
    memory_bytes: int = 0
    shared: SharedHosts | None = None
    timing_lock: TimingLock = field(default_factory=TimingLock)
    spares: OneShotPool | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def candidates(self, zygote: Zygote | None = None, profile: Literal["gpu", "tools"] = "gpu") -> CandidateWorker:
        """A candidate worker of its own; it starts with its first program."""
        limit = int(CANDIDATES * self.memory_bytes)
        return CandidateWorker(
            zygote or self.workers, TORCH_GPU_0, self.target.name, self.cache, memory_limit_bytes=limit, profile=profile
        )

    def reference(self, handle: TaskHandle) -> DeviceReference:
        """A process that runs the task's own code on this GPU."""
        limit = int(REFERENCES * self.memory_bytes)
        return open_reference(handle, self.shared or self.hosts, TORCH_GPU_0, memory_limit_bytes=limit)

    @contextmanager
    def foreign(self, profile: Literal["gpu", "tools"] = "gpu") -> Iterator[CandidateWorker]:
        """A worker for one candidate with host code: its processes are used once."""
        with self._lock:
            if self.spares is None:
                access = GpuAccess(self.target, self.index)
                built = (self.cache.folder,)
                make = partial(
                    Zygote, MODELNEW_PRELOAD, ro=built, unsafe=self.unsafe, name="ModelNew worker", gpu=access
                )
                self.spares = OneShotPool(make)
        with self.spares.take() as zygote, self.candidates(zygote, profile) as worker:
            yield worker

    def close(self) -> None:
        """End what waits for candidates with host code."""
        if self.spares is not None:
            self.spares.close()

    def abort(self) -> None:
        """End the processes that use the GPU: what runs in them raises, and the next call starts new ones."""
        self.workers.close()
        self.hosts.close()

    def build(self, hip: str, defines: dict[str, int]) -> Build:
        """Compile for this GPU."""
        compiler = GPU_COMPILERS[self.target]
        return compiler.build(
            hip, defines, arch=self.architecture, pool=self.pool, cache=self.cache, unsafe=self.unsafe
        )


@contextmanager
def open_gpu(
    target: Target,
    index: int | None,
    cache: BuildCache,
    *,
    unsafe: bool = False,
    compilers: int = 0,
    memory_bytes: int = 0,
    shared_hosts: int = 0,
    compile_s: float | None = None,
) -> Iterator[GpuContext]:
    """Start what a GPU needs; all of it ends with the block. Raises DeviceError where the GPU does not work.

    index: its number on the machine; None for the first that the environment (CUDA_VISIBLE_DEVICES) allows.
    compilers: warm compile sessions; 0 for all but a few processors. memory_bytes: of the device that all processes
    together may use; 0 for all. shared_hosts: processes that the references of all tasks share, which must trust each
    other; 0: one for each task. compile_s: wall seconds of one compile; None for what any honest one needs.
    """
    from hipwright.device import topology

    found = next((gpu for gpu in topology.find(target.name) if index in (None, gpu.index)), None)
    if found is None:
        which = f"{target.name} GPU" if index is None else f"{target.name} GPU {index}"
        raise InfrastructureError(f"no {which} here", hint="see `hipwright doctor`")
    access = GpuAccess(target, found.index)
    with ExitStack() as stack:
        opened = stack.enter_context
        opened(many_threads())
        compilers_host = opened(GPU_COMPILERS[target].zygote(unsafe=unsafe))
        hosts = opened(Zygote(("torch", "hipwright.task.device.warm"), unsafe=unsafe, name="device host", gpu=access))
        workers = opened(Zygote(("torch", GPU_WORKER.partition(":")[0]), unsafe=unsafe, name="GPU worker", gpu=access))
        hosts.start(), workers.start()
        count = compilers or max(2, len(os.sched_getaffinity(0)) - 4)
        pool = opened(CompilePool(compilers_host, count, limit_s=compile_s or COMPILE_LIMIT_S))
        shared = opened(SharedHosts(hosts, shared_hosts)) if shared_hosts else None
        gpu = GpuContext(
            target, found.index, found.architecture, cache, pool, hosts, workers, unsafe, memory_bytes, shared
        )
        stack.callback(gpu.close)
        yield gpu


@contextmanager
def many_threads() -> Iterator[None]:
    """Threads that wait for answers get the interpreter soon: a message takes a dozen calls of the system, and after
    each of them the thread would wait 5 ms, Python's usual turn, for one that parses or compares."""
    usual = sys.getswitchinterval()
    sys.setswitchinterval(min(usual, SWITCH_S))
    try:
        yield
    finally:
        sys.setswitchinterval(usual)
