"""Reservations of a GPU's memory by tasks: those run side by side that fit together, the others wait.

A task's need is estimated from its specs, and corrected by what the task took before. A task that runs
out of memory beside others is tried again alone; only alone can it, or a candidate, be at fault (docs/tasks.md).
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hipwright.evaluation.gpu.waits import WAITS
from hipwright.measure.cost import tensor_bytes
from hipwright.records import TensorSpec
from hipwright.task import Outline
from hipwright.tensors import leaves

PROCESSES_BYTES = 3 << 30
"""Of the two processes of a task beside its tensors: contexts, libraries' workspaces, memory that torch keeps."""
ROTATED_BYTES = 1 << 30
"""Of inputs that rotate, in each of the two."""
USABLE = 0.95
"""Of the device's memory."""
MULTIPLE = 4
"""A candidate that takes more than this many times the reference's memory, alone on the device, is at fault."""
LEARNT = 1.15
"""Times what a task took before."""
PASSES = 8
"""Tasks that may pass one that waits for more memory than they need."""


class DeviceMemory:
    """The memory of one GPU, in bytes. Safe to use from several threads."""

    def __init__(self, total: int) -> None:
        self.total = int(USABLE * total)
        self._changed = threading.Condition()
        self._inside: dict[Reservation, int] = {}
        self._queue: deque[Reservation] = deque()

    def reserve(self, need: int) -> Reservation:
        """Waits until so much is left, or nobody else is inside; a need above the total is the total.

        Smaller tasks pass a larger one that waits, `PASSES` of them at the most.
        """
        found = Reservation(self, min(need, self.total))
        self._wait(found)
        return found

    def _wait(self, one: Reservation) -> None:
        with self._changed:
            self._queue.append(one)
            try:
                with WAITS.waiting():
                    self._changed.wait_for(lambda: self._is_turn_of(one))
                self._inside[one] = one.need
                for other in self._queue:
                    if other is one:
                        break
                    other.passed += 1
            finally:
                self._queue.remove(one)
                self._changed.notify_all()

    def _is_turn_of(self, one: Reservation) -> bool:
        before = self._queue.index(one)
        waiting = (self._queue[place] for place in range(before))
        return self._fits(one.need) and all(other.passed < PASSES for other in waiting)

    def _fits(self, need: int) -> bool:
        return not self._inside or sum(self._inside.values()) + need <= self.total

    def _leave(self, one: Reservation) -> None:
        with self._changed:
            self._inside.pop(one, None)
            self._changed.notify_all()


class Reservation:
    """A task's place in a GPU's memory. need: bytes."""

    def __init__(self, memory: DeviceMemory, need: int) -> None:
        self.need = need
        self.passed = 0  # while it waits
        self._memory = memory

    @property
    def alone(self) -> bool:
        """Whether no other task fits beside it."""
        return self.need >= self._memory.total

    def become_alone(self) -> None:
        """Leaves, and comes back once nobody else is inside."""
        self.leave()
        self.need, self.passed = self._memory.total, 0
        self._memory._wait(self)

    def leave(self) -> None:
        """Gives the memory back."""
        self._memory._leave(self)


def estimated_bytes(outline: Outline) -> int:
    """Bytes of device memory of a task's two processes, from specs alone.

    Each holds the rotating inputs and outputs, and what an operator makes beyond them. The reference holds parameters
    as a template, in two baselines and for a verification, and inputs and outputs of a verification. Its float64 runs
    take what is left, part by part; a task whose reference cannot be cut, and for which too little is left, is tried
    again alone.
    """

    def size(specs: Any) -> int:
        return sum(tensor_bytes(leaf.to_dict()) for leaf in leaves(specs) if isinstance(leaf, TensorSpec))

    inputs, outputs = size(outline.inputs), size(list(outline.outputs))
    state = size([outline.state["params"], outline.state["buffers"]])
    largest = max((sum(map(tensor_bytes, (*op["in"], *op["out"]))) for op in outline.ops), default=0)
    rotated = max(inputs + outputs, min(ROTATED_BYTES, 8 * (inputs + outputs)))
    made = max(0, largest - inputs - outputs)
    return PROCESSES_BYTES + 2 * rotated + 6 * state + 2 * (inputs + outputs) + 3 * made


def learnt_bytes(folder: Path, key: str, estimated: int) -> int:
    """The estimate, or what a task took before, with a margin: where that is less, or the estimate was too little.

    A float64 reference takes what is left, so that a larger figure alone does not say that so much is needed.
    """
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        known = json.loads(_file(folder, key).read_text())
        taken = int(LEARNT * int(known["bytes"]))
        return taken if known["ran_out"] else min(taken, estimated)
    return estimated


def learn(folder: Path, key: str, nbytes: int, *, ran_out: bool) -> None:
    """Keeps what a task took, and whether memory ran out, for the next time; a folder that cannot be written keeps
    nothing.
    """
    path = _file(folder, key)
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(f".{os.getpid()}.{threading.get_ident()}")
        part.write_text(json.dumps({"bytes": nbytes, "ran_out": ran_out}))
        part.replace(path)


def _file(folder: Path, key: str) -> Path:
    return folder / "device-memory" / f"{key}.json"


def figures(taken: Mapping[str, int]) -> str:
    """Bytes in words: "candidate 12.3 GB, reference 1.2 GB"."""
    return ", ".join(f"{name} {nbytes / 1e9:.1f} GB" for name, nbytes in taken.items())
