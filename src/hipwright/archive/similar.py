"""Finds verified programs of earlier runs that may help with a task: of the same task, or of similar tasks.

Verified: the program passed, and no second verification refused it. Similarity is between tasks (docs/knowledge.md);
of one task, the fastest program of each kind of kernel is returned.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from hipwright.archive.code_features import feature_words, kernel_features, task_features, tokens
from hipwright.archive.log import RunLog
from hipwright.archive.readable import readable_log
from hipwright.archive.store import Archive
from hipwright.archive.text_similarity import Text, rank
from hipwright.records import Evaluation, Program, Record, Run, Task
from hipwright.targets import TARGETS

_FURTHER = 0.85  # weight of a task's second kernel relative to its first; the third has the square of it


class SimilarProgram(Record, frozen=True, kw_only=True):
    """A verified program of an earlier run.

    score: speedup over that run's first verified program by the kind in score_kind, 0.0 without a figure.
    microseconds: as evaluated. similarity: of the tasks, 0 to 1. features: of the kernels (archive/code_features.py).
    """

    task: str
    task_name: str
    program: str
    score: float = 0.0
    score_kind: str = "none"
    microseconds: float | None = None
    similarity: float = 1.0
    choices: dict[str, Any] = msgspec.field(default_factory=dict)
    features: dict[str, float] = msgspec.field(default_factory=dict)


def similar(
    archive: Archive, task_source: str, *, targets: Sequence[str], k: int, exclude_task: str = ""
) -> list[SimilarProgram]:
    """Returns up to k programs of the tasks most similar to `task_source` (the text of a task file), best first.

    Only runs that share a GPU target with `targets` count; all runs do where `targets` has none ("cpu" alone). Left out
    are programs of the task with key `exclude_task`, and tasks with similarity 0.
    """
    by_task = _verified(archive, targets)
    by_task.pop(exclude_task, None)
    sources = {key: source for key in sorted(by_task) if (source := _source(archive, key)) is not None}
    query = _text(task_source)
    similarity = dict(zip(sources, rank(query, [_text(source) for source in sources.values()]), strict=True))
    nearest = sorted((key for key in similarity if similarity[key] > 0), key=lambda key: (-similarity[key], key))[:k]
    offers: list[tuple[float, SimilarProgram]] = []
    for key in nearest:
        for place, known in enumerate(_kinds(archive, by_task[key], k)):
            known = msgspec.structs.replace(known, similarity=similarity[key])
            offers.append((similarity[key] * _FURTHER**place, known))
    offers.sort(key=lambda offer: (-offer[0], *_order(offer[1])))
    return [known for _, known in offers[:k]]


def known_for(archive: Archive, task_key: str, targets: Sequence[str], k: int) -> list[SimilarProgram]:
    """Returns up to k verified programs of earlier runs of one task, the fastest first; targets as for `similar`."""
    found = _verified(archive, targets, task_key).get(task_key, [])
    return [told for known in found[:k] if (told := _with_features(archive, known)) is not None]


def _text(source: str) -> Text:
    features = task_features(source)
    return Text([*tokens(source), *feature_words(features) * 3], features)


def _source(archive: Archive, task: str) -> str | None:
    """The task's source; None if the archive does not hold it, or holds a damaged one."""
    found = archive.find(task, Task)
    return None if found is None else found.source


def _verified(archive: Archive, targets: Sequence[str], task: str = "") -> dict[str, list[SimilarProgram]]:
    """Verified programs by task, fastest first, without repeats."""
    best: dict[tuple[str, str], SimilarProgram] = {}
    refused: set[tuple[str, str]] = set()
    for run in archive.runs():
        if (task and run.task != task) or not _shares(run.targets, targets):
            continue
        log = readable_log(archive, run.id)
        refused |= {(run.task, item.program) for item in log.confirmed.values() if not item.passed}
        for known in _of_run(run, log):
            place = (run.task, known.program)
            if place not in best or _order(known) < _order(best[place]):
                best[place] = known
    by_task: dict[str, list[SimilarProgram]] = {}
    for place in sorted(best.keys() - refused):
        by_task.setdefault(place[0], []).append(best[place])
    return {key: sorted(found, key=_order) for key, found in by_task.items()}


def _of_run(run: Run, log: RunLog) -> list[SimilarProgram]:
    passed = {n: log.evaluated[n].evaluation for n in sorted(log.evaluated) if log.evaluated[n].evaluation.passed}
    first = next(iter(passed.values()), None)
    return [
        SimilarProgram(
            task=run.task,
            task_name=str(log.started.get("task_name") or run.task),
            program=evaluation.program,
            score=_speedup(evaluation, first),
            score_kind=evaluation.score_kind,
            microseconds=evaluation.score,
            choices=log.proposed[number].choices if number in log.proposed else {},
        )
        for number, evaluation in passed.items()
    ]


def _speedup(evaluation: Evaluation, first: Evaluation | None) -> float:
    """The speedup over the run's first verified program; 0.0 if their scores are of different kinds."""
    if first is None or not first.score or not evaluation.score or first.score_kind != evaluation.score_kind:
        return 0.0
    return round(first.score / evaluation.score, 4)


def _order(known: SimilarProgram) -> tuple[int, float, str, str]:
    """The sort key: measured before estimated before neither, then the fastest, then the key."""
    kind = {"measured": 0, "estimate": 1}.get(known.score_kind, 2)
    return kind, float("inf") if known.microseconds is None else known.microseconds, known.task, known.program


def _kinds(archive: Archive, found: Sequence[SimilarProgram], limit: int) -> list[SimilarProgram]:
    """The fastest program of each kind of kernel, so that the examples differ."""
    kinds: dict[frozenset[str], SimilarProgram] = {}
    for known in found[: 8 * limit]:
        if (told := _with_features(archive, known)) is not None:
            kinds.setdefault(frozenset(told.features), told)
    return list(kinds.values())[:limit]


def _with_features(archive: Archive, known: SimilarProgram) -> SimilarProgram | None:
    """The program with its features; None where its text cannot be read."""
    program = archive.find(known.program, Program)
    if program is None:
        return None
    features: Mapping[str, float] = kernel_features(program.text)
    return msgspec.structs.replace(known, features=dict(features))


def _shares(run: Sequence[str], asked: Sequence[str]) -> bool:
    """Whether a run has one of the requested GPU targets; without a requested GPU every run does."""
    gpus = {name for name in asked if not TARGETS.is_host(name)}
    return not gpus or bool(gpus & set(run))
