"""New tasks by mutation, composition and constraint, each self-checked, into a folder (docs/synth.md)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hipwright.api.files import read_text
from hipwright.api.model_access import LoggedClient, ModelAccess, open_client
from hipwright.api.workbench import require_sandbox
from hipwright.errors import BadInput, OutOfBudget
from hipwright.evaluation.formats.base import kept_out
from hipwright.evaluation.suite import find_tasks
from hipwright.events import Listener, silent
from hipwright.synth.describe import summary
from hipwright.synth.records import MODES, Draft, DroppedDraft, Mode, SyntheticTask
from hipwright.synth.request import DraftOutcome, DraftWriter, SynthesisRequest
from hipwright.synth.run import synthesise
from hipwright.synth.store import SynthStore
from hipwright.synth.workers import open_zygotes

if TYPE_CHECKING:
    from hipwright.sandbox import Zygote

SHARE = 0.5
"""The share of the drafts that models write, where there are models."""


@dataclass(frozen=True)
class SynthesisJob:
    """Tasks to make. count: of tasks in the folder `out` at the end. parents: files or folders of tasks to mutate.

    against: folders whose tasks no new one may overlap with. models: write `share` of the drafts; the engine writes the
    rest.
    """

    out: Path
    count: int
    modes: tuple[Mode, ...] = ("composition",)
    parents: tuple[Path, ...] = ()
    constraint: str = ""
    seed: int = 0
    against: tuple[Path, ...] = ()
    resume: bool = False
    workers: int = 1
    unsafe: bool = False
    models: ModelAccess | None = None
    share: float = SHARE


@dataclass(frozen=True)
class SynthesisResult:
    """The tasks in a folder. counts: of tasks and dropped drafts by kind; new: made in this run, in `seconds`."""

    job: SynthesisJob
    made: Sequence[SyntheticTask]
    counts: Mapping[str, Any]
    new: int
    seconds: float
    interrupted: bool = False

    @property
    def short(self) -> bool:
        """Whether synthesis ended because too many drafts in a row failed."""
        return len(self.made) < self.job.count

    def summary(self) -> dict[str, Any]:
        """The object that `synth --json` fingerprints."""
        return {
            "status": "short" if self.short else "pass",
            "out": str(self.job.out),
            **self.counts,
            "new": self.new,
            "seconds": round(self.seconds, 1),
            "tasks_per_minute": round(60 * self.new / self.seconds, 1) if self.seconds else 0.0,
            **summary(self.made),
        }


def chosen_modes(
    names: Sequence[str], parents: Sequence[Path] | None = None, constraint: str | None = None
) -> tuple[Mode, ...]:
    """The modes by name, in order. Without names: the modes of parents and constraint, or composition.

    Raises BadInput for an unknown mode, and for parents or a constraint without their mode.
    """
    given = [("--from", "mutation", parents), ("--constraint", "constraint", constraint)]
    names = list(names) or [mode for _, mode, value in given if value] or ["composition"]
    for name in names:
        if name not in MODES:
            raise BadInput(f"no mode {name!r}", hint=f"modes: {', '.join(MODES)}")
    for option, mode, value in given:
        if value and mode not in names:
            raise BadInput(f"{option} is of the {mode} mode", hint=f"add --mode {mode}, or leave it out")
    return tuple(name for name in dict.fromkeys(names) if name in MODES)


def run_synthesis(job: SynthesisJob, *, listener: Listener = silent) -> SynthesisResult:
    """Makes the missing tasks. An interrupt ends it early, with nothing lost; the result says so.

    Events for the listener: "synth" after each draft, "compared" while folders are read, "llm_retry", and "note"
    {text}.
    """
    require_sandbox(job.unsafe)
    plan = SynthesisRequest(
        count=job.count,
        modes=job.modes,
        seed=job.seed,
        parents=_parents(job),
        constraint=job.constraint,
        llm_share=job.share,
    )
    if job.constraint and job.models is None:
        plan.parsed_constraint()  # a constraint that cannot be read raises before anything is made
    begun, interrupted = time.monotonic(), False
    with ExitStack() as stack:
        overlaps = _overlaps(job, listener, stack)
        store = stack.enter_context(SynthStore(job.out, _settings(job, plan), resume=job.resume))
        if before := len(store.tasks):
            listener("note", {"text": f"{before} of {job.count} tasks are there already"})
        plan = stack.enter_context(_with_models(job, plan, listener))
        try:
            zygotes = stack.enter_context(open_zygotes(job.workers, unsafe=job.unsafe))
            synthesise(plan, store, zygotes, listener=listener, overlaps=overlaps)
        except KeyboardInterrupt:
            store.sync()
            interrupted = True
        except BaseException:
            store.sync()
            raise
    seconds = time.monotonic() - begun
    return SynthesisResult(job, store.tasks, store.counts, len(store.tasks) - before, seconds, interrupted)


def _parents(job: SynthesisJob) -> dict[str, str]:
    """{name: source} of the tasks to mutate; empty where composed ones are mutated."""
    if "mutation" not in job.modes:
        return {}
    found: dict[str, str] = {}
    for place in job.parents or _examples():
        if not place.exists():
            raise BadInput(f"no such task file or folder: {place}")
        for name, text in parent_texts(place):
            if found.setdefault(name, text) != text:
                raise BadInput(f"two tasks to mutate are called {name}", hint="rename one of the files")
    return found


def parent_texts(place: Path) -> Iterator[tuple[str, str]]:
    """(name, text) of a task file, or of a folder's tasks. Raises BadInput for tasks that no data set may hold."""
    if not place.is_dir():
        found = [(place.stem, read_text(place, "task"))]
    else:
        found = [(task.name.rpartition("/")[2], task.read()) for task in find_tasks(place)]
    for name, text in found:
        if why := kept_out(text):
            raise BadInput(f"{name} of {place} must not be mutated: {why}", hint="leave it out")
        yield name, text


