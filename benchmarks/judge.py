"""How fast a LocalJudge is, and what waits for what: the audit corpus's honest and broken programs, many tasks at once.

    python benchmarks/judge.py --target cuda --repeat 8 --trace trace.json

Every program is sent `--repeat` times with another comment, so that nothing is remembered; verdicts are compared with
what the corpus expects. With `--busy` a matrix product keeps the GPU busy in turns, as generation would.
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
from hipwright.records import Program
from hipwright.targets import TARGETS
from hipwright.train.judging.judges import LocalJudge
from hipwright.train.records import TrainingProblem

CORPUS = Path(hipwright.__file__).parent / "audit/corpus"
Asked = tuple[TrainingProblem, Program, bool]


def corpus(target: str, repeat: int) -> list[Asked]:
    """(task, program, whether it is right) for all that can be seen on the target, in a random order."""
    expected = tomllib.loads((CORPUS / "expected.toml").read_text())["program"]
    asked: list[Asked] = []
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
    """Half a second of products, again and again."""
    import torch

    values = torch.randn(4096, 4096, device="cuda")
    while not ended.is_set():
        with judge.sharing("policy"):
            for _ in range(200):
                values = torch.nn.functional.normalize(values @ values)
            torch.cuda.synchronize()


def main() -> int:
    """Judge them all; exit 1 where a verdict is not the corpus's."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--target", default="cuda", choices=("cuda", "rocm", "cpu"))
    parser.add_argument("--repeat", type=int, default=4)
    parser.add_argument("--open-tasks", type=int, default=24)
    parser.add_argument("--limit-s", type=float, default=None)
    parser.add_argument("--busy", action="store_true")
    parser.add_argument("--trace", type=Path)
    given = parser.parse_args()
    asked = corpus(given.target, given.repeat)
    targets = (given.target,) if TARGETS.is_gpu(given.target) else ("cpu", "gfx942")
    ended = threading.Event()
    with LocalJudge(targets, open_tasks=given.open_tasks, limit_s=given.limit_s) as judge:
        judge.prefetch([problem for problem, _, _ in asked])
        if given.busy:
            threading.Thread(target=keep_busy, args=(judge, ended), daemon=True).start()
        waiting = [judge.submit(problem, program) for problem, program, _ in asked]
        found = [future.result() for future in waiting]
        ended.set()
        told = judge.figures()
        if given.trace:
            judge.account.write_trace(given.trace)
    wrong = [
        f"{problem.name}, {program.text.splitlines()[-1]}: {one.status}, {one.fault}: {one.message[:120]}"
        for (problem, program, right), one in zip(asked, found, strict=True)
        if one.passed != right
    ]
    statuses = dict(Counter(one.status for one in found))
    print(
        json.dumps(
            {"device": judge.device, "asked": len(asked), "statuses": statuses, "unlike": wrong, **told}, indent=1
        )
    )
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
