"""Rate of a LocalJudge, and its stages' times: the audit corpus's honest and broken programs, many tasks at once.

    python -m benchmarks judge-rate --target cuda --repeat 8 --trace trace.json

Every program is sent `--repeat` times with another comment, so that no verdict is remembered; verdicts are compared
with what the corpus expects (`hipwright audit` judges the same programs one by one). With `--busy` a matrix product
keeps the GPU busy in turns, as generation would. Exit code 1 where a verdict is not the corpus's.
"""

from __future__ import annotations

import argparse
import json
import random
import threading
import tomllib
from collections import Counter
from pathlib import Path

import hipwright
from benchmarks.common import add_target
from hipwright.records import Program
from hipwright.targets import TARGETS
from hipwright.train.judging.judges import LocalJudge
from hipwright.train.records import TrainingProblem

CORPUS = Path(hipwright.__file__).parent / "audit/corpus"
Submission = tuple[TrainingProblem, Program, bool]


def submissions(target: str, repeat: int) -> list[Submission]:
    """(task, program, whether it is right) for all that can be seen on the target, in a random order."""
    expected = tomllib.loads((CORPUS / "expected.toml").read_text())["program"]
    asked: list[Submission] = []
    for kind in ("honest", "broken"):
        for name, about in expected[kind].items():
            targets = about.get("targets", ["cpu", "cuda", "rocm"])
            if target not in ([targets] if isinstance(targets, str) else targets):
                continue
            task = about["task"]
            problem = TrainingProblem(name=task, source=(CORPUS / f"tasks/{task}.py").read_text())
            text = (CORPUS / "program" / kind / f"{name}.py").read_text()
            right = kind == "honest" or about.get("status") == "pass"  # a decoy is right, and covers nothing
            asked += [(problem, Program(text=f"{text}\n# {name} {n}\n"), right) for n in range(repeat)]
    random.Random(0).shuffle(asked)
    return asked


def keep_busy(judge: LocalJudge, ended: threading.Event) -> None:
    """Runs matrix products under the judge's lock, half a second at a time, until `ended` is set."""
    import torch

    values = torch.randn(4096, 4096, device="cuda")
    while not ended.is_set():
        with judge.timing_paused("policy"):
            for _ in range(200):
                values = torch.nn.functional.normalize(values @ values)
            torch.cuda.synchronize()


def add_options(options: argparse.ArgumentParser) -> None:
    """Adds the command's options."""
    add_target(options, "cuda", "rocm", "cpu")
    options.add_argument("--repeat", type=int, default=4)
    options.add_argument("--open-tasks", type=int, default=24)
    options.add_argument("--limit-s", type=float, default=None)
    options.add_argument("--busy", action="store_true")
    options.add_argument("--trace", type=Path)


def run(options: argparse.Namespace) -> int:
    """Judges all programs, and prints figures of the judge as JSON."""
    asked = submissions(options.target, options.repeat)
    targets = (options.target,) if TARGETS.is_gpu(options.target) else ("cpu", "gfx942")
    ended = threading.Event()
    with LocalJudge(targets, open_tasks=options.open_tasks, limit_s=options.limit_s) as judge:
        judge.prefetch([problem for problem, _, _ in asked])
        if options.busy:
            threading.Thread(target=keep_busy, args=(judge, ended), daemon=True).start()
        waiting = [judge.submit(problem, program) for problem, program, _ in asked]
        found = [future.result() for future in waiting]
        ended.set()
        figures = judge.figures()
        if options.trace:
            judge.stage_times.write_trace(options.trace)
    wrong = [
        f"{problem.name}, {program.text.splitlines()[-1]}: {one.status}, {one.fault}: {one.message[:120]}"
        for (problem, program, right), one in zip(asked, found, strict=True)
        if one.passed != right
    ]
    statuses = dict(Counter(one.status for one in found))
    summary = {"device": judge.device, "asked": len(asked), "statuses": statuses, "unlike": wrong, **figures}
    print(json.dumps(summary, indent=1))
    return 1 if wrong else 0
