"""Training data: rows to imitate and problems to answer, read from the folders that other commands write.

    rows      a data set (`hipwright dataset build`), or its export as jsonl, sft, reasons or trl
    problems  a data set, its export as jsonl, a folder of `hipwright synth`, or any folder of task files

Tasks are held out by the data set's own splits. A data set without splits holds out every 20th task in the order of
their hashes, so that the same tasks are held out each time.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from hipwright.dataset.records import Pair
from hipwright.dataset.store import PAIRS, BadRow, read_pairs
from hipwright.errors import BadInput
from hipwright.records import content_key
from hipwright.targets import TARGETS
from hipwright.train.records import TrainingProblem

TRAIN = "train"
UNSPLIT = ("", "unsplit")
HELD_OUT = "held_out"
"""The split of the tasks that are held out of a data set without splits."""
HELD_OUT_EVERY = 20

Message = dict[str, str]
"""A chat message with the keys role and content."""


class ImitationRow(NamedTuple):
    """A conversation to imitate: the messages before the answer, the answer as one message, its task and its split."""

    prompt: list[Message]
    completion: list[Message]
    task: str
    split: str

    def columns(self) -> dict[str, Any]:
        """The row in TRL's prompt-completion form."""
        return {"prompt": self.prompt, "completion": self.completion}


@dataclass
class ImitationRows:
    """Rows by split, `train` among them. bad: a message for each line that could not be read."""

    splits: dict[str, list[ImitationRow]] = field(default_factory=dict)
    bad: list[str] = field(default_factory=list)

    @property
    def train(self) -> list[ImitationRow]:
        """The rows of the training split."""
        return self.splits.get(TRAIN, [])

    @property
    def held(self) -> dict[str, list[ImitationRow]]:
        """The rows of all other splits that have any."""
        return {name: rows for name, rows in self.splits.items() if name != TRAIN and rows}


def imitation_rows(folder: Path, *, rows: int | None = None, held_rows: int | None = None) -> ImitationRows:
    """The rows of a data set or of its export. rows, held_rows: the most rows of train and of a held-out split.

    Raises BadInput for a folder without such rows, and for one whose training split is empty.
    """
    kind = folder_kind(folder)
    if kind in ("sft", "reasons", "trl"):
        bad: list[BadRow] = []
        found = list(_export_rows(folder, kind, bad))
    elif kind in ("pairs", "jsonl"):
        bad = []
        found = list(_pair_rows(pairs_of(folder, kind, bad)))
    else:
        raise wrong_kind(folder, kind, "rows to imitate", "a data set, or its export as jsonl, sft, reasons or trl")
    made = ImitationRows(_by_split(found), [_describe_bad_row(one) for one in bad])
    if not made.train:
        raise BadInput(
            f"{folder} has no row to learn from", hint="; ".join(made.bad[:3]) or "`hipwright dataset stats`"
        )
    for name, known in made.splits.items():
        limit = rows if name == TRAIN else held_rows
        made.splits[name] = known[:limit] if limit else known
    return made


def problems(folder: Path, *, limit: int | None = None) -> dict[str, list[TrainingProblem]]:
    """The problems of a folder by split, each once, in the folder's order. limit: the most problems of a split.

    Raises BadInput for a folder without problems.
    """
    kind = folder_kind(folder)
    if kind in ("pairs", "jsonl"):
        found = _pair_problems(pairs_of(folder, kind, []))
    elif kind == "tasks":
        found = _task_problems(folder)
    else:
        raise wrong_kind(folder, kind, "problems", "a data set, its export as jsonl, or a folder of tasks")
    splits: dict[str, list[TrainingProblem]] = {}
    for one in found:
        splits.setdefault(one.split, []).append(one)
    if not splits.get(TRAIN):
        raise BadInput(f"{folder} has no problem to learn from", hint="`hipwright dataset stats` counts the splits")
    return {name: known[:limit] if limit else known for name, known in splits.items()}


def system_prompt(targets: Sequence[str] = TARGETS.default_offline) -> str:
    """The system prompt of `hipwright dataset export` and of the agents."""
    from hipwright.agents import prompt_session

    return prompt_session.system(targets)


# ---------------------------------------------------------------- kinds of folders


def folder_kind(folder: Path) -> str:
    """ "pairs", "tasks", or the format of an export. Raises BadInput for any other folder."""
    if folder.is_file() or (folder / PAIRS).is_file():
        return "pairs"
    if not folder.is_dir():
        raise BadInput(
            f"no such folder of data: {folder}", hint="`hipwright dataset build --count N --out DIR` makes one"
        )
    try:
        return str(json.loads((folder / "export.json").read_bytes())["format"])
    except FileNotFoundError:
        return "tasks"
    except (ValueError, KeyError, TypeError) as error:
        raise BadInput(f"{folder / 'export.json'} cannot be read: {error}", hint="export the data set again") from error


def wrong_kind(folder: Path, kind: str, what: str, wanted: str) -> BadInput:
    """The error for a folder that holds something else than `what`. wanted: what to give instead."""
    held = "a folder of tasks" if kind == "tasks" else f"an export as {kind}"
    return BadInput(f"{folder} is {held}, which holds no {what}", hint=f"give {wanted}")


