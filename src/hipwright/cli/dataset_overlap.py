"""The work behind `dataset overlap`: copies and near copies, of a benchmark's tasks or within one set."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hipwright.cli.dataset_work import BuildProgress, must_contain, name_some
from hipwright.cli.output import CommandOutput
from hipwright.errors import BadInput

if TYPE_CHECKING:
    from hipwright.dataset.overlap import Overlap
    from hipwright.dataset.store import BadRow
    from hipwright.dataset.tasks import DatasetTask


def run_overlap(
    output: CommandOutput, data: Path, against: Sequence[Path], out: Path | None, *, workers: int, unsafe: bool
) -> int:
    """Compare and tell; exit 1 when anything overlaps, or a line could not be read."""
    from hipwright.dataset.overlap import overlap

    must_contain(unsafe)
    bad: list[BadRow] = []
    tasks = {name: entry.made or entry.source for name, entry in tasks_of(data, bad).items()}
    if out is not None and not _is_data(data):
        raise BadInput("--out writes rows, and a folder of tasks has none", hint="name a data set, or leave --out")
    with BuildProgress("tasks", len(tasks), 0) as bar:

        def listen(kind: str, told: dict[str, Any]) -> None:
            bar.total = told["count"]
            bar.step(told["done"], "looked at", str(told["task"]))

        found = overlap(tasks, against, workers=workers, unsafe=unsafe, listener=listen)
    kept = _write_rest(data, set(found.found), out) if out is not None else None
    name_some(output, "unreadable lines", [f"{one.file} line {one.line}: {one.why}" for one in bad])
    name_some(output, "tasks could not be captured", [f"{name}: {why}" for name, why in found.weaker.items()])
    if output.json_mode:
        share = len(found.found) / found.tasks if found.tasks else 0.0
        output.result({**found.to_dict(), "found": list(found.found), "share": round(share, 4), "rows_kept": kept})
    else:
        _say(output, found, against, kept, out)
    return 1 if found.hits or bad else 0


def tasks_of(data: Path, bad: list[BadRow]) -> dict[str, DatasetTask]:
    """{a name of its own: task} of a data set's rows, or of a folder of tasks."""
    from hipwright.dataset.store import read_pairs
    from hipwright.dataset.tasks import DatasetTask, read_tasks

    if _is_data(data):
        entries = {(pair.task_name, pair.task_source): None for pair in read_pairs(data, bad)}
        listed = [DatasetTask(name, source) for name, source in entries]
    else:
        listed = read_tasks(data)[0]
    seen: Counter[str] = Counter()
    found: dict[str, DatasetTask] = {}
    for entry in listed:
        seen[entry.name] += 1
        found[entry.name if seen[entry.name] == 1 else f"{entry.name}~{seen[entry.name]}"] = entry
    return found


def _is_data(path: Path) -> bool:
    from hipwright.dataset.store import PAIRS

    return path.is_file() or (path / PAIRS).is_file()


def _write_rest(data: Path, gone: set[str], out: Path) -> int:
    """The rows of the tasks that overlap with nothing. -> how many."""
    from hipwright.api.files import prepare_folder
    from hipwright.dataset.store import read_pairs, replace_file, row

    named = {(entry.name, entry.source): name for name, entry in tasks_of(data, []).items()}
    prepare_folder(out.parent)
    kept = 0

    def rows() -> Iterator[bytes]:
        nonlocal kept
        for pair in read_pairs(data):
            if named[pair.task_name, pair.task_source] not in gone:
                kept += 1
                yield row(pair)

    replace_file(out, rows())
    return kept


def _say(output: CommandOutput, found: Overlap, against: Sequence[Path], kept: int | None, out: Path | None) -> None:
    table = output.console()
    where = f"{found.others} tasks of {', '.join(map(str, against))}" if against else "each other"
    share = 100 * len(found.found) / found.tasks if found.tasks else 0.0
    table.print(f"{found.tasks} tasks compared with {where}: {len(found.found)} overlap ({share:.1f} %)")
    for hit in found.hits:
        table.print(f"  {hit.task} is like {hit.other}: {hit.how}, {hit.likeness:.2f}")
    if kept is not None:
        table.print(f"{kept} rows of the others in {out}")
