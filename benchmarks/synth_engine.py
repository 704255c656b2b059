"""What the engine makes of composed tasks: verified or not, and the coverage of its default program.

    python benchmarks/synth_engine.py OUT.jsonl [--count N] [--seed S] [--alone] [--lead NAME...] [--target NAME...]

One line a task: {"name", "operators", "status", "message", "coverage", "library", "seconds"}. --alone: each operator of
the library by itself, whose coverage says what is fused and what stays a library call. Needs no GPU.
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
from hipwright.synth.compose import compose, lead_of
from hipwright.synth.library import LIBRARY
from hipwright.synth.records import Draft


def drafts(count: int, seed: int, alone: bool, leads: list[str]) -> Iterator[Draft]:
    """The tasks to try."""
    if alone:
        for one in LIBRARY:
            yield _shortest(one.name)
        return
    for number in range(count):
        lead = leads[number % len(leads)] if leads else lead_of(number)
        yield compose(random.Random(f"{seed} {number}"), lead=lead)


def _shortest(lead: str) -> Draft:
    """The operator by itself, or with as little beside it as ten draws give."""
    return min((compose(random.Random(k), lead=lead) for k in range(40)), key=lambda one: len(one.operators))


def judged(made: Machine, folder: Path, draft: Draft) -> dict[str, Any]:
    """What the evaluator says of the engine's default program for one draft."""
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
    except (ValueError, KeyError, AssertionError, TypeError) as error:  # the engine's own fault: what this looks for
        row |= {"status": "crash", "message": f"{type(error).__name__}: {error}", "library": {}}
    return {**row, "seconds": round(time.monotonic() - began, 2)}


def main() -> None:
    """Judge them one after the other on one warm machine."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--count", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--alone", action="store_true")
    parser.add_argument("--lead", nargs="*", default=[])
    parser.add_argument("--target", nargs="*", default=["gfx942", "cpu"])
    asked = parser.parse_args()
    rows = []
    with (
        tempfile.TemporaryDirectory() as folder,
        machine(tuple(asked.target), unsafe=False) as made,
        asked.out.open("w", encoding="utf-8") as out,
    ):
        for draft in drafts(asked.count, asked.seed, asked.alone, asked.lead):
            rows.append(judged(made, Path(folder), draft))
            print(json.dumps(rows[-1]), file=out, flush=True)
            shown = f"{rows[-1]['status']:12} {rows[-1]['coverage']:.2f} {rows[-1]['seconds']:6.1f} s  {draft.name}"
            print(f"{shown}  {rows[-1]['message'][:160]}", file=sys.stderr, flush=True)
    passed = [row for row in rows if row["status"] == "pass"]
    half = [row for row in passed if row["coverage"] >= 0.5]
    print(f"{len(rows)} tasks, {len(passed)} verified, {len(half)} with coverage of at least 0.5")


if __name__ == "__main__":
    main()
