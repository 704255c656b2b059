"""`hipwright combine`: several programs of one task as one that dispatches on shapes, verified as a whole."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hipwright.cli import session, targets
from hipwright.cli.options import Json, Targets, TaskFile, Unsafe
from hipwright.cli.outdir import prepare, write_file
from hipwright.cli.output import Face
from hipwright.errors import BadInput
from hipwright.program.sets import SetMember, combine, owner
from hipwright.records import Program

if TYPE_CHECKING:
    from hipwright.cli.session import Workbench

LIBRARY = "library"


def combine_programs(
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
    face = Face(json_mode=json_mode)
    chosen = targets.choose(target)
    conditions = _conditions(when or [], len(programs))
    texts = [p if p == LIBRARY else session.read_text(Path(p), "program") for p in programs]
    prepare(out.absolute().parent)

    def listener(kind: str, data: dict[str, Any]) -> None:
        if kind == "stage" and not json_mode:
            face.say(str(data.get("text", "")))

    with session.workbench(task, chosen, seed=seed, unsafe=unsafe, listener=listener) as bench:
        members = [SetMember(program=_program(bench, text), when=conditions[i]) for i, text in enumerate(texts)]
        made = combine(members)
        write_file(out, made.text)
        reached = dispatch(bench, made)
        return _judge(face, bench, made, (programs, reached, chosen, out))


def _conditions(given: list[str], count: int) -> list[str]:
    found = [""] * count
    for text in given:
        place, colon, condition = text.partition(":")
        if not colon or not place.strip().isdigit() or int(place) >= count:
            raise BadInput(f"--when {text!r}: write the program's place (from 0), a colon and the condition")
        found[int(place)] = condition.strip()
    return found


def _program(bench: Workbench, text: str) -> Program:
    if text != LIBRARY:
        return Program(text=text)
    from hipwright.capture.graph import Graph
    from hipwright.engine.plan.library import library_program

    return library_program(Graph.from_dict(bench.handle.capture(bench.handle.task.workloads[0].name)))


def dispatch(bench: Workbench, made: Program) -> dict[str, int | None]:
    """Workload -> the place of the program that it goes to; None where no kernel tells (library calls alone)."""
    from hipwright.program import parse
    from hipwright.program.lower.trace import trace

    found: dict[str, int | None] = {}
    for workload in bench.handle.task.workloads:
        outline = bench.handle.outline(workload.name)
        told = trace(parse(made.text), made.knobs, outline.state, outline.inputs)
        found[workload.name] = owner([entry["kernel"] for entry in told["launches"]])
    return found


def _judge(face: Face, bench: Workbench, made: Program, how: tuple[Any, ...]) -> int:
    from hipwright.cli.outcome import exit_code, not_measured, result_object
    from hipwright.cli.tables import plain_table, print_evaluation

    programs, reached, chosen, out = how
    evaluation = bench.evaluator.evaluate(made, thorough=True)
    notes = not_measured(chosen, evaluation)
    last = len(programs) - 1
    places = {name: last if place is None else place for name, place in reached.items()}
    missed = [programs[i] for i in range(len(programs)) if i not in places.values()]
    if face.json_mode:
        more = {"program": str(out), "evaluations": 1, "seconds": evaluation.seconds, "not_measured": notes}
        face.result(result_object(evaluation, chosen, **more, dispatch=places, unreached=missed))
    else:
        rows = [(name, programs[place]) for name, place in places.items()]
        face.tables().print(plain_table(("workload", "goes to"), rows))
        print_evaluation(face.tables(), out.name, evaluation, notes)
    if missed:
        face.say(
            f"never reached by the task's workloads, so not verified: {', '.join(missed)} (get_input_groups "
            "gives a task further shapes)"
        )
    return exit_code(evaluation) or (1 if missed else 0)
