"""Benchmarks: one with its tables and plots, also while it runs; two of them task by task."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from hipwright.errors import BadInput
from hipwright.evaluation.bench import ROWS, BenchRow
from hipwright.evaluation.figures import figures
from hipwright.report.bench_page import BenchPage, bench_views, row_tone
from hipwright.view.results import ResultFolder, read_object

EAGER = "eager"
"""The baseline that two benchmarks are compared by, where both have it."""
ROWS_A_PAGE = 2000
"""Rows of the table of a comparison."""


def bench_page(folder: ResultFolder) -> dict[str, Any]:
    """What the page of a benchmark shows."""
    return bench_views(read_bench(folder))


def read_bench(folder: ResultFolder) -> BenchPage:
    """The benchmark of a folder: of its result.json, else of the rows so far. BadInput where it cannot be read."""
    found = read_object(folder.path / "result.json")
    try:
        rows = [BenchRow.from_dict(row) for row in found["rows"]] if found else list(_rows(folder.path / ROWS))
        kernelbench = any(row.strict is not None for row in rows)
        return BenchPage(
            title=Path(str(found.get("suite", folder.path))).name,
            mode=str(found.get("mode", "kernelbench" if kernelbench else "strict")),
            source=str(found.get("source", "engine")),
            targets=tuple(map(str, found.get("targets", dict.fromkeys(name for row in rows for name in row.targets)))),
            complete=bool(found.get("complete", False)),
            expected=int(found.get("expected_rows", len(rows))),
            figures=figures(rows, kernelbench=kernelbench),
            rows=tuple(rows),
            not_measured=tuple(map(str, found.get("not_measured", ()))),
            command="",
            model=found.get("model"),
        )
    except (msgspec.MsgspecError, KeyError, TypeError, ValueError, ZeroDivisionError) as error:
        raise BadInput(f"{folder.path} holds no benchmark that can be read: {error}") from error


def _rows(path: Path) -> Iterator[BenchRow]:
    """The rows that a benchmark has written so far, the last of each key; a line that is cut off is left out."""
    found: dict[str, BenchRow] = {}
    for line in path.read_bytes().splitlines():
        try:
            row = BenchRow.from_json(line)
        except msgspec.MsgspecError:
            continue
        found[row.key] = row
    yield from found.values()


# ---------------------------------------------------------------- two benchmarks


@dataclass(frozen=True)
class RowPair:
    """One task's rows of both; None where one has none. gain: B's speedup over A's against a common baseline."""

    task: str
    a: BenchRow | None
    b: BenchRow | None
    baseline: str = ""
    gain: float | None = None
    sure: bool = False

    @property
    def changed(self) -> bool:
        """Whether the outcomes differ, or the speeds by more than their intervals."""
        return (self.a.status if self.a else "") != (self.b.status if self.b else "") or self.sure


def compare_benches(a: ResultFolder, b: ResultFolder) -> dict[str, Any]:
    """What the comparison shows: the figures of both, and their rows by task."""
    first, second = read_bench(a), read_bench(b)
    rows = [{_key(row): row for row in page.rows} for page in (first, second)]
    pairs = [row_pair(rows[0].get(key), rows[1].get(key)) for key in {**rows[0], **rows[1]}]
    pairs.sort(key=lambda pair: (not pair.changed, pair.gain if pair.gain is not None else 1.0, pair.task))
    views = [bench_views(page) for page in (first, second)]
    facts = [{tile["label"]: f"{tile['value']} ({tile['note']})" for tile in view["tiles"]} for view in views]
    return {
        "pages": [first, second],
        "facts": [(name, facts[0].get(name, "–"), facts[1].get(name, "–")) for name in {**facts[0], **facts[1]}],
        "pairs": pairs[:ROWS_A_PAGE],
        "of": len(pairs),
        "changed": sum(pair.changed for pair in pairs),
        "tone": row_tone,
    }


def row_pair(a: BenchRow | None, b: BenchRow | None) -> RowPair:
    """The rows of one task side by side. sure: the intervals of their speedups do not touch."""
    either = a or b
    task = either.task if either else ""
    common = [name for name in a.speedups if name in b.speedups] if a and b else []
    common.sort(key=lambda name: name != EAGER)
    if not a or not b or not common:
        return RowPair(task, a, b)
    one, other = a.speedups[common[0]], b.speedups[common[0]]
    apart = one.interval[1] < other.interval[0] or other.interval[1] < one.interval[0]
    return RowPair(task, a, b, common[0], other.speedup / one.speedup if one.speedup else None, apart)


def _key(row: BenchRow) -> tuple[str, int]:
    return row.task, row.sample
