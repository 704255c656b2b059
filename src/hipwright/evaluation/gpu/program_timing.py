"""The timing of programs of one task on one GPU: against warm baselines, and a winner's once more."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from typing import Any

from hipwright.device.timed_side import TimedSide
from hipwright.evaluation.gpu.baselines import renew_baselines
from hipwright.evaluation.gpu.context import GpuContext
from hipwright.evaluation.gpu.timing_context import TimedTask, TimingContext, set_name
from hipwright.measure import paired_timing
from hipwright.measure.paired_timing import TimingResult
from hipwright.measure.settings import FULL, LONG, SCORE, TimingSettings
from hipwright.records import Build, Program, Verdict
from hipwright.task import TaskHandle
from hipwright.verify.candidate import Rejected
from hipwright.verify.gpu.client import CandidateWorker
from hipwright.verify.gpu.device_judging import AcceptedDigests, judge_on_device, judge_set
from hipwright.verify.gpu.loaded import LoadedProgram
from hipwright.verify.gpu.side import GpuSide
from hipwright.verify.verification import Gate

TUNED = "max-autotune"
"""The baseline that is tuned on the GPU while it is compiled."""
DOUBTED = 3
"""Timings of a program whose clocks disagree by the machine's fault, before none is believed."""
JUDGED = {"draws": True}
"""For loading a program whose operators a verification has judged: it may draw random numbers if the task does."""


