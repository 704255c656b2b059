"""Timing a candidate inside its worker: rotating slots, graphs, two clocks. Imports torch.

Nothing here says what the numbers mean (hipwright.measure does) or whether a block counts. After `reveal` the next
block runs on values that nobody could know before, over outputs that hold poison: what it leaves is verified.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Sequence
from typing import Any

import torch

from hipwright.device.memory import pattern
from hipwright.errors import CandidateError
from hipwright.verify.live import Subject, tensors_of

WARM_CALLS = 3


class Timer:
    """One subject over its slots. slots: the arguments of each. graph: whether graphs may be tried."""

    def __init__(self, subject: Subject, slots: Sequence[Sequence[Any]], device: str, *, graph: bool) -> None:
        self.subject = subject
        self._slots = slots
        self._device = torch.device(device)
        self._on_gpu = self._device.type == "cuda"
        self._wanted = graph
        self._why = "" if graph else "no graph was asked for"
        self._graphs: list[Any] = []
        self._outputs: list[Any] = [None] * len(slots)
        self._keep = False
        self._next = 0

    def prepare(self, hint: int) -> dict[str, Any]:
        """Warm up with about `hint` calls, capture. {"policy", "why", "call_ms", "prepare_ms"}."""
        prepare_ms = self._pack()
        for _ in range(max(WARM_CALLS, len(self._slots))):
            self._call(self._next_slot())
        self.subject.settle()
        if self._wanted and not self._graphs:
            self._why = self._capture()
        calls = max(1, min(hint, 1000))
        told = self.block(calls)
        return {**self.policy(), "call_ms": told["device_ms"] / calls, "prepare_ms": prepare_ms}

    def policy(self) -> dict[str, Any]:
        """How calls are launched, and why not from a graph."""
        return {"policy": "graph" if self._graphs else "stream", "why": self._why}

    def stream(self, why: str) -> None:
        """Launch on the stream from now on."""
        self._graphs, self._wanted, self._why = [], False, why
        self._outputs = [None] * len(self._slots)

    def block(self, calls: int) -> dict[str, float]:
        """`calls` calls back to back, {"device_ms", "host_ms"} for all of them."""
        begin, end = self._event(), self._event()
        self._wait()
        start = time.perf_counter()
        begin.record()
        with torch.no_grad():
            for _ in range(calls):
                self._step()
        end.record()
        self._wait()
        host = (time.perf_counter() - start) * 1e3
        self.subject.settle()
        return {"device_ms": begin.elapsed_time(end), "host_ms": host}

    def latency(self, calls: int) -> list[float]:
        """Milliseconds of single calls, each waited for."""
        spent = []
        with torch.no_grad():
            for _ in range(calls):
                slot = self._next_slot()
                self._wait()
                start = time.perf_counter()
                self.subject.forward(*self._slots[slot])
                self._wait()
                spent.append((time.perf_counter() - start) * 1e3)
        self.subject.settle()
        return spent

    def poison(self, byte: int) -> None:
        """Fill what the outputs lie in, and keep every slot's outputs from now on."""
        self._keep = True
        for outputs in self._outputs:
            for tensor in tensors_of(outputs):
                _poison(tensor, byte)

    def outputs(self, slot: int) -> Any:
        """What the last call on a slot returned. CandidateError if none was kept."""
        if self._outputs[slot] is None:
            raise CandidateError("this slot has not been called since its values were revealed", stage="measure")
        return self._outputs[slot]

    # ---------------------------------------------------------------- inside

    def _pack(self) -> float | None:
        """Milliseconds of packing weights, where the program does that and has not yet."""
        plan = getattr(self.subject, "plan", None)
        if plan is None:
            return None
        self._wait()
        start = time.perf_counter()
        with torch.no_grad():
            packed = plan.prepare()
        self.subject.settle()
        return (time.perf_counter() - start) * 1e3 if packed else None

    def _capture(self) -> str:
        """A graph for each slot, with memory of its own; "" or why there is none."""
        if not self._on_gpu:
            return "the cpu has no graphs"
        graphs, outputs = [], []
        try:
            with torch.no_grad(), warnings.catch_warnings():
                warnings.simplefilter("ignore")  # a plan without kernels makes an empty graph
                for slot in self._slots:
                    graph = torch.cuda.CUDAGraph()
                    with torch.cuda.graph(graph):
                        outputs.append(self.subject.forward(*slot))
                    graphs.append(graph)
            for graph in graphs:
                graph.replay()
            self._wait()
        except Exception as error:
            self.subject.settle()
            return f"it cannot be captured: {str(error).splitlines()[0][:200] if str(error) else type(error).__name__}"
        self._graphs, self._outputs = graphs, outputs
        return ""

    def _step(self) -> None:
        slot = self._next_slot()
        if self._graphs:
            self._graphs[slot].replay()
        else:
            self._call(slot)

    def _call(self, slot: int) -> None:
        with torch.no_grad():
            outputs = self.subject.forward(*self._slots[slot])
        if self._keep:
            self._outputs[slot] = outputs

    def _next_slot(self) -> int:
        slot = self._next
        self._next = (slot + 1) % len(self._slots)
        return slot

    def _wait(self) -> None:
        if self._on_gpu:
            torch.cuda.synchronize(self._device)

    def _event(self) -> Any:
        return torch.cuda.Event(enable_timing=True) if self._on_gpu else _HostEvent()


class _HostEvent:
    """The host's clock in the role of a device event."""

    def __init__(self) -> None:
        self._at = 0.0

    def record(self) -> None:
        self._at = time.perf_counter()

    def elapsed_time(self, end: _HostEvent) -> float:
        return (end._at - self._at) * 1e3


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
