"""A program in the worker as one side of a timed comparison. Does not import torch."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from hipwright.device.timed_side import LaunchMode, TimedBlock
from hipwright.verify.candidate import POISON_B
from hipwright.verify.gpu.chunk_source import ChunkSource
from hipwright.verify.gpu.connection import Mode, RunInfo, as_candidate_error
from hipwright.verify.gpu.loaded import LoadedProgram
from hipwright.verify.reply import numbers, whole_numbers


class GpuSide:
    """A loaded program as `hipwright.device.timed_side.TimedSide`, over all slots of a set that was placed.

    `reveal` and `timed_output` show that the timed calls did the work. own_time: measure the share of the program's own
    kernels too. written: paths of inputs that the task writes. Raises CandidateError where the program fails.
    """

    def __init__(
        self,
        loaded: LoadedProgram,
        set_name: str,
        *,
        graph: bool,
        name: str = "candidate",
        own_time: bool = True,
        written: Sequence[str] = (),
    ) -> None:
        self.name, self._written = name, list(written)
        self._with_own_time = own_time
        self.set_name = set_name
        self._loaded = loaded
        self._slots = loaded.slot_count(set_name)
        self._graph = graph
        self._timer = self._open("run")
        self._prepared: LaunchMode | None = None

    def prepare(self, iterations_hint: int) -> LaunchMode:
        """Warms up, captures if requested and possible, and measures the share of the program's own kernels.

        Returns at once if that was done: score mode does it before a program has the GPU to itself.
        """
        if self._prepared is None:
            self._prepared = self._prepare(iterations_hint)
        return self._prepared

    def _prepare(self, iterations_hint: int) -> LaunchMode:
        reply = self._ask("time_prepare", {"hint": iterations_hint})
        policy = "graph" if reply.get("policy") == "graph" else "stream"
        call_ms = numbers(reply, "call_ms")[0]
        prepare = None if reply.get("prepare_ms") is None else numbers(reply, "prepare_ms")[0]
        own = self._own_time(call_ms, iterations_hint)
        return LaunchMode(policy, str(reply.get("why", ""))[:300], call_ms, prepare, own)  # type: ignore[arg-type]

    def stream(self, why: str) -> None:
        """Launches on the stream from now on."""
        self._ask("time_stream", {"why": why})
        self._prepared = None

    def block(self, calls: int) -> TimedBlock:
        """At least `calls` calls back to back."""
        start = time.perf_counter()
        reply = self._ask("time_block", {"calls": calls})
        wall = (time.perf_counter() - start) * 1e3
        # a full pass over the slots at most; for host code none is run, as its own report would not be trusted
        host_code = self._loaded.program.form != "program"
        made = calls if host_code else min(max(calls, whole_numbers(reply, "calls")[0]), calls + self._slots)
        return TimedBlock(made, numbers(reply, "device_ms")[0], numbers(reply, "host_ms")[0], wall)

    def latency(self, calls: int) -> tuple[float, ...]:
        """Milliseconds of single calls."""
        return numbers(self._ask("time_latency", {"calls": calls}), "ms")

    def reveal(self, slot: int, source: ChunkSource, poison: int = POISON_B, *, restart: bool = False) -> None:
        """Writes new values to a slot and poison to where outputs lie; the outputs of the next block are kept.

        restart: the next block begins with slot 0 and the state's own buffers, for a task whose outputs depend on what
        earlier calls wrote to them.
        """
        self._loaded.fill(self.set_name, slot, source)
        self._ask("time_reveal", {"poison": poison, "restart": restart})

    def timed_output(self, slot: int) -> RunInfo:
        """The outputs of the last timed call on a slot."""
        header = {"timer": self._timer, "set": self.set_name, "slot": slot}
        with as_candidate_error():
            reply, specs = self._loaded.call("time_output", header)
            return self._loaded.result(reply, specs, self.set_name, slot)

    def _own_time(self, call_ms: float, hint: int) -> float | None:
        """1 - time without the program's kernels / time with them; None where kernels cannot be left out."""
        if not self._with_own_time or self._loaded.program.form != "program" or call_ms <= 0.0:
            return None
        reply = self._ask("time_prepare", {"hint": hint}, self._open("noop"))
        return min(1.0, max(0.0, 1.0 - numbers(reply, "call_ms")[0] / call_ms))

    def _open(self, mode: Mode) -> int:
        header: dict[str, Any] = {"set": self.set_name, "slots": self._slots, "graph": self._graph, "mode": mode}
        header["written"] = self._written
        with as_candidate_error():
            reply, _ = self._loaded.call("time_open", header)
        return whole_numbers(reply, "timer")[0]

    def _ask(self, method: str, header: Mapping[str, Any], timer: int | None = None) -> dict[str, Any]:
        with as_candidate_error():
            reply, _ = self._loaded.call(method, {**header, "timer": timer or self._timer}, json_only=True)
        return reply
