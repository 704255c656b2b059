"""One task's landscape: one change of each choice at a time, then every program of the product of those that matter."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from benchmarks.common import relative
from benchmarks.landscapes.product import Product, TimedKey, chosen_product, closed_part, combinations, timed_key
from benchmarks.landscapes.programs import TaskPrograms
from benchmarks.timing.runner import ProgramRunner
from benchmarks.timing.sides import OFF, ROUNDS, TimedSides
from benchmarks.timing.variants import Settings
from hipwright.capture.graph import Graph
from hipwright.errors import BadInput
from hipwright.evaluation.features import features
from hipwright.records import Build, Program

FEW = 5
"""Rounds of the first timing, by which keys and options are chosen."""
SLOW = 5.0
"""Options that take longer than so many of the default's times are left out: they cost most of the time."""
Us = dict[str, float]


@dataclass(frozen=True)
class Limits:
    """Limits of one landscape: distinct programs, options of a key, rounds, seconds; whether the compiler is timed."""

    programs: int = 96
    options: int = 4
    rounds: int = ROUNDS
    seconds: float = 20.0
    compiled: bool = False


class LandscapeTimer:
    """Times programs of one task until a moment of the monotonic clock.

    Programs are named as in TaskPrograms; what is no side of `timed` was refused, or not reached in time.
    """

    def __init__(self, runner: ProgramRunner, path: Path, graph: Graph, limits: Limits) -> None:
        self.start = time.monotonic()
        self.limits = limits
        self.programs = TaskPrograms(graph, runner.base_choices())
        self.timed = TimedSides(runner, path, compiled=limits.compiled)
        self.baselines = list(self.timed.sides)
        self.features: dict[str, dict[str, float]] = {}
        self._seen: dict[str, None] = {}
        self.opened = self.spent

    @property
    def spent(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self.start

    @property
    def sides(self) -> list[str]:
        """The programs that can be timed."""
        return [name for name in self._seen if name in self.timed.sides]

    def add(self, settings: Iterable[Settings], until: float) -> None:
        """Builds the new programs of some settings side by side and adds them. until: seconds since the start; what is
        later than that is left out. Raises BadInput where the default does not run."""
        pool = ThreadPoolExecutor(os.cpu_count() or 2)
        try:
            builds: dict[str, tuple[Program, Future[Build]]] = {}
            for one in settings:
                name = self.programs.name(one)
                if not (self.known(name) or name in builds):
                    program = self.programs.program(one)
                    builds[name] = program, pool.submit(self.timed.runner.build, program)
            for name, (program, build) in builds.items():
                if self.spent > until and "default" in self._seen:
                    break
                self._try(name, program, build.result())
                self._seen[name] = None
        finally:
            pool.shutdown(cancel_futures=True)
        if "default" not in self.timed.sides:
            raise BadInput(f"the engine's own choices do not run: {self.timed.refused['default']}")

    def _try(self, name: str, program: Program, build: Build) -> None:
        """Adds a program with what a search's grids read of its evaluation; where torch fails, it is refused."""
        timed = self.timed
        try:
            timed.add(name, program, build)
            if name in timed.sides:
                launches = timed.runner.launches(program, build, timed.state, timed.slots[0])
                self.features[name] = features([build], launches, [])
        except RuntimeError as error:  # no memory, say; all others would fail where the context is lost
            if lost(timed.runner):
                raise
            timed.sides.pop(name, None)
            timed.refused[name] = str(error).splitlines()[0][:160]

    def known(self, name: str) -> bool:
        """Whether a program has a time to come or was refused."""
        return name in self._seen or name in self.programs.refused

    def right(self, us: Mapping[str, float]) -> Us:
        """The times of programs whose results are eager's."""
        return {name: one for name, one in us.items() if self.timed.off.get(name, 0.0) <= OFF}

    def times(self, names: Sequence[str], rounds: int) -> Us:
        """Medians of microseconds."""
        return {name: us for name, (us, _) in self.timed.times(names, rounds).items()}


def landscape(runner: ProgramRunner, path: Path, graph: Graph, limits: Limits) -> dict[str, Any]:
    """The landscape of one task, a row of JSON (docs/ablation.md). Raises BadInput where the default does not run, or
    where no option changes the program."""
    timer = LandscapeTimer(runner, path, graph, limits)
    keys = _timed_keys(timer)
    known = len(timer.sides)
    each = (timer.spent - timer.opened) / known  # seconds to write, build, check and time a program in few rounds
    room = known // 2 + int(0.8 * max(limits.seconds - timer.spent, 0.0) / each)
    programs = timer.programs
    most = max(2, min(limits.programs, room))

    def count(product: Product) -> int:  # where writing alone takes long, the product grows no more
        return len(_names(programs, product)) if timer.spent < 0.7 * limits.seconds else most + 1

    asked = chosen_product(keys, most, count)
    timer.add([programs.settings(one) for one in combinations(asked)], limits.seconds)
    product = closed_part(asked, lambda one: timer.known(programs.name(programs.settings(one))))
    if not product:
        raise BadInput("no other option of the engine's space was timed", hint="more --task-seconds")
    return _row(timer, path, product, sum(map(len, asked.values())) - sum(map(len, product.values())))


def lost(runner: ProgramRunner) -> bool:
    """Whether nothing more can run on the GPU in this process."""
    if runner.device.type == "cpu":
        return False
    try:
        torch.cuda.synchronize(runner.device)
    except RuntimeError:
        return True
    return False


def _timed_keys(timer: LandscapeTimer) -> list[TimedKey]:
    """Every key that changes the default program, with the times of its options."""
    limits, programs = timer.limits, timer.programs
    singles = _single_changes(programs)
    timer.add(singles, 0.5 * limits.seconds)
    us = timer.times(timer.sides, FEW)
    right = {name: one for name, one in timer.right(us).items() if one <= SLOW * us["default"]}
    keys = []
    for key, choice in programs.space.items():
        names = {option: programs.name(programs.settings({key: option})) for option in choice.options}
        acting = {o: name for o, name in names.items() if o == choice.default or name != "default"}
        times = {option: right[name] for option, name in acting.items() if name in right}
        keys.append(timed_key(key, choice.default, times, limits.options))
    return [key for key in keys if key is not None]


def _single_changes(programs: TaskPrograms) -> list[Settings]:
    """The default and one other option of each key: the first of every key before the second ones."""
    others = {key: [o for o in one.options if o != one.default] for key, one in programs.space.items()}
    turns = itertools.zip_longest(*([{key: option} for option in options] for key, options in others.items()))
    return [{}, *(one for turn in turns for one in turn if one is not None)]


def _names(programs: TaskPrograms, product: Product) -> dict[str, None]:
    """The distinct programs of a product."""
    return dict.fromkeys(programs.name(programs.settings(one)) for one in combinations(product))


def _row(timer: LandscapeTimer, path: Path, product: Product, dropped: int) -> dict[str, Any]:
    """The final timing of a product, with all that a replay needs."""
    programs, limits, timed = timer.programs, timer.limits, timer.timed
    names = [*timer.baselines, *(name for name in _names(programs, product) if name in timed.sides)]
    begun = timer.spent
    timer.times(names, 1)
    round_seconds = max(timer.spent - begun, 1e-6)
    rounds = min(limits.rounds, max(FEW, int((limits.seconds - timer.spent) / round_seconds)))
    us = timer.times(names, rounds)
    rows = []
    numbers = {name: number for number, name in enumerate(_names(programs, product))}
    for one in combinations(product):
        name = programs.name(programs.settings(one))
        refused = timed.refused.get(name) or programs.refused.get(name)
        off = timed.off.get(name)
        row = {"settings": one, "program": numbers[name], "us": us.get(name), "refused": refused}
        if off is not None and not off <= OFF:
            row["off"] = off
        rows.append({key: value for key, value in row.items() if value is not None})
    on_gpu = timed.runner.device.type == "cuda"
    return {
        "task": relative(path),
        "keys": {key: _key(programs, key, options) for key, options in product.items()},
        "rows": rows,
        "features": [timer.features.get(name, {}) for name in numbers],
        "programs": len(names) - len(timer.baselines),
        "dropped_options": dropped,
        "baselines": {name: us[name] for name in timer.baselines},
        "copy_share": us["copy"] / us["default"],
        "rounds": rounds,
        "slots": timed.count,
        "target": timed.runner.target,
        "gpu": torch.cuda.get_device_name(timed.runner.device) if on_gpu else "",
        "torch": torch.__version__,
        "seconds": round(timer.spent, 2),
    }


def _key(programs: TaskPrograms, key: str, options: Sequence[Any]) -> dict[str, Any]:
    """A key's kept options in the space's order, its default and its kind."""
    choice = programs.space[key]
    kept = [option for option in choice.options if option in options]
    return {"options": kept, "default": choice.default, "kind": choice.kind}
