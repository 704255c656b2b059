"""Planted faults of the engine: whether a run of one evaluation still ends with a verified program. Needs no GPU.

    python -m benchmarks planted-faults [--each 3] [--only FAMILY] [--json]

For every family of templates a task is written by the engine as if one of its kernels had a fault: a wrong bound, a
missing barrier, a value in a shorter format, and so on. The fault is in every program that holds the kernel. The
table has what the run gave up; the exit code is 1 where a run ended without a verified program, or named nothing.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.common import ROOT
from hipwright.api.task_engine import TaskEngine, task_engine
from hipwright.archive import Archive, show
from hipwright.audit.evolve.registry import KINDS
from hipwright.audit.evolve.subject import Edit, Subject, apply
from hipwright.engine import write
from hipwright.events import silent
from hipwright.machine import Workbench, machine
from hipwright.program import parse
from hipwright.records import Program
from hipwright.search import EngineSource, new_run
from hipwright.search import run as run_search

FAMILIES = {
    "pointwise": "examples/bias_gelu.py",
    "rows": "examples/layernorm_residual.py",
    "softmax": "examples/causal_softmax.py",
    "columns": "examples/batchnorm_train.py",
    "scan": "examples/cumsum_gate.py",
    "gemm": "examples/mlp_gelu.py",
    "conv": "examples/small_cnn.py",
    "attention": "examples/sdpa_block.py",
    "scatter": "examples/bucket_codes.py",
    "select": "examples/topk_routing.py",
    "recurrent": "examples/gru_classifier.py",
    "packed": "examples/scale_shift_clamp_fp16.py",
}
BOUNDS = ("changed bound", "skipped tail", "off by one", "skipped block", "wrong step")
BARRIERS = ("dropped barrier", "barrier in a branch", "shuffle distance", "32 lanes assumed", "skipped thread")
DTYPES = (
    "narrowed result",
    "narrowed accumulator",
    "narrowed load",
    "rounded sum",
    "relative error",
    "wrong element",
    "swapped operator",
    "changed constant",
)
TRIES = 12
"""Faults drawn of a group until the verifier refuses one: the others change nothing, or are not in what runs."""


@dataclass(frozen=True)
class PlantedFault:
    """A function of the engine's program, and the same with a fault."""

    kind: str
    before: str
    after: str

    def into(self, program: Program) -> Program:
        """The program with the fault, where it holds the function."""
        return Program(text=program.text.replace(self.before, self.after), knobs=program.knobs)


@dataclass(frozen=True)
class Survived:
    """One planted fault and how the run ended."""

    family: str
    kind: str
    refused: str
    passed: bool
    given_up: tuple[str, ...]
    evaluations: int
    seconds: float

    @property
    def fine(self) -> bool:
        """Whether the run ended with a verified program and said what it gave up."""
        return self.passed and bool(self.given_up)


def planted(program: Program, kinds: tuple[str, ...], rng: random.Random) -> Iterator[PlantedFault]:
    """Faults of some kinds, each in one device function."""
    subject = Subject.of(program.text)
    found = [
        (name, fault)
        for name in kinds
        for fault in KINDS[name].faults(subject)
        if fault.function is not None
        and all(fault.function.begin <= e.start <= fault.function.end for e in fault.edits)
    ]
    rng.shuffle(found)
    for name, fault in found:
        function = fault.function
        assert function is not None
        moved = [Edit(e.start - function.begin, e.end - function.begin, e.text) for e in fault.edits]
        before = program.text[function.begin : function.end]
        yield PlantedFault(name, before, apply(before, moved))


def faulty_source(engine: TaskEngine, fault: PlantedFault) -> EngineSource:
    """The engine's source, whose programs have the fault."""

    def wrong(choices: Mapping[str, Any]) -> Program:
        return fault.into(write(engine.graph, choices))

    return EngineSource(engine.source.space, wrong, engine.source.fallback)


def survive(bench: Workbench, family: str, kinds: tuple[str, ...], home: Path, seed: int) -> Survived | None:
    """Plants a fault that the verifier refuses, and runs a search of one evaluation; None where none is refused."""
    engine = task_engine(bench)
    program = engine.default()
    rng = random.Random(f"{family}/{kinds}/{seed}")
    for fault, _ in zip(planted(program, kinds, rng), range(TRIES), strict=False):
        parse(fault.into(program).text)
        first = bench.evaluator.evaluate(fault.into(program), timed=False)
        if first.passed:
            continue
        start = time.perf_counter()
        with Archive(home) as archive:
            plan = new_run(bench.handle.task, ("cpu",), budget=1, seed=seed)
            source = faulty_source(engine, fault)
            found = run_search(archive, plan, bench.handle.task, evaluator=bench.evaluator, source=source)
            best = next((t for t in show(archive, found.run).trials if t.number == found.number), None)
        given_up = tuple(str(best.choices.get("given_up", "")).split(",")) if best is not None else ()
        passed = found.evaluation is not None and found.evaluation.passed
        spent = round(time.perf_counter() - start, 1)
        refused = f"{first.status}: {first.message}"[:120]
        return Survived(family, fault.kind, refused, passed, given_up, found.evaluations, spent)
    return None


def add_options(options: argparse.ArgumentParser) -> None:
    """Adds the command's options."""
    options.add_argument("--each", type=int, default=3, choices=(1, 2, 3), help="faults for each family")
    options.add_argument("--only", choices=sorted(FAMILIES), help="one family")
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--json", action="store_true")


def run(options: argparse.Namespace) -> int:
    """Plants the faults and prints a line for each."""
    results: list[Survived] = []
    say: Callable[[str], None] = (lambda text: None) if options.json else partial(print, flush=True)
    with TemporaryDirectory() as folder, machine(("cpu",), unsafe=False, cache=Path(folder) / "builds") as made:
        for family, task in FAMILIES.items():
            if options.only not in (None, family):
                continue
            with made.open(ROOT / task, seed=options.seed + 1, listener=silent) as bench:
                for kinds in (BOUNDS, BARRIERS, DTYPES)[: options.each]:
                    one = survive(bench, family, kinds, Path(folder) / "archive", options.seed)
                    if one is None:
                        say(f"{family:10} no fault of {', '.join(kinds)} is refused")
                        continue
                    results.append(one)
                    ending = f"gave up {', '.join(one.given_up)}" if one.passed else "NO PROGRAM"
                    say(f"{family:10} {one.kind:20} {one.refused[:60]:60} {ending} ({one.seconds} s)")
    fine = sum(one.fine for one in results)
    if options.json:
        print(json.dumps({"survived": fine, "planted": len(results), "rows": [asdict(one) for one in results]}))
    say(f"{fine} of {len(results)} planted faults survived")
    return 0 if results and fine == len(results) else 1
