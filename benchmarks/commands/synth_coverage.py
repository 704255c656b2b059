"""Coverage of the engine's default programs for composed tasks, and whether they are verified. Needs no GPU.

    python -m benchmarks synth-coverage OUT.jsonl [--count N] [--seed S] [--alone] [--lead NAME...] [--target NAME...]

One line a task: {"name", "operators", "status", "message", "coverage", "library", "seconds"}. --alone: each operator of
the synthesis library by itself, whose coverage tells whether it is fused or stays a library call.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hipwright.capture.graph import Graph
from hipwright.engine import write
from hipwright.errors import HipwrightError
from hipwright.machine import Machine, machine
from hipwright.synth.compose import compose, lead_operator
from hipwright.synth.library import LIBRARY
from hipwright.synth.records import Draft


def drafts(count: int, seed: int, alone: bool, leads: list[str]) -> Iterator[Draft]:
    """The tasks to try."""
    if alone:
        for one in LIBRARY:
            yield _shortest_draft(one.name)
        return
    for number in range(count):
        lead = leads[number % len(leads)] if leads else lead_operator(number)
        yield compose(random.Random(f"{seed} {number}"), lead=lead)


def _shortest_draft(lead: str) -> Draft:
    """The operator by itself, or the draft with the fewest operators beside it of 40 draws."""
    return min((compose(random.Random(k), lead=lead) for k in range(40)), key=lambda one: len(one.operators))


def coverage_row(made: Machine, folder: Path, draft: Draft) -> dict[str, Any]:
    """The row of one draft: the evaluator's verdict on the engine's default program."""
    path = folder / f"{draft.name}.py"
    path.write_text(draft.source, encoding="utf-8")
    began = time.monotonic()
    row: dict[str, Any] = {"name": draft.name, "operators": draft.operators, "coverage": 0.0, "source": draft.source}
    try:
        with made.open(path, seed=1, listener=lambda *_: None) as bench:
            graph = Graph.from_dict(bench.handle.capture(bench.handle.task.workloads[0].name))
            found = bench.evaluator.evaluate(write(graph, {}))
            row |= {"status": found.status, "message": found.message, "coverage": found.coverage}
            row |= {"library": found.library}
    except HipwrightError as error:
        row |= {"status": "error", "message": error.message, "library": {}}
    except (ValueError, KeyError, AssertionError, TypeError) as error:  # a bug of the engine is a row
        row |= {"status": "crash", "message": f"{type(error).__name__}: {error}", "library": {}}
    return {**row, "seconds": round(time.monotonic() - began, 2)}


def add_options(options: argparse.ArgumentParser) -> None:
    """Adds the command's options."""
    options.add_argument("out", type=Path)
    options.add_argument("--count", type=int, default=40)
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--alone", action="store_true")
    options.add_argument("--lead", nargs="*", default=[])
    options.add_argument("--target", nargs="*", default=["gfx942", "cpu"])


def run(options: argparse.Namespace) -> int:
    """Judges the tasks one after the other on one warm machine, and prints the counts."""
    rows = []
    with (
        tempfile.TemporaryDirectory() as folder,
        machine(tuple(options.target), unsafe=False) as made,
        options.out.open("w", encoding="utf-8") as out,
    ):
        for draft in drafts(options.count, options.seed, options.alone, options.lead):
            rows.append(coverage_row(made, Path(folder), draft))
            print(json.dumps(rows[-1]), file=out, flush=True)
            shown = f"{rows[-1]['status']:12} {rows[-1]['coverage']:.2f} {rows[-1]['seconds']:6.1f} s  {draft.name}"
            print(f"{shown}  {rows[-1]['message'][:160]}", file=sys.stderr, flush=True)
    passed = [row for row in rows if row["status"] == "pass"]
    half = [row for row in passed if row["coverage"] >= 0.5]
    print(f"{len(rows)} tasks, {len(passed)} verified, {len(half)} with coverage of at least 0.5")
    return 0
