"""Rows to make and a benchmark's settings as JSON types, for the processes and machines that judge them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hipwright.api.bench.plan import BenchEntry, BenchRequest
from hipwright.evaluation.formats.base import BenchTask, FormatRule
from hipwright.evaluation.schedule import EvaluationJob
from hipwright.records import Program

_SETTINGS = ("targets", "mode", "budget", "seed", "unsafe", "compile_limit", "baselines", "imported")


def settings_of(request: BenchRequest) -> dict[str, Any]:
    """What judging a row needs of a request."""
    return {name: getattr(request, name) for name in _SETTINGS} | {"searches": not request.programs_given}


def request_of(settings: dict[str, Any], out: Path | None) -> BenchRequest:
    """The request where rows are judged. out: the folder of programs and the archive there."""
    found = {name: settings[name] for name in _SETTINGS}
    for name in ("targets", "baselines", "imported"):
        found[name] = tuple(found[name])
    suite = Path("elsewhere")
    # a folder of candidates, which is not read, says that programs are given
    return BenchRequest(suite=suite, candidates=None if settings["searches"] else suite, out=out, **found)


def plain_entry(entry: BenchEntry) -> dict[str, Any]:
    """An entry with its task's text and its program."""
    task = entry.task
    plain: dict[str, Any] = {
        "task": task.name,
        "text": task.read(),
        "level": task.level,
        "number": task.number,
        "form": task.form,
        "category": task.category,
        "notes": task.notes,
        "rule": task.rule.to_dict() if task.rule is not None else None,
        "candidate": entry.candidate,
        "sample": entry.sample,
        "program": entry.program.to_dict() if entry.program is not None else None,
    }
    return plain


def job_of(key: str, group: str, plain: dict[str, Any]) -> EvaluationJob:
    """The job of an entry that was made plain."""
    task = BenchTask(
        plain["task"],
        Path(f"{plain['task']}.py"),
        plain["level"],
        plain["number"],
        plain["form"],
        plain["category"],
        text=plain["text"],
        notes=tuple(plain["notes"]),
        rule=FormatRule.from_dict(plain["rule"]) if plain["rule"] else None,
    )
    program = Program.from_dict(plain["program"]) if plain["program"] else None
    return EvaluationJob(key, group, BenchEntry(task, plain["candidate"], plain["sample"], key, program))
