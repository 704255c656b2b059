"""Finds verified programs of earlier runs that may help with a task: of the same task, or of similar tasks.

Verified: the program passed, and no second verification refused it. Similarity is between tasks (docs/knowledge.md);
of one task, the fastest program of each kind of kernel is returned.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from hipwright.archive.digests import RunDigest, kernel_features_of, run_digests, task_text, task_texts, verified_in
from hipwright.archive.store import Archive
from hipwright.archive.text_similarity import rank
from hipwright.archive.verified import SimilarProgram, speed_order
from hipwright.records import Program, Run
from hipwright.targets import TARGETS

_FURTHER = 0.85  # weight of a task's second kernel relative to its first; the third has the square of it


def similar(
    archive: Archive, task_source: str, *, targets: Sequence[str], k: int, exclude_task: str = ""
) -> list[SimilarProgram]:
    """Returns up to k programs of the tasks most similar to `task_source` (the text of a task file), best first.

    Only runs that share a GPU target with `targets` count; all runs do where `targets` has none ("cpu" alone). Left out
    are programs of the task with key `exclude_task`, and tasks with similarity 0.
    """
    all_runs = archive.runs()
    digests = run_digests(archive, all_runs)
    by_task = _runs_by_task(archive, all_runs, targets, digests)
    by_task.pop(exclude_task, None)
    texts = task_texts(archive, sorted(by_task))
    similarity = dict(zip(texts, rank(task_text(task_source), list(texts.values())), strict=True))
    nearest = sorted((key for key in similarity if similarity[key] > 0), key=lambda key: (-similarity[key], key))[:k]
    offers: list[tuple[float, SimilarProgram]] = []
    for key in nearest:
        for place, known in enumerate(_kinds(archive, _verified(archive, by_task[key], digests), k)):
            known = msgspec.structs.replace(known, similarity=similarity[key])
            offers.append((similarity[key] * _FURTHER**place, known))
    offers.sort(key=lambda offer: (-offer[0], *speed_order(offer[1])))
    return [known for _, known in offers[:k]]


def known_for(archive: Archive, task_key: str, targets: Sequence[str], k: int) -> list[SimilarProgram]:
    """Returns up to k verified programs of earlier runs of one task, the fastest first; targets as for `similar`."""
    theirs = [run for run in archive.runs() if run.task == task_key]
    digests = run_digests(archive, theirs)
    runs = _runs_by_task(archive, theirs, targets, digests).get(task_key, [])
    found = _verified(archive, runs, digests)
    features = kernel_features_of(archive, [known.program for known in found[:k]])
    return [
        msgspec.structs.replace(known, features=features[known.program])
        for known in found[:k]
        if known.program in features and archive.find(known.program, Program) is not None
    ]


def _runs_by_task(
    archive: Archive, all_runs: Sequence[Run], targets: Sequence[str], digests: Mapping[str, RunDigest]
) -> dict[str, list[Run]]:
    """The runs that count, by task: of tasks with a verified program that no run refused."""
    runs: dict[str, list[Run]] = {}
    for run in all_runs:
        if _shares(run.targets, targets):
            runs.setdefault(run.task, []).append(run)
    passed = {key: sum(digests[run.id].verified for run in found) for key, found in runs.items()}
    refused = {key for key, found in runs.items() if any(digests[run.id].refused for run in found)}
    return {
        key: found
        for key, found in runs.items()
        if passed[key] and (key not in refused or _verified(archive, found, digests))
    }


def _verified(archive: Archive, runs: Sequence[Run], digests: Mapping[str, RunDigest]) -> list[SimilarProgram]:
    """The verified programs of the runs of one task, fastest first, without repeats."""
    best: dict[str, SimilarProgram] = {}
    for found in verified_in(archive, runs, digests).values():
        for known in found:
            if known.program not in best or speed_order(known) < speed_order(best[known.program]):
                best[known.program] = known
    refused = {program for run in runs for program in digests[run.id].refused}
    return sorted((best[program] for program in best.keys() - refused), key=speed_order)


def _kinds(archive: Archive, found: Sequence[SimilarProgram], limit: int) -> list[SimilarProgram]:
    """The fastest program of each kind of kernel, so that the examples differ."""
    considered = found[: 8 * limit]
    features = kernel_features_of(archive, [known.program for known in considered])
    kinds: dict[frozenset[str], SimilarProgram] = {}
    for known in considered:
        kind = frozenset(features.get(known.program, {}))
        if known.program in features and kind not in kinds and archive.find(known.program, Program) is not None:
            kinds[kind] = msgspec.structs.replace(known, features=features[known.program])
            if len(kinds) == limit:
                break
    return list(kinds.values())


def _shares(run: Sequence[str], asked: Sequence[str]) -> bool:
    """Whether a run has one of the requested GPU targets; without a requested GPU every run does."""
    gpus = {name for name in asked if not TARGETS.is_host(name)}
    return not gpus or bool(gpus & set(run))
