"""Handles of a `DeviceReference`: inputs for a worker to place, expectations, baselines to time.

Does not import torch.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from hipwright.device.timed_side import LaunchMode, TimedBlock
from hipwright.errors import TaskError, WorkerError
from hipwright.tensors import HostTensor, Tree
from hipwright.verify.gpu.bridge.parent import BridgedHost
from hipwright.verify.gpu.budget import prefetched

CHUNK_BYTES = 64 << 20
DRAWS = (
    "the task draws random numbers: on a device the reference and a program draw apart, so this is judged on smaller "
    "shapes alone, where both draw on the CPU"
)
COMPLEX = "results of complex dtypes are judged on smaller shapes alone, by the parent"
WRITES = "the task writes to its inputs: results are judged on smaller shapes alone, by the parent"


def unjudged(reply: Mapping[str, Any], overflow: str) -> str:
    """Why a case is not judged on a device, by the host's report, or `overflow`; "" where it is."""
    return DRAWS if reply["random"] else WRITES if reply["mutated"] else COMPLEX if reply["complex"] else overflow


@dataclass(frozen=True)
class InputSetId:
    """Identifies one set of inputs, from which the host can draw it again.

    family: "given", or "normal" and "outliers" made on the device. restricted: those keep to the given values' range.
    """

    workload: str
    seed: int
    family: str = "given"
    restricted: bool = False
    slot: int = 0


@dataclass(frozen=True)
class ExpectationInfo:
    """The expectation for one set of inputs and one state; its values are in the host, under `case`.

    tree: {"outputs": nesting, "buffers": {path: leaf}} with a TensorSpec for each tensor. reference: "float64",
    "float64 in N parts", or "native" where neither memory nor operators allow float64. moved: whether the reference
    also ran on nudged inputs. rejected, degenerate: why the case proves nothing, or "". notes: what was left out.
    """

    case: int
    drawn: InputSetId
    tree: Tree
    aliases: frozenset[tuple[str, str]] = frozenset()
    random: bool = False
    mutated: tuple[str, ...] = ()
    reference: str = "float64"
    moved: bool = True
    rejected: str = ""
    degenerate: str = ""
    notes: tuple[str, ...] = ()
    seconds: float = 0.0
    bytes_out: int = 0
    unchanged: frozenset[str] = field(default_factory=frozenset)

    @property
    def counts(self) -> bool:
        """Whether the case is evidence."""
        return not (self.rejected or self.degenerate)

    @property
    def writes_state(self) -> bool:
        """Whether the reference writes to a buffer, on which outputs of later calls may depend."""
        return any(f"buffer {path}" not in self.unchanged for path in self.tree["buffers"])


class ReferenceHost(BridgedHost, Protocol):
    """The `DeviceReference` that returned the handles, as they use it."""

    def ask(self, method: str, header: dict[str, Any], *, json_only: bool = False) -> tuple[dict[str, Any], Tree]:
        """A request to the host; json_only: without tensors."""
        ...

    def ask_once(self, method: str, drawn: InputSetId) -> tuple[dict[str, Any], Tree]:
        """A request about inputs whose reply cannot change, cached."""
        ...

    def header(self, drawn: InputSetId) -> dict[str, Any]:
        """A draw in the form of the host's requests."""
        ...


class BaselineMissing(TaskError):
    """torch.compile does not compile this model: there is no such baseline, which is nobody's fault."""


class InputSource:
    """One set of inputs in the host. `slot` returns the set with other values."""

    def __init__(self, reference: ReferenceHost, drawn: InputSetId) -> None:
        self.host = self._reference = reference
        self.drawn = drawn

    def slot(self, index: int) -> InputSource:
        """The set of another slot of the same seed."""
        return InputSource(self._reference, replace(self.drawn, slot=index))

    @property
    def arguments(self) -> list[Any]:
        """forward's arguments, with a TensorSpec for each tensor."""
        found: list[Any] = self._reference.ask_once("arguments", self.drawn)[1]
        return found

    @property
    def digest_seed(self) -> int:
        """The seed of `digests`."""
        return self.drawn.seed

    def digests(self) -> tuple[int, ...]:
        """`hipwright.digest.digest` of each tensor leaf under `digest_seed`."""
        reply = self._reference.ask_once("digests", self.drawn)[0]
        return tuple(int(text) for text in reply["digests"])

    @property
    def sizes(self) -> tuple[int, ...]:
        """Bytes of each tensor leaf's span."""
        return tuple(self._reference.ask_once("arguments", self.drawn)[0]["sizes"])

    def chunks(self, bytes_: int = CHUNK_BYTES) -> Iterator[tuple[int, int, HostTensor]]:
        """(leaf, offset, uint8 tensor) for the span (`hipwright.digest.span`) of every tensor leaf in order."""
        return prefetched(self._chunks(bytes_))

    def fetch(self, leaf: int, offset: int, bytes_: int) -> HostTensor:
        """Some bytes of a leaf's span."""
        header = {**self._reference.header(self.drawn), "leaf": leaf, "offset": offset, "bytes": bytes_}
        chunk: HostTensor = self._reference.ask("fetch", header)[1]
        return chunk

    def bridged(self, bridge: int, leaf: int, offset: int, bytes_: int) -> None:
        """Puts some bytes of a leaf's span into a bridge."""
        header = {**self._reference.header(self.drawn), "leaf": leaf, "offset": offset, "bytes": bytes_}
        self._reference.ask("fetch", {**header, "bridge": bridge}, json_only=True)

    def _chunks(self, bytes_: int) -> Iterator[tuple[int, int, HostTensor]]:
        for leaf, size in enumerate(self.sizes):
            for offset in range(0, size, bytes_):
                yield leaf, offset, self.fetch(leaf, offset, min(bytes_, size - offset))


class ReferenceSide:
    """A baseline as `hipwright.device.timed_side.TimedSide`. notes: how it runs, such as flags that the file set."""

    def __init__(self, reference: ReferenceHost, name: str, side: int, generation: int, notes: tuple[str, ...]) -> None:
        self.name = name
        self.notes = notes
        self._reference = reference
        self.number = side
        self.generation = generation

    def prepare(self, iterations_hint: int) -> LaunchMode:
        """Warms up, and captures the graphs if requested and possible."""
        reply = self._ask("side_prepare", {"calls": iterations_hint})
        return LaunchMode(policy=reply["policy"], why=reply["why"], call_ms=reply["call_ms"])

    def stream(self, why: str) -> None:
        """Uses no graphs from now on."""
        self._ask("side_stream", {"why": why})

    def block(self, calls: int) -> TimedBlock:
        """`calls` calls over the rotating slots."""
        start = time.perf_counter()
        reply = self._ask("side_block", {"calls": calls})
        wall = (time.perf_counter() - start) * 1e3
        return TimedBlock(calls=reply["calls"], device_ms=reply["device_ms"], host_ms=reply["host_ms"], wall_ms=wall)

    def latency(self, calls: int) -> tuple[float, ...]:
        """Milliseconds of single synchronised calls."""
        return tuple(self._ask("side_latency", {"calls": calls})["ms"])

    def _ask(self, method: str, header: dict[str, Any]) -> dict[str, Any]:
        if self.generation != self._reference.generation:
            raise WorkerError(f"the process of the {self.name} baseline was replaced", hint="open the side again")
        return self._reference.ask(method, {**header, "side": self.number}, json_only=True)[0]