def _describe_bad_row(bad: BadRow) -> str:
    return f"{bad.file} line {bad.line}: {bad.why}"


def pairs_of(folder: Path, kind: str, bad: list[BadRow]) -> Iterator[Pair]:
    """The pairs of a folder of the kind "pairs" or "jsonl"; unreadable lines are added to `bad`."""
    if kind == "pairs":
        return read_pairs(folder, bad)
    from hipwright.dataset.export import read_export

    return read_export(folder, bad)


# ---------------------------------------------------------------- rows


def _pair_rows(pairs: Iterable[Pair]) -> Iterator[ImitationRow]:
    """A row for every verified program, in the form of the chat exports."""
    from hipwright.dataset.export.chat import ChatRows
    from hipwright.dataset.export.format import ExportOptions, LeftOut

    chat_rows = ChatRows(ExportOptions(system=system_prompt()))
    for pair in pairs:
        try:
            row = chat_rows(pair)
        except LeftOut:
            continue
        yield ImitationRow(row["prompt"], row["completion"], pair.task, pair.split)


def _export_rows(folder: Path, kind: str, bad: list[BadRow]) -> Iterator[ImitationRow]:
    if kind == "trl":
        yield from _parquet(folder / "sft")
        return
    for path in sorted(one for one in folder.glob("*.jsonl") if one.name != "skipped.jsonl"):
        for number, line in enumerate(path.read_bytes().splitlines(), 1):
            try:
                row = msgspec.json.decode(line)
                messages = [dict(one) for one in row["messages"]]
                if len(messages) < 2 or messages[-1]["role"] != "assistant":
                    raise ValueError("the conversation does not end with an answer")
                yield ImitationRow(messages[:-1], messages[-1:], str(row["task"]), path.stem)
            except (msgspec.MsgspecError, KeyError, TypeError, ValueError) as error:
                bad.append(BadRow(file=path.name, line=number, why=f"{type(error).__name__}: {error}"))


def _parquet(folder: Path) -> Iterator[ImitationRow]:
    try:
        import pyarrow.parquet as parquet
    except ImportError:
        raise BadInput(
            "an export as trl is Parquet, which needs pyarrow", hint="pip install 'hipwright[train]'"
        ) from None
    for path in sorted(folder.glob("*.parquet")):
        split = path.name.split("-00", 1)[0]
        for row in parquet.read_table(path, columns=["prompt", "completion", "task"]).to_pylist():
            yield ImitationRow(row["prompt"], row["completion"], row["task"], split)


def _by_split(rows: Sequence[ImitationRow]) -> dict[str, list[ImitationRow]]:
    unsplit = all(row.split in (*UNSPLIT, TRAIN) for row in rows)
    held = held_out_tasks({row.task for row in rows}) if unsplit else frozenset()
    found: dict[str, list[ImitationRow]] = {}
    for row in rows:
        split = HELD_OUT if row.task in held else TRAIN if row.split in UNSPLIT else row.split
        found.setdefault(split, []).append(row._replace(split=split))
    return found


def held_out_tasks(tasks: Iterable[str]) -> frozenset[str]:
    """Every 20th task in the order of their hashes; one of 2 to 39 tasks, none of a single task."""
    ordered = sorted(tasks, key=lambda task: content_key("held out", task))
    count = max(len(ordered) // HELD_OUT_EVERY, 1) if len(ordered) > 1 else 0
    return frozenset(ordered[:count])


# ---------------------------------------------------------------- problems


def _pair_problems(pairs: Iterable[Pair]) -> Iterator[TrainingProblem]:
    """One problem for each task; a data set without splits holds tasks out as for rows."""
    known: dict[str, Pair] = {}
    for pair in pairs:
        known.setdefault(pair.task, pair)
    unsplit = all(pair.split in (*UNSPLIT, TRAIN) for pair in known.values())
    held = held_out_tasks(known) if unsplit else frozenset()
    for key, pair in known.items():
        split = HELD_OUT if key in held else TRAIN if pair.split in UNSPLIT else pair.split
        yield TrainingProblem(name=pair.task_name, source=pair.task_source, split=split, facts=_facts(pair))


def _task_problems(folder: Path) -> Iterator[TrainingProblem]:
    from hipwright.dataset.tasks import read_tasks

    entries, _ = read_tasks(folder)
    held = held_out_tasks(entry.key for entry in entries)
    for entry in entries:
        facts = _facts(entry.synthetic) if entry.synthetic is not None else {}
        split = HELD_OUT if entry.key in held else TRAIN
        yield TrainingProblem(name=entry.name, source=entry.source, split=split, facts=facts)


def _facts(known: Any) -> dict[str, Any]:
    """The columns that reports group by, of a pair or of a synthesised task's record."""
    facts: Mapping[str, Any] = {name: getattr(known, name) for name in ("difficulty", "dtype", "operators", "families")}
    return {name: list(value) if isinstance(value, tuple) else value for name, value in facts.items()}