class ProgramTiming(TimedTask):
    """Times programs in the task's own worker, or in another one.

    extra_sides: beside the baselines that a full timing measures too ("max-autotune", "copy"); set before the first
    timing.
    """

    def __init__(self, gpu: GpuContext, handle: TaskHandle) -> None:
        super().__init__(gpu, handle)
        self.worker = gpu.candidates()
        self.extra_sides: tuple[str, ...] = ()
        # the worker serves one candidate at a time, so that a crash ends no other candidate's run
        self._worker_lock = threading.RLock()
        self._opening = threading.Lock()
        self._known: dict[Gate, TimingContext] = {}
        self._seed = secrets.randbits(31)

    def _twice(
        self,
        program: Program,
        build: Build | None,
        gate: Gate,
        again: bool,
        known: bool,
        worker: CandidateWorker | None,
        load_options: Mapping[str, Any] | None,
    ) -> TimingResult:
        alone = partial(self._time_alone, program, build, gate, worker or self.worker, load_options, known)
        first = alone()
        if gate == "fast" and first.verdict is not None:  # short blocks do not suffice to reject a program
            first = alone(settings=FULL)
        if not again or first.verdict is not None or first.timing is None:
            return first
        with self._worker_lock:
            at = self._renewed(self._measured("full"))
            if at.large:  # the device has no memory for large inputs in two workers
                self.worker.close()
            return self._with_notes(self._remeasured(first, program, build, at), at)

    def _time_alone(
        self,
        program: Program,
        build: Build | None,
        gate: Gate,
        worker: CandidateWorker,
        load_options: Mapping[str, Any] | None,
        known: bool,
        settings: TimingSettings | None = None,
    ) -> TimingResult:
        """Times with the GPU to itself. Inputs are placed and calls captured before, while others share the GPU."""
        at = self._measured(gate)
        options = {**JUDGED, **(load_options or {})}
        with self._worker_lock, ExitStack() as stack:
            with self.gpu.timing_lock.shared(gives_way=True):
                loaded = stack.enter_context(worker.load(program, build, at.state, load_options=options))
                side = self._as_side(loaded, at, own_time=gate == "full" and not at.large)
                wrong = self._wrong_at_timed_size(loaded, at) if gate == "fast" and not known else None
                if wrong is not None:
                    return TimingResult(None, wrong)
                self._prepare(side, at)
            with self.gpu.timing_lock.exclusive():
                rules = settings or (FULL if gate == "full" else SCORE)
                result = self._believed(side, self._terms(program, at), at, rules)
            if result.verdict is not None or gate == "fast" or not at.late:
                return self._with_notes(result, at)
            try:
                with self.gpu.timing_lock.shared(gives_way=True):
                    self._reveal_inputs(side, loaded, at)
            except Rejected as rejected:
                return TimingResult(None, rejected.verdict)
        return self._with_notes(result, at)

    def _measured(self, gate: Gate) -> TimingContext:
        with self._opening:
            if gate not in self._known:
                # torch.compile takes seconds of the processor, and little of the GPU unless it tunes there
                tunes = TUNED in self.extra_sides
                with self.gpu.timing_lock.shared() if tunes else nullcontext():
                    self._known[gate] = self._open_measured(self.reference, self._seed, gate)
            return self._known[gate]

    def _prepare(self, side: GpuSide, at: TimingContext) -> None:
        """Warms up and captures, which a timing then finds done."""
        sides: tuple[TimedSide, ...] = (*at.baselines.sides, side)
        for one in sides:
            one.prepare(paired_timing.WARM_CALLS)

    def _as_side(self, loaded: LoadedProgram, at: TimingContext, *, own_time: bool) -> GpuSide:
        """A loaded program as a side of the comparison, over the same inputs as the baselines."""
        loaded.place(at.set_name, at.reference.inputs(self.workload, at.seed), at.slots)
        written = at.reference.handle.written
        return GpuSide(loaded, at.set_name, graph=at.graphs, own_time=own_time, written=written)

    def _pairs(
        self, side: GpuSide, terms: Mapping[str, Any], at: TimingContext, settings: TimingSettings
    ) -> TimingResult:
        return paired_timing.time_pairs(side, at.baselines.sides, settings=settings, memory=at.memory, **terms)

    def _believed(
        self, side: GpuSide, terms: Mapping[str, Any], at: TimingContext, settings: TimingSettings
    ) -> TimingResult:
        """The first timing whose clocks agree: a busy machine makes them disagree by chance.

        By the full rules of DOUBTED at the most, all but the first on longer blocks; a doubtful one of the fast gate is
        repeated by them anyway (`_twice`).
        """
        for _ in range(DOUBTED if settings is FULL else 1):
            result = self._pairs(side, terms, at, settings)
            if not result.doubted:
                break
            settings = LONG
        return result

    def _wrong_at_timed_size(self, loaded: LoadedProgram, at: TimingContext) -> Verdict | None:
        """The error in a program's result at the timed size, on inputs drawn at random, else None.

        The fast gate verifies small shapes only, and a grid can be too small, or an index overflow, for a large shape
        alone: policy-gradient training found such a program within three minutes (docs/mini.md).
        """
        expected = at.reference.expect(self.workload, at.seed, at.state, self.handle.task.tolerance)
        try:
            if expected.counts:
                judge_set(loaded, at.reference, expected, at.set_name, at.seen)
        except Rejected as rejected:
            return rejected.verdict
        finally:
            if at.large:  # a timing needs the memory
                at.reference.free("expectations")
        return None

    def _reveal_inputs(self, side: GpuSide, loaded: LoadedProgram, at: TimingContext) -> None:
        """Puts new random inputs into a random slot of the timed calls and checks the outputs. Where forward writes to
        buffers, into the first slot, with the buffers as they were: the expectation is of a first call.
        """
        late, policy = at.seed + 1, self.handle.task.tolerance
        expected = at.reference.expect(self.workload, late, at.state, policy)
        if expected.rejected:
            return
        slot = 0 if expected.writes_state else secrets.randbelow(at.slots)
        side.reveal(slot, at.reference.inputs(self.workload, late), restart=expected.writes_state)
        side.block(at.slots)
        run = side.timed_output(slot)
        judge_on_device(loaded, run, at.reference, expected, "in a timed call, ")
        loaded.drop(run)
        if at.large:  # a timing needs the memory
            at.reference.free("expectations")

    def _renewed(self, at: TimingContext) -> TimingContext:
        """The same timing on fresh inputs and another state. Compiled baselines stay, where the inputs fit.

        Called with the worker's lock held: no other timing of this task needs its reference meanwhile.
        """
        seed = secrets.randbits(31)
        with self._opening, self.gpu.timing_lock.shared(gives_way=True):
            state = self.handle.init_state(seed)
            if renew_baselines(at.baselines, state, seed):
                fresh = replace(at, state=state, seed=seed, set_name=set_name(seed, "full"), seen=AcceptedDigests())
            else:
                at.reference.free("all")
                fresh = self._open_measured(at.reference, seed, "full")
            self._known["full"] = fresh
        return fresh

    def _remeasured(
        self, first: TimingResult, program: Program, build: Build | None, at: TimingContext
    ) -> TimingResult:
        """A winner's figures from a fresh process with fresh inputs."""

        @contextmanager
        def fresh() -> Iterator[tuple[TimedSide, Sequence[TimedSide]]]:
            with self.gpu.candidates() as worker, ExitStack() as stack:
                with self.gpu.timing_lock.shared(gives_way=True):
                    loaded = stack.enter_context(worker.load(program, build, at.state, load_options=JUDGED))
                    side = self._as_side(loaded, at, own_time=not at.large)
                    self._prepare(side, at)
                with self.gpu.timing_lock.exclusive():
                    yield side, at.baselines.sides

        return paired_timing.remeasure(first, fresh, **self._terms(program, at))
