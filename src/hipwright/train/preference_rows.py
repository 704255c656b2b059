"""Preference pairs to train on: of a data set (`hipwright dataset build`), or of its export as `preference`.

The order of two programs is the export's (dataset/export/preference.py): correct over wrong, or certainly faster.
"""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from hipwright.dataset.store import BadRow
from hipwright.errors import BadInput
from hipwright.train import data
from hipwright.train.data import HELD_OUT, TRAIN, UNSPLIT, Message

FORMAT, COLUMNS = "preference", ("prompt", "chosen", "rejected")


class PreferenceRow(NamedTuple):
    """One preference: the prompt's messages, two answers as one message each, the reason, the task and its split."""

    prompt: list[Message]
    chosen: list[Message]
    rejected: list[Message]
    preferred: str
    task: str
    split: str

    @property
    def characters(self) -> int:
        """The length of all messages."""
        return sum(len(one["content"]) for one in self.prompt + self.chosen + self.rejected)


PreferenceSplits = dict[str, list[PreferenceRow]]
"""Rows by split; the training split is TRAIN."""


def read(folder: Path, *, rows: int | None = None, held_rows: int | None = None) -> PreferenceSplits:
    """The preferences of a folder by split. rows, held_rows: the most rows of train and of a held-out split.

    Raises BadInput for a folder without preferences.
    """
    kind = data.folder_kind(folder)
    if kind == FORMAT:
        found = list(_exported(folder))
    elif kind in ("pairs", "jsonl"):
        found = list(_of_pairs(folder, kind))
    else:
        raise data.wrong_kind(folder, kind, "preferences", "a data set, or its export as jsonl or preference")
    splits = _by_split(found)
    if not splits.get(TRAIN):
        raise BadInput(
            f"{folder} has no preference to learn from",
            hint="a task needs a wrong program, or two whose speeds certainly differ: `hipwright dataset stats`",
        )
    limits = {name: rows if name == TRAIN else held_rows for name in splits}
    return {name: known[: limits[name]] if limits[name] else known for name, known in splits.items()}


def shortest(splits: Mapping[str, list[PreferenceRow]]) -> PreferenceSplits:
    """The two shortest rows of train and the shortest of each other split, for a dry run."""
    return {
        name: sorted(rows, key=lambda row: row.characters)[: 2 if name == TRAIN else 1] for name, rows in splits.items()
    }


def _exported(folder: Path) -> Iterator[PreferenceRow]:
    for path in sorted(one for one in folder.glob("*.jsonl") if one.name != "skipped.jsonl"):
        for number, line in enumerate(path.read_bytes().splitlines(), 1):
            try:
                row = msgspec.json.decode(line)
                prompt, chosen, rejected = ([dict(one) for one in row[name]] for name in COLUMNS)
                yield PreferenceRow(prompt, chosen, rejected, str(row["preferred"]), str(row["task"]), path.stem)
            except (msgspec.MsgspecError, KeyError, TypeError, ValueError) as error:
                raise BadInput(
                    f"{path} line {number} is no preference: {type(error).__name__}: {error}", hint="export it again"
                ) from error


def _of_pairs(folder: Path, kind: str) -> Iterator[PreferenceRow]:
    from hipwright.dataset.export.chat import fresh_prompt, reply
    from hipwright.dataset.export.format import ExportOptions
    from hipwright.dataset.export.grouping import by_task
    from hipwright.dataset.export.preference import MAX_PER_TASK, preferences

    bad: list[BadRow] = []
    options = ExportOptions(system=data.system_prompt())
    with tempfile.TemporaryDirectory(prefix="hipwright-preferences-") as place:
        for pairs in by_task(data.pairs_of(folder, kind, bad), Path(place)):
            prompt = fresh_prompt(pairs[0], options)
            sorts: Counter[str] = Counter()
            for chosen, rejected, how, _ in preferences(pairs):
                sorts[how] += 1
                if sorts[how] <= MAX_PER_TASK:
                    better, worse = reply(chosen.program), reply(rejected.program)
                    yield PreferenceRow(prompt, better, worse, how, chosen.task, pairs[0].split)


def _by_split(rows: list[PreferenceRow]) -> PreferenceSplits:
    """Rows by split; without splits every 20th task is held out, as for rows to imitate."""
    unsplit = all(row.split in (*UNSPLIT, TRAIN) for row in rows)
    held = data.held_out_tasks({row.task for row in rows}) if unsplit else frozenset()
    found: PreferenceSplits = {}
    for row in rows:
        split = HELD_OUT if row.task in held else TRAIN if row.split in UNSPLIT else row.split
        found.setdefault(split, []).append(row._replace(split=split))
    return found


def columns(splits: Mapping[str, list[PreferenceRow]]) -> Any:
    """The rows as plain JSON types, for a digest."""
    return json.loads(json.dumps(splits))
