"""Times a candidate inside its worker: rotating slots, graphs, two clocks. Imports torch.

The figures are interpreted by hipwright.measure, which also decides whether a block counts. After `reveal` the next
block runs on values that nobody could know before, over outputs that hold poison; its outputs are verified.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from hipwright.device.poison import pattern
from hipwright.device.rotation import Rotation
from hipwright.errors import CandidateError
from hipwright.verify.worker.trees import address, refill, tensors_of
from hipwright.verify.worker.watched import CallableSubject


class SubjectTimer:
    """One subject over its slots.

    slots: the arguments of each. graph: whether graphs may be tried; tours: graphs of a call on every slot. pool: of
    the graphs' memory, which other subjects' graphs may share, as a call's results are read before another subject
    runs.
    """

    def __init__(
        self,
        subject: CallableSubject,
        slots: Sequence[Sequence[Any]],
        device: str,
        *,
        graph: bool,
        tours: bool = True,
        pool: Any = None,
    ) -> None:
        self.subject = subject
        self._slots = slots
        self._rotation = Rotation(
            lambda slot: subject.forward(*slots[slot]),
            len(slots),
            torch.device(device),
            graph=graph,
            whole_rounds=tours,
            check_device=subject.settle,
            pool=pool,
        )

    def prepare(self, hint: int) -> dict[str, Any]:
        """Warms up with about `hint` calls and captures. Returns {"policy", "why", "call_ms", "prepare_ms"}."""
        prepare_ms = self._pack()
        return {**self._rotation.prepare(hint), "prepare_ms": prepare_ms}

    def policy(self) -> dict[str, Any]:
        """How calls are launched, and why not from a graph."""
        return {"policy": self._rotation.policy, "why": self._rotation.why}

    def stream(self, why: str) -> None:
        """Launches on the stream from now on."""
        self._rotation.launch_on_stream(why)

    def block(self, calls: int) -> dict[str, float]:
        """`calls` calls in a row: {"device_ms", "host_ms"} for all of them."""
        return self._rotation.block(calls)

    def latency(self, calls: int) -> list[float]:
        """Milliseconds of single calls, each waited for."""
        return self._rotation.latency(calls)

    def poison(self, byte: int) -> None:
        """Fills the outputs' memory, keeps every slot's outputs from now on, and calls slot 0 next.

        Graphs of single slots share memory: what an earlier slot's graph freed may hold a later slot's outputs, so that
        these are right only until the earlier slot is called again.
        """
        self._rotation.keep = True
        self._rotation.restart()
        given = {address(t) for t in tensors_of([list(self._slots), self.subject.params, self.subject.buffers])}
        for outputs in self._rotation.outputs:
            for tensor in tensors_of(outputs):
                if address(tensor) not in given:  # other memory is not the program's own
                    _poison(tensor, byte)

    def restart(self, buffers: Mapping[str, Any]) -> None:
        """Restores the buffers to these values, and calls slot 0 next: its output is that of a first call."""
        refill(self.subject.buffers, {path: buffers[path] for path in self.subject.buffers})
        self._rotation.restart()

    def outputs(self, slot: int) -> Any:
        """The outputs of the last call on a slot. Raises CandidateError if none were kept."""
        if self._rotation.outputs[slot] is None:
            raise CandidateError("this slot has not been called since its values were revealed", stage="measure")
        return self._rotation.outputs[slot]

    def _pack(self) -> float | None:
        """Milliseconds of packing weights, where the program does so and has not yet."""
        plan = getattr(self.subject, "plan", None)
        if plan is None:
            return None
        self.subject.settle()
        start = time.perf_counter()
        with torch.no_grad():
            packed = plan.prepare()
        self.subject.settle()
        return (time.perf_counter() - start) * 1e3 if packed else None


def _poison(tensor: Any, byte: int) -> None:
    if tensor.dtype == torch.bool:
        tensor.fill_(byte & 1)
    elif tensor.element_size() == 1:
        tensor.view(torch.uint8).fill_(byte)
    elif tensor.numel():
        word = pattern(byte)
        size = tensor.element_size()
        kind = {2: torch.int16, 4: torch.int32, 8: torch.int64}[size]
        repeated = int.from_bytes(word.to_bytes(2, "little") * (size // 2), "little", signed=True)
        tensor.view(kind).fill_(repeated)
