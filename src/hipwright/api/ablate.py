"""Ablations: the effect of each role, arm or policy of a search, at equal budget (docs/ablation.md)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from hipwright.agents.ablation import run as work
from hipwright.agents.ablation.arms import Ablation, arms, csv
from hipwright.agents.ablation.run import AblationPlan, Opened
from hipwright.api import models
from hipwright.api.models import ModelOptions
from hipwright.api.optimize import policy_name
from hipwright.api.runs.counters import counters_setting, run_counters
from hipwright.api.task_engine import task_engine
from hipwright.archive import Archive
from hipwright.errors import BadInput
from hipwright.events import Listener, silent
from hipwright.machine import Machine, machine
from hipwright.records import Run, Task
from hipwright.search import EngineSource, ProposalSource

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
    workers: int = 1,
    counters: str | None = None,
    options: ModelOptions | None = None,
    listener: Listener = silent,
) -> AblationPlan:
    """The comparison to run. tasks: files, or folders of them. names: of the arms. without: roles, each of whose
    absence is an arm. fill: evaluations a task before any arm. workers: tasks at a time. counters: on,
    off or auto, of the arms with roles.
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


def run_ablation(plan: AblationPlan, *, unsafe: bool = False) -> Ablation:
    """Searches every task by every arm, and writes ablation.json and ablation.csv into the plan's folder.

    Ctrl-C keeps all evaluations; the same call continues.
    """
    with machine(plan.targets, unsafe=unsafe) as made:
        found = work.ablate(plan, partial(_open, made))
    (plan.out / "ablation.json").write_text(json.dumps(found.to_dict(), indent=1) + "\n", encoding="utf-8")
    (plan.out / "ablation.csv").write_text(csv(found), encoding="utf-8")
    return found


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
