"""What the timings of one task on one GPU share: reference and state, slots of inputs, baselines, limits."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from msgspec import structs

from hipwright.evaluation.gpu.baselines import Baselines, open_baselines
from hipwright.evaluation.gpu.context import GpuContext
from hipwright.evaluation.gpu.room import TaskRoom
from hipwright.measure.ceilings import Ceilings, ceilings_of
from hipwright.measure.cost import OpCall, Spec, tensor_bytes
from hipwright.measure.paired_timing import TimingResult
from hipwright.measure.roofline import Floor, TaskWork, count_work, floor_of, rotation
from hipwright.measure.rounds import Memory
from hipwright.measure.traffic import Traffic, count_traffic
from hipwright.records import Program, TensorSpec
from hipwright.task import Outline, TaskHandle
from hipwright.tensors import Tree, leaves
from hipwright.verify.gpu.chunk_source import span_bytes
from hipwright.verify.gpu.device_judging import AcceptedDigests
from hipwright.verify.gpu.large_shapes import BIG_BYTES
from hipwright.verify.gpu.reference import BASELINES, DeviceReference
from hipwright.verify.verification import Gate

SCORE_SLOTS = 4
LATE_SHARE = 0.8  # of the device's memory, for timed inputs, late ones and their expectation
SHARE = 4  # inputs may take a quarter of the device's memory in each of the processes


@dataclass(frozen=True)
class TimingContext:
    """What timings share: the reference, the model's state, the slots of inputs, the baselines.

    large: inputs are in one slot alone, and no other process may hold them. late: whether late inputs and their
    expectation have room beside the timed ones. graphs: whether calls are captured. bytes: of a slot and its outputs.
    work: what a call moves and computes, counted before a timing has the GPU to itself. memory: of the open baselines,
    as far as it is known. seen: expectations for the first slot.
    """

    reference: DeviceReference
    state: Tree
    seed: int
    slots: int
    set_name: str
    baselines: Baselines
    large: bool
    graphs: bool
    bytes: int
    late: bool = True
    work: TaskWork | None = None
    memory: Memory = field(default_factory=dict)
    seen: AcceptedDigests = field(default_factory=AcceptedDigests)


class TimedTask:
    """One task on one GPU: what a timing needs beside a candidate."""

    gpu: GpuContext
    handle: TaskHandle
    extra_sides: tuple[str, ...]
    _room: TaskRoom

    def __init__(self, gpu: GpuContext, handle: TaskHandle) -> None:
        self.gpu = gpu
        self.handle = handle
        self._reference: DeviceReference | None = None
        self._holding: DeviceReference | None = None
        self._referring = threading.Lock()

    @property
    def reference(self) -> DeviceReference:
        """The task's own code on the device, in a process that starts when it is first needed."""
        return self._open_reference()

    def open_holding(self) -> DeviceReference:
        """The process of parameters that are held on the device, of the reference's runs on them, and of what results
        at the task's own shapes are judged with.

        One of its own, so that a verification does not wait until a baseline is compiled; the reference's for large
        inputs, whose baselines are compiled afterwards.
        """
        if self.large:
            return self.reference
        with self._referring:
            if self._holding is None:
                self._holding = self._new_reference(holding=True)
            return self._holding

    def _open_reference(self) -> DeviceReference:
        with self._referring:
            if self._reference is None:
                self._reference = self._new_reference()
            return self._reference

    def _new_reference(self, *, holding: bool = False) -> DeviceReference:
        made = self.gpu.reference(self.handle, lambda: self._room.share(holding=holding))
        made.crowded = lambda: self._room.crowded
        made.spare = self._room.spare
        return made

    @cached_property
    def ceilings(self) -> Ceilings:
        """The measured ceilings of this GPU, stored beside the build cache."""
        return ceilings_of(self.reference, self.gpu.cache.folder)

    @cached_property
    def workload(self) -> str:
        """The workload that is timed: the task's first own one."""
        return self.handle.task.workloads[0].name

    @cached_property
    def large(self) -> bool:
        """Whether the timed inputs are so large that the device may not hold them twice in one process."""
        return sum(map(span_bytes, self.handle.task.workloads[0].specs)) > BIG_BYTES

    @cached_property
    def outline(self) -> Outline:
        """The reference's operators at the timed workload's shapes, or at others where those could not be traced."""
        return self.handle.outline(self.workload)

    @cached_property
    def _counted(self) -> tuple[Sequence[OpCall], list[Spec], list[Spec], list[Spec]] | None:
        """Operators, inputs, parameters with buffers, outputs of the timed workload; None where only other shapes could
        be traced."""
        outline = self.outline
        if outline.workload.name != self.workload:
            return None
        held = [outline.state["params"], outline.state["buffers"]]
        return outline.ops, _plain(outline.inputs), _plain(held), _plain(list(outline.outputs))

    @cached_property
    def traffic(self) -> Traffic | None:
        """Bytes and operations of the timed workload, where they are known."""
        if self._counted is None:
            return None
        ops, inputs, held, outputs = self._counted
        return count_traffic(ops, [*inputs, *held], outputs)

    @cached_property
    def work(self) -> TaskWork | None:
        """What the timed workload moves and computes, where that is known."""
        return None if self._counted is None else count_work(*self._counted)

    def _open_measured(self, reference: DeviceReference, seed: int, gate: Gate) -> TimingContext:
        state = self.handle.init_state(seed)
        source = reference.inputs(self.workload, seed)
        inputs, large = sum(source.sizes), self.large
        if large:
            reference.free("all")  # a timing needs the memory
        outputs = _spec_bytes(self.outline.outputs)
        total = self.gpu.memory_bytes or int(reference.info["memory_bytes"])
        room = total // SHARE
        slots = rotation(inputs + outputs, int(reference.info["llc_bytes"]), max(room, 1))
        slots = 1 if large else min(slots, SCORE_SLOTS) if gate == "fast" else slots
        graphs = inputs + outputs <= BIG_BYTES  # a graph keeps its outputs, and long calls do not get faster by it
        # both processes hold inputs and outputs, and the reference late inputs, other outputs and what is expected
        late = not large or not total or 3 * inputs + 6 * outputs <= LATE_SHARE * total
        # the fast gate compares with the first only
        names = (*self.gpu.baselines, *self.extra_sides) if gate == "full" else BASELINES[:1]
        moved = self.traffic.bytes if self.traffic is not None and "copy" in names else 0
        baselines = open_baselines(reference, self.workload, state, seed, slots, names, moved, graphs=graphs)
        return TimingContext(
            reference,
            state,
            seed,
            slots,
            set_name(seed, gate),
            baselines,
            large,
            graphs,
            inputs + outputs,
            late,
            self.work,
        )

    def _terms(self, program: Program, at: TimingContext) -> dict[str, Any]:
        """Called with the GPU to itself, as the first call measures the device's ceilings."""
        return {
            "floor": self._floor(at),
            "device": str(self.reference.info["name"]),
            "architecture": self.gpu.architecture,
            "form": program.form,
        }

    def _with_notes(self, result: TimingResult, at: TimingContext) -> TimingResult:
        """The result with the reasons for missing baselines."""
        notes = [f"no {name} baseline: {why}" for name, why in at.baselines.missing.items()]
        notes += [f"{side.name}: {note}" for side in at.baselines.sides for note in side.notes]
        if not at.late:
            notes.append("inputs this large leave no room for late values: outputs of timed calls were not verified")
        if result.timing is None or not notes:
            return result
        said = {"notes": (*result.timing.notes, *notes), "missing": at.baselines.missing}
        return replace(result, timing=structs.replace(result.timing, **said))

    def _floor(self, at: TimingContext) -> Floor | None:
        """The roofline time of this workload; None where it is not known."""
        if at.work is None:
            return None
        return floor_of(at.work, self.ceilings, cache_bytes=int(self.reference.info["llc_bytes"]), slots=at.slots)


def set_name(seed: int, gate: Gate) -> str:
    """The name of the timed inputs in a worker."""
    return f"timed/{seed}/{gate}"


def _plain(tree: Tree) -> list[Spec]:
    return [leaf.to_dict() for leaf in leaves(tree) if isinstance(leaf, TensorSpec)]


def _spec_bytes(specs: Any) -> int:
    return sum(tensor_bytes(spec.to_dict()) for spec in specs)
