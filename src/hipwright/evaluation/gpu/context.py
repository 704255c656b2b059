"""One GPU of this machine and what all tasks share there: compilers, candidate workers and zygotes."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Literal

from hipwright.errors import InfrastructureError
from hipwright.evaluation.gpu.memory import DeviceMemory, GpuMemory
from hipwright.evaluation.gpu.timing_lock import GpuLock, TimingLock
from hipwright.records import Build
from hipwright.sandbox import GpuAccess, MakeZygote, OneShotPool, Zygote
from hipwright.targets import CPU, TARGETS, TORCH_GPU_0, Target
from hipwright.task import TaskHandle
from hipwright.toolchain.cache import BuildCache
from hipwright.toolchain.gpu_compilers import GPU_COMPILERS
from hipwright.toolchain.pool import COMPILE_LIMIT_S, CompilePool
from hipwright.verify.gpu.client import CandidateWorker
from hipwright.verify.gpu.connection import DEVICE_HOST_WARM, GPU_WORKER, MODELNEW_PRELOAD
from hipwright.verify.gpu.hosts.shared_hosts import SharedHosts
from hipwright.verify.gpu.reference import BASELINES, DeviceReference, open_reference

CANDIDATES, REFERENCES = 0.4325, 0.5475
"""Shares of a limit on device memory; the rest is for the driver's memory of each process.

A candidate holds its inputs and outputs; the reference holds the same, and 2 bytes of honest error for each float of an
output.
"""
SIMULATED_LIMIT_S = 90.0  # wall seconds of a candidate's call on a simulated GPU
SWITCH_S = 0.0005  # the longest that a thread keeps the interpreter while others wait for it


@dataclass
class GpuContext:
    """What all tasks on one GPU share. architecture: as the compiler names it ("sm_90", "gfx942").

    memory_bytes: of the device, for all processes together; 0 for all of it. shared: the processes of the references of
    tasks that trust each other; None: a process for each. memory: what tasks reserve;
    None where its size is not known. simulated: the name of a GPU that is software, "" for a real one. baseline_s: wall
    seconds in which torch.compile must give a baseline; 0 for no limit of its own. baselines: what a full timing
    compares with, eager first. one_task: whether one task is open at a time, which may keep half of the memory.
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
    timing_lock: GpuLock = field(default_factory=TimingLock)
    spares: OneShotPool | None = None
    memory: GpuMemory | None = None
    simulated: str = ""
    baseline_s: float = 0.0
    baselines: tuple[str, ...] = BASELINES
    one_task: bool = False
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def device(self) -> str:
        """torch's name of the device: a simulated GPU's memory is the processor's."""
        return CPU.name if self.simulated else TORCH_GPU_0

    def candidates(self, zygote: Zygote | None = None, profile: Literal["gpu", "tools"] = "gpu") -> CandidateWorker:
        """A new candidate worker; it starts with its first program."""
        limit = int(CANDIDATES * self.memory_bytes)
        return CandidateWorker(
            zygote or self.workers,
            self.device,
            self.target.name,
            self.cache,
            memory_limit_bytes=limit,
            profile=profile,
            limit_s=SIMULATED_LIMIT_S if self.simulated else None,
            give_way=self.timing_lock.give_way,
            simulated=self.simulated,
        )

    def reference(self, handle: TaskHandle, share: Callable[[], int] = lambda: 0) -> DeviceReference:
        """A process that runs the task's own code on this GPU. share(): bytes that it may keep there; 0 for all."""
        limit = int(REFERENCES * self.memory_bytes)
        found = open_reference(
            handle,
            self.shared or self.hosts,
            self.device,
            memory_limit_bytes=limit,
            last_level_bytes=last_level_bytes(self.architecture),
            simulated=self.simulated,
            share=share,
        )
        found.give_way = self.timing_lock.give_way
        found.compile_s = self.baseline_s
        return found

    @contextmanager
    def host_code_worker(self, profile: Literal["gpu", "tools"] = "gpu") -> Iterator[CandidateWorker]:
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
        """Ends the standby workers for candidates with host code."""
        if self.spares is not None:
            self.spares.close()

    def abort(self) -> None:
        """Ends the processes that use the GPU: calls in them raise, and the next call starts new ones."""
        self.workers.close()
        self.hosts.close()

    def build(self, hip: str, defines: dict[str, int]) -> Build:
        """Compiles for this GPU."""
        compiler = GPU_COMPILERS[self.target]
        return compiler.build(
            hip, defines, arch=self.architecture, pool=self.pool, cache=self.cache, unsafe=self.unsafe
        )


