"""Times of a suite's tasks on a GPU, in as many runs as it takes; reports of the records (docs/suite.md).

    python -m benchmarks suite --out R.jsonl --seconds 540 --only-missing --lanes 6      first answers
    python -m benchmarks suite --out R.jsonl --seconds 540 --only-missing --search 60    and searches
    python -m benchmarks suite --out ALL.jsonl --merge R1.jsonl R2.jsonl                 records of several runs
    python -m benchmarks suite --out ALL.jsonl --report                                  the figures
    python -m benchmarks suite --out ALL.jsonl --table                                   every task, as Markdown
    python -m benchmarks suite --out ALL.jsonl --fit                                     a cost model from records
    python -m benchmarks suite --list                                                    the tasks

`hipwright bench` judges the same tasks with its own rows; both run on hipwright.api.bench.driver. Exit code 1 when
tasks are left.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.common import add_target, require_files
from benchmarks.suite import figures, report
from benchmarks.suite.records import Measured, Records, merge, read
from benchmarks.suite.tasks import add_tasks, chosen_suite, chosen_tasks
from hipwright import config
from hipwright.errors import BadInput


def add_options(options: argparse.ArgumentParser) -> None:
    """Adds the command's options."""
    options.add_argument("--out", type=Path, help="JSON lines; appended")
    add_tasks(options)
    options.add_argument("--only-missing", action="store_true", help="leave out what is in --out already")
    options.add_argument("--seconds", type=float, default=540.0, help="stop in time")
    options.add_argument("--search", type=int, default=0, metavar="N", help="evaluations of a search for each task")
    options.add_argument("--policy", default="islands")
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--lanes", type=int, default=1, help="tasks side by side; timings are alone all the same")
    add_target(options)
    options.add_argument("--no-timing", action="store_true", help="only the time to the first verified program")
    options.add_argument("--merge", nargs="+", type=Path, default=[], metavar="FILE")
    options.add_argument("--report", action="store_true")
    options.add_argument("--table", action="store_true")
    options.add_argument("--fit", action="store_true", help="fit the cost model, and keep it beside the build cache")
    options.add_argument("--list", action="store_true", help="the tasks, and no more")


def run(options: argparse.Namespace) -> int:
    """0 when all that was options for is there, 1 when tasks are left."""
    started = time.monotonic()
    if options.list:
        print("\n".join(task.name for task in chosen_tasks(options)))
        return 0
    if options.out is None:
        raise BadInput("no file of records", hint="name one with --out")
    if options.merge or options.report or options.table or options.fit:
        return process(options)
    return measure(options, started)


def process(options: argparse.Namespace) -> int:
    """Merges, reports, tabulates and fits records; needs no GPU."""
    require_files(options.merge or [options.out], hint="a run of the suite writes one to --out")
    rows = merge([*read([options.out]), *read(options.merge)])
    if options.merge:
        part = options.out.with_suffix(".part")
        part.write_text("".join(f"{row.to_json()}\n" for row in rows))
        part.replace(options.out)
        print(f"{len(rows)} records of {len({row.task for row in rows})} tasks in {options.out}", file=sys.stderr)
    if options.report:
        print(report.text(rows, chosen_suite(options)), end="")
    if options.table:
        print(report.table(rows), end="")
    if options.fit:
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


def measure(options: argparse.Namespace, started: float) -> int:
    """Measures the tasks until the time is over."""
    from benchmarks.suite.measure import SuiteSettings
    from benchmarks.suite.run import SuiteRun
    from hipwright.machine import machine

    tasks = chosen_tasks(options)
    records, home = Records(options.out), config.home()
    home.mkdir(parents=True, exist_ok=True)
    settings = SuiteSettings(
        target=options.target,
        evaluations=options.search,
        policy=options.policy,
        seed=options.seed,
        workers=options.lanes,
        timed=not options.no_timing,
    )
    with machine((options.target,), unsafe=False) as made:
        until, again = started + options.seconds, not options.only_missing
        left = SuiteRun(made, records, settings, until, home, again=again).run(tasks)
    print(f"{len(tasks) - left} of {len(tasks)} tasks are there; {left} are left", file=sys.stderr, flush=True)
    return 1 if left else 0
