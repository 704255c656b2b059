"""`hipwright backward`: a program with forward and backward for a task, verified against autograd."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hipwright.api import targets
from hipwright.cli import exit_codes
from hipwright.cli.options import Json, Targets, TaskFile, Unsafe
from hipwright.cli.output import CommandOutput


def backward(
    task: TaskFile,
    out: Annotated[Path, typer.Option(help="Folder for program.py, gradient_task.py, verified.py.", metavar="DIR")],
    target: Targets = None,
    seed: Annotated[int | None, typer.Option(help="Seed of the verification inputs; secret without it.")] = None,
    unsafe: Unsafe = False,
    json_mode: Json = False,
) -> int:
    """Write a program whose backward gives the gradients of TASK's inputs and parameters. Exit 1 if it is not right."""
    from hipwright.api.outcome import result_object
    from hipwright.api.ship.backward import write_backward
    from hipwright.cli.display.tables import print_evaluation

    output, chosen = CommandOutput(json_mode=json_mode), targets.choose(target)
    written = write_backward(task, chosen, out, seed=seed, unsafe=unsafe, listener=output.stages())
    evaluation, notes = written.evaluation, list(written.not_measured)
    if json_mode:
        more = {"program": str(out / "program.py"), "evaluations": 1, "seconds": evaluation.seconds}
        output.result(result_object(evaluation, chosen, **more, not_measured=notes))
    else:
        print_evaluation(output.console(), "program.py", evaluation, notes)
    return exit_codes.of_evaluation(evaluation)
