"""Ablations: the effect of each role, arm or policy of a search, at equal budget (docs/ablation.md)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace as replaced
from functools import partial
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from hipwright.agents.ablation import run as work
from hipwright.agents.ablation.arms import Ablation, arms, csv
from hipwright.agents.ablation.run import AblationPlan, Opened
from hipwright.api import models
from hipwright.api.fleet.choice import FleetChoice, away
from hipwright.api.fleet.machine import fleet_machine
from hipwright.api.models import ModelOptions
from hipwright.api.optimize import policy_name
from hipwright.api.runs.counters import check_far_counters, counters_setting, run_counters
from hipwright.api.task_engine import task_engine
from hipwright.archive import Archive
from hipwright.errors import BadInput, FleetAway
from hipwright.events import Listener, silent
from hipwright.machine import Machine, machine
from hipwright.records import Run, Task
from hipwright.search import EngineSource, ProposalSource
from hipwright.search.loop import ROUND

ARMS = "single-shot,best-of-n,pipeline"
SEED = 0  # of the verification inputs, the same for every arm, so that arms share cached evaluations


def ablation_plan(
    tasks: Sequence[Path],
    targets: tuple[str, ...],
    out: Path,
    *,
    names: Sequence[str] = tuple(ARMS.split(",")),
    without: Sequence[str] = (),
    policies: Sequence[str] = (),
    reference: str = "pipeline",
    budget: int = 12,
    seeds: int = 2,
    fill: int = 6,
    workers: int | None = None,
    counters: str | None = None,
    options: ModelOptions | None = None,
    listener: Listener = silent,
) -> AblationPlan:
    """The comparison to run. tasks: files, or folders of them. names: of the arms. without: roles, each of whose
    absence is an arm. fill: evaluations a task before any arm. workers: tasks at a time, None for one, or as many as a
    fleet has seats. counters: on, off or auto, of the arms with roles.
    BadInput for what does not exist."""
    models.check_options(ModelOptions(without=tuple(without)))
    return AblationPlan(
        tasks=task_files(tasks),
        arms=arms(list(names), list(without), [policy_name(name) or name for name in policies]),
        reference=reference,
        targets=targets,
        budget=budget,
        seeds=seeds,
        out=out,
        fill=fill,
        workers=workers,
        counters=counters_setting(counters, targets),
        listener=listener,
        **model_authors(options or ModelOptions()),
    )


def run_ablation(plan: AblationPlan, *, fleet: FleetChoice | None = None, unsafe: bool = False) -> Ablation:
    """Searches every task by every arm, and writes ablation.json and ablation.csv into the plan's folder.

    fleet: where programs are judged, None for this machine. Ctrl-C keeps all evaluations; the same call continues.
    """
    if not fleet:
        with machine(plan.targets, unsafe=unsafe) as made:
            found = work.ablate(plan, partial(_open, made))
    else:
        found = _ablate_on(fleet, plan, unsafe)
    (plan.out / "ablation.json").write_text(json.dumps(found.to_dict(), indent=1) + "\n", encoding="utf-8")
    (plan.out / "ablation.csv").write_text(csv(found), encoding="utf-8")
    return found


def _ablate_on(fleet: FleetChoice, plan: AblationPlan, unsafe: bool) -> Ablation:
    """As `run_ablation`, with programs judged in the seats of a fleet: a task a seat, where no number is asked for."""
    check_far_counters(plan.counters)
    with fleet_machine(fleet, plan.targets, unsafe=unsafe, listener=plan.listener) as made:
        tasks_at_a_time = plan.workers or min(made.seats, len(plan.tasks))
        try:
            return work.ablate(replaced(plan, workers=tasks_at_a_time, evaluations=ROUND), partial(_open, made))
        except FleetAway as error:
            raise away(error, "the same command") from error


def task_files(given: Sequence[Path]) -> list[Path]:
    """The task files, those of folders in order of their names. BadInput where there are none."""
    files = [file for path in given for file in (sorted(path.glob("*.py")) if path.is_dir() else [path])]
    if not files:
        raise BadInput("no task files", hint="name PyTorch task files, or folders of them")
    return files


def model_authors(options: ModelOptions) -> dict[str, Any]:
    """The fields of a plan that models add: their settings, and their proposal source. Empty without models."""
    if not options.llm:
        return {}

    @contextmanager
    def source(archive: Archive, run: Run, task: Task, engine: EngineSource) -> Iterator[ProposalSource]:
        # arms in which models write every program have "llm" off for the policy, but need the models
        settings = {**run.settings[models.SETTING], "llm": True}
        with_models = replace(run, settings={**run.settings, models.SETTING: settings})
        with models.proposal_source(archive, with_models, task, engine, listener=silent) as opened:
            yield opened

    return {"settings": models.check_options(options), "source": source}


@contextmanager
def _open(made: Machine, path: Path) -> Iterator[Opened]:
    with made.open(path, seed=SEED, listener=silent) as bench:
        counters = partial(run_counters, bench=bench, targets=made.targets)
        yield Opened(bench.handle.task, task_engine(bench).source, bench.evaluator, counters)