def _examples() -> tuple[Path, ...]:
    """The examples of the repository that hipwright runs from; an installed package has none."""
    root = Path(__file__).resolve().parents[4]
    there = (root / "pyproject.toml").is_file() and (root / "examples").is_dir()
    return (root / "examples",) if there else ()


def _settings(job: SynthesisJob, plan: SynthesisRequest) -> dict[str, Any]:
    """The settings that a folder of tasks stores, and that a resumed run must have."""
    models = job.models.lineup.specs() if job.models is not None else []
    share = job.share if job.models is not None else 0.0
    against = [str(path.resolve()) for path in job.against]
    return {**plan.settings(), "llm": list(models), "llm_share": share, "against": against}


def _overlaps(job: SynthesisJob, listener: Listener, stack: ExitStack) -> Callable[[SyntheticTask], str] | None:
    """A function that returns why a task is too close to one of the folders, or "".

    Raises BadInput for a folder without tasks.
    """
    if not job.against:
        return None
    from hipwright.dataset.overlap import overlap_check

    return stack.enter_context(overlap_check(job.against, workers=job.workers, unsafe=job.unsafe, listener=listener))


@contextmanager
def _with_models(job: SynthesisJob, plan: SynthesisRequest, listener: Listener) -> Iterator[SynthesisRequest]:
    """The plan with models as writers; their calls are logged in out/calls.jsonl, so that none is made again."""
    if job.models is None:
        yield plan
        return
    with open_client(job.models, job.out, listener) as logged:
        yield replace(plan, writer=_draft_writer(job.models, logged, job.seed))


def _draft_writer(models: ModelAccess, logged: LoggedClient, seed: int) -> DraftWriter:
    """The task generator (agents/task_generator.py) as the draft writer of synthesis."""

    def write(index: int, mode: Mode, parents: Mapping[str, str], constraint: str, zygote: Zygote) -> DraftOutcome:
        from hipwright.agents.task_generator import TaskGenerator

        def refused(stage: str, why: str, how: str) -> DroppedDraft:
            draft = Draft(name=f"llm_{index}", source="", mode=mode, author="llm", seed=seed, detail=how)
            return DroppedDraft(draft=draft, stage=stage, why=why)

        role = TaskGenerator(zygote, seed, logged.client, models.lineup)
        try:
            made, dropped = role.one(mode, index, parents, constraint)
        except OutOfBudget as error:
            return None, (refused("budget", error.message, mode),)
        tries = tuple(refused(one.stage, one.message, one.how) for one in dropped)
        if made is None:
            return None, tries or (refused("llm", "no answer", mode),)
        draft = Draft(
            name=f"llm_{mode}_{index}", source=made.task.source, mode=mode, author="llm", seed=seed, detail=made.how
        )
        return draft, tries

    return write
