"""The parent's side of a GPU's candidate worker: one warm process, many programs, replaced when one breaks it."""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Literal, Self

import numpy as np

from hipwright.errors import CandidateError, DeviceError, GuardFailed, WorkerError
from hipwright.records import Build, Program, TensorSpec, Verdict
from hipwright.sandbox import Limits, Session, Zygote
from hipwright.tensors import HostTensor, Tree, leaves
from hipwright.toolchain.cache import BuildCache
from hipwright.verify.candidate import LAUNCH_LIMIT_S, POISON_A, Answer, Rejected, attributed, placed
from hipwright.verify.gpu_side import GpuSide, Mode, RunInfo, as_candidate_error
from hipwright.verify.gpu_source import CHUNK_BYTES, HostSource, Source, span_bytes
from hipwright.verify.oracle import Case
from hipwright.verify.reply import (
    Malformed,
    believable,
    check_many,
    check_result,
    check_run,
    checked_trace,
    forged,
    whole_numbers,
)
from hipwright.verify.sent import SentCases
from hipwright.verify.standby import Standby

GPU_WORKER = "hipwright.verify.gpu_worker:GpuWorker"
"""The service of a candidate worker; its zygote preloads the module."""

# RLIMIT_DATA counts what a GPU's driver maps for itself too; the processor's time is bounded call by call, by the clock
LIMITS = Limits(wall_s=120.0, cpu_s=24 * 3600.0, memory_mb=16384)
LIMIT_S = 10.0  # wall seconds of a call on a GPU
CPU_LIMIT_S = 40.0  # of one on the driver "cpu", whose launches are bounded by their processor time
FOREIGN_LIMIT_S = 30.0  # of a modelnew candidate's: its libraries compile kernels when they are first called
BULK_LIMIT_S = 600.0  # of moving and checking large inputs, where no candidate runs

__all__ = ["GPU_WORKER", "GpuCandidates", "GpuSide", "HostSource", "Loaded", "RunInfo", "Source", "span_bytes"]

Outcome = Answer | GuardFailed | Verdict


