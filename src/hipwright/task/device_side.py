"""The baselines, eager and torch.compile, as things that can be timed (hipwright.device.side). Runs in the device host.

The model runs as the file has it: its own dtype, the mode its constructor left, torch.no_grad(), the flags that the
file set (which hold in this process alone) and torch's defaults otherwise.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import Any

import torch

from hipwright.errors import TaskError
from hipwright.task.device_model import DeviceFile
from hipwright.tensors import Tree

_WARM = 3  # calls before a capture, for lazy initialisation and cuBLAS workspaces


class ModelSide:
    """One baseline on its slots. `compiled` runs the model through torch.compile; `graph` asks for CUDA graphs."""

    def __init__(
        self, file: DeviceFile, state: Tree, slots: list[list[Any]], *, compiled: bool, graph: bool, pool: Any
    ) -> None:
        self.file, self.slots = file, slots
        self.notes: list[str] = []
        self._device = file.device
        self._gpu = file.device.type == "cuda"
        self._stream = torch.cuda.Stream(file.device) if self._gpu else None
        self._run: Any = file.model(state)
        self._default_device = False
        self._next = 0
        self._graphs: list[Any] = []
        self._pool = pool
        self._why = "" if graph and self._gpu else "not asked for" if self._gpu else "the cpu has no graphs"
        if compiled:
            self._run = file.file.guarded(lambda: torch.compile(self._run, dynamic=False), "torch.compile")
        self._first_call()

    def _first_call(self) -> None:
        """Compile where that is wanted. Without torch's default-device mode if the model can: the mode costs time."""
        try:
            self._call_slot(0)
        except TaskError:
            self._default_device = True
            self.notes.append("forward makes tensors without naming a device: runs under torch's default-device mode")
            self._call_slot(0)

    def _call_slot(self, index: int) -> Any:
        def call() -> Any:
            with self._mode():
                return self._run(*self.slots[index])

        with torch.no_grad(), self._on_stream():
            out = self.file.file.guarded(call, "forward")
            self._wait()
            return out

    def _mode(self) -> contextlib.AbstractContextManager[Any]:
        return self._device if self._default_device else contextlib.nullcontext()

    @contextlib.contextmanager
    def _on_stream(self) -> Iterator[None]:
        if self._stream is None:
            yield
            return
        with torch.cuda.stream(self._stream):
            yield

    def _wait(self) -> None:
        if self._gpu:
            torch.cuda.synchronize(self._device)

    # ---------------------------------------------------------------- what a Side does

    def prepare(self, calls: int) -> dict[str, Any]:
        """{"policy", "why", "call_ms"}: warm up every slot, capture if asked to, then run about `calls` calls."""
        for index in range(len(self.slots)):
            for _ in range(_WARM):
                self._call_slot(index)
        if not self._why and not self._graphs:
            self._capture()
        count = max(1, calls)
        call_ms = self.block(count)["host_ms"] / count
        return {"policy": "graph" if self._graphs else "stream", "why": self._why, "call_ms": call_ms}

    def stream(self, why: str) -> None:
        """Drop the graphs."""
        self._graphs, self._why = [], why

    def _capture(self) -> None:
        """One graph per slot. Their outputs share a memory pool with the other side's, for replays never overlap."""
        graphs, outputs = [], []
        try:
            with torch.no_grad(), self._mode():
                for slot in self.slots:
                    graph = torch.cuda.CUDAGraph()
                    with torch.cuda.graph(graph, pool=self._pool, stream=self._stream):
                        outputs.append(self._run(*slot))  # kept, so that the next slot's output is elsewhere
                    graphs.append(graph)
            self._graphs = graphs
        except Exception as error:  # whatever a model does that cannot be captured
            lines = str(error).strip().splitlines()
            self._why = f"capture fails: {type(error).__name__}: {lines[0][:200] if lines else ''}"
            self._wait()

    def block(self, calls: int) -> dict[str, float]:
        """{"device_ms", "host_ms"} of `calls` calls back to back."""
        run, slots, graphs = self._run, self.slots, self._graphs
        with torch.no_grad(), self._mode(), self._on_stream():
            first, last = self._events()
            self._wait()
            start = time.perf_counter()
            first.record()
            for _ in range(calls):
                index = self._next
                self._next = (index + 1) % len(slots)
                if graphs:
                    graphs[index].replay()
                else:
                    run(*slots[index])
            last.record()
            self._wait()
            stop = time.perf_counter()
        return {"device_ms": first.elapsed_time(last), "host_ms": (stop - start) * 1e3}

    def latency(self, calls: int) -> list[float]:
        """Milliseconds of single calls, each synchronised, never from a graph."""
        found = []
        with torch.no_grad(), self._mode(), self._on_stream():
            for _ in range(calls):
                slot = self.slots[self._next]
                self._next = (self._next + 1) % len(self.slots)
                self._wait()
                start = time.perf_counter()
                self._run(*slot)
                self._wait()
                found.append((time.perf_counter() - start) * 1e3)
        return found

    def _events(self) -> tuple[Any, Any]:
        if self._gpu:
            return torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        return _Clock(), _Clock()


class _Clock:
    """A device event of the CPU, where work is done when a call returns."""

    def __init__(self) -> None:
        self._at = 0.0

    def record(self) -> None:
        """Read the clock."""
        self._at = time.perf_counter()

    def elapsed_time(self, later: _Clock) -> float:
        """Milliseconds until another."""
        return (later._at - self._at) * 1e3


def flags() -> dict[str, Any]:
    """Global settings that change what a baseline does, as they are now: torch's defaults or what the file set."""
    return {
        "matmul_precision": torch.get_float32_matmul_precision(),
        "matmul_tf32": torch.backends.cuda.matmul.allow_tf32,
        "cudnn_tf32": torch.backends.cudnn.allow_tf32,
        "cudnn_benchmark": torch.backends.cudnn.benchmark,
        "cudnn_deterministic": torch.backends.cudnn.deterministic,
        "fp16_reduced_precision": torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction,
        "bf16_reduced_precision": torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction,
        "deterministic_algorithms": torch.are_deterministic_algorithms_enabled(),
    }
