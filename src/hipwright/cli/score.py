"""`hipwright score`: many programs of one task through the fast gate and a short timing, for learning."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hipwright.cli.options import Fleet, Json, Place, Targets, TaskFile, Unsafe
from hipwright.cli.output import CommandOutput
from hipwright.errors import BadInput

if TYPE_CHECKING:
    from hipwright.records import Evaluation


def score(
    task: TaskFile,
    programs: Annotated[list[Path], typer.Argument(help="Programs of that task.", metavar="PROGRAM...")],
    target: Targets = None,
    seed: Annotated[int | None, typer.Option(help="Seed of the verification inputs; a secret one without it.")] = None,
    gpus: Annotated[str, typer.Option(help="GPUs that share the programs: all, or numbers like 0,1.")] = "all",
    fleet: Fleet = "",
    place: Place = "",
    unsafe: Unsafe = False,
    json_mode: Json = False,
) -> int:
    """Score PROGRAMs of TASK on a GPU: verdict, and speedup over eager. Exit 1 when none passed."""
    from hipwright.api.files import read_text
    from hipwright.api.outcome import not_measured, result_object
    from hipwright.api.score import score_on_fleet, score_programs, scoring_target
    from hipwright.cli.display.tables import print_notes
    from hipwright.records import Program

    output, chosen = CommandOutput(json_mode=json_mode), scoring_target(target)
    given = [Program(text=read_text(path, "program")) for path in programs]
    if place and not fleet:
        raise BadInput("--place chooses among the devices of a fleet", hint="--fleet ADDRESS")
    if fleet and gpus != "all":
        raise BadInput("--gpus numbers the GPUs of this machine, not a fleet's", hint="--place NAME")
    nodes: list[dict[str, Any]] = [{} for _ in given]
    took: dict[str, Any] = {}
    if fleet:
        scores = score_on_fleet(task, given, chosen, fleet, place=place, seed=seed, unsafe=unsafe)
        found = [one.evaluation for one in scores]
        nodes = [{"node": one.node.to_dict() if one.node is not None else None} for one in scores]
    else:
        made = score_programs(task, given, chosen, gpus=gpus, seed=seed, unsafe=unsafe)
        found = made.evaluations
        took = {"gpus": list(made.gpus), "open_s": round(made.open_s, 3), "score_s": round(made.score_s, 3)}
    left = [not_measured((chosen,), one) for one in found]
    if json_mode:
        rows: list[dict[str, Any]] = [
            result_object(one, (chosen,), program=str(path), seconds=one.seconds, not_measured=notes, **node)
            for path, one, notes, node in zip(programs, found, left, nodes, strict=True)
        ]
        output.result({"task": str(task), "scores": rows, **took})
    else:
        _print(output, programs, found, chosen)
        print_notes(output.console(), list(dict.fromkeys(line for notes in left for line in notes)))
    return 0 if any(one.passed for one in found) else 1


def _print(output: CommandOutput, programs: Sequence[Path], found: Sequence[Evaluation], target: str) -> None:
    from hipwright.cli.display.fitted import plain_table

    rows = []
    for path, one in zip(programs, found, strict=True):
        timing = one.targets[target].timing if target in one.targets else None
        versus = timing.versus.get("eager") if timing else None
        speed = f"{versus.speedup:.2f}x ({versus.interval[0]:.2f} to {versus.interval[1]:.2f})" if versus else ""
        rows.append([path.name, one.status, speed, f"{one.coverage:.0%}" if one.passed else one.message[:80]])
    output.console().print(plain_table(["program", "status", "against eager", "coverage"], rows))
