"""A search problem with a known optimum: a space of 480 programs and a judge with a time for each.

The best program is {"BLOCK": 256, "UNROLL": 4, "fuse": True, "vector": 4}, at 10.0 microseconds. Programs with
vector=8 and no fusion give wrong values. The judge can be slow, keep a tally in a file, and fail like a machine.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hipwright.archive import Archive, export
from hipwright.records import Evaluation, Fault, Program, Run, Task, Workload
from hipwright.search import EngineSource, SearchResult, new_run, resume, run

TARGETS = ("gfx942", "cpu")
TASK = Task(name="made_up", source="class Model: ...", workloads=(Workload(name="given"),), provenance="/home/a/b.py")


@dataclass(frozen=True)
class Choice:
    options: Sequence[Any]
    default: Any
    kind: str = "knob"


SPACE = {
    "BLOCK": Choice((64, 128, 256, 512, 1024), 64),
    "UNROLL": Choice((1, 2, 4, 8), 1),
    "vector": Choice((1, 2, 4, 8), 1, "structure"),
    "fuse": Choice((False, True), False, "structure"),
    "order": Choice(("rows", "tiles", "waves"), "rows", "structure"),
}
BEST = 10.0


def write(choices: Mapping[str, Any]) -> Program:
    return Program(text=json.dumps(dict(choices), sort_keys=True))


def source(space: Mapping[str, Choice] | None = None) -> EngineSource:
    return EngineSource(SPACE if space is None else space, write)


def microseconds(c: Mapping[str, Any]) -> float:
    time = BEST * (1.0 if c.get("fuse", True) else 2.0) * {1: 1.6, 2: 1.25, 4: 1.0, 8: 1.1}[c.get("vector", 4)]
    time *= 1.0 + 0.15 * abs((64, 128, 256, 512, 1024).index(c.get("BLOCK", 256)) - 2)
    time *= 1.0 + 0.10 * abs((1, 2, 4, 8).index(c.get("UNROLL", 4)) - 2)
    return time * (1.0 if c.get("order") != "waves" else 1.05)


@dataclass
class Judge:
    """delay: seconds of an evaluation. tally: a file that gets a line for each finished evaluation.

    faults: {how many of the first calls on each program: the fault they end in}.
    """

    delay: float = 0.0
    tally: Path | None = None
    fault: Fault | None = None
    faulty_calls: int = 0
    mark: str = "judge-1"
    calls: list[str] = field(default_factory=list)
    at_once: int = 0
    most_at_once: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def fingerprint(self) -> str:
        return self.mark

    def evaluate(self, program: Program) -> Evaluation:
        with self.lock:
            self.calls.append(program.key)
            self.at_once += 1
            self.most_at_once = max(self.most_at_once, self.at_once)
            faulty = self.calls.count(program.key) <= self.faulty_calls
        time.sleep(self.delay)
        with self.lock:
            self.at_once -= 1
        if faulty:
            return self._record(program, "unscorable", fault=self.fault, message="the machine broke")
        choices = json.loads(program.text)
        if choices.get("vector") == 8 and not choices.get("fuse"):
            return self._record(program, "wrong_value", fault="candidate", message="element 3: 1.5, expected 2")
        if self.tally is not None:
            with self.tally.open("a") as stream:
                stream.write(program.key + "\n")
        vector, block = choices.get("vector", 4), choices.get("BLOCK", 256)
        features = {"memory_level": vector / 8, "compute_level": block / 1024, "parallelism_level": 0.5}
        return self._record(program, "pass", score=round(microseconds(choices), 6), features=features)

    def _record(self, program: Program, status: Any, **more: Any) -> Evaluation:
        kind: Any = "estimate" if status == "pass" else "none"
        return Evaluation(
            task=TASK.key,
            program=program.key,
            status=status,
            score_kind=kind,
            seconds=time.perf_counter() % 1,
            environment=f"process {os.getpid()}",
            coverage=1.0,
            **more,
        )


def begin(
    archive: Archive,
    judge: Judge | None = None,
    *,
    policy: str = "islands",
    budget: int = 24,
    seed: int = 7,
    settings: dict[str, Any] | None = None,
    **options: Any,
) -> SearchResult:
    options.setdefault("source", source())
    plan = new_run(TASK, TARGETS, budget=budget, policy_name=policy, seed=seed, settings=settings)
    return run(archive, plan, TASK, evaluator=judge or Judge(), **options)


def go_on(archive: Archive, judge: Judge | None = None, name: str = "latest", **options: Any) -> SearchResult:
    options.setdefault("source", source())
    return resume(archive, name, TASK, evaluator=judge or Judge(), **options)


def plan(**more: Any) -> Run:
    return new_run(TASK, TARGETS, **{"budget": 8, "seed": 1, **more})


def canonical(archive: Archive) -> str:
    """The canonical export of the latest run."""
    return export(archive, "latest", canonical=True)
