"""The baselines of one task on one GPU, opened once for all candidates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from hipwright.device.timed_side import LaunchMode, TimedBlock
from hipwright.errors import WorkerError
from hipwright.tensors import Tree
from hipwright.verify.gpu.reference import BASELINES, DeviceReference
from hipwright.verify.gpu.reference_handles import BaselineMissing, ReferenceSide


@dataclass
class WarmBaseline:
    """A baseline that is prepared once for each policy (graph or stream).

    A comparison on the stream leaves the graphs captured. moved: bytes that the side "copy" moves. graphs: False where
    there is no memory for the outputs that a graph keeps.
    """

    reference: DeviceReference
    name: str
    workload: str
    state: Tree
    seed: int
    slots: int
    moved: int = 0
    graphs: bool = True
    _open: dict[bool, tuple[ReferenceSide, LaunchMode | None]] = field(default_factory=dict)
    _graph: bool = False

    def __post_init__(self) -> None:
        self._graph = self.graphs

    def prepare(self, iterations_hint: int) -> LaunchMode:
        """Captures the calls where possible; returns at once when an earlier comparison did."""
        self._graph = self.graphs
        return self._prepared(iterations_hint)

    def stream(self, why: str) -> None:
        """Prepares the stream, for this comparison alone. why: the reason."""
        self._graph = False
        self._prepared(10)

    @property
    def opened(self) -> list[ReferenceSide]:
        """The sides that are open, with and without graphs."""
        return [side for side, _ in self._open.values()]

    def open(self) -> None:
        """Opens the side, compiling it if it is a compiled one. Raises what `DeviceReference.side` raises."""
        self._side()

    def block(self, calls: int) -> TimedBlock:
        """See `DeviceReference`."""
        return self._side().block(calls)

    def latency(self, calls: int) -> tuple[float, ...]:
        """See `DeviceReference`."""
        return self._side().latency(calls)

    @property
    def notes(self) -> tuple[str, ...]:
        """How the side runs."""
        return self._side().notes

    def _side(self) -> ReferenceSide:
        if self._graph not in self._open:
            opened = self.reference.side(
                self.name,
                self.workload,
                state=self.state,
                seed=self.seed,
                slots=self.slots,
                graph=self._graph,
                moved=self.moved,
            )
            self._open[self._graph] = opened, None
        return self._open[self._graph][0]

    def _prepared(self, hint: int) -> LaunchMode:
        try:
            return self._prepare(hint)
        except WorkerError:  # the host was replaced, and its sides with it
            self._open.clear()
            return self._prepare(hint)

    def _prepare(self, hint: int) -> LaunchMode:
        side = self._side()
        known = self._open[self._graph][1]
        if known is None:
            known = side.prepare(hint)
            self._open[self._graph] = side, known
        else:
            side.block(0)  # raises if the side no longer exists
        return known


@dataclass(frozen=True)
class Baselines:
    """The sides that a candidate is compared with, the one that ranks first.

    missing: {name: why} of those that cannot be opened.
    """

    sides: tuple[WarmBaseline, ...]
    missing: dict[str, str]


def renew_baselines(baselines: Baselines, state: Tree, seed: int) -> bool:
    """Puts all baselines on fresh inputs and another state, with what was compiled and captured; False where they must
    be opened again for that.
    """
    first = baselines.sides[0]
    opened = [side for kept in baselines.sides for side in kept.opened]
    renewed = first.reference.renew(opened, first.workload, first.slots, old=first.seed, new=seed, state=state)
    for kept in baselines.sides if renewed else ():
        kept.state, kept.seed = state, seed
    return renewed


def open_baselines(
    reference: DeviceReference,
    workload: str,
    state: Tree,
    seed: int,
    slots: int,
    names: Sequence[str] = BASELINES,
    moved: int = 0,
    *,
    graphs: bool = True,
) -> Baselines:
    """Every baseline on the same slots of the same inputs; torch.compile is compiled here. moved: bytes of a "copy"."""
    sides: list[WarmBaseline] = []
    missing: dict[str, str] = {}
    for name in names:
        if name == "copy" and not moved:
            missing[name] = "the task's bytes at its own shapes are not known"
            continue
        kept = WarmBaseline(reference, name, workload, state, seed, slots, moved, graphs)
        try:
            kept.open()
        except BaselineMissing as error:
            missing[name] = error.message.removeprefix(f"no {name} baseline: ")
            continue
        sides.append(kept)
    return Baselines(tuple(sides), missing)
