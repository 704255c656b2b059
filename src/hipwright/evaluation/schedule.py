"""Assigns jobs to GPUs: bookkeeping only, for the dispatcher (evaluation/pool.py), which calls it under one lock.

Jobs of one group (a task) share a reference that is open on the GPUs that own the group. A GPU stays with its group
while that has jobs, then takes the first group without an owner, then helps another group where the remaining work
outweighs opening its reference.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class EvaluationJob:
    """One evaluation. key: unique; group: the task, or "" where jobs share nothing; payload: the caller's."""

    key: str
    group: str
    payload: Any = None


@dataclass
class _Group:
    to_build: deque[EvaluationJob] = field(default_factory=deque)
    building: int = 0
    ready: deque[tuple[EvaluationJob, Any]] = field(default_factory=deque)
    owners: set[str] = field(default_factory=set)

    @property
    def left(self) -> int:
        return len(self.to_build) + self.building + len(self.ready)


_MANY_LEFT = 4  # jobs left for each GPU of a group that justify another GPU before anything was measured


class RunningMean:
    """A running mean over about the last ten observations."""

    def __init__(self) -> None:
        self.value: float | None = None

    def add(self, value: float) -> None:
        """Adds an observation."""
        self.value = value if self.value is None else 0.8 * self.value + 0.2 * value


class JobQueue:
    """Jobs that wait, are being built or are built, and the GPUs on which each group is open.

    ahead: the most built jobs that wait; devices: how many GPUs there are.
    """

    def __init__(self, jobs: Sequence[EvaluationJob], ahead: int, devices: int = 1) -> None:
        self._groups: dict[str, _Group] = {}
        for job in jobs:
            self._groups.setdefault(job.group, _Group()).to_build.append(job)
        self._ahead = ahead
        self._devices = devices
        self._avoid: dict[str, set[str]] = {}
        self._warm: dict[str, str] = {}
        self._opening: set[str] = set()
        self.build_s, self.prepare_s, self.work_s = RunningMean(), RunningMean(), RunningMean()

    def add_built(self, jobs: Sequence[EvaluationJob]) -> None:
        """More jobs, of known groups or others, that need no build.

        Groups without jobs that are open nowhere are forgotten.
        """
        for name in [name for name, group in self._groups.items() if not group.left and not group.owners]:
            del self._groups[name]
        for job in jobs:
            self._groups.setdefault(job.group, _Group()).ready.append((job, None))

    def ended(self, key: str) -> None:
        """Forgets where a job has failed."""
        self._avoid.pop(key, None)

    def next_build(self) -> EvaluationJob | None:
        """The next job to build: of the GPUs' own groups first, then in order; None when `ahead` jobs are built."""
        if sum(group.building + len(group.ready) for group in self._groups.values()) >= self._ahead:
            return None
        waiting = [group for group in self._groups.values() if group.to_build]
        if not waiting:
            return None
        # one for each idle GPU, two for each GPU that has the group open, then one for every other group in order
        fresh = [g for g in self._groups.values() if not g.owners and (g.building or g.ready)]
        idle = self._devices - len(self._warm) - len(fresh)
        new = next((g for g in waiting if idle > 0 and not g.owners and not g.building and not g.ready), None)
        group = new or min(waiting, key=lambda g: g.building + len(g.ready) - 2 * len(g.owners))
        group.building += 1
        return group.to_build.popleft()

    def built(self, job: EvaluationJob, value: Any) -> None:
        """Records that a build succeeded; a GPU may take the job."""
        group = self._groups[job.group]
        group.building -= 1
        group.ready.append((job, value))

    def build_failed(self, job: EvaluationJob, *, again: bool) -> None:
        """Records that a build failed; again: the job waits for another attempt."""
        group = self._groups[job.group]
        group.building -= 1
        if again:
            group.to_build.appendleft(job)

    def give_back(self, job: EvaluationJob, value: Any, avoid: str) -> None:
        """Returns a job that failed on the GPU `avoid` by a fault of the machine; another GPU takes it, if there is
        one.
        """
        self._avoid.setdefault(job.key, set()).add(avoid)
        self._groups[job.group].ready.appendleft((job, value))

    def lost(self, device: str) -> None:
        """Removes a GPU."""
        self._leave(device)
        for group in self._groups.values():
            group.owners.discard(device)

    def next_job(self, device: str, alive: Sequence[str]) -> tuple[EvaluationJob, Any] | None:
        """The next job for `device`; None when it should wait."""
        name = self._choose(device, alive)
        if name is None:
            return None
        group = self._groups[name]
        place = next(i for i, (job, _) in enumerate(group.ready) if self._allowed(job, device, alive))
        found = group.ready[place]
        del group.ready[place]
        if self._warm.get(device) != name:
            self._leave(device)
            self._warm[device] = name
            self._opening.add(device)
        group.owners.add(device)
        return found

    def spent(self, device: str, prepare: float, work: float) -> None:
        """Records the seconds of a device's evaluation. A group's first there pays for its opening, also where it works
        longer than others: baselines are compiled, memory is drawn for the first time."""
        if device not in self._opening:
            self.work_s.add(work)
            return
        self._opening.discard(device)
        usual = self.work_s.value or 0.0
        self.prepare_s.add(prepare + max(0.0, work - usual))

    def remaining(self) -> list[EvaluationJob]:
        """How many jobs nobody has taken: to build, or built."""
        waiting = [job for group in self._groups.values() for job in group.to_build]
        return waiting + [job for group in self._groups.values() for job, _ in group.ready]

    # ---------------------------------------------------------------- choices

    def _choose(self, device: str, alive: Sequence[str]) -> str | None:
        def has_work(group: _Group) -> bool:
            return any(self._allowed(job, device, alive) for job, _ in group.ready)

        mine = self._warm.get(device)
        if mine is not None and has_work(self._groups[mine]):
            return mine
        usable = [name for name, group in self._groups.items() if has_work(group)]
        if mine is not None and self._groups[mine].building and self._build_comes_sooner():
            return None  # the group's next program is being built
        free = next((name for name in usable if not self._groups[name].owners), None)
        if free is not None:
            return free
        if self._first_build_pending():
            return None
        return max((name for name in usable if self._pays_to_help(name)), key=self._share, default=None)

    def _build_comes_sooner(self) -> bool:
        """Whether waiting for a build costs less than opening another reference; True until both costs are known."""
        build, prepare = self.build_s.value, self.prepare_s.value
        return build is None or prepare is None or build < prepare

    def _first_build_pending(self) -> bool:
        """Whether a group without an owner is about to have its first built program."""
        return self._build_comes_sooner() and any(
            group.building and not group.owners for group in self._groups.values()
        )

    def _pays_to_help(self, name: str) -> bool:
        """Whether helping with a group pays for opening its reference once more."""
        group = self._groups[name]
        if self._avoid and any(job.key in self._avoid for job, _ in group.ready):
            return True
        prepare, work, share = self.prepare_s.value, self.work_s.value, self._share(name)
        return share >= _MANY_LEFT if prepare is None or work is None else share * work >= 2 * prepare

    def _share(self, name: str) -> float:
        group = self._groups[name]
        return group.left / max(1, len(group.owners))

    def _allowed(self, job: EvaluationJob, device: str, alive: Sequence[str]) -> bool:
        avoid = self._avoid.get(job.key, set())
        return device not in avoid or avoid.issuperset(alive)

    def _leave(self, device: str) -> None:
        before = self._warm.pop(device, None)
        if before is not None:
            self._groups[before].owners.discard(device)
