"""Pages of the other records: times of settings, instruction mixes, and single measurements."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from benchmarks.results.record_files import RecordFile
from benchmarks.results.tables import days, microseconds, table
from benchmarks.suite.figures import median_of

BASELINES = ("eager", "compile", "copy")


def knobs_page(file: RecordFile) -> list[str]:
    """Sections of Markdown: the fastest setting of each task beside the default and the baselines."""
    heads = ("task", "variants", "default µs", *(f"{name} µs" for name in BASELINES), "fastest setting", "µs", "speed")
    return [table(heads, [_knobs_row(row) for row in sorted(file.rows(), key=lambda row: str(row["task"]))])]


def _knobs_row(row: dict[str, Any]) -> list[str]:
    us = row["us"]
    right = [name for name in us if name not in BASELINES and name not in row["off"]]
    best = min(right, key=lambda name: us[name])
    known = [microseconds(us[name]) if name in us else "" for name in ("default", *BASELINES)]
    task = str(row["task"]).removeprefix("benchmarks/kernels/").removesuffix(".py")
    return [f"`{task}`", str(len(right)), *known, f"`{best}`", microseconds(us[best]), f"{row['ratio'][best]:.3f}"]


def knobs_summary(file: RecordFile) -> tuple[str, str, str]:
    """(card, date, what there is) for the index."""
    rows = file.rows()
    count = sum(len(row["us"]) for row in rows)
    return file.about.machine, file.about.date, f"{len({row['task'] for row in rows})} tasks, {count} timings"


def mix_page(file: RecordFile) -> list[str]:
    """Sections of Markdown: kernels by family and target, with their registers and scratch memory."""
    kernels: dict[tuple[str, str], list[dict[str, int]]] = defaultdict(list)
    for row in file.rows():
        for target, mixes in row["targets"].items():
            kernels[row["task"].partition("/")[0], target] += mixes
    heads = ("family", "target", "kernels", "median VGPRs", "most VGPRs", "most LDS, bytes", "with scratch")
    lines = [
        [
            f"`{family}`",
            target,
            len(found),
            f"{median_of([one['vgpr'] for one in found]):.0f}",
            max(one["vgpr"] for one in found),
            max(one["lds_bytes"] for one in found),
            sum(one["scratch_bytes"] > 0 for one in found),
        ]
        for (family, target), found in sorted(kernels.items())
        if found
    ]
    return [table(heads, lines)]


def mix_summary(file: RecordFile) -> tuple[str, str, str]:
    """(no card, date, what there is) for the index."""
    rows = file.rows()
    targets = sorted({target for row in rows for target in row["targets"]})
    kernels = sum(len(mixes) for row in rows for mixes in row["targets"].values())
    return "", file.about.date, f"{len(rows)} programs, {kernels} kernels for {', '.join(targets)}"


def single_page(file: RecordFile) -> list[str]:
    """Sections of Markdown: single measurements by subject, with date, machine and command."""
    by_subject: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in file.rows():
        by_subject[row["subject"]].append(row)
    heads = ("what", "result", "date", "machine", "command")
    return [f"## {subject}\n\n{table(heads, map(_single_cells, rows))}" for subject, rows in by_subject.items()]


def _single_cells(row: dict[str, Any]) -> list[str]:
    return [row["what"], row["result"], row["date"], row["machine"], f"`{row['command']}`"]


def single_summary(file: RecordFile) -> tuple[str, str, str]:
    """(machines, dates, what there is) for the index."""
    rows = file.rows()
    subjects = list(dict.fromkeys(row["subject"] for row in rows))
    return "; ".join(sorted({row["machine"] for row in rows})), days(row["date"] for row in rows), "; ".join(subjects)
