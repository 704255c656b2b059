"""Rate of score mode in evaluations a second, and how many verdicts are those of the full gate. Needs a GPU.

    python -m benchmarks score-rate PROGRAMS.jsonl [--each N] [--tasks N] [--mutants N] [--target cuda] [--judge]

PROGRAMS.jsonl is what `python -m benchmarks programs` writes. Every task gets its programs and automatic mutants of
them, most of which are wrong. Each task's are a batch of their own, or with --judge those of all tasks are one batch,
as they are for learning (`hipwright.train.judging.judges.LocalJudge`). Rates are of batches with every process warm and
nothing built before; the time to open a task is printed apart. `hipwright score` prints the verdicts of one batch.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.common import ROOT, add_target, read_programs, require_gpu
from hipwright.audit.mutants import mutants, sample
from hipwright.evaluation.score import BatchScorer
from hipwright.events import silent
from hipwright.machine import Machine, machine
from hipwright.program import parse
from hipwright.records import Evaluation, Program, Timing
from hipwright.train.judging.judges import LocalJudge
from hipwright.train.records import TrainingProblem

LIMIT_S = 3.0
"""Limit of one call of a program, as the recipes of training have it; a kernel that never ends takes that long."""


def with_mutants(programs: Sequence[Program], count: int) -> list[Program]:
    """The programs, and `count` mutants of each of the first two."""
    found = list(programs)
    for program in programs[:2]:
        some = sample([mutants(program.text, parse(program.text))], seed=1)[:count]
        found += [Program(text=one.text, knobs=program.knobs) for one in some]
    return found


def rebuilt(program: Program) -> Program:
    """The same program with another text, so that its build says nothing about the batch's."""
    include = "#include <hip/hip_runtime.h>"
    return Program(text=program.text.replace(include, f"{include}  // again", 1), knobs=program.knobs)


def score_task(made: Machine, task: str, programs: Sequence[Program], warm: Program) -> tuple[list[Evaluation], float]:
    """(verdicts, seconds) of one task's batch."""
    start = time.perf_counter()
    with made.open(ROOT / task, seed=None, listener=silent) as bench, BatchScorer(bench.evaluator) as scorer:
        scorer.warm()
        scorer.score([warm])
        opened = time.perf_counter() - start
        start = time.perf_counter()
        verdicts = scorer.score(programs)
        spent = time.perf_counter() - start
    print(f"{task}: opened in {opened:.1f} s; {describe_batch(verdicts, spent)}")
    return verdicts, spent


def score_together(
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
        judge.stage_times.restart()
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
        print(f"{task}: {describe_batch(some)}")
    return verdicts, spent


def describe_batch(verdicts: Sequence[Evaluation], spent: float = 0.0) -> str:
    """Counts of a batch in a line; then lines of its faults and of what was measured twice."""
    lines = [f"{len(verdicts)} scored, {sum(v.passed for v in verdicts)} passed"]
    lines[0] += f", {len(verdicts) / spent:.1f} a second" if spent else ""
    timings = [result.timing for v in verdicts for result in v.targets.values() if result.timing]
    notes = [note for timing in timings for note in timing.notes if note.startswith("measured twice")]
    twice = Counter(note.split("(")[0] + note.split("(")[1][:60] for note in notes)
    lines += [f"{count} {note}" for note, count in twice.items()]
    lines += [f"{count} timed on the stream: {why}" for why, count in Counter(map(_uncaptured, timings)).items() if why]
    slow = Counter(v.status for v in verdicts if v.status == "timeout" or v.fault not in (None, "candidate"))
    return "\n  ".join([*lines, *(f"{count} {status}" for status, count in slow.items())])


def _uncaptured(timing: Timing) -> str:
    """Why a timing did not use graphs; empty where it did."""
    return "" if timing.policy == "graph" else " ".join(timing.notes)[:160] or timing.policy


def agreeing_verdicts(made: Machine, task: str, programs: Sequence[Program], verdicts: Sequence[Evaluation]) -> int:
    """How many of the verdicts are the full gate's; the others are printed."""
    count = 0
    with made.open(ROOT / task, seed=None, listener=silent) as bench:
        for program, one in zip(programs, verdicts, strict=True):
            full = bench.evaluator.evaluate(program, timed=False)
            count += full.passed == one.passed
            if full.passed != one.passed:
                print(f"  score {one.status} ({one.message[:160]}), full {full.status} ({full.message[:160]})")
    return count


def add_options(options: argparse.ArgumentParser) -> None:
    """Adds the command's options."""
    options.add_argument("programs", type=Path)
    options.add_argument("--each", type=int, default=10)
    options.add_argument("--tasks", type=int, default=5)
    options.add_argument("--mutants", type=int, default=10)
    add_target(options)
    options.add_argument("--skip", type=int, default=0)
    options.add_argument("--no-full", action="store_true")
    options.add_argument("--judge", action="store_true", help="all tasks' programs in one batch")


def run(options: argparse.Namespace) -> int:
    """Scores the batches, judges them again in full, and prints how many verdicts agree."""
    found = read_programs(options.programs)
    require_gpu(options.target)
    found = dict(list(found.items())[options.skip : options.skip + options.tasks])
    batches = {task: with_mutants(programs[: options.each], options.mutants) for task, programs in found.items()}
    warm = {task: rebuilt(programs[-1]) for task, programs in found.items()}
    verdicts: dict[str, list[Evaluation]] = {}
    seconds = 0.0
    with TemporaryDirectory() as empty:  # a build cache without the builds of earlier runs
        if options.judge:
            verdicts, seconds = score_together(options.target, batches, warm, Path(empty))
        with machine((options.target,), unsafe=False, cache=Path(empty)) as made:
            for task, programs in batches.items() if not options.judge else ():
                verdicts[task], spent = score_task(made, task, programs, warm[task])
                seconds += spent
            count = sum(len(some) for some in verdicts.values())
            print(f"{count} scored in {seconds:.2f} s: {count / seconds:.1f} a second")
            if not options.no_full:
                agree = sum(agreeing_verdicts(made, task, batches[task], verdicts[task]) for task in batches)
                print(f"verdicts agree in {agree} of {count}")
    return 0
