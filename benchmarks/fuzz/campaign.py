"""A campaign: batches of generated graphs, each with a seed of its own, until its time is over.

Every batch appends a line to the record, so that the next campaign goes on where the last one stopped, also after a
kill. What fails is shrunk by Hypothesis and written as a task file.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, Phase, Verbosity, given, settings
from hypothesis import seed as with_seed

from benchmarks.fuzz.graphs import FuzzCase, cases
from benchmarks.fuzz.judge import FuzzVerdict, cache_in, confirmed, judged

BATCH = 5
"""Graphs of a batch."""
SHRINK_S = 60.0
"""Seconds after a fault was found in which smaller graphs are tried."""
RECORD = "record.jsonl"
DIED = "process_died"
"""The fault of a graph with which the process ended."""


@dataclass
class BatchResult:
    """One batch. graphs, shapes: that were compared with torch; refused: graphs that torch or capture does not take;
    unconfirmed: refused by the quick judgement alone; fault: the shrunk one, "" for none.
    """

    family: str
    seed: int
    graphs: int = 0
    shapes: int = 0
    refused: int = 0
    unconfirmed: int = 0
    seconds: float = 0.0
    fault: str = ""
    message: str = ""
    file: str = ""


class Faulty(AssertionError):
    """A graph for which the engine's program is wrong, or none is written."""


@dataclass
class Batch:
    """The judge of one batch's graphs, with what it found."""

    result: BatchResult
    folder: Path
    known: dict[FuzzCase, FuzzVerdict] = field(default_factory=dict)
    worst: tuple[FuzzCase, FuzzVerdict] | None = None
    first_s: float | None = None

    def __call__(self, case: FuzzCase) -> None:
        """Judges a graph. Raises Faulty."""
        if case not in self.known:
            if self.first_s is not None and time.monotonic() - self.first_s > SHRINK_S:
                return  # the shrinking ends with what is known
            _current(self.folder, self.result).write_text(file_text(case, FuzzVerdict(DIED)))
            self.known[case] = self._judged(case)
        verdict = self.known[case]
        if verdict.faulty:
            self.worst, self.first_s = (case, verdict), self.first_s or time.monotonic()
            raise Faulty(verdict.status)

    def _judged(self, case: FuzzCase) -> FuzzVerdict:
        verdict = judged(case, cache_in(self.folder / "builds"))
        counted = self.first_s is None
        if status := _doubt(case, verdict):
            self.result.unconfirmed += counted
            verdict = FuzzVerdict("pass", f"{status}; quick: {verdict.status}: {verdict.message}", verdict.shapes)
            self._note(case, verdict)
        if counted:
            self.result.refused += verdict.status == "refused"
            self.result.graphs += verdict.status != "refused"
            self.result.shapes += verdict.shapes
        return verdict

    def _note(self, case: FuzzCase, verdict: FuzzVerdict) -> None:
        """Keeps a graph that the quick judgement alone refused."""
        path = self.folder / "unconfirmed" / f"{case.family}_{self.result.seed}.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(file_text(case, verdict))


def _doubt(case: FuzzCase, verdict: FuzzVerdict) -> str:
    """Why a quick verdict is no fault, "" where it is one: its tolerance is rough, and a launch of many blocks of many
    fibers takes longer than its limit. Other faults are evidence by themselves.
    """
    if verdict.status == "timeout":
        return "slow"
    status = confirmed(case) if verdict.status == "wrong_value" else ""
    return status if status in ("pass", "unscorable", "degenerate") else ""


def file_text(case: FuzzCase, verdict: FuzzVerdict) -> str:
    """A graph as a task file, with a header that says how it was judged."""
    said = " ".join(verdict.message.split())[:400]
    head = f"{case.family}: {verdict.status}; choices {case.choices}, waves of {case.wave}"
    return f"# {head}\n# {said}\n{case.text}"


def run_batch(family: str, seed: int, folder: Path, graphs: int = BATCH) -> BatchResult:
    """One batch of a family; its fault, shrunk, is a file in the folder."""
    result, start = BatchResult(family, seed), time.monotonic()
    batch = Batch(result, folder)
    quiet = settings(
        max_examples=graphs,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
        phases=(Phase.generate, Phase.shrink),
        verbosity=Verbosity.quiet,
        report_multiple_bugs=False,
    )
    try:
        with_seed(seed)(quiet(given(cases(family))(_plain(batch))))()
    except Faulty:
        assert batch.worst is not None
        case, verdict = batch.worst
        path = folder / f"{family}_{seed}_{verdict.status}.py"
        path.write_text(file_text(case, verdict))
        result.fault, result.message, result.file = verdict.status, verdict.message[:300], path.name
    finally:
        _current(folder, result).unlink(missing_ok=True)
    shutil.rmtree(folder / "builds", ignore_errors=True)
    result.seconds = round(time.monotonic() - start, 1)
    return result


def _current(folder: Path, result: BatchResult) -> Path:
    """The file of the graph that is being judged, which stays where the process dies."""
    return folder / f"current-{result.family}-{result.seed}.py"


def _died(folder: Path) -> Iterator[BatchResult]:
    """The batches in which an earlier campaign's process died; each is in the record before it is yielded."""
    for path in sorted(folder.glob("current-*.py")):
        _, family, seed = path.stem.split("-")
        kept = path.rename(folder / f"{family}_{seed}_{DIED}.py")
        result = BatchResult(family, int(seed), fault=DIED, message="the process ended with this graph", file=kept.name)
        _append(folder, result)
        yield result


def _append(folder: Path, result: BatchResult) -> None:
    with (folder / RECORD).open("a", encoding="utf-8") as out:
        out.write(json.dumps(asdict(result)) + "\n")


def _plain(batch: Batch) -> Callable[[FuzzCase], None]:
    """The judge as a function, which Hypothesis wants."""

    def check(case: FuzzCase) -> None:
        batch(case)

    return check


def read_record(folder: Path) -> list[dict[str, Any]]:
    """The batches of earlier campaigns in this folder."""
    path = folder / RECORD
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def campaign(families: Sequence[str], seconds: float, seed: int, folder: Path) -> Iterator[BatchResult]:
    """Batches of the families in turn until the time is over; each is in the record before it is yielded."""
    folder.mkdir(parents=True, exist_ok=True)
    yield from _died(folder)
    done = {(row["family"], row["seed"]) for row in read_record(folder)}
    end, number = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        for family in families:
            if time.monotonic() >= end:
                break
            if (family, seed + number) in done:
                continue
            result = run_batch(family, seed + number, folder)
            _append(folder, result)
            yield result
        number += 1
