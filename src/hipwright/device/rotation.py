"""Calls over rotating inputs, timed by two clocks; every timed side runs them. Imports torch.

One call is too short to be launched and timed by itself, so all slots are captured in one graph where that is possible,
and a block replays it: a launch from Python costs more than a small kernel. Before its clocks start, each block runs a
trivial kernel: the first work after another process used the GPU waits about 150 µs for the switch (measured on an
H200). The parent interprets the times (hipwright.measure.paired_timing).
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch

from hipwright.targets import TORCH_GPU

WARM_CALLS = 3
CACHED_BYTES = 2 << 30  # that torch may have cached while a graph is captured
ROUND_MS = 10.0
"""All slots are captured in one graph where a round through them takes no longer than this, launched one by one."""


class Rotation:
    """Runs call(slot) on slots 0, 1, ... in turn.

    graph: whether to capture graphs; whole_rounds: whether one graph may hold all slots. around: a context for every
    batch of calls. stream: of captures and calls (None: the current one). pool: of the graphs' memory. check_device:
    raises the errors of kernels that ran. keep_outputs: False lets graphs that share a pool share memory for outputs
    too.
    """

    def __init__(
        self,
        call: Callable[[int], Any],
        slots: int,
        device: torch.device,
        *,
        graph: bool,
        whole_rounds: bool = True,
        keep_outputs: bool = True,
        around: Callable[[], AbstractContextManager[Any]] = nullcontext,
        stream: Any = None,
        pool: Any = None,
        check_device: Callable[[], None] = lambda: None,
    ) -> None:
        self.outputs: list[Any] = [None] * slots
        self.keep = False
        self.why = "" if graph else "not asked for"
        self._call, self._slots, self._device = call, slots, device
        self._on_gpu = device.type == TORCH_GPU
        self._pulse = torch.zeros(1, device=device) if self._on_gpu else None
        self._around, self._stream, self._pool, self._check_device = around, stream, pool, check_device
        self._whole_rounds, self._keep_outputs = whole_rounds, keep_outputs
        self._graphs: list[Any] = []
        self._round: Any = None
        self._next = 0

    @property
    def policy(self) -> str:
        """How calls are launched: "graph" or "stream"."""
        return "graph" if self._graphs or self._round else "stream"

    def prepare(self, calls: int) -> dict[str, Any]:
        """Warm up every slot, capture if enabled, run about `calls` calls; {"policy", "why", "call_ms"}."""
        round_ms = self._warm()
        if not self.why and self.policy == "stream":
            self._capture(self._whole_rounds and round_ms <= ROUND_MS)
        timed = self.block(max(1, min(calls, 1000)))
        return {"policy": self.policy, "why": self.why, "call_ms": timed["device_ms"] / timed["calls"]}

    def launch_on_stream(self, why: str) -> None:
        """Use no graphs from now on. why: the reason, for reports."""
        self._graphs, self._round, self.why = [], None, why
        self.outputs = [None] * self._slots

    def restart(self) -> None:
        """The next call is on slot 0."""
        self._next = 0

    def block(self, calls: int) -> dict[str, float]:
        """{"calls", "device_ms", "host_ms"} of at least `calls` calls back to back; a graph of all slots runs whole."""
        count = -(-calls // self._slots) * self._slots if self._round else calls
        with torch.no_grad(), self._around():
            begin, end = self._event(), self._event()
            self._wake()
            start = time.perf_counter()
            begin.record()
            self._run(count)
            end.record()
            self._wait()
            host = (time.perf_counter() - start) * 1e3
        self._check_device()
        return {"calls": count, "device_ms": begin.elapsed_time(end), "host_ms": host}

    def latency(self, calls: int) -> list[float]:
        """Milliseconds of single calls, each synchronised, never from a graph."""
        spent = []
        with torch.no_grad(), self._around():
            self._call(self._next_slot())
            for _ in range(calls):
                slot = self._next_slot()
                self._wait()
                start = time.perf_counter()
                self._call(slot)
                self._wait()
                spent.append((time.perf_counter() - start) * 1e3)
        self._check_device()
        return spent

    # ---------------------------------------------------------------- inside

    def _warm(self) -> float:
        """Milliseconds of the last round through all slots, launched one by one."""
        start = 0.0
        with torch.no_grad(), self._around():
            for round_ in range(-(-WARM_CALLS // self._slots) + 1):
                if round_ == 0:
                    self._wait()  # for other streams that may still write the inputs
                start = time.perf_counter()
                for slot in range(self._slots):
                    self._call(slot)
                self._wait()
                if round_ == 0:
                    self._check_device()
        return (time.perf_counter() - start) * 1e3

    def _capture(self, together: bool) -> None:
        """Capture one graph for all slots, or one for each. Outputs are kept, so that every slot has its own."""
        if not self._on_gpu:
            self.why = "the cpu has no graphs"
            return
        outputs: list[Any] = []
        graphs = []
        groups = [range(self._slots)] if together else [range(n, n + 1) for n in range(self._slots)]
        try:
            with torch.no_grad(), self._around(), warnings.catch_warnings():
                warnings.simplefilter("ignore")  # a plan without kernels makes an empty graph
                for group in groups:
                    graph = torch.cuda.CUDAGraph()
                    with self._capturing(graph):
                        outputs += [self._call(slot) for slot in group]
                    graphs.append(graph)
                for graph in graphs:
                    graph.replay()
                self._wait()
        except Exception as error:  # whatever cannot be captured
            self._check_device()
            lines = str(error).strip().splitlines()
            self.why = f"it cannot be captured: {type(error).__name__}: {lines[0][:200] if lines else ''}"
            return
        self.outputs = outputs if self._keep_outputs else [None] * self._slots
        self._graphs, self._round = ([], graphs[0]) if together else (graphs, None)

    @contextmanager
    def _capturing(self, graph: Any) -> Iterator[None]:
        """As torch.cuda.graph, which would first synchronise and free all memory that torch has cached; allocating it
        again takes longer than a small capture."""
        device = self._device
        if torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device) > CACHED_BYTES:
            torch.cuda.empty_cache()  # a graph's memory cannot come from the cache
        current, stream = torch.cuda.current_stream(device), self._stream or torch.cuda.Stream(device)
        stream.wait_stream(current)
        with torch.cuda.stream(stream):
            graph.capture_begin(**({} if self._pool is None else {"pool": self._pool}))
            try:
                yield
            finally:
                graph.capture_end()
        current.wait_stream(stream)

    def _wake(self) -> None:
        """Run a trivial kernel, so that the GPU switches to this process, and wait."""
        if self._pulse is not None:
            self._pulse.add_(1.0)
        self._wait()

    def _run(self, calls: int) -> None:
        if self._round is not None:
            for _ in range(calls // self._slots):
                self._round.replay()
            return
        for _ in range(calls):
            slot = self._next_slot()
            if self._graphs:
                self._graphs[slot].replay()
            elif self.keep:
                self.outputs[slot] = self._call(slot)
            else:
                self._call(slot)

    def _next_slot(self) -> int:
        slot = self._next
        self._next = (slot + 1) % self._slots
        return slot

    def _wait(self) -> None:
        if self._on_gpu:
            torch.cuda.synchronize(self._device)

    def _event(self) -> Any:
        return torch.cuda.Event(enable_timing=True) if self._on_gpu else _HostEvent()


class _HostEvent:
    """A device event by the host's clock."""

    def __init__(self) -> None:
        self._at = 0.0

    def record(self) -> None:
        """Read the clock."""
        self._at = time.perf_counter()

    def elapsed_time(self, end: _HostEvent) -> float:
        """Milliseconds until another record."""
        return (end._at - self._at) * 1e3
