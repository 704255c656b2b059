"""The judgement of a corpus: its tasks go through `hipwright bench`; the table and the reproducers of what failed."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Literal

from benchmarks.corpora.corpus import CorpusTask, write_tasks
from hipwright.api.bench.plan import BenchRequest
from hipwright.api.bench.run import run_benchmark
from hipwright.api.files import prepare_folder
from hipwright.evaluation.bench import BenchRow
from hipwright.evaluation.figures import BASELINES, results
from hipwright.events import Listener
from hipwright.measure.fastp import geometric_mean
from hipwright.search.fallback import SLOWER

KERNEL = "__global__"

Kind = Literal["verified", "nothing to prove", "refused", "failed"]


def kind_of(row: BenchRow) -> Kind:
    """verified; a task that is itself at fault: one whose right results a trivial program has too ("nothing to
    prove"), or one that torch or the rules for tasks refuse; everything else failed."""
    if row.status == "pass":
        return "verified"
    if row.fault == "task":
        return "nothing to prove" if row.status == "degenerate" else "refused"
    return "failed"


@dataclass(frozen=True)
class CorpusReport:
    """The rows of a corpus by task, and its tasks.

    with_kernels: those whose programs have kernels of their own; coverage counts floating-point operations, of which
    integers and copies have none.
    """

    corpus: str
    rows: dict[str, BenchRow]
    tasks: tuple[CorpusTask, ...]
    packages: dict[str, str]
    interrupted: bool
    with_kernels: frozenset[str] = frozenset()

    def of(self, kind: Kind) -> list[BenchRow]:
        """The rows of one kind."""
        return [row for row in self.rows.values() if kind_of(row) == kind]

    def summary(self) -> dict[str, Any]:
        """The object that `--json` prints. families_with_own_hip: those with a verified program that has kernels."""
        verified = self.of("verified")
        family = {task.name: task.family for task in self.tasks}
        own = {family[row.task] for row in verified if row.task in self.with_kernels}
        return {
            "corpus": self.corpus,
            "packages": self.packages,
            "tasks": len(self.tasks),
            "judged": len(self.rows),
            "families": len(set(family.values())),
            "verified": len(verified),
            "given_up": sum(bool(row.given_up) for row in verified),
            "nothing_to_prove": len(self.of("nothing to prove")),
            "refused": len(self.of("refused")),
            "failed": len(self.of("failed")),
            "families_with_own_hip": len(own),
            "families_verified": len({family[row.task] for row in verified}),
            "families_judged": len({family[name] for name in self.rows}),
            "median_coverage": median(row.coverage or 0.0 for row in verified) if verified else None,
            "speedups": {name: speeds for name in BASELINES if (speeds := _speeds(verified, name))},
            "median_seconds": round(median(row.seconds for row in self.rows.values()), 1) if self.rows else None,
            "seconds": round(sum(row.seconds for row in self.rows.values())),
            "statuses": dict(Counter(row.status for row in self.rows.values())),
            "reasons": dict(Counter(reason(row) for row in self.of("refused")).most_common()),
            "failures": {row.task: f"{row.status}: {row.message[:200]}" for row in self.of("failed")},
            "engine_faults": {row.task: list(row.given_up) for row in verified if row.given_up},
            "interrupted": self.interrupted,
        }


def judge(
    corpus: str,
    tasks: Sequence[CorpusTask],
    packages: dict[str, str],
    out: Path,
    *,
    targets: tuple[str, ...],
    baselines: tuple[str, ...] = BASELINES,
    workers: int | None,
    processes: int | None = None,
    listener: Listener,
    seed: int | None = None,
    imported: tuple[str, ...] = (),
) -> CorpusReport:
    """Judges the tasks that have no row in `out` yet: one evaluation each, and the winner's verification.

    workers, processes: as of BenchRequest; baselines: what is timed against on a GPU, eager first; seed: draws the
    inputs; None draws a secret one.
    imported: modules that every task imports.
    """
    prepare_folder(out)
    folder = out / "tasks"
    write_tasks(tasks, folder)
    chosen = {task.name for task in tasks}
    for stale in folder.glob("*.py"):
        if stale.stem not in chosen:
            stale.unlink()
    request = BenchRequest(
        folder,
        targets,
        out=out,
        resume=True,
        budget=1,
        workers=workers,
        processes=processes,
        seed=seed,
        baselines=baselines,
        imported=imported,
    )
    report = run_benchmark(request, listener=listener)
    rows = {row.task: row for row in report.rows}
    own = frozenset(path.stem for path in (out / "programs").glob("*.py") if KERNEL in path.read_text(encoding="utf-8"))
    found = CorpusReport(corpus, rows, tuple(tasks), packages, report.interrupted, own)
    _keep_failures(found, out / "failures")
    return found


def reason(row: BenchRow) -> str:
    """A refusal's message without what differs from task to task: files, lines, names in quotes, numbers."""
    text = re.sub(r"^\S+\.py(:\d+)?: ", "", row.message.splitlines()[0] if row.message else row.status)
    text = re.sub(r"(?:\S+\.py )?line \d+: `.*?`: ", "", text)
    return re.sub(r"\d+", "N", re.sub(r"'[^']*'|`[^`]*`", "…", text))[:110]


def _speeds(rows: Sequence[BenchRow], baseline: str) -> dict[str, Any]:
    """Of the rows that were timed against a baseline: their number, those not slower, and the mean of `figures`; {} for
    none."""
    found = [result for result in results(rows, baseline) if result.speedup is not None]
    mean = geometric_mean(found)
    if mean is None:
        return {}
    not_slower = sum((result.speedup or 0.0) >= SLOWER for result in found)
    return {"timed": len(found), "not_slower": not_slower, "geometric_mean": round(mean.value, 3)}


def _keep_failures(report: CorpusReport, folder: Path) -> None:
    """Writes each task that failed, or of whose program the engine gave up kernels, with its message and a command."""
    text = {task.name: task.text for task in report.tasks}
    for row in report.rows.values():
        if kind_of(row) == "failed" or row.given_up:
            folder.mkdir(parents=True, exist_ok=True)
            told = (
                f"{row.status}: {row.message}" if kind_of(row) == "failed" else f"given up: {', '.join(row.given_up)}"
            )
            lines = [f"# {line}" for line in told.splitlines()[:5]]
            head = "\n".join([*lines, f"# hipwright optimize {row.task}.py --target cpu --budget 1", ""])
            (folder / f"{row.task}.py").write_text(head + text[row.task], encoding="utf-8")