@dataclass
class GpuCandidates:
    """The candidate worker of one GPU. Safe to use from several threads, one call at a time.

    zygote: one that preloads GPU_WORKER's module and may use the GPU. driver: "cuda", "rocm", or "cpu" for builds of
    the cpu target on device "cpu". limit_s: wall seconds of one call of a candidate (None: as the driver needs).
    memory_limit_bytes: device memory that candidates may use, 0 for a GPU's usual share (gpu_subjects.SHARE). Host code
    of candidates (the driver "cpu", the modelnew lane) gets a process for each program; fresh=False keeps one all the
    same.
    """

    zygote: Zygote
    device: str
    driver: str
    cache: BuildCache
    limits: Limits = LIMITS
    limit_s: float | None = None
    memory_limit_bytes: int = 0
    wave: int = 64
    fresh: bool | None = None
    profile: Literal["gpu", "tools"] = "gpu"
    recycled: int = 0  # processes that were replaced after a fault
    standby: Standby | None = None  # where new processes come from, if they are started ahead
    _session: Session | None = field(default=None, repr=False)
    _program: str = ""

    def __post_init__(self) -> None:
        self._lock = threading.RLock()
        self._ids = itertools.count(1)
        self._tables: dict[int, tuple[Tree, str]] = {}
        self._sent: set[str] = set()
        self.cases = SentCases()
        self.placed: dict[str, dict[int, Hashable]] = {}
        self.sizes: dict[str, int] = {}  # bytes of a slot, by set
        self.call_limit_s = self.limit_s or (CPU_LIMIT_S if self.driver == "cpu" else LIMIT_S)
        self.foreign_limit_s = self.limit_s or max(self.call_limit_s, FOREIGN_LIMIT_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def open(self) -> None:
        """Start the process now, if there is none. Raises DeviceError where the device does not work."""
        with self._lock:
            self._alive()

    def close(self) -> None:
        """End the process; the next call starts another."""
        with self._lock:
            if self._session is not None:
                self._session.close()
            self._session = None

    def recycle(self) -> None:
        """End a process that must not serve anybody else."""
        with self._lock:
            self.recycled += 1
            self.close()

    def forget(self, state: Tree, sets: Sequence[str] = ()) -> None:
        """A task ends that this worker will not see again: drop its state table, and give its sets' memory back."""
        with self._lock:
            _, key = self._tables.pop(id(state), (None, ""))
            self._sent.discard(key)
            self.cases.retire()
            for name in sets:
                self.sizes.pop(name, None)
                if self.placed.pop(name, None) is not None and self._session is not None:
                    with contextlib.suppress(Rejected, WorkerError, DeviceError, CandidateError):  # then all is gone
                        self.call("set_free", {"set": name}, limit_s=BULK_LIMIT_S)

    @property
    def session(self) -> Session | None:
        """The process, for those who ask whether it is still the same."""
        return self._session

    def load(
        self,
        program: Program,
        build: Build | None,
        table: Tree,
        mode: Mode = "run",
        poison: int = POISON_A,
        more: Mapping[str, Any] | None = None,
    ) -> Loaded:
        """Make a program ready. build: its code object (None for the modes and lanes that need none). more: what else
        modelnew_run.load wants to know (extensions, seed).

        Raises CandidateError for what the program does wrong, infrastructure errors for the rest. A process that turns
        out to be dead is replaced once.
        """
        with self._lock:
            own = self.fresh if self.fresh is not None else self.driver == "cpu" or program.lane == "modelnew"
            if own and self._program != program.key:
                self.close()
            self._program = program.key
            for attempt in (True, False):
                try:
                    self._alive()
                    with as_candidate_error():
                        number = self._load(program, build, table, mode, poison, more or {})
                    break
                except (WorkerError, DeviceError):
                    self.recycle()
                    if not attempt:
                        raise
            assert self._session is not None
            return Loaded(self, self._session, number, program, mode)

    def _load(
        self, program: Program, build: Build | None, table: Tree, mode: Mode, poison: int, more: Mapping[str, Any]
    ) -> int:
        held, key = self._tables.setdefault(id(table), (table, str(next(self._ids))))  # kept: an id stays one table's
        code, so = None, ""
        if build is not None and mode == "run" and program.lane == "program":
            if self.driver == "cpu":
                so = str(self.cache.path(build.blob))
            else:
                code = HostTensor.of(np.frombuffer(self.cache.get(build.blob), np.uint8))
        header = {
            **more, "lane": program.lane, "text": program.text, "knobs": program.knobs, "mode": mode, "state": key,
            "so": so, "poison": poison, "device": self.device,
        }  # fmt: skip
        for _ in range(2):
            bundle = {"code": code, "table": None if key in self._sent else held}
            self._sent.add(key)
            told, _tree = self.call("load", header, bundle, limit_s=self.limit_for(program))
            if not told.get("stale"):
                return whole_numbers(told, "program")[0]
            self._sent.discard(key)  # forgotten there, or somebody wrote to it
        raise WorkerError("the candidate worker does not keep a state table")

    def limit_for(self, program: Program) -> float:
        """Wall seconds of one call of a program."""
        return self.foreign_limit_s if program.lane == "modelnew" else self.call_limit_s

    def _alive(self) -> Session:
        if self._session is None or not self._session.alive:
            self._sent.clear()
            self.cases.clear()
            self.placed.clear()
            self._session = self.standby.take() if self.standby is not None else self.start()
        return self._session

    def start(self) -> Session:
        """A new process, for this worker or another one like it."""
        init = {"device": self.device, "driver": self.driver, "wave": self.wave,
                "memory_limit_bytes": self.memory_limit_bytes, "launch_limit_s": LAUNCH_LIMIT_S,
                "profile": self.profile}  # fmt: skip
        return self.zygote.session(GPU_WORKER, init, limits=self.limits)

    def call(
        self,
        method: str,
        header: Mapping[str, Any],
        bundle: Tree = None,
        *,
        case: Case | None = None,
        limit_s: float | None = None,
        quick: bool = False,
    ) -> tuple[dict[str, Any], Tree]:
        """One call of the service; quick: without tensors.

        Raises GuardFailed, Rejected, or infrastructure errors; ends a broken process.
        """
        with self._lock:
            if self._session is None:
                raise WorkerError("the candidate's process has been replaced")
            try:
                with attributed(case, header):
                    limit = limit_s or self.call_limit_s
                    if quick:
                        return self._session.quick(method, dict(header), timeout_s=limit), None
                    told = self._session.call(method, dict(header), bundle, timeout_s=limit)
            except GuardFailed:
                raise
            except Rejected as rejected:
                if rejected.verdict.evidence.get("broken") or isinstance(rejected.__cause__, WorkerError):
                    self.recycle()
                raise
            except Exception:
                self.recycle()
                raise
        return told


class Loaded:
    """One program in the worker. Use as a context manager."""

    def __init__(self, owner: GpuCandidates, session: Session, number: int, program: Program, mode: Mode) -> None:
        self.program = program
        self._owner = owner
        self._session = session
        self._number = number
        self._mode = mode

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    @property
    def alive(self) -> bool:
        """Whether the process that holds it still lives."""
        return self._owner.session is self._session and self._session.alive

    def close(self) -> None:
        """Give everything of the program back. One that cannot even be unloaded costs the process."""
        if self.alive:
            try:
                self._owner.call("unload", {"program": self._number}, quick=True)
            except (Rejected, WorkerError, DeviceError, CandidateError):
                self._owner.recycle()

    # ---------------------------------------------------------------- small cases

    def run(self, case: Case, **header: Any) -> Answer:
        """One forward call on the case's inputs. Raises GuardFailed, Rejected, or the infrastructure's own errors."""
        outcome = self.run_many([(case, header)])[0]
        if isinstance(outcome, GuardFailed):
            raise outcome
        if isinstance(outcome, Verdict):
            raise Rejected(outcome)
        return outcome

    def run_many(self, items: Sequence[tuple[Case, Mapping[str, Any]]]) -> list[Outcome]:
        """`run` for each, in one message. The list ends early with the first Verdict."""
        if not items:
            return []
        inputs = [case.inputs for case, _ in items]
        for again in (False, True):
            keys, drop, bundle = self._owner.cases.ask(inputs)
            header = {"runs": [dict(settings) for _, settings in items], "cases": keys, "drop": drop}
            told, trees = self._call("run_many", header, bundle, case=items[0][0])
            if again or not (isinstance(told, dict) and told.get("stale") is True):
                break
            self._owner.cases.clear()
        return self._outcomes(told, trees, items)

    def again(self, first: Case, second: Case) -> list[Outcome]:
        """Two calls at the same addresses, the second with new values and parameters; then the first's outputs as they
        are now (an Answer with outputs alone). Shorter where a call failed."""
        bundle = [first.inputs, second.state, second.inputs]
        told, trees = self._call("again", {}, bundle, case=first)
        kept: list[Outcome] = []
        runs = told.get("runs")
        if isinstance(runs, list) and len(runs) == 3 and isinstance(trees, list) and len(trees) == 3:
            if not isinstance(trees[2], dict) or set(trees[2]) != {"outputs"}:
                raise Rejected(placed(forged("the worker's reply is not our code's"), first, {}))
            kept = [Answer({}, trees[2])]
            told, trees = {"runs": runs[:2]}, trees[:2]
        items: list[tuple[Case, Mapping[str, Any]]] = [(first, {"keep": "first"}), (second, {"reuse": True})]
        return self._outcomes(told, trees, items) + kept

    def trace(self, state: Tree, inputs: Tree) -> dict[str, Any]:
        """What the plan asks of the library and launches, on tensors without data (TensorSpecs)."""
        told, _ = self._call("trace", {}, [state, inputs])
        return checked_trace(told)

    def operators(self, case: Case) -> Any:
        """The library's operators in one call of a modelnew candidate; what a hostile process says of itself."""
        told, _ = self._call("operators", {}, case.inputs, case=case)
        return told.get("ops")

    def _outcomes(self, told: Any, trees: Any, items: Sequence[tuple[Case, Mapping[str, Any]]]) -> list[Outcome]:
        found: list[Outcome] = []
        try:
            check_many(told, trees, len(items))
            for entry, tree, (case, header) in zip(told["runs"], trees, items, strict=False):
                if "guard" in entry:
                    error = GuardFailed("")
                    error.message, error.line = entry["guard"], entry["line"]
                    error.evidence = {"line": error.line}
                    found.append(error)
                elif "verdict" in entry:
                    found.append(placed(believable(Verdict.from_dict(entry["verdict"])), case, header))
                else:
                    check_run(entry, tree, counted=False)
                    found.append(Answer(entry, tree))
        except (Malformed, ValueError) as error:
            verdict = placed(forged(f"the worker's reply is not our code's: {error}"), *items[len(found)])
            found.append(verdict)
        if any(isinstance(one, Verdict) and one.evidence.get("broken") for one in found):
            self._owner.recycle()
        return found

    # ---------------------------------------------------------------- large inputs

    def place(self, set_name: str, source: Source, slots: int = 1) -> None:
        """Make sure that the slots of a set hold the source's values; what is there and whole is left as it is."""
        told, _ = self._call("set_stale", {"set": set_name, "slots": slots}, bulk=True, quick=True)
        stale = set(whole_numbers(told, "stale"))
        held = self._owner.placed.setdefault(set_name, {})
        for number in range(slots):
            wanted = source.slot(number)
            if number in stale or held.get(number) != wanted.drawn:
                self.fill(set_name, number, wanted)

    def fill(self, set_name: str, slot: int, source: Source) -> None:
        """Put a source's values into one slot, at the addresses it has if the tensors look the same."""
        where = {"set": set_name, "slot": slot}
        held = self._owner.placed.setdefault(set_name, {})
        held.pop(slot, None)
        specs = [leaf for leaf in leaves(source.arguments) if isinstance(leaf, TensorSpec)]
        self._owner.sizes[set_name] = sum(map(span_bytes, specs))
        self._call("set_open", {**where, "seed": source.digest_seed}, source.arguments, bulk=True)
        for leaf, offset, chunk in source.chunks():
            self._call("set_fill", {**where, "leaf": leaf, "offset": offset}, chunk, bulk=True)
        digests = source.digests()
        header = {**where, "digests": None if digests is None else [str(number) for number in digests]}
        told, _ = self._call("set_done", header, bulk=True)
        if told.get("right") is not True:
            raise WorkerError(f"inputs did not arrive as they were sent: {set_name}, slot {slot}")
        held[slot] = source.drawn

    def free_sets(self, above: int) -> None:
        """Give the memory of sets back whose slots hold more than so many bytes each."""
        for name in [name for name, size in self._owner.sizes.items() if size > above]:
            self._call("set_free", {"set": name}, bulk=True)
            self._owner.placed.pop(name, None)
            self._owner.sizes.pop(name)

    def audit(self) -> list[tuple[str, int, int, str]]:
        """(set, slot, leaf, "value" or "zone") of what was written to in all resident sets; those are filled anew."""
        told, _ = self._call("set_audit", {}, bulk=True)
        found = []
        try:
            for name, slot, leaf, what in told["changed"]:
                found.append((str(name), int(slot), int(leaf), str(what)))
        except (KeyError, TypeError, ValueError) as error:
            raise WorkerError("the worker's reply is malformed: what was written to") from error
        for set_name, number, _, _ in found:
            self._owner.placed.get(set_name, {}).pop(number, None)
        return found

    def run_set(self, set_name: str, slot: int = 0, poison: int = POISON_A, case: Case | None = None) -> RunInfo:
        """One forward call on a slot; the results stay on the device until `drop`."""
        header = {"set": set_name, "slot": slot, "poison": poison}
        told, specs = self._call("run_set", header, case=case)
        return self._result(told, specs, set_name, slot)

    def fetch(self, run: RunInfo, leaf: int, offset: int, bytes_: int) -> HostTensor:
        """Some bytes of the span of a tensor leaf of a result."""
        header = {"handle": run.handle, "leaf": leaf, "offset": offset, "bytes": bytes_}
        _, chunk = self._call("fetch", header)
        if not isinstance(chunk, HostTensor) or chunk.dtype != "uint8" or chunk.numel != bytes_:
            raise Rejected(forged("the worker's reply is not our code's: no such bytes"))
        return chunk

    def chunks(self, run: RunInfo, bytes_: int = CHUNK_BYTES) -> Iterator[tuple[int, int, HostTensor]]:
        """(leaf, offset, bytes) for the span of every tensor leaf of a result."""
        for leaf, spec in enumerate(leaf for leaf in leaves(run.specs) if isinstance(leaf, TensorSpec)):
            size = span_bytes(spec)
            for offset in range(0, size, bytes_):
                yield leaf, offset, self.fetch(run, leaf, offset, min(bytes_, size - offset))

    def digests(self, run: RunInfo, seed: int) -> tuple[str, ...]:
        """`hipwright.digest` of each tensor leaf of a result, decimal, worked out where it lies. For programs: code of
        a candidate's own could answer what it likes."""
        told, _ = self._call("result_digests", {"handle": run.handle, "seed": seed}, quick=True)
        found = told.get("digests")
        count = sum(isinstance(leaf, TensorSpec) for leaf in leaves(run.specs))
        if not isinstance(found, list) or len(found) != count or not all(isinstance(one, str) for one in found):
            raise Rejected(forged("the worker's reply is not our code's: no digests"))
        return tuple(found)

    def read(self, run: RunInfo) -> Tree:
        """A whole result as host tensors."""
        _, tree = self._call("read", {"handle": run.handle})
        if not isinstance(tree, dict) or set(tree) != {"outputs", "buffers"}:
            raise Rejected(forged("the worker's reply is not our code's: not a result"))
        return tree

    def drop(self, run: RunInfo) -> None:
        """Give a result's memory back."""
        self._call("drop", {"handle": run.handle}, quick=True)

    def side(self, set_name: str, *, graph: bool, name: str = "candidate", own_time: bool = True) -> GpuSide:
        """The program as one side of a timed comparison, over all slots of a set that was placed."""
        return GpuSide(self, set_name, graph, name, own_time)

    # ---------------------------------------------------------------- inside

    def _result(self, told: dict[str, Any], specs: Tree, set_name: str, slot: int) -> RunInfo:
        try:
            check_result(told, specs)
        except Malformed as error:
            raise Rejected(forged(f"the worker's reply is not our code's: {error}")) from error
        if told["inputs_changed"]:
            self._owner.placed.get(set_name, {}).pop(slot, None)
        return RunInfo(int(told["handle"]), specs, told)

    def _call(
        self,
        method: str,
        header: Mapping[str, Any],
        bundle: Tree = None,
        *,
        case: Case | None = None,
        bulk: bool = False,
        quick: bool = False,
    ) -> tuple[dict[str, Any], Tree]:
        if not self.alive:
            raise WorkerError("the candidate's process has been replaced")
        limit = BULK_LIMIT_S if bulk else self._owner.limit_for(self.program)
        named = {**header, "program": self._number}
        return self._owner.call(method, named, bundle, case=case, limit_s=limit, quick=quick)

    @property
    def _slots(self) -> dict[str, dict[int, Hashable]]:
        return self._owner.placed
