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
    from hipwright.api.start.reading import KernelFile
    from hipwright.events import Listener


def evaluate(
    task: TaskFile,
    program: Annotated[
        Path, typer.Argument(help="A program, a ModelNew file, or CUDA or HIP source.", metavar="PROGRAM")
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
    from hipwright.api.inputs import task_source
    from hipwright.api.start.reading import read_candidate

    output = CommandOutput(json_mode=json_mode)
    chosen = targets.choose(target)
    source = task_source(task)
    candidate = read_candidate(program, source.read())
    for note in candidate.notes:
        output.say(f"{program.name}: {note}")
    judged = judge_program(
        source,
        candidate.judged(),
        chosen,
        seed=seed,
        unsafe=unsafe,
        gpu_memory_gb=gpu_memory,
        listener=_listener(output, candidate),
    )
    return _print(output, judged, program, candidate, chosen)


def _print(
    output: CommandOutput, judged: JudgedCandidate, path: Path, candidate: KernelFile, chosen: tuple[str, ...]
) -> int:
    from hipwright.api.outcome import result_object

    evaluation = judged.evaluation
    if output.json_mode:
        more = {
            "program": str(path),
            "evaluations": 1,
            "seconds": evaluation.seconds,
            "not_measured": list(judged.not_measured),
            "gain": [one.to_dict() for one in judged.gains],
            "form": candidate.form,
            "notes": list(candidate.notes),
            "warnings": [one for one in judged.warnings if candidate.line(one["line"], str(one.get("kind", "")))],
            "seed": judged.seed,
        }
        output.result(result_object(evaluation, chosen, **more))
    else:
        from hipwright.cli.display.tables import print_evaluation

        print_evaluation(output.console(), path.name, evaluation, judged.not_measured, judged.gains)
        if not evaluation.passed:
            output.say(f"the same inputs again: --seed {judged.seed}")
    return exit_codes.of_evaluation(evaluation)


def _listener(output: CommandOutput, candidate: KernelFile) -> Listener:
    """Prints stages, and static warnings with the file's name and line, where the file has the line."""
    stages = output.stages()

    def listener(kind: str, data: dict[str, Any]) -> None:
        if kind == "warning":
            fix = f" ({data['fix']})" if data["fix"] else ""
            if line := candidate.line(data["line"], str(data.get("kind", ""))):
                output.say(f"{candidate.name}:{line}: warning: {data['message']}{fix}")
        else:
            stages(kind, data)

    return listener
