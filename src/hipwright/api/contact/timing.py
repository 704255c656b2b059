"""A device against itself, and its ceilings, by the processes that time programs."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hipwright.api.contact.steps import StepFailed
from hipwright.evaluation.gpu.task import GpuTask
from hipwright.machine import machine
from hipwright.measure import paired_timing
from hipwright.measure.ceilings import ceilings_of
from hipwright.targets import ROCM, TARGETS
from hipwright.task import TaskHandle

TASK = Path(__file__).parents[2] / "audit/corpus/tasks/softmax_wide.py"
SEED, SLOTS = 1, 8
NOISE_HINT = "is another program using the GPU? Are its clocks fixed? Look at `rocm-smi`, and run it again"


@contextmanager
def opened(gpu: int, *, unsafe: bool) -> Iterator[tuple[GpuTask, TaskHandle]]:
    """A task of the corpus on the GPU, its reference started. Raises DeviceError where torch does not work there."""
    with (
        machine((ROCM.name,), unsafe=unsafe, gpu=gpu) as made,
        made.open(TASK, seed=SEED, listener=lambda kind, data: None) as bench,
    ):
        yield bench.evaluator.gpus[ROCM.name], bench.handle


def describe(task: GpuTask) -> dict[str, Any]:
    """What torch says of the device."""
    return {name: task.reference.info[name] for name in ("name", "torch", "driver", "memory_bytes", "llc_bytes")}


def against_itself(task: GpuTask, handle: TaskHandle) -> dict[str, Any]:
    """The reference in one process against the same in another: on a GPU the interval of the ratio must hold 1."""
    state, workload = handle.init_state(SEED), handle.task.workloads[0].name
    slots = 1 if task.gpu.simulated else SLOTS
    with task.gpu.timing_lock.exclusive():
        other = task.gpu.reference(handle)
        try:
            sides = [
                reference.side("eager", workload, state=state, seed=SEED, slots=slots)
                for reference in (task.reference, other)
            ]
            name, architecture = str(task.reference.info["name"]), task.gpu.architecture
            result = paired_timing.time_pairs(sides[0], sides[1:], device=name, architecture=architecture)
        finally:
            other.close()
    if result.timing is None or result.verdict is not None:
        raise StepFailed(result.verdict.message if result.verdict else "no times", hint=NOISE_HINT)
    versus = result.timing.versus["eager"]
    low, high = versus.interval
    facts = {
        "ratio": versus.speedup,
        "low": low,
        "high": high,
        "pairs": versus.pairs,
        "median_ms": result.timing.median_ms,
        "launched": result.timing.policy,
        "clock_gap": result.timing.clock_gap,
        "output": "\n".join(result.timing.notes),
    }
    if task.gpu.simulated:
        return {**facts, "judged": "no: these are the processor's times"}
    if not low <= 1.0 <= high:
        output = str(facts.pop("output"))
        message = f"the same work is timed as {versus.speedup:.3f} times as fast ({low:.3f} to {high:.3f})"
        raise StepFailed(message, hint=NOISE_HINT, facts=facts, output=output)
    return facts


def ceilings(task: GpuTask) -> dict[str, Any]:
    """Bytes and operations a second by torch's own kernels, and their share of the datasheet's figures."""
    with tempfile.TemporaryDirectory() as folder:  # measured now, whatever was kept
        found = ceilings_of(task.reference, Path(folder))
    facts: dict[str, Any] = {"copy": found.copy, "read": found.read, "write": found.write, "flops": found.flops}
    nominal = TARGETS.architecture(task.gpu.architecture)
    if nominal is not None and not task.gpu.simulated:
        facts["copy_of_datasheet"] = round(found.copy / nominal.bandwidth, 4)
        facts["flops_of_datasheet"] = {
            name: round(rate / nominal.flops[name], 4) for name, rate in found.flops.items() if name in nominal.flops
        }
    return facts
