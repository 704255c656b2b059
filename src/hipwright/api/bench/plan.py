"""The plan of a benchmark: its tasks, their candidates, and the key of each row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import hipwright
from hipwright.api.bench.models import MeasuredModels
from hipwright.api.bench.tasks import tasks_of
from hipwright.api.files import read_text
from hipwright.api.inputs import program_of
from hipwright.device import topology
from hipwright.device.gpu_info import GpuInfo
from hipwright.errors import BadInput
from hipwright.evaluation.bench import BenchRow, ModelSample, RowStore
from hipwright.evaluation.figures import BASELINES
from hipwright.evaluation.formats.base import BenchTask, CandidateFile
from hipwright.evaluation.suite import match_candidates
from hipwright.fleet.client import fleet_of
from hipwright.fleet.nodes import FleetPlace, choose_place
from hipwright.records import Program, content_key
from hipwright.targets import TARGETS

Mode = Literal["strict", "kernelbench"]
FIRST_ANSWER_COMPILE_S = 60.0
"""The limit of torch.compile where the engine's first answers are measured (`--budget 1`)."""


@dataclass(frozen=True)
class BenchRequest:
    """A benchmark to run. suite: a folder of tasks in any known format, one task's file, or a suite's file or name.
    form: the name of the folder's format, None to find it.

    candidates: a folder of programs named like their tasks; models: language models whose samples are judged; without
    both the engine searches with `budget` evaluations a task. gpus: "all" or numbers like "0,1". out: the folder of
    rows and programs; resume: continues in it. workers: tasks at a time, on each GPU or in all without one.
    compile_limit: seconds for a compiled baseline, 0 for any time; None for the default (`baseline_s`). baselines: what
    programs are timed against, eager first. imported: modules that all tasks import, which saves seconds a task.
    processes: that the workers of a GPU share, or all without one; None for one to every two workers.
    fleet: the address of a fleet that judges instead of this machine; place: which of its devices, "" for the only one.
    """

    suite: Path
    targets: tuple[str, ...]
    candidates: Path | None = None
    level: int | None = None
    form: str | None = None
    gpus: str = "all"
    mode: Mode = "strict"
    out: Path | None = None
    resume: bool = False
    budget: int = 8
    seed: int | None = None
    workers: int | None = None
    processes: int | None = None
    unsafe: bool = False
    compile_limit: float | None = None
    models: MeasuredModels | None = None
    baselines: tuple[str, ...] = BASELINES
    imported: tuple[str, ...] = ()
    fleet: str = ""
    place: str = ""

    @property
    def baseline_s(self) -> float:
        """Wall seconds in which torch.compile must give a task's baseline; 0: no limit of its own.

        A first answer is judged in seconds, and one baseline must not hold a worker for minutes.
        """
        first = self.budget == 1 and not self.programs_given
        return (FIRST_ANSWER_COMPILE_S if first else 0.0) if self.compile_limit is None else self.compile_limit

    @property
    def programs_given(self) -> bool:
        """Whether a row's program exists before it is judged; otherwise judging begins with a search."""
        return self.candidates is not None or (self.models is not None and self.models.agent == "single-shot")


@dataclass(frozen=True)
class BenchEntry:
    """One row to make. candidate: a file's name, a model's, "engine", or "" when there is none.

    program: None while it has not been written. asked: the cost of a model's answer, when known. problem: why
    a candidate's file is none.
    """

    task: BenchTask
    candidate: str
    sample: int
    key: str
    program: Program | None = None
    asked: ModelSample | None = None
    problem: str = ""

    @property
    def names(self) -> dict[str, Any]:
        """The fields of the row that identify it."""
        return {
            "key": self.key,
            "task": self.task.name,
            "level": self.task.level,
            "category": self.task.category,
            "candidate": self.candidate,
            "sample": self.sample,
            "form": self.program.form if self.program else "",
            "program": self.program.key if self.program else "",
        }


@dataclass
class BenchmarkRun:
    """A benchmark in progress: its entries in order, the rows so far, its GPUs, its tasks' format ("" without one),
    candidate files without a task, and where on a fleet it is judged.
    """

    request: BenchRequest
    entries: list[BenchEntry]
    store: RowStore
    gpus: list[GpuInfo]
    form: str = ""
    unmatched: list[Path] = field(default_factory=list)
    place: FleetPlace | None = None
    interrupted: bool = False

    @property
    def rows(self) -> list[BenchRow]:
        """The rows so far, in the order of the entries."""
        known = self.store.rows
        return [known[entry.key] for entry in self.entries if entry.key in known]


