"""The inputs of an evaluation's stages: one opened task, its oracle, and what builds and runs its candidates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import hipwright
from hipwright.errors import BadInput
from hipwright.evaluation.gpu.background_cases import BackgroundCases
from hipwright.evaluation.results import compiler
from hipwright.events import doing
from hipwright.measure.cost import tensor_bytes
from hipwright.measure.estimate import estimate
from hipwright.measure.fit import CostModel, load, refined
from hipwright.measure.memory import plan_memory
from hipwright.records import Build, Estimate, content_key
from hipwright.sandbox import Limits, Zygote
from hipwright.targets import CPU, OFFLINE, TARGETS
from hipwright.task import Outline, TaskHandle
from hipwright.toolchain.cache import BuildCache
from hipwright.verify import Oracle

if TYPE_CHECKING:
    from hipwright.evaluation.gpu.task import GpuTask


@dataclass
class EvaluationContext:
    """One task and the targets that its candidates are evaluated on. Safe to use from several threads.

    oracle: draws the verification inputs. To confirm a winner, use one whose seed was drawn after the program was
    fixed. gpus: the opened GPU of each GPU target. Raises BadInput for an unknown target.
    """

    handle: TaskHandle
    oracle: Oracle
    candidates: Zygote
    cache: BuildCache
    targets: tuple[str, ...]
    unsafe: bool = False
    limits: Limits = field(default_factory=Limits)
    gpus: Mapping[str, GpuTask] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in self.targets:
            if name not in OFFLINE and not TARGETS.runs_in_software(name) and name not in self.architectures:
                known = ", ".join([*OFFLINE, CPU.name, *(one.name for one in TARGETS.simulated), *self.architectures])
                raise BadInput(f"unknown target {name!r}", hint=f"this evaluator knows {known}")
        self._outline: Outline | None = None
        self._cases = BackgroundCases()
        machines = {*self.amd, *self.architectures.values()}
        self._models: dict[str, CostModel] = {
            known: model for known in machines if (model := load(known, self.cache.folder)) is not None
        }

    def begin_judging(self, oracle: Oracle) -> None:
        """Makes the cases that show whether the task can judge a program in the background, while one is built."""
        self._cases.begin(oracle, oracle.status)

    @property
    def fingerprint(self) -> str:
        """What an Evaluation depends on beside task and program."""
        return self.fingerprint_on([gpu.fingerprint for gpu in self.gpus.values()])

    def fingerprint_on(self, devices: Sequence[str]) -> str:
        """The fingerprint with other names of the GPUs: a fleet's seats name their device, not its number."""
        parts = [*devices, *(self._models[name].key for name in sorted(self._models))]
        return content_key(
            hipwright.__version__, ",".join(self.targets), compiler(), str(self.oracle.seed), ",".join(parts)
        )

    @property
    def architectures(self) -> Mapping[str, str]:
        """The architecture of the GPU of each GPU target."""
        return {kind: gpu.gpu.architecture for kind, gpu in self.gpus.items()}

    @property
    def device_names(self) -> Mapping[str, str]:
        """The name of the GPU of each GPU target, as torch has it. Waits until the task is open there."""
        return {kind: str(gpu.reference.info["name"]) for kind, gpu in self.gpus.items()}

    @property
    def amd(self) -> tuple[str, ...]:
        """The AMD targets among `targets`."""
        return tuple(name for name in self.targets if name in OFFLINE)

    @property
    def simulated(self) -> tuple[str, ...]:
        """The simulated targets among `targets`."""
        return tuple(name for name in self.targets if TARGETS.is_simulated(name))

    @property
    def waves(self) -> tuple[int, ...]:
        """The wave sizes to verify on the CPU: those of the AMD targets, widest first; 64 without any."""
        return tuple(sorted({OFFLINE[name].wave for name in self.amd} or {64}, reverse=True))

    def outline(self) -> Outline:
        """The reference's operators at the task's own shapes, traced without data."""
        if self._outline is None:
            doing("tracing the reference on shapes alone")
            self._outline = self.handle.outline(self.handle.task.workloads[0].name)
        return self._outline

    def traced_shapes(self) -> dict[str, list[str]]:
        """{workload: input shapes} that coverage and the estimate are computed for."""
        workload = self.outline().workload
        return {workload.name: [f"{spec.dtype}{list(spec.shape)}" for spec in workload.specs]}

    def floor_bytes(self) -> float:
        """Bytes that the task itself must move at the traced shapes: inputs, parameters and outputs once each."""
        return float(sum(tensor_bytes(spec.to_dict()) for spec in self.outline().specs()))

    def memory_of(self, trace: Mapping[str, Any]) -> dict[str, Any]:
        """What a traced plan allocates (measure/memory.py)."""
        outputs = [spec.to_dict() for spec in self.outline().outputs]
        return plan_memory(trace["ops"], outputs, self.floor_bytes(), trace.get("live"))

    def refined(self, machine: str, estimated: Estimate) -> Estimate:
        """The estimate, corrected by the cost model that was fitted for that machine, if any."""
        model = self._models.get(machine)
        return refined(estimated, model) if model else estimated

    def reference_estimates(self) -> dict[str, Estimate]:
        """By AMD target, the static estimate of the reference itself, with a library call for each of its operators."""
        ops, floor = self.outline().ops, self.floor_bytes()
        return {
            name: self.refined(name, estimate(OFFLINE[name], Build(target=name, ok=True), [], ops, floor))
            for name in self.amd
        }
