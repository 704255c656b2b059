"""The tools, as plain functions from arguments to a Reply: text for the model to read, and the same as JSON.

Nothing here knows the protocol, and nothing here decides: verdicts are the evaluator's, as with `hipwright eval`.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from hipwright.errors import BadInput
from hipwright.events import Listener
from hipwright.mcp import files, words
from hipwright.mcp.shop import JudgedProgram, Lent, WarmMachine, digest
from hipwright.records import Program

if TYPE_CHECKING:
    from hipwright.archive import Archive
    from hipwright.archive.similar import SimilarProgram
    from hipwright.mcp.journal import Journal

KEPT = 64  # evaluations that can still be asked about
SLOWER = 1.3  # an exemplar of another performance bucket takes at least this much longer

TaskPath = Annotated[str, msgspec.Meta(description="The task file, relative to the server's root folder.")]
ProgramText = Annotated[
    str,
    msgspec.Meta(description="The whole text of the program (HIP source and launch plan), or of a ModelNew file."),
]
Knobs = Annotated[
    dict[str, int], msgspec.Meta(description="Values of the program's knobs; those left out take their default.")
]


class _Arguments(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a tool is called with; the JSON schema that clients see is made from it."""


class ListTasks(_Arguments, frozen=True, kw_only=True):
    """Arguments of list_tasks."""

    folder: Annotated[str, msgspec.Meta(description="A folder below the root; the root without it.")] = ""


class OneProgram(_Arguments, frozen=True, kw_only=True):
    """Arguments of evaluate_program and profile_program."""

    task: TaskPath
    program: ProgramText
    knobs: Knobs = msgspec.field(default_factory=dict)


class Explain(_Arguments, frozen=True, kw_only=True):
    """Arguments of explain_failure."""

    evaluation: Annotated[
        str, msgspec.Meta(description="The name that evaluate_program gave, such as `e3`; the last one without it.")
    ] = "latest"


class ArchiveArguments(_Arguments, frozen=True, kw_only=True):
    """Arguments of best_program and exemplars."""

    task: TaskPath
    count: Annotated[int, msgspec.Meta(ge=1, le=8, description="How many exemplars at most.")] = 2


@dataclass(frozen=True)
class Reply:
    """A tool's answer. data: plain JSON types."""

    text: str
    data: dict[str, Any]


@dataclass
class ToolContext:
    """What the tools work with. root: resolved; home: the archive's folder; journal: keeps what is judged, None where
    nothing is to be kept. One call of a slow tool at a time."""

    root: Path
    home: Path
    targets: tuple[str, ...]
    lent: Lent
    journal: Journal | None = None
    shop: WarmMachine = field(init=False)
    judged: OrderedDict[str, JudgedProgram] = field(default_factory=OrderedDict)
    count: int = 0

    def __post_init__(self) -> None:
        self.shop = WarmMachine(self.lent)

    def judge(self, arguments: OneProgram, listener: Listener) -> JudgedProgram:
        """Evaluate a program and remember it."""
        from hipwright.program.modelnew.check import form_of

        path = files.task_file(self.root, arguments.task)
        text = arguments.program
        if len(text.encode("utf-8", "surrogatepass")) > files.MOST_BYTES:
            raise BadInput("the program is larger than 1 MiB")
        candidate = Program(
            form="modelnew" if form_of(text) == "modelnew" else "program", text=text, knobs=arguments.knobs
        )
        before = digest(path)
        evaluation, warnings, task = self.shop.evaluate(path, candidate, listener)
        kept = self.journal.add(task, candidate, evaluation) if self.journal is not None else {}
        self.count += 1
        judged = JudgedProgram(f"e{self.count}", path, candidate, evaluation, before, tuple(warnings), kept)
        self.judged[judged.name] = judged
        while len(self.judged) > KEPT:
            self.judged.popitem(last=False)
        return judged

    def name(self, path: Path) -> str:
        """A path as the tools give it: below the root."""
        return str(path.relative_to(self.root))

    def object(self, judged: JudgedProgram) -> dict[str, Any]:
        """An evaluation as JSON: the object of `eval --json`, and its name here."""
        told = {
            "evaluation": judged.name,
            **self.lent.result(judged.evaluation, self.targets),
            "task": self.name(judged.task),
            "lane": judged.program.form,
            "program_key": judged.program.key,
            "seconds": judged.evaluation.seconds,
            "not_measured": self.lent.not_measured(self.targets, judged.evaluation),
            "warnings": list(judged.warnings),
            **({"archive": dict(judged.kept)} if judged.kept else {}),
        }
        return dict(self.lent.plain(told))


