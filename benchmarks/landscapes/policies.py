"""Search policies and roles compared at equal budget on measured landscapes, without a GPU.

    python -m benchmarks policies FILE --out DIR [--seeds N] [--budget N] [--workers N] [--arms A,A] [--policy P]...
    [--pipeline-by P]... [--json]

FILE is what `python -m benchmarks landscape` wrote. Every arm searches every landscape with every seed; a program that
it proposes is looked up. An arm is a policy with the engine's bare operators (best-of-n, islands, ...), the first
program alone (single-shot), or the pipeline, with and without its roles. Ratios are to islands'. DIR gets
policies.json, policies.csv (the best over the best there is after each evaluation, for each arm) and policies.svg.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from math import inf, log
from multiprocessing import get_context
from pathlib import Path
from statistics import fmean

from benchmarks.common import positive, require_files
from benchmarks.landscapes.picture import curves
from benchmarks.landscapes.replay import Landscape, landscapes, replayed_all
from hipwright.agents.ablation.arms import (
    BEST_OF_N,
    PIPELINE,
    PLAIN,
    SINGLE_SHOT,
    Arm,
    ArmOutcome,
    ArmRow,
    mean_ratio,
    table,
)
from hipwright.api.files import prepare_folder
from hipwright.errors import BadInput
from hipwright.records import Record
from hipwright.search import POLICIES

ARMS = (SINGLE_SHOT, BEST_OF_N, PLAIN, PIPELINE)
REFERENCE = "islands"
"""The arm that others are compared with: the default policy."""
ROLES = ("screener", "failure_memory")
"""The pipeline's roles that work without an archive, counters and models."""
PACKAGES = {"optuna_tpe": "optuna", "optuna_nsga2": "optuna", "pyribs": "ribs"}
PLACES = (4, 8, 16, 32, 60)
"""The evaluations after which the table shows the curves."""
LEAST = 1.01
"""A landscape whose default is within this factor of its best has nothing to find, and no share of it."""


class Gain(Record, frozen=True, kw_only=True):
    """What an arm found over the default, and how soon.

    ratio: default's time over the best's, geometric mean, with its 95 % interval; share: of the logarithm of the gain
    that the landscape has, over the landscapes that have one. on_the_way: the best after each evaluation over the
    reference's after as many, geometric mean over all evaluations (below 1 is better), with its 95 % interval.
    """

    arm: str
    on_the_way: float | None
    on_the_way_interval: tuple[float, float] | None
    ratio: float | None
    interval: tuple[float, float] | None
    share: float | None


class Comparison(Record, frozen=True, kw_only=True):
    """The whole comparison. landscapes: {task: {"programs", "default", "best"}}, microseconds; measured_on: devices."""

    budget: int
    seeds: int
    reference: str
    landscapes: dict[str, dict[str, float]]
    measured_on: tuple[str, ...]
    rows: tuple[ArmRow, ...]
    gains: tuple[Gain, ...]
    outcomes: tuple[ArmOutcome, ...]


def add_options(options: argparse.ArgumentParser) -> None:
    """Adds the command's options."""
    options.add_argument("file", type=Path)
    options.add_argument("--seeds", type=positive, default=10)
    options.add_argument("--budget", type=positive, default=60)
    options.add_argument("--out", type=Path, required=True)
    options.add_argument("--arms", default=",".join(ARMS), help=f"of {','.join(ARMS)}")
    options.add_argument("--policy", action="append", default=[], help="the policies of plain arms: all without it")
    options.add_argument("--pipeline-by", action="append", default=[], help="adds the pipeline by this policy")
    options.add_argument("--workers", type=positive, default=len(os.sched_getaffinity(0)))
    options.add_argument("--json", action="store_true", help="print the comparison as JSON, without the outcomes")


def run(options: argparse.Namespace) -> int:
    """0 when the comparison is written."""
    require_files([options.file], hint="python -m benchmarks landscape measures landscapes")
    prepare_folder(options.out)
    found = landscapes(options.file)
    arms = chosen_arms(options.arms.split(","), options.policy, options.pipeline_by)
    comparison = compared(found, arms, options.seeds, options.budget, options.workers)
    (options.out / "policies.json").write_text(json.dumps(comparison.to_dict()) + "\n")
    (options.out / "policies.csv").write_text(csv(comparison))
    (options.out / "policies.svg").write_text(curves(comparison.rows, comparison.reference))
    short = {key: value for key, value in comparison.to_dict().items() if key != "outcomes"}
    print(json.dumps(short) if options.json else markdown(comparison))
    return 0


def chosen_arms(names: Sequence[str], policies: Sequence[str], pipeline_by: Sequence[str]) -> list[Arm]:
    """The arms by name; islands, the reference, is always one. Raises BadInput for an unknown name."""
    if wrong := [name for name in names if name not in ARMS]:
        raise BadInput(f"unknown arm {wrong[0]!r}", hint=f"arms: {', '.join(ARMS)}")
    if wrong := [name for name in (*policies, *pipeline_by) if name not in POLICIES]:
        raise BadInput(f"unknown policy {wrong[0]!r}", hint=f"policies: {', '.join(POLICIES)}")
    arms = [Arm(name=REFERENCE, kind="plain", policy=REFERENCE)]
    if SINGLE_SHOT in names:
        arms.append(Arm(name=SINGLE_SHOT, kind="single-shot", policy="best_of_n"))
    if BEST_OF_N in names:
        arms.append(Arm(name=BEST_OF_N, kind="best-of-n", policy="best_of_n"))
    if PLAIN in names:
        others = [name for name in policies or installed() if name not in ("best_of_n", REFERENCE)]
        arms += [Arm(name=name, kind="plain", policy=name) for name in others]
    if PIPELINE in names:
        arms.append(Arm(name=PIPELINE, kind="pipeline", policy=REFERENCE))
        arms += [Arm(name=f"{PIPELINE} without {r}", kind="pipeline", policy=REFERENCE, without=(r,)) for r in ROLES]
    return arms + [Arm(name=f"{PIPELINE} by {name}", kind="pipeline", policy=name) for name in pipeline_by]


