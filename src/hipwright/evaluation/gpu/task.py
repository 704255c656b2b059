"""One task on one GPU: build, verify, time. A timing has the GPU to itself.

`GpuTask` holds the task's reference and baselines, in a process of their own, beside what
`hipwright.evaluation.gpu.context.GpuContext` keeps warm for all tasks, and lends an evaluator its three verbs.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import replace
from functools import partial
from typing import Any

from msgspec import structs

from hipwright.device.timed_side import TimedSide
from hipwright.errors import HipwrightError
from hipwright.evaluation.gpu.context import GpuContext
from hipwright.evaluation.gpu.timing_context import SHARE, TimedTask, TimingContext
from hipwright.measure import paired_timing
from hipwright.measure.paired_timing import TimingResult
from hipwright.measure.settings import FULL, SCORE, TimingSettings
from hipwright.program import Parsed
from hipwright.records import Build, Program, Verdict, content_key
from hipwright.task import Outline, TaskHandle
from hipwright.verify import Oracle
from hipwright.verify.candidate import Rejected
from hipwright.verify.gpu.client import CandidateWorker
from hipwright.verify.gpu.device_judging import judge_on_device, judge_set
from hipwright.verify.gpu.large_shapes import TimedInputs
from hipwright.verify.gpu.loaded import LoadedProgram
from hipwright.verify.gpu.side import GpuSide
from hipwright.verify.gpu.verifier import verify_gpu, verify_timed
from hipwright.verify.verification import Gate

TimeIt = Callable[[], TimingResult]


class GpuTask(TimedTask):
    """One task on one GPU. A context manager; safe to use from several threads.

    more: sides beside the baselines that a full timing measures too ("max-autotune", "copy"); set before the first.
    """

    def __init__(self, gpu: GpuContext, handle: TaskHandle) -> None:
        super().__init__(gpu, handle)
        self.worker = gpu.candidates()
        self.extra_sides: tuple[str, ...] = ()
        self._turn = threading.RLock()  # the worker serves one candidate at a time: one that breaks it breaks no other
        self._opening = threading.Lock()
        self._known: dict[Gate, TimingContext] = {}
        self._seed = secrets.randbits(31)
        self._starting: threading.Thread | None = None

    def __enter__(self) -> GpuTask:
        return self

    def __exit__(self, *_: object) -> None:
        if self._starting is not None:
            self._starting.join()
        self.worker.close()
        if self._reference is not None:
            with self.gpu.timing_lock.shared():  # memory that is given back would disturb a timing
                self._reference.close()

    def begin(self) -> None:
        """Start the task's own processes now, in the background: its graph is captured and compiled meanwhile. One that
        does not start says so to whoever asks for it."""

        def start() -> None:
            with suppress(HipwrightError), self.gpu.timing_lock.shared():
                self.worker.open()
                self._open_reference()

        self._starting = threading.Thread(target=start, name="GPU task", daemon=True)
        self._starting.start()

    @property
    def fingerprint(self) -> str:
        """What a measurement depends on besides program and task."""
        return content_key(self.gpu.target.name, self.gpu.architecture, str(self.gpu.index))

    # ---------------------------------------------------------------- the three verbs

    def verify(
        self,
        parsed: Parsed | None,
        program: Program,
        build: Build | None,
        oracle: Oracle,
        *,
        gate: Gate = "full",
        worker: CandidateWorker | None = None,
    ) -> Verdict:
        """Is it right, on this GPU? worker: another than the task's own, to verify several at once."""
        if oracle.status() is None:
            oracle.prepare(every=gate == "full")  # what is right is worked out before the GPU is entered
        reference = self.reference if gate == "full" else None
        if worker is not None:
            with self.gpu.timing_lock.shared():
                return verify_gpu(parsed, program, build, oracle, reference, worker, gate=gate)
        with self._turn, self.gpu.timing_lock.shared():
            return verify_gpu(parsed, program, build, oracle, reference, self.worker, gate=gate)

    def verify_own(
        self, parsed: Parsed, program: Program, build: Build, oracle: Oracle, worker: CandidateWorker
    ) -> Verdict:
        """The fast gate on a program that claims the task's own large shape alone, in a worker that times it."""
        at = self._measured("fast")
        timed = TimedInputs(at.state, at.set_name, self.workload, at.seed, at.slots, at.seen)
        with self.gpu.timing_lock.shared():
            return verify_timed(parsed, program, build, oracle, at.reference, worker, timed)

    def trace(
        self, program: Program, oracle: Oracle, outline: Outline, worker: CandidateWorker | None = None
    ) -> dict[str, Any]:
        """Library calls and launches at the reference's own shapes, on tensors without data."""
        turn = nullcontext() if worker is not None else self._turn
        with turn, (worker or self.worker).load(program, None, oracle.state, mode="noop") as loaded:
            return loaded.trace(outline.state, outline.inputs)

    def time(
        self,
        program: Program,
        build: Build | None,
        *,
        gate: Gate,
        outline: Outline,
        again: bool,
        known: bool = False,
        worker: CandidateWorker | None = None,
        load_options: Mapping[str, Any] | None = None,
    ) -> TimingResult:
        """Is it fast? Against every baseline, alone on the GPU. again: once more in fresh processes.

        known: its result was judged at the size that is timed; behind the fast gate it is judged here otherwise.
        worker, more: the process of a modelnew candidate, and what loading it takes.
        """
        alone = partial(self._alone, program, build, gate, outline, worker or self.worker, load_options, known)
        first = alone()
        if gate == "fast" and first.verdict is not None:  # short blocks give no ground to refuse anybody
            first = alone(settings=FULL)
        if not again or first.verdict is not None or first.timing is None:
            return first
        at = self._measured("full")  # asked for here: nothing is opened behind a closed door
        with self._turn, self.gpu.timing_lock.exclusive():
            if at.large:
                self._step_aside()
            return self._remeasured(first, program, build, outline, at.slots)

    @contextmanager
    def prepared(
        self, program: Program, build: Build, outline: Outline, worker: CandidateWorker, *, known: bool = False
    ) -> Iterator[TimeIt]:
        """What times a program by score mode's rules, alone on the GPU. Loading and capturing it is done before, and
        unless it is `known` (see `time`) its result is judged: a wrong one is not timed.

        Short blocks give no ground to refuse anybody: a refusal is decided by the full rules.
        """
        at = self._measured("fast")
        with ExitStack() as stack:
            with self.gpu.timing_lock.shared():
                loaded = worker.load(program, build, at.state)
                stack.callback(self._unloaded, loaded)
                side = self._placed(loaded, at, own_time=False)
                wrong = None if known else self._wrong(loaded, at)
                if wrong is None:
                    side.prepare(paired_timing.WARM_CALLS)

            def timed() -> TimingResult:
                if wrong is not None:
                    return TimingResult(None, wrong)
                with self._turn, self.gpu.timing_lock.exclusive():
                    result = self._pairs(side, program, outline, at, SCORE)
                    if result.verdict is not None:
                        result = self._pairs(side, program, outline, at, FULL)
                    return self._noted(result, at)

            yield timed

    def _unloaded(self, loaded: LoadedProgram) -> None:
        with self.gpu.timing_lock.shared():
            loaded.close()

    def room(self, workers: int) -> bool:
        """May so many processes hold the inputs that are timed? A device that does not tell its memory has room."""
        most = (self.gpu.memory_bytes or int(self.reference.info["memory_bytes"])) // SHARE
        return not most or workers * self.timed_bytes <= most

    @property
    def timed_bytes(self) -> int:
        """What a process that times behind the fast gate holds of this task."""
        at = self._measured("fast")
        return at.slots * at.bytes

    def _step_aside(self) -> None:
        """End the task's own processes: large inputs lie there once, and the device has no room for them twice."""
        self._known.clear()
        self.worker.close()
        self.reference.close()

    def warm(self, gate: Gate, oracle: Oracle | None = None) -> None:
        """Open what a timing stands on: the reference and its baselines; of an oracle also what is right at the size
        that is timed, where it is a large one."""
        at = self._measured(gate)
        if oracle is not None and oracle.policy is not None and self.workload in oracle.skipped:
            with self.gpu.timing_lock.shared():
                at.reference.expect(self.workload, at.seed, at.state, oracle.policy)

    def leave(self, worker: CandidateWorker) -> None:
        """Drop what a worker that serves other tasks too holds of this one's timings."""
        for at in list(self._known.values()):
            with self.gpu.timing_lock.shared():  # memory that is given back would disturb a timing
                worker.forget(at.state, [at.set_name])

    # ---------------------------------------------------------------- timing

    def _alone(
        self,
        program: Program,
        build: Build | None,
        gate: Gate,
        outline: Outline,
        worker: CandidateWorker,
        load_options: Mapping[str, Any] | None,
        known: bool,
        settings: TimingSettings | None = None,
    ) -> TimingResult:
        """Timed with the GPU to itself. What is compiled for that, or tuned, shares it with others first."""
        at = self._measured(gate)
        with self._turn, self.gpu.timing_lock.exclusive():
            return self._timed(program, build, gate, outline, worker, at, load_options, known, settings)

    def _measured(self, gate: Gate) -> TimingContext:
        with self._opening:
            if gate not in self._known:
                with self.gpu.timing_lock.shared():  # a baseline that is compiled runs, and would disturb a timing
                    self._known[gate] = self._open_measured(self.reference, self._seed, gate)
            return self._known[gate]

    def _timed(
        self,
        program: Program,
        build: Build | None,
        gate: Gate,
        outline: Outline,
        worker: CandidateWorker,
        at: TimingContext,
        load_options: Mapping[str, Any] | None,
        known: bool,
        settings: TimingSettings | None = None,
    ) -> TimingResult:
        with worker.load(program, build, at.state, load_options=load_options) as loaded:
            side = self._placed(loaded, at, own_time=gate == "full" and not at.large)
            wrong = self._wrong(loaded, at) if gate == "fast" and not known else None
            if wrong is not None:
                return TimingResult(None, wrong)
            result = self._pairs(side, program, outline, at, settings or (FULL if gate == "full" else SCORE))
            if result.verdict is not None or gate == "fast" or at.large:
                return self._noted(result, at)
            try:
                self._revealed(side, loaded, at)
            except Rejected as rejected:
                return TimingResult(None, rejected.verdict)
        return self._noted(result, at)

    def _placed(self, loaded: LoadedProgram, at: TimingContext, *, own_time: bool) -> GpuSide:
        """A loaded program as a side of the comparison, over the same inputs as the baselines."""
        loaded.place(at.set_name, at.reference.inputs(self.workload, at.seed), at.slots)
        return GpuSide(loaded, at.set_name, graph=at.graphs, own_time=own_time)

    def _pairs(
        self, side: GpuSide, program: Program, outline: Outline, at: TimingContext, settings: TimingSettings
    ) -> TimingResult:
        terms = self._terms(program, outline, at.slots)
        return paired_timing.time_pairs(side, at.baselines.sides, settings=settings, memory=at.memory, **terms)

    def _wrong(self, loaded: LoadedProgram, at: TimingContext) -> Verdict | None:
        """What is wrong with a program's result at the size that is timed, on inputs that nobody knows. The fast gate
        looks at small shapes only, and a grid can be too small, or an index overflow, for a large one alone: a policy
        gradient found that within three minutes (docs/mini.md)."""
        expected = at.reference.expect(self.workload, at.seed, at.state, self.handle.task.tolerance)
        try:
            if expected.counts:
                judge_set(loaded, at.reference, expected, at.set_name, at.seen)
        except Rejected as rejected:
            return rejected.verdict
        finally:
            if at.large:  # a timing needs the room
                at.reference.free("expectations")
        return None

    def _revealed(self, side: GpuSide, loaded: LoadedProgram, at: TimingContext) -> None:
        """Values that nobody could know before, in a random slot of the timed calls: their outputs must be right."""
        slot, late = secrets.randbelow(at.slots), at.seed + 1
        policy = self.handle.task.tolerance
        expected = at.reference.expect(self.workload, late, at.state, policy)
        side.reveal(slot, at.reference.inputs(self.workload, late))
        side.block(at.slots)
        run = side.timed_output(slot)
        judge_on_device(loaded, run, at.reference, expected, "in a timed call, ")
        loaded.drop(run)

    def _remeasured(
        self, first: TimingResult, program: Program, build: Build | None, outline: Outline, slots: int
    ) -> TimingResult:
        """The figures of a winner: fresh processes, fresh inputs."""
        seed = secrets.randbits(31)

        @contextmanager
        def fresh() -> Iterator[tuple[TimedSide, Sequence[TimedSide]]]:
            with (
                self.gpu.reference(self.handle) as reference,
                self.gpu.candidates() as worker,
            ):
                at = self._open_measured(reference, seed, "full")
                with worker.load(program, build, at.state) as loaded:
                    loaded.place(at.set_name, reference.inputs(self.workload, seed), at.slots)
                    side = GpuSide(loaded, at.set_name, graph=at.graphs, own_time=not at.large)
                    yield side, at.baselines.sides

        return paired_timing.remeasure(first, fresh, **self._terms(program, outline, slots))

    def _noted(self, result: TimingResult, at: TimingContext) -> TimingResult:
        """With why a baseline is missing."""
        notes = [f"no {name} baseline: {why}" for name, why in at.baselines.missing.items()]
        notes += [f"{side.name}: {note}" for side in at.baselines.sides for note in side.notes]
        if at.large:
            notes.append("inputs this large leave no room for late values: outputs of timed calls were not verified")
        if result.timing is None or not notes:
            return result
        return replace(result, timing=structs.replace(result.timing, notes=(*result.timing.notes, *notes)))
