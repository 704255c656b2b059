"""Score mode: evaluations a second, and whether its verdicts are those of the full gate. Needs a GPU.

    python benchmarks/score.py PROGRAMS.jsonl [--each N] [--tasks N] [--mutants N] [--target cuda] [--judge]

PROGRAMS.jsonl is what benchmarks/programs.py writes. Every task gets its programs and automatic mutants of them, most
of which are wrong. Each task's are a batch of their own, or with --judge those of all tasks are one batch, as they are
for learning (`hipwright.train.judging.judges.LocalJudge`). Rates are of batches with everything warm and nothing
built before; opening a task is told apart.
"""

from __future__ import annotations

import argparse
import itertools
import json
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from hipwright.audit.mutants import mutants, sample
from hipwright.device import topology
from hipwright.evaluation.score import BatchScorer
from hipwright.events import silent
from hipwright.machine import Machine, machine
from hipwright.program import parse
from hipwright.records import Evaluation, Program, Timing
from hipwright.train.judging.judges import LocalJudge
from hipwright.train.records import TrainingProblem

ROOT = Path(__file__).parents[1]
LIMIT_S = 3.0  # of one call of a program, as the recipes of training have it: a kernel that waits for ever takes that


def read(path: Path) -> dict[str, list[Program]]:
    """Programs by task."""
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    rows.sort(key=lambda row: row["task"])
    return {
        task: [Program(text=row["text"], knobs=row["knobs"]) for row in of]
        for task, of in itertools.groupby(rows, key=lambda row: row["task"])
    }


def with_mutants(programs: Sequence[Program], count: int) -> list[Program]:
    """The programs, and so many mutants of each of the first two."""
    found = list(programs)
    for program in programs[:2]:
        some = sample([mutants(program.text, parse(program.text))], seed=1)[:count]
        found += [Program(text=one.text, knobs=program.knobs) for one in some]
    return found


def another(program: Program) -> Program:
    """The same program under another name and build, so that nothing of the batch is known from it."""
    include = "#include <hip/hip_runtime.h>"
    return Program(text=program.text.replace(include, f"{include}  // again", 1), knobs=program.knobs)


def alone(made: Machine, task: str, programs: Sequence[Program], warm: Program) -> tuple[list[Evaluation], float]:
    """(verdicts, seconds) of one task's batch."""
    start = time.perf_counter()
    with made.open(ROOT / task, seed=None, listener=silent) as bench, BatchScorer(bench.evaluator) as scorer:
        scorer.warm()
        scorer.score([warm])
        opened = time.perf_counter() - start
        start = time.perf_counter()
        verdicts = scorer.score(programs)
        spent = time.perf_counter() - start
    print(f"{task}: opened in {opened:.1f} s; {told(verdicts, spent)}")
    return verdicts, spent


def together(
    target: str, batches: Mapping[str, Sequence[Program]], warm: Mapping[str, Program], cache: Path
) -> tuple[dict[str, list[Evaluation]], float]:
    """(verdicts by task, seconds) of one batch of all tasks' programs."""
    problems = {task: TrainingProblem(name=task, source=(ROOT / task).read_text()) for task in batches}
    start = time.perf_counter()
    with LocalJudge((target,), open_tasks=len(batches), seed=None, limit_s=LIMIT_S, cache=cache) as judge:
        judge.warm(list(problems.values()))
        for future in [judge.submit(problems[task], program) for task, program in warm.items()]:
            future.result()
        print(f"{len(batches)} tasks opened in {time.perf_counter() - start:.1f} s")
        judge.account.restart()
        start = time.perf_counter()
        asked = {task: [judge.submit(problems[task], one) for one in some] for task, some in batches.items()}
        verdicts = {task: [future.result() for future in some] for task, some in asked.items()}
        spent = time.perf_counter() - start
        stages = judge.figures()["stages"]
    print(
        "  "
        + "; ".join(
            f"{name} {one['count']} x {one['sum_s']:.1f} s, busy {one['busy_s']:.1f}"
            for name, one in stages.items()
            if one["count"]
        )
    )
    for task, some in verdicts.items():
        print(f"{task}: {told(some)}")
    return verdicts, spent


