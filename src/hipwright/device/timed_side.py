"""A side of a timed comparison: one thing, in one process, that can be called again and again (docs/measurement.md).

The candidate and each baseline is a `TimedSide`. Whatever implements one only runs calls and reads clocks; which side
runs when, how often, and what the numbers mean is decided in the parent process by `hipwright.measure.paired_timing`.

Rules for an implementation:

- `block(calls)` runs the calls one after another on the current stream, each on the next of the rotating input slots
  (the rotation continues from block to block), with nothing between them but the launch; outputs are not read back.
- device_ms: two device events, one right before the first call and one right after the last, on that stream.
- host_ms: the worker's monotonic clock around the calls AND a synchronize of the whole device after them. Before the
  clock starts: a trivial kernel and a synchronize of the whole device, so that nothing older is counted, and the GPU
  has already changed to this process (about 140 us on an H200).
- wall_ms: the parent's monotonic clock around the request, filled in by the parent's side of the endpoint, so it
  holds the messages too.
- Warm-up goes through the same `block`: nothing tells a side whether a block counts.
- `block(0)` is legal: an empty block, by which the overhead of the three clocks is calibrated.
- Errors are the endpoint's own (`CandidateError`, `DeviceError`): timing adds none.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

Policy = Literal["graph", "stream"]


@dataclass(frozen=True)
class LaunchMode:
    """How a side will launch its calls. why: the reason when it is not "graph", else "". call_ms: a rough estimate.

    prepare_ms: milliseconds spent in packing weights (a program's `prepare`), once; None where there is none.
    own_time: share of a call's device time in the program's own kernels, 0 to 1, where the side can tell.
    """

    policy: Policy
    why: str = ""
    call_ms: float = 0.0
    prepare_ms: float | None = None
    own_time: float | None = None


@dataclass(frozen=True)
class TimedBlock:
    """One block, milliseconds for the whole of it by three clocks (see the module).

    calls: those that were run, at least those asked for: where one graph holds a tour through all slots, whole tours
    are run. Only the word of a worker without host code is taken for it.
    """

    calls: int
    device_ms: float
    host_ms: float
    wall_ms: float


class TimedSide(Protocol):
    """One thing that can be timed; see the module for what an implementation must do."""

    @property
    def name(self) -> str:
        """ "candidate", "eager", "compile": as it is called in the records."""
        ...

    def prepare(self, iterations_hint: int) -> LaunchMode:
        """Warm up with about this many calls, and capture graphs if asked to at opening. Called before any block."""
        ...

    def stream(self, why: str) -> None:
        """Launch on the stream from now on, for another side could not be captured: the policy is the same on all."""
        ...

    def block(self, calls: int) -> TimedBlock:
        """Run `calls` calls back to back over the rotating slots, and read the clocks."""
        ...

    def latency(self, calls: int) -> tuple[float, ...]:
        """End-to-end milliseconds of single calls by the host's clock, each synchronised, never from a graph."""
        ...
