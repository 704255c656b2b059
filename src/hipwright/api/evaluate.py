"""Evaluation of one program for one task."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hipwright.api import targets as known_targets
from hipwright.api.inputs import TaskSource, is_live, no_inputs, program_from, task_source
from hipwright.api.outcome import not_measured
from hipwright.api.workbench import open_workbench
from hipwright.errors import ProgramError
from hipwright.events import Listener, silent
from hipwright.measure.gain import Gain, gains
from hipwright.records import Evaluation, Program

if TYPE_CHECKING:
    from hipwright.machine import Workbench


@dataclass(frozen=True)
class JudgedCandidate:
    """An evaluation with its static warnings, the seed of its inputs, what was not measured, and what is gained."""

    evaluation: Evaluation
    warnings: tuple[dict[str, Any], ...]
    seed: int | None
    not_measured: tuple[str, ...]
    gains: tuple[Gain, ...] = ()


def evaluate(
    task: object,
    program: Program | str | Path,
    targets: Sequence[str] | None = None,
    *,
    example_inputs: object = None,
    example_kwargs: Mapping[str, Any] | None = None,
    seed: int | None = None,
    unsafe: bool = False,
    gpu_memory_gb: float = 0.0,
    listener: Listener = silent,
) -> Evaluation:
    """Compiles, verifies and estimates (on a GPU: times) one program for one task.

    task: a task file or its source text; or a module or function with the arguments of one call, as `optimize` takes
    them. program: a Program, a file or its text, in either candidate form, or a CUDA or HIP file (docs/start.md).
    targets: gfx942, gfx950 and cpu, or the GPU of this machine, without it. seed: of the verification inputs; a secret
    one, drawn after the program was read, without it. gpu_memory_gb: device memory for all processes, 10^9 bytes; 0:
    all.

    A program that fails is no error: its Evaluation says why. Raises BadInput, TaskError and InfrastructureError.

    >>> import hipwright
    >>> program = hipwright.optimize("examples/rmsnorm_swiglu.py", budget=1, targets=["cpu"]).program
    >>> hipwright.evaluate("examples/rmsnorm_swiglu.py", program, targets=["cpu"]).status
    'pass'
    >>> hipwright.evaluate("examples/bias_gelu.py", program, targets=["cpu"]).fault
    'candidate'
    """
    if is_live(task):
        from hipwright.api.live.optimize import live_source

        source = live_source(task, example_inputs, example_kwargs or {})
    else:
        no_inputs(example_inputs if example_kwargs is None else example_kwargs)
        source = task_source(task)
    candidate = program_from(program, source)
    chosen = known_targets.choose(targets)
    return judge_program(
        source, candidate, chosen, seed=seed, unsafe=unsafe, gpu_memory_gb=gpu_memory_gb, listener=listener
    ).evaluation


def judge_program(
    task: TaskSource,
    program: Program,
    targets: tuple[str, ...],
    *,
    seed: int | None = None,
    unsafe: bool = False,
    gpu_memory_gb: float = 0.0,
    listener: Listener = silent,
) -> JudgedCandidate:
    """As `evaluate`, with the warnings and the seed.

    Events for the listener: "warning" {line, message, fix} before the evaluation begins.
    """
    opening = open_workbench(task, targets, seed=seed, unsafe=unsafe, listener=listener, gpu_memory_gb=gpu_memory_gb)
    with opening as bench:
        warnings = lint_program(bench, program)
        for warning in warnings:
            listener("warning", warning)
        evaluation = bench.evaluator.evaluate(program, thorough=True)
        notes = tuple(not_measured(targets, evaluation))
        gained = gains(evaluation.targets, bench.evaluator.reference_estimates()) if evaluation.passed else []
        return JudgedCandidate(evaluation, warnings, bench.evaluator.oracle.seed, notes, tuple(gained))


def lint_program(bench: Workbench, program: Program) -> tuple[dict[str, Any], ...]:
    """Static warnings, {line, message, fix, ...} each; they do not affect the verdict.

    A program that does not parse has none.
    """
    try:
        return tuple(warning.to_dict() for warning in bench.evaluator.lint(program))
    except ProgramError:
        return ()