def plan_benchmark(request: BenchRequest) -> BenchmarkRun:
    """The entries of a benchmark and the rows of an earlier run. Raises BadInput for folders that cannot be used."""
    place = chosen_place(request)
    gpus = chosen_gpus(request) if place is None else []
    where = ",".join(sorted({gpu.name for gpu in gpus})) if place is None else place.name
    tasks = tasks_of(request.suite, request.level, request.form)
    matched = match_candidates(request.candidates, tasks) if request.candidates is not None else None
    entries = []
    for task in tasks:
        if task.problem:
            entries.append(BenchEntry(task, "", 0, _key(request, where, task, task.problem, "malformed task")))
            continue
        text = task.read()
        if request.models is not None:
            entries += _samples(request, request.models, where, task, text)
        elif matched is None:
            key = _key(request, where, task, text, f"engine budget {request.budget} seed {request.seed}")
            entries.append(BenchEntry(task, "engine", 0, key))
        else:
            entries += _candidates(request, where, task, text, matched.candidates.get(task.name, []))
    store = RowStore(request.out)
    if store.rows and not request.resume:
        raise BadInput(
            f"{request.out} already holds a benchmark", hint="--resume goes on with it, or choose another --out"
        )
    form = tasks[0].form if tasks else ""
    return BenchmarkRun(request, entries, store, gpus, form, matched.strangers if matched else [], place)


def chosen_place(request: BenchRequest) -> FleetPlace | None:
    """Where on the fleet the benchmark is judged; None without a fleet.

    Raises BadInput for what a fleet does not do, InfrastructureError where none answers.
    """
    if not request.fleet:
        if request.place:
            raise BadInput("--place chooses among the devices of a fleet", hint="--fleet ADDRESS")
        return None
    if request.models is not None:
        raise BadInput(
            "--fleet judges programs that exist, or the engine's own", hint="write samples first (docs/fleet.md)"
        )
    if request.gpus != "all":
        raise BadInput("--gpus numbers the GPUs of this machine, not a fleet's", hint="--place NAME, --workers N")
    return choose_place(fleet_of(request.fleet), request.targets, request.place)


def chosen_gpus(request: BenchRequest) -> list[GpuInfo]:
    """The GPUs to use; none where no target runs on one.

    Raises BadInput for `gpus` that do not exist or are not needed.
    """
    kind = next((target.name for target in TARGETS.gpus if target.name in request.targets), None)
    if kind is not None:
        return topology.choose(request.gpus, kind)
    if request.gpus != "all":
        hint = TARGETS.gpu_choices("--target {}")
        raise BadInput(f"--gpus {request.gpus}: no target that runs on a GPU is chosen", hint=hint)
    return []


def _candidates(
    request: BenchRequest, where: str, task: BenchTask, text: str, files: Sequence[CandidateFile]
) -> list[BenchEntry]:
    if not files:
        return [BenchEntry(task, "", 0, _key(request, where, task, text, "no candidate"))]
    entries = []
    for file in files:
        if file.problem:
            key = _key(request, where, task, text, file.problem, str(file.sample))
            entries.append(BenchEntry(task, file.path.name, file.sample, key, problem=file.problem))
            continue
        program = program_of(read_text(file.path, "candidate") if file.text is None else file.text)
        key = _key(request, where, task, text, program.key, str(file.sample))
        entries.append(BenchEntry(task, file.path.name, file.sample, key, program))
    return entries


def _samples(request: BenchRequest, models: MeasuredModels, where: str, task: BenchTask, text: str) -> list[BenchEntry]:
    entries = []
    for number in range(models.samples):
        model = models.model(request.seed, task.name, number)
        budget = str(request.budget) if models.agent == "pipeline" else ""
        key = _key(request, where, task, text, "model", model, models.settings, budget, str(number))
        entries.append(BenchEntry(task, model, number, key))
    return entries


def _key(request: BenchRequest, where: str, task: BenchTask, text: str, *program: str) -> str:
    """A hash of everything that determines a row, including the GPUs, as a time on another model is another figure."""
    settings = [hipwright.__version__, request.mode, ",".join(request.targets), str(request.seed), where]
    own = task.rule.policy if task.rule is not None else None
    settings += [own.key] if own is not None else []
    settings += request.baselines if where and request.baselines != BASELINES else ()
    return content_key("bench", *settings, task.name, text, *program)
