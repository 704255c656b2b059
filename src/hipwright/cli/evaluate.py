"""`hipwright eval`: judge one program on one task."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hipwright.api import targets
from hipwright.cli import exit_codes
from hipwright.cli.options import Json, Targets, TaskFile, Unsafe
from hipwright.cli.output import CommandOutput

if TYPE_CHECKING:
    from hipwright.api.evaluate import JudgedCandidate
    from hipwright.events import Listener


def evaluate(
    task: TaskFile,
    program: Annotated[
        Path, typer.Argument(help="A program (HIP source and launch plan) or a ModelNew file.", metavar="PROGRAM")
    ],
    target: Targets = None,
    seed: Annotated[
        int | None,
        typer.Option(help="Seed of the verification inputs. Without it one is drawn after the program was read."),
    ] = None,
    gpu_memory: Annotated[
        float, typer.Option(help="Device memory for all processes together, in GB (10^9 bytes). 0: all.", metavar="GB")
    ] = 0.0,
    unsafe: Unsafe = False,
    json_mode: Json = False,
) -> int:
    """Compile, verify and estimate PROGRAM against TASK. Exit 1 when it is rejected."""
    from hipwright.api.evaluate import judge_program
    from hipwright.api.inputs import program_from, task_source

    output = CommandOutput(json_mode=json_mode)
    chosen = targets.choose(target)
    judged = judge_program(
        task_source(task),
        program_from(program),
        chosen,
        seed=seed,
        unsafe=unsafe,
        gpu_memory_gb=gpu_memory,
        listener=_listener(output, program.name),
    )
    return _print(output, judged, program, chosen)


def _print(output: CommandOutput, judged: JudgedCandidate, path: Path, chosen: tuple[str, ...]) -> int:
    from hipwright.api.outcome import result_object

    evaluation = judged.evaluation
    if output.json_mode:
        more = {
            "program": str(path),
            "evaluations": 1,
            "seconds": evaluation.seconds,
            "not_measured": list(judged.not_measured),
            "warnings": list(judged.warnings),
            "seed": judged.seed,
        }
        output.result(result_object(evaluation, chosen, **more))
    else:
        from hipwright.cli.display.tables import print_evaluation

        print_evaluation(output.console(), path.name, evaluation, judged.not_measured)
        if not evaluation.passed:
            output.say(f"the same inputs again: --seed {judged.seed}")
    return exit_codes.of_evaluation(evaluation)


def _listener(output: CommandOutput, name: str) -> Listener:
    """Prints stages, and static warnings with the program's name and line."""
    stages = output.stages()

    def listener(kind: str, data: dict[str, Any]) -> None:
        if kind == "warning":
            fix = f" ({data['fix']})" if data["fix"] else ""
            output.say(f"{name}:{data['line']}: warning: {data['message']}{fix}")
        else:
            stages(kind, data)

    return listener
