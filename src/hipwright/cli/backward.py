"""`hipwright backward`: a program with forward and backward for a task, verified against autograd."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hipwright.cli import session, targets
from hipwright.cli.options import Json, Targets, TaskFile, Unsafe
from hipwright.cli.outdir import prepare, write_files
from hipwright.cli.output import Face

if TYPE_CHECKING:
    from hipwright.cli.session import Machine
    from hipwright.records import Program


def backward(
    task: TaskFile,
    out: Annotated[Path, typer.Option(help="Folder for program.py, gradient_task.py, verified.py.", metavar="DIR")],
    target: Targets = None,
    seed: Annotated[int | None, typer.Option(help="Seed of the verification inputs; secret without it.")] = None,
    unsafe: Unsafe = False,
    json_mode: Json = False,
) -> int:
    """Write a program whose backward gives the gradients of TASK's inputs and parameters. Exit 1 if it is not right."""
    face = Face(json_mode=json_mode)
    chosen = targets.choose(target)
    session.existing_file(task, "task")
    prepare(out)

    def listener(kind: str, data: dict[str, Any]) -> None:
        if kind == "stage" and not json_mode:
            face.say(str(data.get("text", "")))

    with session.machine(chosen, unsafe=unsafe) as machine:
        source, tangents = _gradients(machine, task, listener)
        write_files(out, {"gradient_task.py": source})
        return _verified(face, machine, out, tangents, (seed, chosen, listener))


def _gradients(machine: Machine, task: Path, listener: Any) -> tuple[str, list[str]]:
    """The text of the task that asks autograd for gradients, and the names of its further inputs."""
    from hipwright.engine.training import gradient_task

    with machine.open(task, seed=0, listener=listener) as bench:
        outline = bench.handle.outline(bench.handle.task.workloads[0].name)
        return gradient_task(bench.handle.task.source, outline.inputs, outline.outputs)


def _verified(face: Face, machine: Machine, out: Path, tangents: list[str], how: tuple[Any, ...]) -> int:
    """Write the program for the gradient task, and judge it."""
    from hipwright.capture.graph import Graph
    from hipwright.cli.outcome import exit_code, not_measured, result_object
    from hipwright.cli.tables import print_evaluation
    from hipwright.engine.training import inlined, program

    seed, chosen, listener = how
    with machine.open(out / "gradient_task.py", seed=seed, listener=listener) as bench:
        listener("stage", {"text": "capturing the graph below autograd"})
        graph = Graph.from_dict(bench.handle.capture(bench.handle.task.workloads[0].name))
        both: Program = program(graph, tangents)
        whole = inlined(both, tangents)
        write_files(out, {"program.py": both.text, "verified.py": whole.text})
        evaluation = bench.evaluator.evaluate(whole, thorough=True)
        notes = not_measured(chosen, evaluation)
        if face.json_mode:
            face.result(
                result_object(
                    evaluation,
                    chosen,
                    program=str(out / "program.py"),
                    not_measured=notes,
                    evaluations=1,
                    seconds=evaluation.seconds,
                )
            )
        else:
            print_evaluation(face.tables(), "program.py", evaluation, notes)
        return exit_code(evaluation)
