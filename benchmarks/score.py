"""Score mode: evaluations a second, and whether its verdicts are those of the full gate. Needs a GPU.

    python benchmarks/score.py PROGRAMS.jsonl [--each N] [--tasks N] [--mutants N] [--target cuda]

PROGRAMS.jsonl is what benchmarks/programs.py writes. Every task gets its programs and automatic mutants of them, most
of which are wrong. Rates are of batches with everything warm; opening a task is told apart.
"""

from __future__ import annotations

import argparse
import itertools
import json
import time
from collections import Counter
from pathlib import Path

from hipwright.audit.mutants import mutants, sample
from hipwright.cli.session import machine
from hipwright.evaluate.score import Scorer
from hipwright.events import silent
from hipwright.program import parse
from hipwright.records import Program

ROOT = Path(__file__).parents[1]


def read(path: Path) -> dict[str, list[Program]]:
    """Programs by task."""
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    rows.sort(key=lambda row: row["task"])
    return {
        task: [Program(text=row["text"], knobs=row["knobs"]) for row in of]
        for task, of in itertools.groupby(rows, key=lambda row: row["task"])
    }


def main() -> None:
    """Score, judge again in full, compare."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("programs", type=Path)
    options.add_argument("--each", type=int, default=10)
    options.add_argument("--tasks", type=int, default=5)
    options.add_argument("--mutants", type=int, default=10)
    options.add_argument("--target", default="cuda")
    options.add_argument("--skip", type=int, default=0)
    options.add_argument("--no-full", action="store_true")
    chosen = options.parse_args()
    found = read(chosen.programs)
    scored = agree = total = 0
    seconds = 0.0
    with machine((chosen.target,), unsafe=False) as made:
        for task in list(found)[chosen.skip : chosen.skip + chosen.tasks]:
            programs = found[task][: chosen.each]
            for program in programs[:2]:
                mutated = sample([mutants(program.text, parse(program.text))], seed=1)[: chosen.mutants]
                programs = [*programs, *(Program(text=m.text, knobs=program.knobs) for m in mutated)]
            start = time.perf_counter()
            with made.open(ROOT / task, seed=None, listener=silent) as bench, Scorer(bench.evaluator) as scorer:
                scorer.warm()
                scorer.score(found[task][-1:])
                opened = time.perf_counter() - start
                start = time.perf_counter()
                verdicts = scorer.score(programs)
                spent = time.perf_counter() - start
                scored, seconds = scored + len(programs), seconds + spent
                passed = sum(v.passed for v in verdicts)
                rate = len(programs) / spent
                print(f"{task}: opened in {opened:.1f} s; {len(programs)} scored, {passed} passed, {rate:.1f} a second")
                twice = Counter(
                    note.split("(")[0] + note.split("(")[1][:60]
                    for v in verdicts
                    for result in v.targets.values()
                    for note in (result.timing.notes if result.timing else ())
                    if note.startswith("measured twice")
                )
                for note, count in twice.items():
                    print(f"  {count} {note}")
                for program, one in zip(programs, verdicts, strict=True) if not chosen.no_full else ():
                    full = bench.evaluator.evaluate(program, timed=False)
                    total, agree = total + 1, agree + (full.passed == one.passed)
                    if full.passed != one.passed:
                        print(f"  score {one.status} ({one.message[:160]}), full {full.status} ({full.message[:160]})")
                faults = {v.status: v.message[:120] for v in verdicts if v.fault not in (None, "candidate")}
                if faults:
                    print(f"  faults: {faults}")
    print(f"{scored} scored in {seconds:.2f} s: {scored / seconds:.1f} a second; verdicts agree in {agree} of {total}")


if __name__ == "__main__":
    main()
