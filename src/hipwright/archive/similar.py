"""Finds verified programs of earlier runs that may help with a task: of the same task, or of similar tasks.

Verified: the program passed, and no second verification refused it. Similarity is between tasks (docs/knowledge.md);
of one task, the fastest program of each kind of kernel is returned.

Programs are kept in order of their speed, by task: how many are read depends on how many are wanted, not on how many
runs and events there are. Runs of which nothing can be kept (archive/digests) are read and come on top.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from hipwright.archive.damage import ROW_ERRORS
from hipwright.archive.database import VerifiedGroup, VerifiedRow
from hipwright.archive.digests import ReadRun, kernel_features_of, task_text, task_texts, unkept_runs
from hipwright.archive.store import Archive
from hipwright.archive.text_similarity import rank
from hipwright.archive.verified import SimilarProgram, speed_order
from hipwright.records import Program, Run, Task
from hipwright.targets import TARGETS

_READ = msgspec.json.Decoder(SimilarProgram)
_FURTHER = 0.85  # weight of a task's second kernel relative to its first; the third has the square of it


def similar(
    archive: Archive, task_source: str, *, targets: Sequence[str], k: int, exclude_task: str = ""
) -> list[SimilarProgram]:
    """Returns up to k programs of the tasks most similar to `task_source` (the text of a task file), best first.

    Only runs that share a GPU target with `targets` count; all runs do where `targets` has none ("cpu" alone). Left out
    are programs of the task with key `exclude_task`, and tasks with similarity 0.
    """
    candidates = Candidates(archive, targets)
    texts = task_texts(archive, [key for key in candidates.tasks() if key != exclude_task])
    similarity = dict(zip(texts, rank(task_text(task_source), list(texts.values())), strict=True))
    nearest = sorted((key for key in similarity if similarity[key] > 0), key=lambda key: (-similarity[key], key))[:k]
    fastest = {key: candidates.fastest(key, 8 * k) for key in nearest}
    unreadable: set[str] = set()
    while True:
        offers: list[tuple[float, SimilarProgram]] = []
        for key in nearest:
            for place, known in enumerate(_kinds(fastest[key], k, unreadable)):
                known = msgspec.structs.replace(known, similarity=similarity[key])
                offers.append((similarity[key] * _FURTHER**place, known))
        offers.sort(key=lambda offer: (-offer[0], *speed_order(offer[1])))
        chosen = [known for _, known in offers[:k]]
        missing = _missing(archive, chosen)
        if not missing:
            return chosen
        unreadable |= missing


def known_for(archive: Archive, task_key: str, targets: Sequence[str], k: int) -> list[SimilarProgram]:
    """Returns up to k verified programs of earlier runs of one task, the fastest first; targets as for `similar`."""
    found = Candidates(archive, targets, task_key).fastest(task_key, k)
    missing = _missing(archive, found)
    return [known for known in found if known.program not in missing]


def tasks_of_source(archive: Archive, source: str) -> list[str]:
    """The keys of tasks with verified programs whose file has this text; other workloads give other keys."""
    texts, wanted = task_texts(archive, Candidates(archive, ()).tasks()), task_text(source)
    alike = archive.find_all([key for key, text in texts.items() if text == wanted], Task)
    return sorted(key for key, task in alike.items() if task.source == source)


def _missing(archive: Archive, found: Sequence[SimilarProgram]) -> set[str]:
    """The programs that cannot be read."""
    keys = {known.program for known in found}
    return keys - archive.find_all(sorted(keys), Program).keys()


def _kinds(found: Sequence[SimilarProgram], limit: int, unreadable: set[str]) -> list[SimilarProgram]:
    """The fastest program of each kind of kernel, so that the examples differ."""
    kinds: dict[frozenset[str], SimilarProgram] = {}
    for known in found:
        if known.program not in unreadable:
            kinds.setdefault(frozenset(known.features), known)
    return list(kinds.values())[:limit]


# ---------------------------------------------------------------- the programs among which is searched


class Candidates:
    """The verified programs of runs that share a GPU target with `targets`; of all runs where `targets` has none.

    task: the only one that is asked for; "" for all.
    """

    def __init__(self, archive: Archive, targets: Sequence[str], task: str = "") -> None:
        self._archive = archive
        self._unkept: dict[str, list[ReadRun]] = {}
        self._groups: dict[str, list[VerifiedGroup]] = {}

        def counts(run: Run) -> bool:
            return (not task or run.task == task) and _shares(run.targets, targets)

        if not archive.read_only:
            archive.database.digests.renew()
        for one in unkept_runs(archive, counts):
            self._unkept.setdefault(one.run.task, []).append(one)
        for group in archive.database.digests.groups(f"{task}/" if task else ""):
            key, _, theirs = group.place.partition("/")
            if _shares(theirs.split(","), targets):
                self._groups.setdefault(key, []).append(group)

    def tasks(self) -> list[str]:
        """The tasks with a verified program that no run refused, by key."""
        return [key for key in sorted(self._groups.keys() | self._unkept.keys()) if self._has_program(key)]

    def fastest(self, task: str, limit: int) -> list[SimilarProgram]:
        """The fastest verified programs of a task, at most `limit`, without repeats and refused ones; with features.

        Those that cannot be read, as far as that is known without reading them, are left out.
        """
        places = [group.place for group in self._groups.get(task, ())]
        refused = self._refused(task)
        rows = self._archive.database.digests.fastest(places, limit + len(refused)) if places else []
        kept = [(known, row.run) for row in rows if (known := _read(row)) is not None]
        read = [(known, one.run.id) for one in self._unkept.get(task, ()) for known in one.verified]
        best: dict[str, SimilarProgram] = {}
        for known, _ in sorted((*kept, *read), key=lambda one: (*speed_order(one[0]), one[1])):
            if known.program not in refused:
                best.setdefault(known.program, known)
        return self._with_features(list(best.values())[:limit], {known.program: known.features for known, _ in kept})

    def _with_features(
        self, chosen: Sequence[SimilarProgram], features: dict[str, dict[str, float]]
    ) -> list[SimilarProgram]:
        """Programs with their kernels' features, which those that are not kept lack; without unreadable ones."""
        lacking = [known.program for known in chosen if known.program not in features]
        features |= kernel_features_of(self._archive, lacking) if lacking else {}
        return [
            msgspec.structs.replace(known, features=features[known.program])
            for known in chosen
            if known.program in features
        ]

    def _has_program(self, task: str) -> bool:
        groups, read = self._groups.get(task, ()), self._unkept.get(task, ())
        elsewhere = len(groups) + len(read) > 1 and any(group.refused for group in groups)
        if elsewhere or any(one.digest.refused for one in read):  # what one group has may be refused by another
            return bool(self.fastest(task, 1))
        return any(group.usable for group in groups) or any(one.verified for one in read)

    def _refused(self, task: str) -> set[str]:
        """The programs that a second verification refused, in any of the task's runs that count."""
        groups = self._groups.get(task, ())
        refused = {program for one in self._unkept.get(task, ()) for program in one.digest.refused}
        asked = [group.place for group in groups if group.refused] if len(groups) > 1 or task in self._unkept else []
        return refused | self._archive.database.digests.refused(asked) if asked else refused


def _read(row: VerifiedRow) -> SimilarProgram | None:
    try:
        return _READ.decode(row.data)
    except ROW_ERRORS:
        return None


def _shares(run: Sequence[str], asked: Sequence[str]) -> bool:
    """Whether a run has one of the requested GPU targets; without a requested GPU every run does."""
    gpus = {name for name in asked if not TARGETS.is_host(name)}
    return not gpus or bool(gpus & set(run))
