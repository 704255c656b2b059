"""Reservations of a GPU's memory by tasks: those run side by side that fit together, the others wait.

A task's need is estimated from its specs, and corrected by what the task took before. A task that runs
out of memory beside others is tried again with twice as much, then alone; only alone can it, or a candidate, be at
fault (docs/tasks.md).
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hipwright.evaluation.gpu.waits import WAITS
from hipwright.measure.cost import ITEM_BYTES, tensor_bytes
from hipwright.records import TensorSpec
from hipwright.task import Outline
from hipwright.tensors import leaves

PROCESSES_BYTES = 7 << 29
"""Of the three processes of a task beside its tensors: contexts, libraries' workspaces, memory that torch keeps."""
CONTEXTS_BYTES = 3 << 30
"""Of the processes, which torch does not count."""
ROTATED_BYTES = 1 << 30
"""Of inputs that rotate, in each of the two."""
USABLE = 0.95
"""Of the device's memory."""
EXACT_BYTES = 6 << 30
"""Of a float64 reference at once, at the most; beyond, it takes what nobody has reserved, or runs in parts."""
DOUBLE_BYTES = 8
"""Of an element of float64."""
MULTIPLE = 4
"""A candidate that takes more than this many times the reference's memory, alone on the device, is at fault."""
LEARNT = 1.15
"""Times what a task took before."""
SPARE_S = 20.0
"""The longest that a task waits for memory that nobody has reserved."""
PASSES = 8
"""Tasks that may pass one that waits for more memory than they need, before they wait for it in turn."""
PATIENCE_S = 20.0
"""The longest that they do: a task inside may compile for minutes, and the device would idle."""


class GpuMemory(ABC):
    """The memory of one GPU, in bytes. total: what may be reserved. Safe to use from several threads."""

    def __init__(self, total: int) -> None:
        self.total = int(USABLE * total)

    def reserve(self, need: int, *, again: bool = False) -> Reservation:
        """Waits until so much is left, or nobody else is inside; a need above the total is the total.

        Smaller tasks pass a larger one that waits, `PASSES` of them, and again as many whenever PATIENCE_S have gone.
        again: the task was inside before; it comes before all who were not, and nobody passes it.
        """
        found = Reservation(self, min(need, self.total), again=again)
        self._wait(found)
        return found

    @abstractmethod
    def _wait(self, one: Reservation) -> None:
        """Waits until a reservation has its turn."""

    @abstractmethod
    def spare(self, one: Reservation, wanted: int, pause: Callable[[], None]) -> contextlib.AbstractContextManager[int]:
        """Up to `wanted` bytes that nobody has reserved, for this task until the block ends.

        Waits up to SPARE_S for others to end, `pause` called again and again meanwhile, then gives what there is. Tasks
        that wait to get in come after it.
        """

    @abstractmethod
    def accompanies(self, one: Reservation) -> bool:
        """Whether other tasks are inside now."""

    @abstractmethod
    def _leave(self, one: Reservation) -> None:
        """Gives a reservation's memory back, where it has any."""


class DeviceMemory(GpuMemory):
    """The memory itself, for the threads of this process."""

    def __init__(self, total: int) -> None:
        super().__init__(total)
        self._changed = threading.Condition()
        self._inside: dict[Reservation, int] = {}
        self._queue: deque[Reservation] = deque()
        self._borrowing = 0  # tasks that wait for spare memory

    def _wait(self, one: Reservation) -> None:
        with self._changed:
            self._queue.insert(self._place(one), one)
            try:
                with WAITS.waiting():
                    while not self._is_turn_of(one):
                        self._changed.wait(1.0)
                self._inside[one] = one.need
                for other in self._queue:
                    if other is one:
                        break
                    other.let_pass()
            finally:
                self._queue.remove(one)
                self._changed.notify_all()

    def _place(self, one: Reservation) -> int:
        """Where it waits: who was inside before comes first."""
        return sum(other.again for other in self._queue) if one.again else len(self._queue)

    def _is_turn_of(self, one: Reservation) -> bool:
        before = self._queue.index(one)
        waiting = (self._queue[place] for place in range(before))
        fits = self._fits(one.need) and not (self._borrowing and self._inside)
        return fits and not any(other.holds_up() for other in waiting)

    def _fits(self, need: int) -> bool:
        return not self._inside or sum(self._inside.values()) + need <= self.total

    @contextlib.contextmanager
    def spare(self, one: Reservation, wanted: int, pause: Callable[[], None]) -> Iterator[int]:
        """As of GpuMemory."""
        more, until = 0, time.monotonic() + SPARE_S
        with self._changed:
            self._borrowing += 1
        try:
            with WAITS.waiting():
                while more < wanted:
                    pause()
                    with self._changed:
                        left = self.total - sum(self._inside.values())
                        if one in self._inside and (left >= wanted or time.monotonic() > until):
                            more = min(max(left, 0), wanted)
                            self._inside[one] += more
                            break
                        self._changed.wait(0.05)
        finally:
            with self._changed:
                self._borrowing -= 1
                self._changed.notify_all()
        try:
            yield more
        finally:
            with self._changed:
                if one in self._inside:
                    self._inside[one] -= more
                self._changed.notify_all()

    def accompanies(self, one: Reservation) -> bool:
        """As of GpuMemory."""
        with self._changed:
            return any(other is not one for other in self._inside)

    def _leave(self, one: Reservation) -> None:
        with self._changed:
            self._inside.pop(one, None)
            self._changed.notify_all()


