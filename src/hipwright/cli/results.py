"""What a finished search leaves: the four files, the result object or the summary, and the exit code."""

from __future__ import annotations

import json
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hipwright.archive import RunDetail
from hipwright.cli.minds import option_words
from hipwright.cli.outcome import exit_code, not_measured, result_object
from hipwright.cli.outdir import write_files
from hipwright.cli.output import Face, clean, finite
from hipwright.errors import HipwrightError
from hipwright.program import parse
from hipwright.program.modelnew import export as modelnew
from hipwright.program.settle import settled
from hipwright.records import Evaluation, Task
from hipwright.report import from_run, render
from hipwright.search import SearchResult

INTERRUPTED = 130
PAUSED = 3  # infrastructure


@dataclass(frozen=True)
class SearchOutcome:
    """A search's end. path: the task file as the user named it; failure: without a winner, the last rejection.

    models: what language models were asked and what it cost (`hipwright.llm.cost.spending`), or None.
    """

    path: Path
    task: Task
    detail: RunDetail
    result: SearchResult
    explanation: dict[str, Any]
    failure: Evaluation | None = None
    models: dict[str, Any] | None = None


def hand_over(face: Face, found: SearchOutcome, out: Path | None) -> int:
    """Write the files, print the result, return the exit code."""
    evaluation = found.result.evaluation or found.failure
    notes = not_measured(found.detail.run.targets, evaluation)
    value = _object(found, evaluation, notes, out)
    if out is not None:
        write_files(out, _files(found, evaluation, notes, value))
    if face.json_mode:
        face.result(value)
    else:
        _print(face, found, evaluation, notes, out)
    if found.result.interrupted:
        away = found.result.reason == "provider"
        what = "paused, the models' provider stays away" if away else "interrupted"
        face.say(f"{what}: nothing is lost. Go on with: {_command(found, resume=True, out=out)}")
        return PAUSED if away else INTERRUPTED
    return 0 if found.result.program else (exit_code(evaluation) or 1)


def _object(found: SearchOutcome, evaluation: Evaluation | None, notes: list[str], out: Path | None) -> dict[str, Any]:
    result, detail = found.result, found.detail
    best = str(out / "program.py") if out is not None and result.program else None
    return result_object(
        evaluation,
        detail.run.targets,
        run=result.run,
        task=found.task.name,
        program=best,
        program_key=result.best or None,
        knobs=result.program.knobs if result.program else {},
        evaluations=result.evaluations,
        seconds=detail.costs.get("wall_seconds", 0.0),
        reason=result.reason,
        confirmed=result.confirmed,
        interrupted=result.interrupted,
        not_measured=notes,
        models=found.models,
    )


def _files(
    found: SearchOutcome, evaluation: Evaluation | None, notes: list[str], value: dict[str, Any]
) -> dict[str, str]:
    note = _note(found)
    command = _command(found, resume=False, out=None)
    data = from_run(
        found.detail,
        found.task,
        evaluation,
        command=command,
        explanation=found.explanation,
        not_measured=notes,
        note=note,
        models=found.models,
    )
    files = {"result.json": json.dumps(finite(value), indent=2) + "\n", "report.html": render(data)}
    return files | _program_files(found)


def _program_files(found: SearchOutcome) -> dict[str, str]:
    program = found.result.program
    if program is None:
        return {}
    files = {"program.py": settled(program)}
    try:
        files["model_new.py"] = modelnew.export(program, parse(program.text), found.task.source)
    except HipwrightError as error:  # the program stands without its KernelBench form
        print(f"no model_new.py: {clean(error.message)}", file=sys.stderr)
    return files


def _note(found: SearchOutcome) -> str:
    result = found.result
    if result.program is None:
        return f"No program passed verification in {result.evaluations} evaluations."
    if result.interrupted:
        return "The search was interrupted: this is the best program so far, and it was not verified a second time."
    return ""


def _print(face: Face, found: SearchOutcome, evaluation: Evaluation | None, notes: list[str], out: Path | None) -> None:
    from hipwright.cli.tables import print_evaluation

    console = face.tables()
    if evaluation is not None:
        print_evaluation(console, found.task.name, evaluation, notes)
    if note := _note(found):
        console.print(note, style="yellow")
    result = found.result
    again = {True: "; verified again on fresh secret inputs", False: "", None: ""}[result.confirmed]
    console.print(f"run {result.run}: {result.evaluations} evaluations, stopped by {result.reason}{again}")
    if found.models is not None:
        console.print(spent(found.models))
    if out is not None:
        names = [name for name in ("program.py", "model_new.py", "result.json", "report.html") if (out / name).exists()]
        console.print(f"in {out}: {', '.join(names)}")
    elif result.program is not None:
        console.print("--out DIR writes the program and its report", style="dim")


def _command(found: SearchOutcome, *, resume: bool, out: Path | None) -> str:
    """The command line that repeats the run, or goes on with it."""
    run = found.detail.run
    words = ["hipwright", "optimize", str(found.path)]
    if resume:
        words += ["--resume", run.id]
    else:
        words += [word for name in run.targets for word in ("--target", name)]
        words += ["--budget", str(run.budget), "--policy", run.policy.replace("_", "-"), "--seed", str(run.seed)]
        words += option_words(run)
    return shlex.join(words + (["--out", str(out)] if out is not None else []))


def spent(models: dict[str, Any]) -> str:
    """In one line, what the models came to. Dollars of unpriced calls are unknown, and said to be."""
    dollars = f"${models['usd'] + models['lost_usd']:.4f}"
    if models["unpriced"]:
        dollars = (
            f"{models['unpriced']} of them unpriced"
            if models["unpriced"] == models["calls"]
            else (f"{dollars} and {models['unpriced']} calls without a price")
        )
    lost = f"; {models['lost']} lost attempts are counted at what they had reserved" if models["lost"] else ""
    return f"models: {models['calls']} calls, {models['tokens']} tokens, {dollars}{lost}"
