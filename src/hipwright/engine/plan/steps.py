"""The steps of a launch plan: kernels, library calls and views, ordered by what they read and overwrite."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from hipwright.capture.random_operators import draws_numbers
from hipwright.engine.fuse.groups import Group
from hipwright.engine.fuse.schedule import Scheduler
from hipwright.engine.lower.values import LibraryCall
from hipwright.engine.partition.state import Lowered, PlanView

WINDOW = 8
"""How far a step may come forward: what it makes is held in memory the longer."""


@dataclass(eq=False)
class PlanStep:
    """One kernel group, library call or view. waits: numbers of the steps that must come before it, for other reasons
    than that it reads what they provide.
    """

    what: Group | LibraryCall | PlanView
    reads: set[str]
    provides: set[str]
    number: int
    waits: set[int] = field(default_factory=set)


def steps_of(lowered: Lowered, scheduler: Scheduler) -> list[PlanStep]:
    """Every group, call and view as a step.

    One that overwrites a module buffer waits for all its readers, one that draws for the draws before it.
    """
    steps: list[PlanStep] = []
    for group in scheduler.groups:
        reads = {r for item in group.items for r in scheduler.reads[item.name]}
        steps.append(PlanStep(group, reads, {i.name for i in group.items}, len(steps)))
    for call in lowered.calls:
        steps.append(PlanStep(call, set(call.refs.values()), set(call.outputs), len(steps)))
    for view in lowered.views:
        steps.append(PlanStep(view, {view.source}, {view.name}, len(steps)))
    for group in scheduler.groups:
        for item in group.items:
            if item.target:
                writer = next(s for s in steps if s.what is group)
                writer.waits |= {s.number for s in steps if item.target in s.reads and s.what is not group}
    drawing = {id(call) for call in draws_in_order(lowered)}
    for before, after in pairwise(step for step in steps if id(step.what) in drawing):
        after.waits.add(before.number)
    return steps


def draws_in_order(lowered: Lowered) -> list[LibraryCall]:
    """The calls that take numbers from the generator, in the module's order."""
    return [call for call in lowered.calls if draws_numbers(call.node)]


def stored_items(lowered: Lowered, scheduler: Scheduler, steps: Sequence[PlanStep]) -> set[str]:
    """Items that must reach memory: read by another step, returned, or kept in a module buffer."""
    wanted = set(lowered.outputs.values())
    for step in steps:
        for name in step.reads:
            home = scheduler.home.get(name)
            if home is not None and home is not step.what:
                wanted.add(name)
    return wanted | {i.name for i in lowered.items if i.target}


def order(steps: Sequence[PlanStep], joins: Callable[[PlanStep], bool]) -> list[PlanStep]:
    """A topological order, stable but for steps that `joins` holds of: one that none before it in a row provides for
    comes up to WINDOW steps earlier, so that they are neighbours (plan/joining.py). Raises RuntimeError on a cycle.
    """
    left, done, out = list(steps), set[str](), []
    made = {name for step in steps for name in step.provides}
    finished: set[int] = set()
    row: list[PlanStep] = []  # the last steps in a row that wait for none of each other

    def ready(s: PlanStep) -> bool:
        return not (s.reads & made) - done - s.provides and s.waits <= finished

    def apart(s: PlanStep) -> bool:
        return joins(s) and not any(s.reads & other.provides or other.number in s.waits for other in row)

    while left:
        early = next((s for s in left[:WINDOW] if apart(s) and ready(s)), None) if row else None
        step = early or next((s for s in left if ready(s)), None)
        if step is None:
            raise RuntimeError("the plan has a cycle")
        row = [*row, step] if step is early else [step] * joins(step)
        left.remove(step)
        done |= step.provides
        finished.add(step.number)
        out.append(step)
    return out