class Reservation:
    """A task's place in a GPU's memory. need: bytes. again: whether it was inside before, and nobody passes it."""

    def __init__(self, memory: GpuMemory, need: int, *, again: bool = False) -> None:
        self.need, self.again = need, again
        self._passed, self._until = 0, 0.0  # while it waits
        self._memory = memory

    @property
    def alone(self) -> bool:
        """Whether no other task fits beside it."""
        return self.need >= self._memory.total

    @property
    def accompanied(self) -> bool:
        """Whether other tasks share the GPU now."""
        return self._memory.accompanies(self)

    def let_pass(self) -> None:
        """Notes that another went first."""
        self._passed += 1
        if self._passed == PASSES:
            self._until = time.monotonic() + PATIENCE_S

    def holds_up(self) -> bool:
        """Whether those behind it wait for it."""
        if self.again:
            return True
        if self._passed >= PASSES and time.monotonic() >= self._until:
            self._passed = 0
        return self._passed >= PASSES

    def spare(self, wanted: int, pause: Callable[[], None]) -> contextlib.AbstractContextManager[int]:
        """See `GpuMemory.spare`."""
        return self._memory.spare(self, wanted, pause)

    def come_back(self, more: int = 0) -> None:
        """Leaves, and comes back with twice as much or with `more` bytes more; the second time, alone."""
        self.leave()
        self.need = self._memory.total if self.again else min(max(2 * self.need, self.need + more), self._memory.total)
        self.again = True
        self._memory._wait(self)

    def leave(self) -> None:
        """Gives the memory back."""
        self._memory._leave(self)


@dataclass(frozen=True)
class TaskNeed:
    """Bytes of device memory of a task's processes: the candidate's, the reference's, and that of held parameters.

    case: what one expectation takes, in the process of held parameters while the baselines are compiled, in the
    reference's when they are timed; counted once.
    """

    candidate: int
    reference: int
    holding: int
    case: int = 0

    @property
    def total(self) -> int:
        """Of all, with what torch does not count."""
        return PROCESSES_BYTES + self.candidate + self.reference + self.holding


def estimated(outline: Outline) -> TaskNeed:
    """The need of a task, from specs alone.

    Candidate and reference each hold the rotating inputs and outputs, what operators make beyond them, and inputs
    and outputs of a verification. The reference holds parameters as a template, in two baselines and for a
    verification, and a float64 run up to EXACT_BYTES; the process of held parameters half a dozen states, and as much
    of models set to them, in the task's dtype and float64.
    """

    def size(specs: Any) -> int:
        return sum(tensor_bytes(leaf.to_dict()) for leaf in leaves(specs) if isinstance(leaf, TensorSpec))

    both = size(outline.inputs) + size(list(outline.outputs))
    state = size([outline.state["params"], outline.state["buffers"]])
    largest = max((sum(map(tensor_bytes, (*op["in"], *op["out"]))) for op in outline.ops), default=0)
    rotated = max(both, min(ROTATED_BYTES, 8 * both))
    made = max(0, largest - both, outline.live - size(list(outline.outputs)))
    exact = min(_wider(outline) * (2 * both + made + 2 * state), EXACT_BYTES)
    return TaskNeed(
        candidate=rotated + 2 * state + both + made,
        reference=rotated + 4 * state + both + 2 * made + exact,
        holding=12 * state,
        case=both + made + exact,
    )


def _wider(outline: Outline) -> int:
    """How many times as wide as the outputs' elements those of float64 are."""
    floats = [ITEM_BYTES.get(spec.dtype, 8) for spec in outline.outputs if "float" in spec.dtype]
    return DOUBLE_BYTES // min(floats, default=DOUBLE_BYTES // 2)


def learnt_bytes(folder: Path, key: str, estimated: int) -> int:
    """The estimate, or what a task took before, with a margin: where that is less, or the estimate was too little.

    A float64 reference takes what is spare, so that a larger figure alone does not say that so much is needed.
    """
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        known = json.loads(_file(folder, key).read_text())
        taken = int(LEARNT * int(known["bytes"]))
        return taken if known["ran_out"] else min(taken, estimated)
    return estimated


def learn(folder: Path, key: str, taken: Mapping[str, int], *, ran_out: bool) -> None:
    """Keeps the bytes that a task's processes took, and whether memory ran out, for the next time; a folder that cannot
    be written keeps nothing.
    """
    path = _file(folder, key)
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(f".{os.getpid()}.{threading.get_ident()}")
        total = sum(taken.values()) + CONTEXTS_BYTES
        part.write_text(json.dumps({"bytes": total, "ran_out": ran_out, "taken": dict(taken)}))
        part.replace(path)


def _file(folder: Path, key: str) -> Path:
    return folder / "device-memory" / f"{key}.json"


def figures(taken: Mapping[str, int]) -> str:
    """Bytes in words: "candidate 12.3 GB, reference 1.2 GB"."""
    return ", ".join(f"{name} {nbytes / 1e9:.1f} GB" for name, nbytes in taken.items())
