"""Measure the suite of kernels on a GPU, in as many runs as it takes. docs/kernels.md says what comes out.

python -m benchmarks.suite --out R.jsonl --seconds 540 --only-missing --lanes 6      first answers
python -m benchmarks.suite --out R.jsonl --seconds 540 --only-missing --search 60    and searches
python -m benchmarks.suite --out ALL.jsonl --merge R1.jsonl R2.jsonl                 records of several runs
python -m benchmarks.suite --out ALL.jsonl --report                                  the figures
python -m benchmarks.suite --out ALL.jsonl --table                                   every task, as Markdown
python -m benchmarks.suite --out ALL.jsonl --fit                                     a cost model from records
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.suite import figures, report
from benchmarks.suite.records import Measured, Records, merge, read
from benchmarks.suite.tasks import ROOT, find
from hipwright import config
from hipwright.errors import BadInput, HipwrightError


def options() -> argparse.ArgumentParser:
    """The command line's parser."""
    raw = argparse.RawTextHelpFormatter
    made = argparse.ArgumentParser(prog="benchmarks.suite", description=__doc__, formatter_class=raw)
    made.add_argument("--out", type=Path, required=True, help="JSON lines; appended")
    made.add_argument("--root", type=Path, default=ROOT, help="the folder of families")
    made.add_argument("--family", nargs="+", default=[])
    made.add_argument("--task", nargs="+", default=[])
    made.add_argument("--only-missing", action="store_true", help="leave out what is in --out already")
    made.add_argument("--seconds", type=float, default=540.0, help="stop in time")
    made.add_argument("--search", type=int, default=0, metavar="N", help="evaluations of a search for each task")
    made.add_argument("--policy", default="islands")
    made.add_argument("--seed", type=int, default=0)
    made.add_argument("--lanes", type=int, default=1, help="tasks side by side; timings are alone all the same")
    made.add_argument("--target", default="cuda", choices=("cuda", "rocm"))
    made.add_argument("--no-timing", action="store_true", help="only the time to the first verified program")
    made.add_argument("--merge", nargs="+", type=Path, default=[], metavar="FILE")
    made.add_argument("--report", action="store_true")
    made.add_argument("--table", action="store_true")
    made.add_argument("--fit", action="store_true", help="fit the cost model, and keep it beside the build cache")
    made.add_argument("--list", action="store_true", help="the tasks, and no more")
    return made


def main(argv: Sequence[str] | None = None) -> int:
    """0 when all that was asked for is there, 1 when tasks are left, 2 for bad input."""
    asked, started = options().parse_args(argv), time.monotonic()
    try:
        if asked.list:
            print("\n".join(task.name for task in find(asked.root, asked.family, asked.task)))
            return 0
        if asked.merge or asked.report or asked.table or asked.fit:
            return after(asked)
        return measure(asked, started)
    except BadInput as error:
        print(f"{error.message} ({error.hint})", file=sys.stderr)
        return 2


def after(asked: argparse.Namespace) -> int:
    """Merges, reports, tabulates and fits records; needs no GPU."""
    asked_of = asked.merge or [asked.out]
    if missing := [path for path in asked_of if not path.is_file()]:
        raise BadInput(f"{missing[0]} is no file of records", hint="a run of the suite writes one to --out")
    rows = merge([*read([asked.out]), *read(asked.merge)])
    if asked.merge:
        part = asked.out.with_suffix(".part")
        part.write_text("".join(f"{row.to_json()}\n" for row in rows))
        part.replace(asked.out)
        print(f"{len(rows)} records of {len({row.task for row in rows})} tasks in {asked.out}", file=sys.stderr)
    if asked.report:
        print(report.text(rows), end="")
    if asked.table:
        print(report.table(rows), end="")
    if asked.fit:
        fit_models(rows)
    return 0


def fit_models(rows: Sequence[Measured]) -> None:
    """Fits a cost model for each architecture of the records, and keeps it beside the build cache."""
    from hipwright.measure.fit import fit, save

    for architecture in sorted({row.architecture for row in rows if row.architecture}):
        found = figures.samples([row for row in rows if row.architecture == architecture])
        model = fit(found, next(row.device for row in rows if row.architecture == architecture))
        print(f"{len(found)} programs of {model.device}: {save(model, architecture, config.cache_dir())}")
    print(report.estimates(rows))


def measure(asked: argparse.Namespace, started: float) -> int:
    """Measures the tasks until the time is over."""
    from benchmarks.suite.measure import SuiteSettings
    from benchmarks.suite.run import SuiteRun
    from hipwright.machine import machine

    tasks = find(asked.root, asked.family, asked.task)
    records, home = Records(asked.out), config.home()
    home.mkdir(parents=True, exist_ok=True)
    settings = SuiteSettings(
        target=asked.target,
        evaluations=asked.search,
        policy=asked.policy,
        seed=asked.seed,
        workers=asked.lanes,
        timed=not asked.no_timing,
    )
    try:
        with machine((asked.target,), unsafe=False) as made:
            until, again = started + asked.seconds, not asked.only_missing
            left = SuiteRun(made, records, settings, until, home, again=again).run(tasks)
    except HipwrightError as error:
        print(f"{error.message} ({error.hint})", file=sys.stderr)
        return error.exit_code
    print(f"{len(tasks) - left} of {len(tasks)} tasks are there; {left} are left", file=sys.stderr, flush=True)
    return 1 if left else 0


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    os._exit(code)  # a worker that hangs in a system call must not keep the run from ending
