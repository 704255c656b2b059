"""The tools, as plain functions from arguments to a Reply: text for the model, and the same as JSON.

They are independent of the protocol. Verdicts are the evaluator's, as with `hipwright eval`.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from hipwright.api.inputs import program_of
from hipwright.api.outcome import not_measured, result_object
from hipwright.api.plain import finite
from hipwright.api.runs.child import ChildCommand
from hipwright.errors import BadInput
from hipwright.events import Listener
from hipwright.mcp import files, texts
from hipwright.mcp.arguments import Reply, TaskPath, ToolArguments
from hipwright.mcp.warm_machine import JudgedProgram, WarmMachine, digest
from hipwright.records import Program

if TYPE_CHECKING:
    from hipwright.archive import Archive
    from hipwright.archive.verified import SimilarProgram
    from hipwright.mcp.journal import Journal
    from hipwright.measure.profiling.profiler import ProfileReport

KEPT = 64  # evaluations that explain_failure and profile_program can refer to
SLOWER = 1.3  # an exemplar of another performance bucket takes at least this much longer

ProgramText = Annotated[
    str,
    msgspec.Meta(description="The whole text of the program (HIP source and launch plan), or of a ModelNew file."),
]
Knobs = Annotated[
    dict[str, int], msgspec.Meta(description="Values of the program's knobs; those left out take their default.")
]


class ListTasks(ToolArguments, frozen=True, kw_only=True):
    """Arguments of list_tasks."""

    folder: Annotated[str, msgspec.Meta(description="A folder below the root; the root without it.")] = ""


class OneProgram(ToolArguments, frozen=True, kw_only=True):
    """Arguments of evaluate_program and profile_program."""

    task: TaskPath
    program: ProgramText
    knobs: Knobs = msgspec.field(default_factory=dict)


class Explain(ToolArguments, frozen=True, kw_only=True):
    """Arguments of explain_failure."""

    evaluation: Annotated[
        str, msgspec.Meta(description="The name that evaluate_program gave, such as `e3`; the last one without it.")
    ] = "latest"


class ArchiveArguments(ToolArguments, frozen=True, kw_only=True):
    """Arguments of best_program and exemplars."""

    task: TaskPath
    count: Annotated[int, msgspec.Meta(ge=1, le=8, description="How many exemplars at most.")] = 2


Counters = Callable[[Path, Program, Listener], "ProfileReport"]
"""Reads the profiler's counters of a program (task file, program)."""


@dataclass
class ToolContext:
    """The tools' state. One call of a slow tool at a time.

    root: resolved; home: the archive's folder or URL; machine: judges programs; counters: None without a GPU target;
    journal: stores what is judged, None where nothing is stored.
    """

    root: Path
    home: Path | str
    targets: tuple[str, ...]
    machine: WarmMachine
    counters: Counters | None = None
    journal: Journal | None = None
    child: ChildCommand = field(default_factory=ChildCommand)
    judged: OrderedDict[str, JudgedProgram] = field(default_factory=OrderedDict)
    count: int = 0

    @property
    def keeps(self) -> bool:
        """Whether what is judged and found stays in the archive."""
        return self.journal is not None

    def begin(self) -> None:
        """Clears an abort of the call before."""
        self.machine.begin()
        self.child.begin()

    def abort(self) -> None:
        """Makes the slow call end soon; called from another thread."""
        self.child.abort()
        self.machine.abort()

    def judge(self, arguments: OneProgram, listener: Listener) -> JudgedProgram:
        """Evaluates a program and keeps the result."""
        path = files.task_file(self.root, arguments.task)
        text = arguments.program
        if len(text.encode("utf-8", "surrogatepass")) > files.MOST_BYTES:
            raise BadInput("the program is larger than 1 MiB")
        candidate = program_of(text, arguments.knobs)
        before = digest(path)
        evaluation, warnings, task = self.machine.evaluate(path, candidate, listener)
        kept = self.journal.add(task, candidate, evaluation) if self.journal is not None else {}
        self.count += 1
        judged = JudgedProgram(f"e{self.count}", path, candidate, evaluation, before, tuple(warnings), kept)
        self.judged[judged.name] = judged
        while len(self.judged) > KEPT:
            self.judged.popitem(last=False)
        return judged

    def name(self, path: Path) -> str:
        """A path below the root, as the tools write it."""
        return str(path.relative_to(self.root))

    def object(self, judged: JudgedProgram) -> dict[str, Any]:
        """An evaluation as JSON: the object of `eval --json`, with its name in this session."""
        found = {
            "evaluation": judged.name,
            **result_object(judged.evaluation, self.targets),
            "task": self.name(judged.task),
            "lane": judged.program.form,
            "program_key": judged.program.key,
            "seconds": judged.evaluation.seconds,
            "not_measured": not_measured(self.targets, judged.evaluation),
            "warnings": list(judged.warnings),
            **({"archive": dict(judged.kept)} if judged.kept else {}),
        }
        return dict(finite(found))


# ---------------------------------------------------------------- fast tools


