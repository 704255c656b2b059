"""`hipwright eval`: judge one program on one task."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hipwright.cli import session, targets
from hipwright.cli.options import Json, Targets, TaskFile, Unsafe
from hipwright.cli.output import Face

if TYPE_CHECKING:
    from hipwright.cli.session import Workbench
    from hipwright.records import Program


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
    from hipwright.program.modelnew.check import form_of
    from hipwright.records import Program

    face = Face(json_mode=json_mode)
    chosen = targets.choose(target)
    session.existing_file(task, "task")
    text = session.read_text(program, "program")
    candidate = Program(form="modelnew" if form_of(text) == "modelnew" else "program", text=text)
    listener = _say_stages(face)
    with session.workbench(
        task, chosen, seed=seed, unsafe=unsafe, listener=listener, gpu_memory_gb=gpu_memory
    ) as bench:
        return _judge(face, bench, candidate, program, chosen)


def _judge(face: Face, bench: Workbench, candidate: Program, path: Path, chosen: tuple[str, ...]) -> int:
    from hipwright.cli.outcome import exit_code, not_measured, result_object

    warnings = _lint(face, bench, candidate, path)
    evaluation = bench.evaluator.evaluate(candidate, thorough=True)
    notes = not_measured(chosen, evaluation)
    if face.json_mode:
        more = {
            "program": str(path),
            "evaluations": 1,
            "seconds": evaluation.seconds,
            "not_measured": notes,
            "warnings": warnings,
            "seed": bench.evaluator.oracle.seed,
        }
        face.result(result_object(evaluation, chosen, **more))
    else:
        from hipwright.cli.tables import print_evaluation

        print_evaluation(face.tables(), path.name, evaluation, notes)
        if not evaluation.passed:
            face.say(f"the same inputs again: --seed {bench.evaluator.oracle.seed}")
    return exit_code(evaluation)


def _lint(face: Face, bench: Workbench, candidate: Program, path: Path) -> list[dict[str, Any]]:
    """Static warnings: said on stderr, never a verdict. A program that does not parse has none."""
    from hipwright.errors import ProgramError

    try:
        found = bench.evaluator.lint(candidate)
    except ProgramError:
        return []
    for warning in found:
        face.say(
            f"{path.name}:{warning.line}: warning: {warning.message}" + (f" ({warning.fix})" if warning.fix else "")
        )
    return [warning.to_dict() for warning in found]


def _say_stages(face: Face) -> Any:
    def listener(kind: str, data: dict[str, Any]) -> None:
        if kind == "stage" and not face.json_mode:
            face.say(str(data.get("text", "")))

    return listener