def last_level_bytes(architecture: str) -> int:
    """The last cache of an architecture's table: torch reports the L2 of one die (4 MB on an MI300X), and what stays in
    the Infinity Cache is neither read again nor impossible. 0 for an architecture that is not listed."""
    known = TARGETS.architecture(architecture)
    return max(known.l2_bytes, known.last_level_bytes) if known is not None else 0


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
    baseline_s: float = 0.0,
    zygotes: MakeZygote = Zygote,
) -> Iterator[GpuContext]:
    """Starts what a GPU needs, until the block ends. Raises DeviceError where the GPU does not work.

    index: its number on the machine; None for the first that the environment (CUDA_VISIBLE_DEVICES) allows. compilers:
    warm compile sessions; 0 for one on all but a few processors. memory_bytes: of the device that all processes
    together may use; 0 for all. shared_hosts: processes that the references of all tasks share, which must trust each
    other; 0: one for each task. compile_s: wall seconds of one compile; None for the default limit. baseline_s: as in
    GpuContext. zygotes: makes those that programs share; ModelNew candidates have zygotes of their own.
    """
    from hipwright.device import topology

    found = next((gpu for gpu in topology.find(target.name) if index in (None, gpu.index)), None)
    if found is None:
        which = f"{target.name} GPU" if index is None else f"{target.name} GPU {index}"
        raise InfrastructureError(f"no {which} here", hint="see `hipwright doctor`")
    access = GpuAccess(target, found.index)
    with ExitStack() as stack:
        opened = stack.enter_context
        opened(switch_threads_often())
        compilers_host = opened(GPU_COMPILERS[target].zygote(unsafe=unsafe, make=zygotes))
        hosts = opened(zygotes(("torch", DEVICE_HOST_WARM), unsafe=unsafe, name="device host", gpu=access))
        workers = opened(zygotes(("torch", GPU_WORKER.partition(":")[0]), unsafe=unsafe, name="GPU worker", gpu=access))
        compilers_host.start(), hosts.start(), workers.start()
        count = compilers or max(2, len(os.sched_getaffinity(0)) - 4)
        pool = opened(CompilePool(compilers_host, count, limit_s=compile_s or COMPILE_LIMIT_S))
        shared = opened(SharedHosts(hosts, shared_hosts)) if shared_hosts else None
        gpu = GpuContext(
            target, found.index, found.architecture, cache, pool, hosts, workers, unsafe, memory_bytes, shared
        )
        gpu.baseline_s = baseline_s
        gpu.simulated = found.name if access.simulated_rocm else ""
        total = memory_bytes or found.memory_bytes
        gpu.memory = DeviceMemory(total) if total and not gpu.simulated else None
        stack.callback(gpu.close)
        yield gpu


@contextmanager
def switch_threads_often() -> Iterator[None]:
    """Shortens the time that a thread keeps the interpreter, for many threads that wait for replies.

    A message takes a dozen system calls, and after each the thread would wait 5 ms, Python's default, for one that
    parses or compares.
    """
    usual = sys.getswitchinterval()
    sys.setswitchinterval(min(usual, SWITCH_S))
    try:
        yield
    finally:
        sys.setswitchinterval(usual)
