"""The engine's faults in the archive of this folder: kept at the end of a run, listed, run alone, written as files.

A fault's file holds the guilty operators alone where they could be written. Whether they show the fault is known once
the file was run (`check_fault`); where they do not, the whole task is the file.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

from hipwright import __version__, config
from hipwright.api.files import prepare_folder, write_file
from hipwright.api.runs.queries import open_archive
from hipwright.api.task_engine import TaskEngine, captured_graph
from hipwright.archive import (
    Archive,
    DamagedRow,
    EngineFault,
    FaultCheck,
    NoArchive,
    Reproducer,
    RunLog,
    readable_log,
    shown,
)
from hipwright.archive.digests import computed
from hipwright.archive.export import strip
from hipwright.archive.faults import ENGINE_ERROR, FaultFile, keep_check, keep_faults
from hipwright.capture.graph import Graph
from hipwright.engine import write
from hipwright.engine.excerpt import NoExcerpt, task_text
from hipwright.errors import BadInput, HipwrightError, TaskError
from hipwright.events import Listener, silent
from hipwright.machine import machine
from hipwright.records import Program, content_key
from hipwright.search.faults import faults_of
from hipwright.targets import CPU, TARGETS

SEED, LIMIT_S = 1, 180.0
"""The seed of the inputs, and the time that a fault's file may take when it is run alone."""
NAME = "reproducer"
_FAULTS, _READ = "faults/1", msgspec.json.Decoder(list[EngineFault])
"""The kind of the digests that have a run's faults; the number changes with what a log without faults tells."""
Write = Callable[[Graph], Program]


@dataclass(frozen=True)
class ListedFault:
    """A fault with its number, from 1, the oldest first; place: among those of its run."""

    number: int
    place: int
    fault: EngineFault

    @property
    def file_name(self) -> str:
        """The name under which its file is written."""
        return f"fault_{self.number}_{self.fault.status}.py"


def keep_run_faults(archive: Archive, engine: TaskEngine, task: str, run: str) -> int:
    """Keeps the faults of a run that ended, with files of their operators; returns how many. Those kept before stay.

    task: its name.
    """
    log = readable_log(archive, run)
    if log.finished is None or log.faults:
        return 0
    found = faults_of(run, log)
    if engine.given_up:
        given_up = tuple(engine.given_up.split(","))
        message = "; ".join(engine.errors)
        found.insert(0, EngineFault(run=run, task=task, status=ENGINE_ERROR, message=message, given_up=given_up))
    keep_faults(archive, [_with_file(engine.graph, fault) for fault in found])
    return len(found)


def _with_file(graph: Graph, fault: EngineFault) -> tuple[EngineFault, Reproducer | None]:
    """The fault as it is stored, and the file of its operators; None where only the whole task can be kept."""
    known = msgspec.structs.replace(fault, version=__version__, message=strip(fault.message))
    names = set(fault.given_up)
    if names >= {node.name for node in graph.nodes if node.op != "getitem"}:
        return msgspec.structs.replace(known, why="every operator of the task was given up"), None
    try:
        file = Reproducer(text=task_text(graph, names))
    except NoExcerpt as error:
        return msgspec.structs.replace(known, why=str(error)), None
    return msgspec.structs.replace(known, file="operators", reproducer=file.key), file


# ---------------------------------------------------------------- queries


def list_faults() -> tuple[list[ListedFault], list[DamagedRow]]:
    """All faults, the oldest first, and the rows that were skipped; empty where there is no archive."""
    try:
        with open_archive() as archive:
            return _listed(archive), archive.damaged
    except NoArchive:
        return [], []


def _listed(archive: Archive) -> list[ListedFault]:
    kept = computed(archive, _FAULTS, _READ, _of_log)
    found = [one for faults in kept.values() for one in enumerate(faults)]
    found.sort(key=lambda one: one[1].clock)
    return [ListedFault(number, place, fault) for number, (place, fault) in enumerate(found, 1)]


def _of_run(archive: Archive, run: str) -> list[EngineFault]:
    """A run's faults: those it kept, else those that its log tells, as in an archive of an earlier version."""
    return _of_log(readable_log(archive, run), run)


def _of_log(log: RunLog, run: str) -> list[EngineFault]:
    return log.faults or (faults_of(run, log) if log.finished is not None else [])


def chosen_of(found: list[ListedFault], number: int | None) -> list[ListedFault]:
    """The fault of this number, or all. Raises BadInput for an unknown one."""
    if number is None:
        return found
    if not 1 <= number <= len(found):
        known = f"there are {len(found)}" if found else "there are none"
        raise BadInput(
            f"no fault {number} in {shown(config.archive())}: {known}", hint="`hipwright runs faults` lists them"
        )
    return [found[number - 1]]