def told(verdicts: Sequence[Evaluation], spent: float = 0.0) -> str:
    """What a batch came to, in a line; then its faults and what was measured twice."""
    words = [f"{len(verdicts)} scored, {sum(v.passed for v in verdicts)} passed"]
    words[0] += f", {len(verdicts) / spent:.1f} a second" if spent else ""
    timings = [result.timing for v in verdicts for result in v.targets.values() if result.timing]
    notes = [note for timing in timings for note in timing.notes if note.startswith("measured twice")]
    twice = Counter(note.split("(")[0] + note.split("(")[1][:60] for note in notes)
    words += [f"{count} {note}" for note, count in twice.items()]
    words += [f"{count} timed on the stream: {why}" for why, count in Counter(map(_uncaptured, timings)).items() if why]
    slow = Counter(v.status for v in verdicts if v.status == "timeout" or v.fault not in (None, "candidate"))
    return "\n  ".join([*words, *(f"{count} {status}" for status, count in slow.items())])


def _uncaptured(timing: Timing) -> str:
    """Why a timing did not use graphs; empty where it did."""
    return "" if timing.policy == "graph" else " ".join(timing.notes)[:160] or timing.policy


def agreeing(made: Machine, task: str, programs: Sequence[Program], verdicts: Sequence[Evaluation]) -> int:
    """How many of the verdicts are the full gate's; the others are told."""
    count = 0
    with made.open(ROOT / task, seed=None, listener=silent) as bench:
        for program, one in zip(programs, verdicts, strict=True):
            full = bench.evaluator.evaluate(program, timed=False)
            count += full.passed == one.passed
            if full.passed != one.passed:
                print(f"  score {one.status} ({one.message[:160]}), full {full.status} ({full.message[:160]})")
    return count


def main() -> None:
    """Score, judge again in full, compare."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("programs", type=Path)
    options.add_argument("--each", type=int, default=10)
    options.add_argument("--tasks", type=int, default=5)
    options.add_argument("--mutants", type=int, default=10)
    options.add_argument("--target", default="cuda")
    options.add_argument("--skip", type=int, default=0)
    options.add_argument("--no-full", action="store_true")
    options.add_argument("--judge", action="store_true", help="all tasks' programs in one batch")
    chosen = options.parse_args()
    if not chosen.programs.is_file():
        options.error(f"{chosen.programs} is no file; python benchmarks/programs.py writes one")
    if not topology.find(chosen.target):
        options.error(f"no {chosen.target} GPU here")
    found = dict(list(read(chosen.programs).items())[chosen.skip : chosen.skip + chosen.tasks])
    batches = {task: with_mutants(programs[: chosen.each], chosen.mutants) for task, programs in found.items()}
    warm = {task: another(programs[-1]) for task, programs in found.items()}
    verdicts: dict[str, list[Evaluation]] = {}
    seconds = 0.0
    with TemporaryDirectory() as empty:  # of builds: nothing is found that an earlier run built
        if chosen.judge:
            verdicts, seconds = together(chosen.target, batches, warm, Path(empty))
        with machine((chosen.target,), unsafe=False, cache=Path(empty)) as made:
            for task, programs in batches.items() if not chosen.judge else ():
                verdicts[task], spent = alone(made, task, programs, warm[task])
                seconds += spent
            count = sum(len(some) for some in verdicts.values())
            print(f"{count} scored in {seconds:.2f} s: {count / seconds:.1f} a second")
            if not chosen.no_full:
                agree = sum(agreeing(made, task, batches[task], verdicts[task]) for task in batches)
                print(f"verdicts agree in {agree} of {count}")


if __name__ == "__main__":
    main()
