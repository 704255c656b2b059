"""Programs of results, ready to be called from this process: on its GPU, or contained on its processor."""

from __future__ import annotations

from collections.abc import Collection

from hipwright import config
from hipwright.api.live.contained import ContainedProgram
from hipwright.api.live.graphed import GraphedProgram
from hipwright.api.live.module import ProgramCall
from hipwright.api.live.packaged import PackagedProgram
from hipwright.api.live.task_file import task_file
from hipwright.api.live.traced import TracedTask
from hipwright.api.result import Result
from hipwright.records import Program
from hipwright.targets import CPU, TARGETS


def program_of(task: TracedTask, result: Result, *, graphs: bool = True) -> tuple[ProgramCall | None, str]:
    """The program of a result where it can be called from here, else why it cannot. graphs: as `callable_program`."""
    if result.program is None:
        return None, f"no program was verified ({result.evaluation.message if result.evaluation else 'none was tried'})"
    shown = Program(text=result.source)
    passed = {name for name, one in result.program_targets.items() if one.verdict is not None and one.verdict.passed}
    return callable_program(task, shown, passed, result.detail.run.targets, graphs=graphs)


def callable_program(
    task: TracedTask,
    program: Program,
    passed: Collection[str],
    searched: Collection[str],
    *,
    graphs: bool = True,
) -> tuple[ProgramCall | None, str]:
    """A program that passed on some of the targets that were searched, ready to be called, or why it cannot be.

    graphs: whether its calls on a GPU may be captured (`GraphedProgram`); never where it draws random numbers.
    """
    file = task_file(task.text)
    if any(target.name in passed for target in TARGETS.gpus):
        made = PackagedProgram(program, task.text, file.inputs, file.state)
        captured = graphs and config.device_graphs() and not task.draws
        return (GraphedProgram(made) if captured else made), ""
    if set(searched) == {CPU.name}:
        if task.draws:
            return None, "it draws random numbers, which a contained process draws for itself"
        return ContainedProgram(program, file.state), ""
    return None, 'there is no GPU here on which the program was verified (target="cpu" runs it on the processor)'
