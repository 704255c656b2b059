"""Tasks and programs of the audit's corpus, and a machine with the processor in a GPU's place."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hipwright.evaluation.gpu.context import GpuContext
from hipwright.machine import Machine
from hipwright.records import Build, Program
from hipwright.sandbox import Zygote
from hipwright.targets import CUDA
from hipwright.task import TaskHandle
from hipwright.toolchain.cache import BuildCache
from hipwright.toolchain.cpu import build as cpu
from hipwright.train.records import TrainingProblem
from hipwright.verify import WORKER
from hipwright.verify.gpu.client import CandidateWorker
from hipwright.verify.gpu.connection import GPU_WORKER
from hipwright.verify.gpu.hosts.shared_hosts import SharedHosts
from hipwright.verify.gpu.reference import DeviceReference, open_reference

CORPUS = Path(__file__).parents[3] / "src/hipwright/audit/corpus"
GOOD = {"row_sum": "row_sum_wave", "scale_bias": "scale_bias_guarded", "softmax": "softmax_online"}
"""A right program of each task."""
BAD = {"row_sum": "tail_read", "scale_bias": "broadcast", "softmax": "uninitialised"}
"""A wrong program of each task."""


def problem(name: str) -> TrainingProblem:
    return TrainingProblem(name=name, source=(CORPUS / f"tasks/{name}.py").read_text())


def text(name: str, kind: str = "honest", form: str = "program") -> str:
    return (CORPUS / form / kind / f"{name}.py").read_text()


def program(name: str, kind: str = "honest") -> Program:
    return Program(text=text(name, kind))


def completion(name: str, kind: str = "honest") -> str:
    return f"Here it is.\n```python\n{text(name, kind)}\n```\n"


def uncompilable(name: str) -> str:
    """A completion whose program uses an undeclared identifier."""
    return completion(name).replace("blockIdx", "blokIdx")


class ProcessorGpu(GpuContext):
    """The cpu target's kernels and torch on the processor with a GPU's interface; its timings have no meaning."""

    def build(self, hip: str, defines: dict[str, int]) -> Build:
        return cpu.build(hip, defines, wave=64, checked=False, cache=self.cache)

    def candidates(self, zygote: Zygote | None = None, profile: Any = "gpu") -> CandidateWorker:
        return CandidateWorker(zygote or self.workers, "cpu", "cpu", self.cache, fresh=False)  # as on a GPU

    def reference(self, handle: TaskHandle, share: Any = lambda: 0) -> DeviceReference:
        return open_reference(handle, self.shared or self.hosts, "cpu", share=share)


@contextmanager
def processor_machine(folder: Path, shared_hosts: int = 0) -> Iterator[Machine]:
    """A Machine whose GPU "cuda" is the processor."""
    cache = BuildCache(folder)
    warm = ("torch", WORKER.partition(":")[0], "hipwright.verify.worker.warm")
    with (
        Zygote(("torch", "hipwright.task.host.warm"), name="task host") as host,
        Zygote(("torch", "hipwright.task.device.server"), name="device host") as hosts,
        Zygote(("torch", GPU_WORKER.partition(":")[0]), ro=(folder,), name="worker") as workers,
        Zygote(warm, ro=(folder,), name="candidates") as candidates,
    ):
        gpu = ProcessorGpu(CUDA, 0, "sm_90", cache, None, hosts, workers)  # type: ignore[arg-type]
        with SharedHosts(hosts, shared_hosts) as shared:
            gpu.shared = shared if shared_hosts else None
            yield Machine(host, candidates, cache, ("cuda",), False, {"cuda": gpu})