# ---------------------------------------------------------------- files


def write_faults(folder: Path, number: int | None = None) -> list[Path]:
    """Writes the files of one fault, or of all; returns their paths. Raises BadInput."""
    with open_archive() as archive:
        chosen = chosen_of(_listed(archive), number)
        prepare_folder(folder)
        for listed in chosen:
            write_file(folder / listed.file_name, fault_text(archive, listed))
        return [folder / listed.file_name for listed in chosen]


def fault_text(archive: Archive, listed: ListedFault) -> str:
    """A fault's task file, with a header that says what it shows."""
    return "".join(f"# {line}\n" for line in _header(listed)) + source_of(archive, listed.fault)


def source_of(archive: Archive, fault: EngineFault) -> str:
    """The task that the fault's file holds."""
    if fault.file == "operators" and (file := archive.find(fault.reproducer, Reproducer)) is not None:
        return file.text
    return archive.task(archive.run(fault.run).task).source


def _header(listed: ListedFault) -> Iterator[str]:
    fault = listed.fault
    version = fault.version or "of an earlier version"
    yield f"A fault of hipwright {version}: {fault.status}{f' on {fault.target}' if fault.target else ''}."
    yield f"run: hipwright optimize {listed.file_name} --target {_target(fault)} --budget 1"
    if fault.given_up:
        yield _line(f"given up: {', '.join(fault.given_up)}")
    if fault.kernel:
        yield _line(f"kernel: {fault.kernel}")
    yield _line(f"message: {fault.message}")
    what = "the operators that were given up" if fault.file == "operators" else "the whole task"
    state = f"run alone it ended with {fault.shown}" if fault.shown else "it was not run alone"
    yield _line(f"This file is {what}{f' ({fault.why})' if fault.why else ''}; {state}.")


def _line(text: str) -> str:
    return " ".join(text.split())[:300]


def _target(fault: EngineFault) -> str:
    """The target on which the file is run: the fault's own where this machine has it."""
    return fault.target if fault.target in TARGETS.names() else CPU.name


# ---------------------------------------------------------------- checks


def check_faults(
    number: int | None = None, *, write: Write = write, unsafe: bool = False, listener: Listener = silent
) -> list[ListedFault]:
    """Runs the files of one fault, or of all that were not run yet, and keeps what came of it; returns those faults.

    write: the engine, which tests replace by one with a planted fault. Raises BadInput.
    """
    with open_archive() as archive:
        todo = [one for one in chosen_of(_listed(archive), number) if number is not None or not one.fault.shown]
        for listed in todo:
            listener("stage", {"text": f"running fault {listed.number} alone: {listed.fault.status}"})
            _check(archive, listed, write, unsafe=unsafe)
        done = {one.number for one in todo}
        return [one for one in _listed(archive) if one.number in done]


def _check(archive: Archive, listed: ListedFault, write: Write, *, unsafe: bool) -> None:
    fault, file, why = listed.fault, listed.fault.file, listed.fault.why
    shown = shown_by(source_of(archive, fault), _target(fault), write, unsafe=unsafe)
    if file == "operators" and shown != fault.status:
        file, why = "task", f"the operators alone end with {shown}"
        whole = msgspec.structs.replace(fault, file="task")
        shown = shown_by(source_of(archive, whole), _target(fault), write, unsafe=unsafe)
    if not readable_log(archive, fault.run).faults:  # a run of an earlier version: what its log tells is kept now
        keep_faults(archive, [(one, None) for one in _of_run(archive, fault.run)])
    kept: FaultFile = file
    keep_check(archive, fault.run, FaultCheck(fault=listed.place, shown=shown, file=kept, why=why))


def shown_by(text: str, target: str, write: Write = write, *, unsafe: bool = False, limit_s: float = LIMIT_S) -> str:
    """The status with which the engine's first program for a task ends on a target; `engine_error` without one.

    "unfinished" after limit_s seconds; a task that cannot be opened or captured is "unscorable".
    """
    name = f"{NAME}_{content_key(text)[:8]}"
    with machine((target,), unsafe=unsafe) as made:
        over = threading.Event()

        def stop() -> None:
            over.set()
            made.close()

        timer = threading.Timer(limit_s, stop)
        timer.start()
        try:
            with made.open_text(name, text, seed=SEED) as bench:
                graph = captured_graph(bench)
                try:
                    program = write(graph)
                except Exception:  # the fault that is looked for
                    return ENGINE_ERROR
                return bench.evaluator.evaluate(program, timed=False).status
        except TaskError:
            return "unfinished" if over.is_set() else "unscorable"
        except (HipwrightError, OSError):
            if over.is_set():
                return "unfinished"
            raise
        finally:
            timer.cancel()
