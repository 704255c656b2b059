"""What is computed from programs and tasks, which never change, and kept by their keys."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TypeVar

import msgspec

from hipwright.archive.code_features import feature_words, kernel_features, task_features, tokens
from hipwright.archive.damage import ROW_ERRORS
from hipwright.archive.database import PACKS, Digest
from hipwright.archive.digests.packs import LOOSE, entries_of, not_full, put_together
from hipwright.archive.store import Archive
from hipwright.archive.text_similarity import Text
from hipwright.errors import BadInput, InfrastructureError
from hipwright.records import Program, Record, Task

_KERNELS, _TASK, _TASKS = "kernels/1", "task/1", f"{PACKS}tasks/1"
"""The kinds of digests, and of packs of the second; the number changes with what is computed, and with its form."""

R = TypeVar("R", bound=Record)
T = TypeVar("T")


_READ_FEATURES, _READ_TEXT = msgspec.json.Decoder(dict[str, float]), msgspec.json.Decoder(Text)
_READ_TASKS: msgspec.json.Decoder[list[tuple[str, Text]]] = msgspec.json.Decoder(list[tuple[str, Text]])
"""The entries of a pack: tasks' texts by their keys."""


def kernel_features_of(archive: Archive, programs: Sequence[str]) -> dict[str, dict[str, float]]:
    """The features of stored programs' kernels, by the program's key; without those that cannot be read."""
    return _of_records(archive, _KERNELS, Program, programs, _READ_FEATURES, lambda one: kernel_features(one.text))


def task_texts(archive: Archive, tasks: Sequence[str]) -> dict[str, Text]:
    """The words and features of stored tasks, by the task's key; without those that cannot be read."""
    packs = archive.database.digests.of(_TASKS)
    found = dict(entries_of(packs.values(), _READ_TASKS))
    if others := [key for key in tasks if key not in found]:
        found |= _of_records(archive, _TASK, Task, others, _READ_TEXT, lambda one: task_text(one.source))
        _pack_tasks(archive, packs)
    return {key: found[key] for key in tasks if key in found}


def _pack_tasks(archive: Archive, packs: Mapping[str, Digest]) -> None:
    """Puts the texts of tasks into packs where many have a row each."""
    loose = {} if archive.read_only else archive.database.digests.of(_TASK)
    if len(loose) < LOOSE:
        return
    old = not_full(packs.values(), _READ_TASKS)
    texts = dict(entries_of(old, _READ_TASKS))
    for key, digest in loose.items():
        with suppress(*ROW_ERRORS):
            texts[key] = _READ_TEXT.decode(digest.data)
    put_together(archive, _TASKS, sorted(texts.items()), [*old, *loose.values()])


def task_text(source: str) -> Text:
    """The words and features of a task's source, by which tasks are compared."""
    features = task_features(source)
    return Text([*tokens(source), *feature_words(features) * 3], features)


def _of_records(
    archive: Archive,
    kind: str,
    record: type[R],
    keys: Sequence[str],
    decoder: msgspec.json.Decoder[T],
    compute: Callable[[R], T],
) -> dict[str, T]:
    """What is computed from records, which never change: kept by their key, with the seq 0."""
    kept = archive.database.digests.of(kind, keys)
    found: dict[str, T] = {}
    for key in keys:
        with suppress(*ROW_ERRORS):
            found[key] = decoder.decode(kept[key].data)
    records = archive.find_all([key for key in keys if key not in found], record)
    new = {key: compute(one) for key, one in records.items()}
    keep(archive, [Digest(kind, key, 0, msgspec.json.encode(value).decode()) for key, value in new.items()])
    found |= new
    return {key: found[key] for key in keys if key in found}


def keep(archive: Archive, fresh: Sequence[Digest]) -> None:
    """Keeps digests of records; what cannot be kept is computed again."""
    if fresh and not archive.read_only:
        with suppress(BadInput, InfrastructureError):
            archive.database.digests.keep(fresh)