def list_tasks(context: ToolContext, arguments: ListTasks, listener: Listener) -> Reply:
    """The tasks of a folder with a line of description each; nothing is executed."""
    folder = files.inside(context.root, arguments.folder, "folder")
    if not folder.is_dir():
        raise BadInput(f"no such folder: {arguments.folder or context.root}")
    found = [{"task": name, "about": about} for name, about in files.tasks(context.root, folder)]
    if not found:
        raise BadInput(
            f"no tasks in {arguments.folder or context.root}",
            hint="a task is a Python file with class Model, get_inputs() and get_init_inputs()",
        )
    shown, more = found[: files.MOST_TASKS], len(found) - files.MOST_TASKS
    lines = [f"{row['task']}: {row['about']}" if row["about"] else row["task"] for row in shown]
    lines += [f"and {more} more: name a folder"] if more > 0 else []
    return Reply("\n".join(lines), {"tasks": shown, "total": len(found), "targets": list(context.targets)})


def explain_failure(context: ToolContext, arguments: Explain, listener: Listener) -> Reply:
    """Why an evaluation of this session failed: whose fault, the line, the fix."""
    judged = dict(context.judged)  # another evaluation may end meanwhile
    name = next(reversed(judged), "") if arguments.evaluation == "latest" else arguments.evaluation
    if name not in judged:
        known = f"known: {', '.join(judged)}" if judged else "call evaluate_program first"
        raise BadInput(f"no evaluation {arguments.evaluation!r} in this session", hint=known)
    explanation = texts.explained(judged[name], context.targets)
    return Reply(explanation.pop("text"), {"evaluation": name, **explanation})


def best_program(context: ToolContext, arguments: ArchiveArguments, listener: Listener) -> Reply:
    """The best verified program of a task in the archive, with exemplars."""
    from hipwright.archive.similar import known_for, similar, tasks_of_source

    path = files.task_file(context.root, arguments.task)
    source = files.task_text(path)
    with _archive(context) as archive:
        keys = tasks_of_source(archive, source)
        found = sorted(
            (known for key in keys for known in known_for(archive, key, context.targets, 16)), key=texts.by_speed
        )
        if not found:
            raise BadInput(
                f"the archive has no verified program of {arguments.task}",
                hint=f"find one: hipwright optimize {arguments.task}",
            )
        others = texts.slower(found, SLOWER)[:1] + _others(similar, archive, source, context.targets, keys)
        best = texts.kernel_object(archive, found[0])
        beside = [texts.kernel_object(archive, known) for known in others[: arguments.count]]
    text = [f"the best of {len(found)} verified programs of {arguments.task}:", texts.kernel_text(best)]
    text += [texts.kernel_text(kernel) for kernel in beside]
    return Reply("\n\n".join(text), {"task": arguments.task, "best": best, "exemplars": beside})


def exemplars(context: ToolContext, arguments: ArchiveArguments, listener: Listener) -> Reply:
    """Verified kernels of similar tasks in the archive."""
    from hipwright.archive.similar import similar, tasks_of_source

    path = files.task_file(context.root, arguments.task)
    source = files.task_text(path)
    with _archive(context) as archive:
        keys = tasks_of_source(archive, source)
        found = _others(similar, archive, source, context.targets, keys)[: arguments.count]
        shown = [texts.kernel_object(archive, known) for known in found]
    if not shown:
        return Reply("the archive has no verified kernel of a task like this one", {"exemplars": []})
    return Reply("\n\n".join(map(texts.kernel_text, shown)), {"exemplars": shown})


# ---------------------------------------------------------------- slow tools


def evaluate_program(context: ToolContext, arguments: OneProgram, listener: Listener) -> Reply:
    """Compiles, verifies and estimates (on a GPU target: times) one program, as `hipwright eval` does."""
    judged = context.judge(arguments, listener)
    return Reply(texts.verdict(judged) + texts.archive_line(judged.kept), context.object(judged))


def profile_program(context: ToolContext, arguments: OneProgram, listener: Listener) -> Reply:
    """Hardware counters where there is a GPU; else the build report: registers, LDS, occupancy, instruction mix,
    estimate.
    """
    from hipwright.errors import InfrastructureError

    note = "no GPU target: figures of the build and a static estimate, nothing was measured"
    if context.counters is not None:
        path = files.task_file(context.root, arguments.task)
        try:
            chosen = Program(text=arguments.program, knobs=arguments.knobs)
            report = context.counters(path, chosen, listener)
            return Reply(texts.counters_text(report), finite({"kind": "counters", **report.to_dict()}))
        except InfrastructureError as error:
            note = f"no counters could be read ({error.message}): figures of the build and a static estimate"
    judged = _known(context, arguments) or context.judge(arguments, listener)
    text, data = texts.build_report(judged)
    return Reply(f"{note}\n{text}", {"kind": "build", "note": note, **finite(data)})


def _known(context: ToolContext, arguments: OneProgram) -> JudgedProgram | None:
    """An evaluation of the same program of the same task in this session, whose build is the same."""
    path = files.task_file(context.root, arguments.task)
    now = digest(path)
    for judged in reversed(context.judged.values()):
        same = (judged.program.text, judged.program.knobs) == (arguments.program, arguments.knobs)
        if same and (judged.task, judged.digest) == (path, now) and judged.evaluation.targets:
            return judged
    return None


def _archive(context: ToolContext) -> Archive:
    from hipwright.archive import Archive

    return Archive(context.home, create=False)


def _others(
    similar: Callable[..., list[SimilarProgram]],
    archive: Archive,
    source: str,
    targets: Sequence[str],
    keys: Sequence[str],
) -> list[SimilarProgram]:
    found = similar(archive, source, targets=targets, k=8 + 8 * len(keys))
    return [known for known in found if known.task not in keys][:8]
