"""Several programs of one task as one that dispatches on shapes, verified as a whole (docs/ship.md)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hipwright.api.inputs import task_source
from hipwright.api.outcome import not_measured
from hipwright.api.task_engine import captured_graph
from hipwright.api.workbench import open_workbench
from hipwright.events import Listener, silent
from hipwright.machine import Workbench
from hipwright.program.sets import SetMember, combine, owner
from hipwright.records import Evaluation, Program

LIBRARY = "library"


@dataclass(frozen=True)
class CombinedProgram:
    """A combined program and its evaluation. dispatch: {workload: the index of the member that serves it}.

    unreached: indices of members that no workload of the task reaches, so that they were not verified.
    """

    program: Program
    evaluation: Evaluation
    dispatch: dict[str, int]
    unreached: tuple[int, ...]
    not_measured: tuple[str, ...]


def combine_programs(
    task: object,
    members: Sequence[tuple[Program | None, str]],
    targets: tuple[str, ...],
    *,
    seed: int | None = None,
    unsafe: bool = False,
    listener: Listener = silent,
    written: Callable[[Program], None] = lambda program: None,
) -> CombinedProgram:
    """Combines programs, of which the first whose guards hold runs, and evaluates the whole.

    members: (program, further condition or ""); a program of None stands for library calls alone. written: called with
    the combined program before it is evaluated.
    """
    with open_workbench(task_source(task), targets, seed=seed, unsafe=unsafe, listener=listener) as bench:
        made = combine([SetMember(program=program or _library_program(bench), when=when) for program, when in members])
        written(made)
        last = len(members) - 1
        dispatch = {name: last if place is None else place for name, place in _dispatch(bench, made).items()}
        evaluation = bench.evaluator.evaluate(made, thorough=True)
    unreached = tuple(place for place in range(len(members)) if place not in dispatch.values())
    return CombinedProgram(made, evaluation, dispatch, unreached, tuple(not_measured(targets, evaluation)))


def _library_program(bench: Workbench) -> Program:
    from hipwright.engine.plan.library import library_program

    return library_program(captured_graph(bench))


def _dispatch(bench: Workbench, made: Program) -> dict[str, int | None]:
    """Workload -> the index of the member that it goes to; None where no kernel shows it (library calls alone)."""
    from hipwright.program import parse
    from hipwright.program.lower.trace import trace

    found: dict[str, int | None] = {}
    for workload in bench.handle.task.workloads:
        outline = bench.handle.outline(workload.name)
        traced = trace(parse(made.text), made.knobs, outline.state, outline.inputs)
        found[workload.name] = owner([entry["kernel"] for entry in traced["launches"]])
    return found
