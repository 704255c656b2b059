"""One task on one GPU: build, verify, time. A timing has the GPU to itself.

`GpuTask` holds the task's reference and baselines, in a process of their own;
`hipwright.evaluation.gpu.context.GpuContext` holds what all tasks share.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from functools import partial
from typing import Any

from msgspec import structs

from hipwright.errors import HipwrightError
from hipwright.evaluation.gpu.background_cases import BackgroundCases
from hipwright.evaluation.gpu.context import GpuContext
from hipwright.evaluation.gpu.program_timing import JUDGED, ProgramTiming
from hipwright.evaluation.gpu.room import TaskRoom
from hipwright.evaluation.gpu.timing_context import SHARE
from hipwright.measure import paired_timing
from hipwright.measure.paired_timing import TimingResult
from hipwright.measure.settings import FULL, SCORE
from hipwright.program import Parsed
from hipwright.records import Build, Program, Verdict, content_key
from hipwright.task import Outline, TaskHandle
from hipwright.verify import Oracle
from hipwright.verify.gpu.client import CandidateWorker
from hipwright.verify.gpu.large_shapes import FAMILIES, TimedInputs
from hipwright.verify.gpu.loaded import LoadedProgram
from hipwright.verify.gpu.reference import DeviceReference
from hipwright.verify.gpu.verifier import verify_gpu, verify_timed
from hipwright.verify.verification import Gate

TimeIt = Callable[[], TimingResult]


class GpuTask(ProgramTiming):
    """One task on one GPU. A context manager; safe to use from several threads."""

    def __init__(self, gpu: GpuContext, handle: TaskHandle) -> None:
        super().__init__(gpu, handle)
        self._starting: list[threading.Thread] = []
        self._cases = BackgroundCases()
        self._room = TaskRoom(gpu, handle, self._close_processes)

    def __enter__(self) -> GpuTask:
        return self

    def __exit__(self, *_: object) -> None:
        self._started()
        self._room.learn(self._reference, self._holding, self.worker)
        self._close_processes()
        self._room.leave()

    def _close_processes(self) -> None:
        """Ends the task's own processes; the next call starts them again."""
        self._started()
        with self._worker_lock:
            self.worker.close()
            self._known.clear()
            for process in (self._reference, self._holding):
                if process is not None:
                    with self.gpu.timing_lock.shared():  # freeing memory would disturb a timing
                        process.close()

    def begin(self) -> None:
        """Starts the task's own processes and opens its baselines in the background; its graph is captured, and a
        program written, built and verified meanwhile.

        What fails here raises in the first call that needs it. The baselines of large inputs wait for a verification,
        which needs the memory. Waits first, until the task fits beside those that are open on the GPU.
        """
        self._room.enter()

        def start() -> None:
            with suppress(HipwrightError):
                for open_ in (self.worker.open, self._open_reference):
                    with self.gpu.timing_lock.shared():
                        open_()
                if not self.large:
                    self._measured("full")

        def hold() -> None:
            with suppress(HipwrightError), self.gpu.timing_lock.shared():
                self.open_holding()

        works = [start, hold] if self.handle.delegated and not self.large else [start]
        self._starting = [threading.Thread(target=work, name="GPU task", daemon=True) for work in works]
        for thread in self._starting:
            thread.start()

    @property
    def judging(self) -> DeviceReference:
        """The process that judges results at the task's own shapes: one that does not wait for torch.compile."""
        return self.open_holding() if self.handle.delegated else self.reference

    def _started(self) -> None:
        """Waits for what `begin` and `make_cases` started."""
        for thread in self._starting:
            thread.join()
        self._cases.wait()

    def make_cases(self, oracle: Oracle) -> None:
        """Makes what the full gate judges with in the background, while a program is built."""

        def make() -> None:
            if oracle.status() is None:
                oracle.prepare()
                self._expect_own(oracle)

        self._cases.begin(oracle, make)

    def _expect_own(self, oracle: Oracle) -> None:
        """The expectations at the task's own shapes that the device alone holds, of the families that are judged."""
        if self.large or oracle.policy is None or not self.handle.delegated:
            return  # a process that compiles a baseline would hold up the timings that wait for this
        reference = self.judging
        for name in (w.name for w in self.handle.task.workloads if w.name in oracle.skipped):
            seed = oracle.seed_of("device", name)
            for family in FAMILIES:
                with self.gpu.timing_lock.shared(gives_way=True):
                    reference.expect(name, seed, oracle.state, oracle.policy, family=family)

    @property
    def fingerprint(self) -> str:
        """What a measurement depends on beside program and task."""
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
        """The verdict on this GPU. worker: another than the task's own, to verify several at once.

        A call that took too long beside other tasks says nothing about the program: it is judged again while nothing
        else runs on the GPU.
        """
        judge = partial(self._verdict, parsed, program, build, oracle, gate, worker)
        found = self._room.within(judge, lambda: self.reference)
        if found.status == "timeout" and worker is None and self._room.accompanied:
            again = self._room.within(partial(judge, alone=True), lambda: self.reference)
            return structs.replace(again, checks={**again.checks, "judged_again": f"alone, after: {found.message}"})
        return found

    def _verdict(
        self,
        parsed: Parsed | None,
        program: Program,
        build: Build | None,
        oracle: Oracle,
        gate: Gate,
        worker: CandidateWorker | None,
        alone: bool = False,
    ) -> Verdict:
        self._cases.wait()  # they may give way to a timing while they hold the process that this would wait for
        if oracle.status() is None:
            oracle.prepare(every=gate == "full")  # the expectations are computed before the GPU is used
        reference = self.judging if gate == "full" else None
        judged = partial(verify_gpu, parsed, program, build, oracle, reference, gate=gate, asked=lambda: self.judging)
        if worker is not None:
            with self.gpu.timing_lock.shared():
                return judged(worker=worker)
        lock = self.gpu.timing_lock
        with self._worker_lock, lock.exclusive() if alone else lock.shared(gives_way=True):
            return judged(worker=self.worker)

    def verify_own(
        self, parsed: Parsed, program: Program, build: Build, oracle: Oracle, worker: CandidateWorker
    ) -> Verdict:
        """The fast gate on a program that supports only the task's own large shape, in a worker that times it."""
        at = self._measured("fast")
        timed = TimedInputs(at.state, at.set_name, self.workload, at.seed, at.slots, at.seen)
        with self.gpu.timing_lock.shared():
            return verify_timed(parsed, program, build, oracle, at.reference, worker, timed)

    def trace(
        self, program: Program, oracle: Oracle, outline: Outline, worker: CandidateWorker | None = None
    ) -> dict[str, Any]:
        """Library calls and launches at the reference's own shapes, on meta tensors."""
        turn = nullcontext() if worker is not None else self._worker_lock
        with turn, (worker or self.worker).load(program, None, oracle.state, "noop", load_options=JUDGED) as loaded:
            return loaded.trace(outline.state, outline.inputs)

    def time(
        self,
        program: Program,
        build: Build | None,
        *,
        gate: Gate,
        again: bool,
        known: bool = False,
        worker: CandidateWorker | None = None,
        load_options: Mapping[str, Any] | None = None,
    ) -> TimingResult:
        """Times a program against every baseline, alone on the GPU. again: once more in a fresh process, on fresh
        inputs.

        known: its result was judged at the timed size; otherwise it is judged here after the fast gate. worker, more:
        the process of a modelnew candidate, and the arguments for loading it.
        """
        timed = partial(self._twice, program, build, gate, again, known, worker, load_options)
        return self._room.within(timed, lambda: self.reference)

    @contextmanager
    def prepared(
        self, program: Program, build: Build, worker: CandidateWorker, *, known: bool = False
    ) -> Iterator[TimeIt]:
        """A function that times a program by score mode's rules, alone on the GPU.

        The program is loaded and captured before. Unless it is `known` (see `time`) its result is judged, and a wrong
        one is not timed. Short blocks do not suffice to reject a program: a rejection is decided by the full rules.
        """
        at = self._measured("fast")
        with ExitStack() as stack:
            with self.gpu.timing_lock.shared():
                loaded = worker.load(program, build, at.state, load_options=JUDGED)
                stack.callback(self._unloaded, loaded)
                side = self._as_side(loaded, at, own_time=False)
                wrong = None if known else self._wrong_at_timed_size(loaded, at)
                if wrong is None:
                    side.prepare(paired_timing.WARM_CALLS)

            def timed() -> TimingResult:
                if wrong is not None:
                    return TimingResult(None, wrong)
                with self._worker_lock, self.gpu.timing_lock.exclusive():
                    terms = self._terms(program, at)
                    result = self._pairs(side, terms, at, SCORE)
                    if result.verdict is not None:
                        result = self._pairs(side, terms, at, FULL)
                    return self._with_notes(result, at)

            yield timed

    def _unloaded(self, loaded: LoadedProgram) -> None:
        with self.gpu.timing_lock.shared():
            loaded.close()

    def fits_workers(self, workers: int) -> bool:
        """Whether the device has memory for the timed inputs of so many processes; True if its memory is unknown."""
        most = (self.gpu.memory_bytes or int(self.reference.info["memory_bytes"])) // SHARE
        return not most or workers * self.timed_bytes <= most

    @property
    def timed_bytes(self) -> int:
        """Bytes of this task that a process holds when it times by the fast gate."""
        at = self._measured("fast")
        return at.slots * at.bytes

    def warm(self, gate: Gate, oracle: Oracle | None = None) -> None:
        """Opens what a timing needs: the reference and its baselines, and the oracle's expectation at the timed size
        where that is large.
        """
        at = self._measured(gate)
        if oracle is not None and oracle.policy is not None and self.workload in oracle.skipped:
            with self.gpu.timing_lock.shared():
                at.reference.expect(self.workload, at.seed, at.state, oracle.policy)

    def release_timings(self, worker: CandidateWorker) -> None:
        """Frees this task's timings in a worker that serves other tasks too."""
        for at in list(self._known.values()):
            with self.gpu.timing_lock.shared():  # freeing memory would disturb a timing
                worker.forget(at.state, [at.set_name])
