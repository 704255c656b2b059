"""A side of a timed comparison: a candidate or a baseline, called repeatedly in one process (docs/measurement.md).

The candidate and each baseline are a `TimedSide`. An implementation only runs calls and reads clocks; the parent
process decides which side runs when and how often, and interprets the times (`hipwright.measure.paired_timing`).

Rules for an implementation:

- `block(calls)` runs the calls one after another on the current stream, each on the next of the rotating input slots
  (the rotation continues from block to block), with nothing between them but the launch; outputs are not read back.
- device_ms: two device events, one right before the first call and one right after the last, on that stream.
- host_ms: the worker's monotonic clock around the calls AND a synchronize of the whole device after them. Before the
  clock starts: a trivial kernel and a synchronize of the whole device, so that earlier work is not counted, and the GPU
  has switched to this process already (about 140 us on an H200).
- wall_ms: the parent's monotonic clock around the request, filled in by the parent's side of the endpoint, so it
  includes the messages.
- Warm-up goes through the same `block`: a side cannot tell whether a block counts.
- `block(0)` is legal: an empty block, by which the overhead of the three clocks is calibrated.
- Errors are the endpoint's own (`CandidateError`, `DeviceError`); timing raises no others.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

Policy = Literal["graph", "stream"]


@dataclass(frozen=True)
class LaunchMode:
    """How a side launches its calls. why: the reason where the policy is not "graph", else "". call_ms: an estimate.

    prepare_ms: milliseconds spent in packing weights (a program's `prepare`), once; None where there is none.
    own_time: share of a call's device time in the program's own kernels, 0 to 1; None where it is unknown.
    """

    policy: Policy
    why: str = ""
    call_ms: float = 0.0
    prepare_ms: float | None = None
    own_time: float | None = None


@dataclass(frozen=True)
class TimedBlock:
    """One block: milliseconds of all its calls by three clocks (see the module).

    calls: the calls that were run, at least as many as requested: where one graph holds a round through all slots,
    rounds are completed. Only a worker without host code is trusted to report it.
    """

    calls: int
    device_ms: float
    host_ms: float
    wall_ms: float


class TimedSide(Protocol):
    """A candidate or baseline that can be timed; the module lists the rules for implementations."""

    @property
    def name(self) -> str:
        """Its name in records: "candidate", "eager", "compile"."""
        ...

    def prepare(self, iterations_hint: int) -> LaunchMode:
        """Warm up with about this many calls, and capture graphs where that was enabled. Called before any block."""
        ...

    def stream(self, why: str) -> None:
        """Launch on the stream from now on: another side could not be captured, and all sides use the same policy."""
        ...

    def block(self, calls: int) -> TimedBlock:
        """Run `calls` calls back to back over the rotating slots, and read the clocks."""
        ...

    def latency(self, calls: int) -> tuple[float, ...]:
        """End-to-end milliseconds of single calls by the host's clock, each synchronised, never from a graph."""
        ...