# ---------------------------------------------------------------- fast tools


def list_tasks(desk: ToolContext, arguments: ListTasks, listener: Listener) -> Reply:
    """The tasks of a folder with a line of description each; nothing is executed."""
    folder = files.inside(desk.root, arguments.folder, "folder")
    if not folder.is_dir():
        raise BadInput(f"no such folder: {arguments.folder or desk.root}")
    found = [{"task": name, "about": about} for name, about in files.tasks(desk.root, folder)]
    if not found:
        raise BadInput(
            f"no tasks in {arguments.folder or desk.root}",
            hint="a task is a Python file with class Model, get_inputs() and get_init_inputs()",
        )
    shown, more = found[: files.MOST_TASKS], len(found) - files.MOST_TASKS
    lines = [f"{row['task']}: {row['about']}" if row["about"] else row["task"] for row in shown]
    lines += [f"and {more} more: name a folder"] if more > 0 else []
    return Reply("\n".join(lines), {"tasks": shown, "total": len(found), "targets": list(desk.targets)})


def explain_failure(desk: ToolContext, arguments: Explain, listener: Listener) -> Reply:
    """Why an evaluation of this session failed, in plain words: whose fault, the line, the fix."""
    judged = dict(desk.judged)  # an evaluation may end meanwhile
    name = next(reversed(judged), "") if arguments.evaluation == "latest" else arguments.evaluation
    if name not in judged:
        known = f"known: {', '.join(judged)}" if judged else "call evaluate_program first"
        raise BadInput(f"no evaluation {arguments.evaluation!r} in this session", hint=known)
    told = words.explained(judged[name], desk.targets)
    return Reply(told.pop("text"), {"evaluation": name, **told})


def best_program(desk: ToolContext, arguments: ArchiveArguments, listener: Listener) -> Reply:
    """The best verified program of a task in the archive, with exemplars beside it."""
    from hipwright.archive.similar import known_for, similar

    path = files.task_file(desk.root, arguments.task)
    source = files.task_text(path)
    with _archive(desk) as archive:
        keys = _same_task(archive, source)
        found = sorted(
            (known for key in keys for known in known_for(archive, key, desk.targets, 16)), key=words.by_speed
        )
        if not found:
            raise BadInput(
                f"the archive has no verified program of {arguments.task}",
                hint=f"find one: hipwright optimize {arguments.task}",
            )
        others = words.slower(found, SLOWER)[:1] + _others(similar, archive, source, desk.targets, keys)
        best = words.shown_kernel(archive, found[0])
        beside = [words.shown_kernel(archive, known) for known in others[: arguments.count]]
    text = [f"the best of {len(found)} verified programs of {arguments.task}:", words.kernel_text(best)]
    text += [words.kernel_text(kernel) for kernel in beside]
    return Reply("\n\n".join(text), {"task": arguments.task, "best": best, "exemplars": beside})


def exemplars(desk: ToolContext, arguments: ArchiveArguments, listener: Listener) -> Reply:
    """Verified kernels of other tasks in the archive that are like this one."""
    from hipwright.archive.similar import similar

    path = files.task_file(desk.root, arguments.task)
    source = files.task_text(path)
    with _archive(desk) as archive:
        keys = _same_task(archive, source)
        found = _others(similar, archive, source, desk.targets, keys)[: arguments.count]
        shown = [words.shown_kernel(archive, known) for known in found]
    if not shown:
        return Reply("the archive has no verified kernel of a task like this one", {"exemplars": []})
    return Reply("\n\n".join(map(words.kernel_text, shown)), {"exemplars": shown})


# ---------------------------------------------------------------- slow tools


def evaluate_program(desk: ToolContext, arguments: OneProgram, listener: Listener) -> Reply:
    """Compile, verify and estimate (on a GPU target: time) one program, as `hipwright eval` does."""
    judged = desk.judge(arguments, listener)
    return Reply(words.verdict(judged) + words.whereabouts(judged.kept), desk.object(judged))


