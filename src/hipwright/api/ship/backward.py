"""A program with forward and backward for one task, verified against autograd (docs/ship.md)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from hipwright.api.files import prepare_folder, write_files
from hipwright.api.inputs import TaskSource, task_source
from hipwright.api.outcome import not_measured
from hipwright.api.task_engine import captured_graph
from hipwright.events import Listener, silent
from hipwright.machine import Machine, machine
from hipwright.records import Evaluation, Program


@dataclass(frozen=True)
class GradientProgram:
    """program: forward and backward. verified: the same inlined, as it was judged; evaluation: of `verified`."""

    program: Program
    verified: Program
    evaluation: Evaluation
    not_measured: tuple[str, ...]


def write_backward(
    task: object,
    targets: tuple[str, ...],
    out: Path,
    *,
    seed: int | None = None,
    unsafe: bool = False,
    listener: Listener = silent,
) -> GradientProgram:
    """Writes and verifies a program whose backward gives the gradients of the task's inputs and parameters.

    Leaves gradient_task.py, program.py and verified.py in the folder `out`.
    """
    from hipwright.engine.training import inlined, program

    source = task_source(task)
    prepare_folder(out)
    with machine(targets, unsafe=unsafe) as made:
        text, tangents = _gradient_task(made, source, listener)
        write_files(out, {"gradient_task.py": text})
        with made.open(out / "gradient_task.py", seed=seed, listener=listener) as bench:
            listener("stage", {"text": "capturing the graph below autograd"})
            both = program(captured_graph(bench), tangents)
            whole = inlined(both, tangents)
            write_files(out, {"program.py": both.text, "verified.py": whole.text})
            evaluation = bench.evaluator.evaluate(whole, thorough=True)
    return GradientProgram(both, whole, evaluation, tuple(not_measured(targets, evaluation)))


def _gradient_task(made: Machine, source: TaskSource, listener: Listener) -> tuple[str, list[str]]:
    """The text of the task that asks autograd for gradients, and the names of its further inputs."""
    from hipwright.engine.training import gradient_task

    listener("stage", {"text": f"opening the task {Path(source.shown).name} in its sandbox"})
    with source.open(made.host) as handle:
        outline = handle.outline(handle.task.workloads[0].name)
        return gradient_task(handle.task.source, outline.inputs, outline.outputs)
