"""Archives for the tests of `hipwright view`: a run with every outcome, of text that may be hostile, and a long one."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from hipwright.archive import Archive, LogEntry
from hipwright.records import Decision, Evaluation, Expansion, Program, Run, TargetResult, Task, Workload
from tests.report.report_sample import HIP, PLAN, SOURCE, evaluation, measured

TARGETS = ("gfx942", "gfx950", "cuda", "cpu")
HEADER = "// rms, silu: a block a row\n"


def program(number: int, text: str = "") -> Program:
    """The program of a proposal: the sample's kernel, another line in each."""
    kernel = HIP.replace('extern "C"', HEADER + 'extern "C"')
    body = f"HIP = r'''{kernel}// version {number}\n{text.replace(chr(39), '')}'''\n{PLAN}"
    return Program(text=body, knobs={"BLOCK": 64 << number % 4})


def sample_archive(home: Path, text: str = "", *, run: str = "r1", proposals: int = 12, finished: bool = True) -> Run:
    """Writes one run; `text` is in every free string of it. Every fourth proposal is refused, the last one fails."""
    task = Task(name="rms" + text, source=SOURCE + text, workloads=(Workload(name="given"),), provenance="s" + text)
    plan = Run(id=run, task=task.key, targets=TARGETS, budget=proposals + 4, policy="islands", seed=7)
    with Archive(home) as archive:
        archive.begin_run(plan, {"task_name": task.name}, records=[task])
        best = float("inf")
        for number in range(proposals):
            entries, made, score = _proposal(task, number, text, best)
            best = min(best, score)
            archive.append_all(run, entries, records=[made])
        if finished and proposals > 1:
            key = program(proposals - 2, text).key
            archive.append(run, "finished", -1, {"reason": "budget" + text, "best": key, "number": proposals - 2})
    return plan


def _proposal(task: Task, number: int, text: str, best: float) -> tuple[list[LogEntry], Program, float]:
    made, passed = program(number, text), number % 4 != 3
    found = _evaluation(task, made, number, text, passed)
    score = found.score if found.score is not None else float("inf")
    parents = (program((number - 1) // 4 * 4, text).key,) if number else ()
    expansion = Expansion(number=number, operator="mutate" + text, parents=parents, action={"why": text})
    decision = Decision(number=number, program=made.key, kept=passed, best=score < best, reason="it is so" + text)
    notes = {"author": "llm", "role": "optimizer" + text, "model": "m" + text} if number % 2 else {"author": "engine"}
    proposed = {"expansion": expansion.to_dict(), "round": number, "program": made.key, "notes": notes}
    entries = [
        LogEntry("proposed", number, proposed),
        LogEntry("evaluated", number, {"evaluation": found.to_dict()}),
        LogEntry("decided", number, decision.to_dict()),
    ]
    return entries, made, score


def _evaluation(task: Task, made: Program, number: int, text: str, passed: bool) -> Evaluation:
    found = evaluation(task, made, text, passed)
    targets = {**found.targets, "cuda": _measured(60.0 - number, text)}
    for target in ("gfx942",):
        estimate = targets[target].estimate
        assert estimate is not None
        row: dict[str, Any] = {**estimate.detail[0], "issue_seconds": 1e-6, "memory_seconds": 2e-6}
        targets[target] = msgspec.structs.replace(
            targets[target], estimate=msgspec.structs.replace(estimate, detail=(row,))
        )
    axes = {"memory_level": number / 13, "compute_level": 0.3, "parallelism_level": 0.6}
    score = 60.0 - number if passed else None
    kind: Any = "measured" if passed else "none"
    return msgspec.structs.replace(found, targets=targets, features=axes, score=score, score_kind=kind)


def _measured(microseconds: float, text: str) -> TargetResult:
    """The sample's timing, of a program that takes so long."""
    found = measured(text)
    assert found.timing is not None
    scale = microseconds / 1e3 / found.timing.median_ms
    versus = {
        name: msgspec.structs.replace(one, samples_ms=tuple(scale * ms for ms in one.samples_ms))
        for name, one in found.timing.versus.items()
    }
    return msgspec.structs.replace(found, timing=msgspec.structs.replace(found.timing, versus=versus))


def long_archive(home: Path, *, proposals: int = 3333, run: str = "long") -> Run:
    """A run of three events a proposal, 10,000 without further arguments, as a search with estimates writes them."""
    task = Task(name="long", source=SOURCE, workloads=(Workload(name="given"),))
    plan = Run(id=run, task=task.key, targets=("gfx942", "cpu"), budget=proposals, policy="islands", seed=1)
    draw = random.Random(5)
    with Archive(home) as archive:
        archive.begin_run(plan, {"task_name": "long"}, records=[task])
        best, entries, records = 100.0, list[LogEntry](), list[Program]()
        for number in range(proposals):
            made, passed = program(number), draw.random() > 0.2
            score = round(100.0 * draw.uniform(0.6, 1.3) * (1 - number / (2 * proposals)), 3) if passed else None
            found = _evaluation(task, made, number % 13, "", passed)
            targets = {name: found.targets[name] for name in ("gfx942", "cpu")}
            kind: Any = "estimate" if passed else "none"
            found = msgspec.structs.replace(found, targets=targets, score=score, score_kind=kind)
            better = score is not None and score < best
            best = score if better and score is not None else best
            parents = (program(draw.randrange(max(0, number - 20), number)).key,) if number else ()
            entries += _events(number, made, parents, found, better)
            records.append(made)
        archive.append_all(run, entries, records=records)
    return plan


def _events(number: int, made: Program, parents: Sequence[str], found: Evaluation, best: bool) -> list[LogEntry]:
    expansion = Expansion(number=number, operator="mutate", parents=tuple(parents))
    decision = Decision(number=number, program=made.key, kept=found.passed, best=best, reason="drawn")
    return [
        LogEntry("proposed", number, {"expansion": expansion.to_dict(), "round": number, "program": made.key}),
        LogEntry("evaluated", number, {"evaluation": found.to_dict()}),
        LogEntry("decided", number, decision.to_dict()),
    ]
