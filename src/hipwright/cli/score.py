"""`hipwright score`: many programs of one task through the fast gate and a short timing, for learning."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from hipwright.cli import session, targets
from hipwright.cli.options import Json, Targets, TaskFile, Unsafe
from hipwright.cli.output import Face


def score(
    task: TaskFile,
    programs: Annotated[list[Path], typer.Argument(help="Programs of that task.", metavar="PROGRAM...")],
    target: Targets = None,
    seed: Annotated[int | None, typer.Option(help="Seed of the verification inputs; a secret one without it.")] = None,
    unsafe: Unsafe = False,
    json_mode: Json = False,
) -> int:
    """Score PROGRAMs of TASK on a GPU: verdict, and speedup over eager. Exit 1 when none passed."""
    from hipwright.cli.outcome import result_object
    from hipwright.errors import BadInput
    from hipwright.evaluation.score import BatchScorer
    from hipwright.events import silent
    from hipwright.records import Program

    face = Face(json_mode=json_mode)
    chosen = tuple(name for name in targets.choose(target) if name in targets.GPUS)
    if not chosen:
        raise BadInput(
            "score mode times programs, so it needs a GPU",
            hint="without one, `hipwright eval` verifies a program on the cpu target",
        )
    given = [Program(text=session.read_text(path, "program")) for path in programs]
    with (
        session.workbench(task, chosen[:1], seed=seed, unsafe=unsafe, listener=silent) as bench,
        BatchScorer(bench.evaluator) as scorer,
    ):
        scorer.warm()
        found = scorer.score(given)
    if json_mode:
        rows: list[dict[str, Any]] = [
            result_object(one, chosen[:1], program=str(path), seconds=one.seconds)
            for path, one in zip(programs, found, strict=True)
        ]
        face.result({"task": str(task), "scores": rows})
    else:
        _print(face, programs, found, chosen[0])
    return 0 if any(one.passed for one in found) else 1


def _print(face: Face, programs: list[Path], found: list[Any], target: str) -> None:
    from hipwright.cli.tables import plain_table

    rows = []
    for path, one in zip(programs, found, strict=True):
        timing = one.targets[target].timing if target in one.targets else None
        versus = timing.versus.get("eager") if timing else None
        speed = f"{versus.speedup:.2f}x ({versus.interval[0]:.2f} to {versus.interval[1]:.2f})" if versus else ""
        rows.append([path.name, one.status, speed, f"{one.coverage:.0%}" if one.passed else one.message[:80]])
    face.tables().print(plain_table(["program", "status", "against eager", "coverage"], rows))