def installed() -> list[str]:
    """The policies whose packages are here."""
    from importlib.util import find_spec

    return [name for name in POLICIES if name not in PACKAGES or find_spec(PACKAGES[name]) is not None]


def compared(found: Sequence[Landscape], arms: Sequence[Arm], seeds: int, budget: int, workers: int = 1) -> Comparison:
    """Replays every arm with every seed on every landscape, `workers` processes side by side."""
    outcomes = _outcomes(found, arms, seeds, budget, workers)
    names = [arm.name for arm in arms]
    best = {one.name: one.best for one in found}
    return Comparison(
        budget=budget,
        seeds=seeds,
        reference=REFERENCE,
        landscapes={
            one.name: {"programs": len(one.entries), "default": one.default, "best": one.best} for one in found
        },
        measured_on=tuple(sorted({one.device for one in found})),
        rows=tuple(table(outcomes, names, REFERENCE, known=best)),
        gains=tuple(_gain(name, outcomes, found) for name in names),
        outcomes=tuple(outcomes),
    )


def _outcomes(
    found: Sequence[Landscape], arms: Sequence[Arm], seeds: int, budget: int, workers: int
) -> list[ArmOutcome]:
    asked = [(one, [arm], seeds, budget) for one in found for arm in arms]
    if workers == 1:
        return [outcome for each in asked for outcome in replayed_all(*each)]
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        runs = pool.map(replayed_all, *zip(*asked, strict=True), chunksize=2)
        return [outcome for each in runs for outcome in each]


def _gain(name: str, outcomes: Sequence[ArmOutcome], found: Sequence[Landscape]) -> Gain:
    by_name = {one.name: one for one in found}
    reference = {(one.task, one.seed): one for one in outcomes if one.arm == REFERENCE}
    logs: dict[str, list[float]] = {}
    shares: dict[str, list[float]] = {}
    ways: dict[str, list[float]] = {}
    for one in outcomes:
        landscape = by_name[one.task]
        if one.arm != name or one.best is None:
            continue
        logs.setdefault(one.task, []).append(log(landscape.default / one.best))
        ways.setdefault(one.task, []).append(_on_the_way(one, reference[one.task, one.seed]))
        if landscape.default > LEAST * landscape.best:
            there = log(landscape.default / landscape.best)
            shares.setdefault(one.task, []).append(logs[one.task][-1] / there)
    ratio, interval = mean_ratio(logs, 0)
    way, way_interval = mean_ratio(ways, 0)
    share, _ = mean_ratio(shares, 0)
    return Gain(
        arm=name,
        ratio=ratio,
        interval=interval,
        share=None if share is None else log(share),
        on_the_way=way,
        on_the_way_interval=way_interval,
    )


def _on_the_way(one: ArmOutcome, reference: ArmOutcome) -> float:
    """The mean logarithm of the best over the reference's, over the evaluations after which both have one."""
    both = [log(a / b) for a, b in zip(one.curve, reference.curve, strict=True) if a is not None and b is not None]
    return fmean(both) if both else 0.0


def csv(comparison: Comparison) -> str:
    """One line an arm: the geometric mean of the best over the best there is, after 1, 2, ... evaluations."""
    lines = [["arm", *map(str, range(1, comparison.budget + 1))]]
    lines += [[row.arm, *("" if v is None else f"{v:.4f}" for v in row.excess)] for row in comparison.rows]
    return "".join(",".join(line) + "\n" for line in lines)


def markdown(comparison: Comparison) -> str:
    """The table, the arm first that is best on the way."""
    places = [n for n in PLACES if n <= comparison.budget] or [comparison.budget]
    ratios = ["on the way", "95 %", "at the end", "95 %"]
    heads = ["arm", *ratios, "gain", "95 %", "share", "within 5 %", "after", *(f"at {n}" for n in places), "failed"]
    gains = {one.arm: one for one in comparison.gains}
    rows = sorted(comparison.rows, key=lambda row: gains[row.arm].on_the_way or inf)
    count = f"{len(comparison.landscapes)} landscapes x {comparison.seeds} seeds, {comparison.budget} evaluations each"
    title = f"{count}, times of {', '.join(comparison.measured_on)}; ratios are to {comparison.reference}"
    lines = [title, "", _line(heads), "|" + "---|" * len(heads)]
    return "\n".join([*lines, *(_line(_cells(row, gains[row.arm], places)) for row in rows)])


def _cells(row: ArmRow, gain: Gain, places: Sequence[int]) -> list[str]:
    return [
        row.arm,
        _number(gain.on_the_way),
        _range(gain.on_the_way_interval),
        _number(row.ratio),
        _range(row.interval),
        _number(gain.ratio),
        _range(gain.interval),
        "-" if gain.share is None else f"{100 * gain.share:.0f} %",
        f"{row.reached} of {row.runs}",
        "never" if row.after is None else f"{row.after:g}",
        *(_number(row.excess[n - 1]) for n in places),
        str(row.failed),
    ]


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _range(interval: tuple[float, float] | None) -> str:
    return "" if interval is None else f"{interval[0]:.3f} to {interval[1]:.3f}"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"
