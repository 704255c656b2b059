"""One task's place in a GPU's memory: when it enters, what happens where memory runs out, and what it took."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from msgspec import structs

from hipwright.errors import DeviceError, HipwrightError
from hipwright.evaluation.gpu.context import GpuContext
from hipwright.evaluation.gpu.memory import MULTIPLE, Reservation, TaskNeed, estimated, figures, learn, learnt_bytes
from hipwright.measure.paired_timing import TimingResult
from hipwright.records import Verdict
from hipwright.task import TaskHandle
from hipwright.verify.gpu.client import CandidateWorker
from hipwright.verify.gpu.reference import DeviceReference

Found = TypeVar("Found", Verdict, TimingResult)
KEPT_BYTES = 1 << 29
"""Of a process for draws and results of small shapes."""
LEAST_BYTES = 1 << 30
"""A reference counts as taking so much, so that small tasks leave candidates room for a workspace."""


class TaskRoom:
    """The memory of one task on one GPU; without `enter` the task takes what there is, and nobody is told apart.

    close: ends the task's own processes.
    """

    def __init__(self, gpu: GpuContext, handle: TaskHandle, close: Callable[[], None]) -> None:
        self._gpu, self._handle, self._close = gpu, handle, close
        self._reservation: Reservation | None = None
        self._need: TaskNeed | None = None
        self._ran_out = False

    def enter(self) -> None:
        """Waits until the task fits beside those that are open on the GPU."""
        if self._gpu.memory is None or self._reservation is not None:
            return
        need = self._gpu.memory.total
        with contextlib.suppress(HipwrightError):  # a task that cannot be traced has the GPU alone
            self._need = estimated(self._handle.outline(self._handle.task.workloads[0].name))
            need = self._need.total
        need = learnt_bytes(self._gpu.cache.folder, self._handle.task.key, need)
        if self._gpu.one_task:  # its expectations stay for the next candidate
            need = max(need, self._gpu.memory.total // 2)
        self._reservation = self._gpu.memory.reserve(need)

    def learn(
        self, reference: DeviceReference | None, holding: DeviceReference | None, worker: CandidateWorker
    ) -> None:
        """Keeps what the processes have taken at the most, for the next time."""
        if self._reservation is None or reference is None:
            return
        with contextlib.suppress(HipwrightError):
            taken = {"reference": reference.taken(), "candidate": worker.memory()["reserved"]}
            if all(taken.values()):
                taken["holding"] = holding.taken() if holding is not None else 0
                learn(self._gpu.cache.folder, self._handle.task.key, taken, ran_out=self._ran_out)

    def leave(self) -> None:
        """Gives the memory back, once the processes have ended."""
        if self._reservation is not None:
            self._reservation.leave()
        self._reservation = None

    def share(self, *, holding: bool = False) -> int:
        """Bytes that the reference's process, or that of held parameters, may keep; 0 for all that there are."""
        if self._reservation is None or self._reservation.alone or self._need is None:
            return 0
        more = max(0, self._reservation.need - self._need.total)  # by what it took before
        return more + (self._need.holding + self._need.case if holding else self._need.reference) + KEPT_BYTES

    def spare(self, wanted: int) -> contextlib.AbstractContextManager[int]:
        """Up to `wanted` bytes beyond its share that a process may use until the block ends."""
        if self._reservation is None:
            return contextlib.nullcontext(0)
        return self._reservation.spare(wanted, self._gpu.timing_lock.give_way)

    @property
    def crowded(self) -> bool:
        """Whether other tasks may hold the memory that this one lacks."""
        return self._reservation is not None and not self._reservation.alone

    @property
    def accompanied(self) -> bool:
        """Whether other tasks share the GPU now, so that what takes long may take long by them."""
        return self._reservation is not None and self._reservation.accompanied

    def within(self, work: Callable[[], Found], reference: Callable[[], DeviceReference]) -> Found:
        """What the work gives. Where memory runs out beside other tasks, it is done again with twice as much, or with
        what it lacked, and then alone on the device.

        Alone, a candidate is at fault that takes more than `MULTIPLE` times the reference's memory; what takes less is
        a DeviceError: the device is too small for both.
        """
        while True:
            lacked = 0
            try:
                found = work()
                if not (self.crowded and _memory(found)):
                    return self._blamed(found, reference)
            except HipwrightError as error:
                if not (self.crowded and "out_of_memory" in error.evidence):
                    raise
                lacked = int(error.evidence["out_of_memory"].get("lacked", 0))
            self._close()
            assert self._reservation is not None
            self._ran_out = True
            self._reservation.come_back(lacked)

    def _blamed(self, found: Found, reference: Callable[[], DeviceReference]) -> Found:
        told = _memory(found)
        if told is None or self._reservation is None:
            return found
        own, usual = int(told["own"]), max(reference().taken(), LEAST_BYTES)
        text = figures({"the candidate": own, "the reference": usual, "other processes": int(told["others"])})
        if own <= MULTIPLE * usual:
            raise DeviceError(
                f"the device has no room for the task and a candidate: {text}", hint="use a device with more memory"
            )
        allowed = f"({text}; {MULTIPLE} times the reference's memory are allowed)"
        if isinstance(found, Verdict):
            return structs.replace(found, message=f"{found.message} {allowed}")
        assert found.verdict is not None
        told_why = structs.replace(found.verdict, message=f"{found.verdict.message} {allowed}")
        return replace(found, verdict=told_why)


def _memory(found: Verdict | TimingResult) -> dict[str, int] | None:
    """What a verdict says about memory that ran out."""
    verdict = found if isinstance(found, Verdict) else found.verdict
    told = verdict.evidence.get("out_of_memory") if verdict is not None else None
    return told if isinstance(told, dict) and {"own", "others"} <= told.keys() else None
