"""`hipwright combine`: several programs of one task as one that dispatches on shapes, verified as a whole."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hipwright.api import targets
from hipwright.cli import exit_codes
from hipwright.cli.options import Json, Targets, TaskFile, Unsafe
from hipwright.cli.output import CommandOutput
from hipwright.errors import BadInput

if TYPE_CHECKING:
    from hipwright.api.ship.combine import CombinedProgram


def combine(
    task: TaskFile,
    programs: Annotated[
        list[str],
        typer.Argument(
            help="Programs, the first whose guards hold runs; `library` writes library calls alone.", metavar="PROGRAM"
        ),
    ],
    out: Annotated[Path, typer.Option(help="The file for the combined program.", metavar="FILE")],
    when: Annotated[
        list[str] | None,
        typer.Option(help='A further condition of a program, by its place: "0: x.shape[1] <= 1024".', metavar="N:COND"),
    ] = None,
    target: Targets = None,
    seed: Annotated[int | None, typer.Option(help="Seed of the verification inputs; secret without it.")] = None,
    unsafe: Unsafe = False,
    json_mode: Json = False,
) -> int:
    """Combine programs of TASK, and verify the whole. Exit 1 if it is wrong, or a program of it is never reached."""
    from hipwright.api.files import prepare_folder, write_file
    from hipwright.api.inputs import program_from, task_source
    from hipwright.api.ship.combine import LIBRARY, combine_programs

    output, chosen = CommandOutput(json_mode=json_mode), targets.choose(target)
    conditions = _conditions(when or [], len(programs))
    source = task_source(task)
    given = [None if name == LIBRARY else program_from(Path(name), source) for name in programs]
    prepare_folder(out.absolute().parent)
    combined = combine_programs(
        task,
        list(zip(given, conditions, strict=True)),
        chosen,
        seed=seed,
        unsafe=unsafe,
        listener=output.stages(),
        written=lambda program: write_file(out, program.text),
    )
    return _print(output, combined, programs, chosen, out)


def _conditions(given: list[str], count: int) -> list[str]:
    """The further condition of each program, "" for none. BadInput for one that names no program."""
    found = [""] * count
    for text in given:
        place, colon, condition = text.partition(":")
        if not colon or not place.strip().isdigit() or int(place) >= count:
            raise BadInput(f"--when {text!r}: write the program's place (from 0), a colon and the condition")
        found[int(place)] = condition.strip()
    return found


def _print(
    output: CommandOutput, combined: CombinedProgram, programs: list[str], chosen: tuple[str, ...], out: Path
) -> int:
    from hipwright.api.outcome import result_object
    from hipwright.cli.display.fitted import plain_table
    from hipwright.cli.display.tables import print_evaluation

    evaluation = combined.evaluation
    missed = [programs[place] for place in combined.unreached]
    if output.json_mode:
        more = {
            "program": str(out),
            "evaluations": 1,
            "seconds": evaluation.seconds,
            "not_measured": list(combined.not_measured),
        }
        output.result(result_object(evaluation, chosen, **more, dispatch=combined.dispatch, unreached=missed))
    else:
        rows = [(name, programs[place]) for name, place in combined.dispatch.items()]
        output.console().print(plain_table(("workload", "goes to"), rows))
        print_evaluation(output.console(), out.name, evaluation, combined.not_measured)
    if missed:
        output.say(
            f"never reached by the task's workloads, so not verified: {', '.join(missed)} (get_input_groups "
            "gives a task further shapes)"
        )
    return exit_codes.of_evaluation(evaluation) or (1 if missed else 0)