def profile_program(desk: ToolContext, arguments: OneProgram, listener: Listener) -> Reply:
    """Counters where a GPU is; else the build report: registers, LDS, occupancy, instruction mix, estimate."""
    from hipwright.errors import InfrastructureError

    note = "no GPU target: figures of the build and a static estimate, nothing was measured"
    if desk.lent.counters is not None:
        path = files.task_file(desk.root, arguments.task)
        try:
            chosen = Program(text=arguments.program, knobs=arguments.knobs)
            report = desk.lent.counters(path, chosen, listener)
            return Reply(words.counted(report), desk.lent.plain({"kind": "counters", **report.to_dict()}))
        except InfrastructureError as error:
            note = f"no counters could be read ({error.message}): figures of the build and a static estimate"
    judged = _known(desk, arguments) or desk.judge(arguments, listener)
    text, data = words.build_report(judged)
    return Reply(f"{note}\n{text}", {"kind": "build", "note": note, **desk.lent.plain(data)})


def _known(desk: ToolContext, arguments: OneProgram) -> JudgedProgram | None:
    """An evaluation of the same program of the same task in this session: a build does not change."""
    path = files.task_file(desk.root, arguments.task)
    now = digest(path)
    for judged in reversed(desk.judged.values()):
        same = (judged.program.text, judged.program.knobs) == (arguments.program, arguments.knobs)
        if same and (judged.task, judged.digest) == (path, now) and judged.evaluation.targets:
            return judged
    return None


def _archive(desk: ToolContext) -> Archive:
    from hipwright.archive import Archive

    return Archive(desk.home, create=False)


def _same_task(archive: Archive, source: str) -> list[str]:
    """The keys of the archive's tasks with this text; other workloads or tolerances make other keys."""
    keys = list(dict.fromkeys(run.task for run in archive.runs()))
    return [key for key in keys if archive.has(key) and archive.task(key).source == source]


def _others(
    similar: Callable[..., list[SimilarProgram]],
    archive: Archive,
    source: str,
    targets: Sequence[str],
    keys: Sequence[str],
) -> list[SimilarProgram]:
    found = similar(archive, source, targets=targets, k=8 + 8 * len(keys))
    return [known for known in found if known.task not in keys][:8]


@dataclass(frozen=True)
class Tool:
    """One tool. slow: it evaluates or profiles, so it takes its turn, reports progress and can be cancelled."""

    about: str
    arguments: type[_Arguments]
    run: Callable[[ToolContext, Any, Listener], Reply]
    slow: bool = False

    def schema(self) -> dict[str, Any]:
        """The JSON schema of the arguments."""
        _, parts = msgspec.json.schema_components([self.arguments])
        schema = {key: value for key, value in parts[self.arguments.__name__].items() if key != "description"}
        return {"additionalProperties": False, **schema}

    def read(self, given: dict[str, Any] | None) -> Any:
        """The arguments of a call. BadInput for what the schema does not allow."""
        try:
            return msgspec.convert(given or {}, self.arguments)
        except msgspec.ValidationError as error:
            raise BadInput(str(error), hint=f"arguments: {', '.join(self.arguments.__struct_fields__)}") from error


TOOLS: dict[str, Tool] = {
    "list_tasks": Tool("The tasks (PyTorch references) below the root, with a line about each.", ListTasks, list_tasks),
    "evaluate_program": Tool(
        "Compile, verify and estimate one program (or ModelNew) for a task: verdict, evidence, estimate or timing and "
        "coverage for each target. Every call draws new secret inputs.",
        OneProgram,
        evaluate_program,
        slow=True,
    ),
    "profile_program": Tool(
        "What holds a program back: hardware counters where a GPU is, else registers, LDS, occupancy, instruction mix "
        "and a static estimate, with the bottleneck in words.",
        OneProgram,
        profile_program,
        slow=True,
    ),
    "explain_failure": Tool(
        "Why an evaluation of this session failed, in plain words: whose fault, the line, the fix.",
        Explain,
        explain_failure,
    ),
    "best_program": Tool(
        "The best verified program of a task from the archive of earlier runs, with exemplars.",
        ArchiveArguments,
        best_program,
    ),
    "exemplars": Tool(
        "Verified kernels of similar tasks, from the archive of earlier runs.", ArchiveArguments, exemplars
    ),
}
