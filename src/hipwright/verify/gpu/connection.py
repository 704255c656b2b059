"""The connection to a GPU's candidate worker: one warm process, replaced after a program breaks it.

Does not import torch.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
from abc import abstractmethod
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Literal, Self

from hipwright.errors import CandidateError, DeviceError, GuardFailed, WorkerError
from hipwright.records import Program
from hipwright.sandbox import Limits, Session, Zygote
from hipwright.targets import TARGETS
from hipwright.tensors import Tree
from hipwright.toolchain.cache import BuildCache
from hipwright.verify.canary import Canary
from hipwright.verify.candidate import LAUNCH_LIMIT_S, Rejected, attributed
from hipwright.verify.case_draws import VerificationCase
from hipwright.verify.gpu.bridge import parent as bridges
from hipwright.verify.gpu.bridge.parent import Bridge, BridgedHost
from hipwright.verify.sent_inputs import SentInputs
from hipwright.verify.standby import Standby

Mode = Literal["run", "noop"]
GPU_WORKER = "hipwright.verify.gpu.worker:GpuWorker"
"""The service of a candidate worker; its zygote preloads the module."""
DEVICE_HOST_WARM = "hipwright.task.device.warm:warm"
"""What a zygote of device hosts preloads after torch."""
MODELNEW_PRELOAD = ("torch", GPU_WORKER.partition(":")[0], "hipwright.program.modelnew.warm")
"""Modules that a zygote of workers for ModelNew files imports."""

# RLIMIT_DATA counts the GPU driver's own mappings too; time is limited call by call, by the wall clock
LIMITS = Limits(wall_s=120.0, cpu_s=24 * 3600.0, memory_mb=16384)
LIMIT_S = 10.0  # wall seconds of a call on a GPU
CPU_LIMIT_S = 40.0  # of a call on the driver "cpu", whose launches are limited by their CPU time
HOST_CODE_LIMIT_S = 30.0  # of a modelnew candidate's call: its libraries compile kernels in their first call
BULK_LIMIT_S = 600.0  # of moving and checking large inputs, where no candidate runs


@dataclass(frozen=True)
class RunInfo:
    """One call whose results stay on the device. specs: {"outputs", "buffers"} with a TensorSpec for each tensor."""

    handle: int
    specs: Tree
    info: dict[str, Any]


@dataclass
class WorkerConnection:
    """The process of one candidate worker. Safe to use from several threads, one call at a time.

    zygote: one that preloads GPU_WORKER's module and may use the GPU. driver: the name of the target that programs are
    built for; builds of the host target run on device "cpu". limit_s: wall seconds of one call of a candidate (None: as
    the driver needs). memory_limit_bytes: device memory that candidates may use, 0 for a GPU's usual share
    (verify.gpu.subjects.SHARE). Host code of candidates (the driver "cpu", ModelNew files) gets a process for each
    program; fresh=False keeps one all the same. give_way(): is called before each call. What it waits for may wait for
    a thread that opens or closes this process, so it is called in a turn (`held`), never with the lock of one call.
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
    canary: Canary | None = None  # decides whether a late call is extended
    give_way: Callable[[], None] = field(default=lambda: None, repr=False)
    simulated: str = ""  # the name of a GPU that is software, whose memory is device "cpu"
    _session: Session | None = field(default=None, repr=False)
    _bridge: Bridge | None = field(default=None, repr=False)
    _program: str = ""

    def __post_init__(self) -> None:
        self._lock = threading.RLock()  # of one call
        self._turn = threading.RLock()  # of several in a row; taken before the lock
        self._ids = itertools.count(1)
        self._tables: dict[int, tuple[Tree, str]] = {}
        self._sent: set[str] = set()
        self.cases = SentInputs()
        self.placed: dict[str, dict[int, Hashable]] = {}
        self.sizes: dict[str, int] = {}  # bytes of a slot, by set
        self.call_limit_s = self.limit_s or (CPU_LIMIT_S if TARGETS.is_host(self.driver) else LIMIT_S)
        self.host_code_limit_s = self.limit_s or max(self.call_limit_s, HOST_CODE_LIMIT_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def open(self) -> None:
        """Starts the process, if there is none. Raises DeviceError where the device does not work."""
        self._alive()

    def close(self) -> None:
        """Ends the process; the next call starts another."""
        with self._lock:
            if self._session is not None:
                self._session.close()
            self._session = None
            if self._bridge is not None:
                self._bridge.close()
            self._bridge = None

    def bridge(self, host: BridgedHost | None, nbytes: int) -> Bridge | None:
        """The bridge between this worker and a host, for so many bytes; None where they are few or there is none."""
        if host is None or nbytes < bridges.LEAST_BYTES:
            return None
        with self._turn:
            with self._lock:
                session = self._alive()
                if self._bridge is None or self._bridge.session is not session:
                    if self._bridge is not None:
                        self._bridge.close()
                    self._bridge = Bridge.opened(session, self.device, self._call_bridge)
                found = self._bridge
            return found if found.reaches(host) else None

    def _call_bridge(self, method: str, header: Mapping[str, Any], **fds: Any) -> dict[str, Any]:
        assert self._session is not None
        return self._session.call_json(method, dict(header), timeout_s=BULK_LIMIT_S, **fds)

    @contextmanager
    def held(self) -> Iterator[None]:
        """A context in which no other thread has calls in a row: those that begin and end by themselves go between."""
        with self._turn:
            yield

    @abstractmethod
    def sent_state(self, table: Tree) -> Tree:
        """See `CandidateWorker`."""

    @abstractmethod
    def forget_states(self) -> None:
        """See `CandidateWorker`."""

    def recycle(self) -> None:
        """Ends a process that must not be used again."""
        with self._lock:
            self.recycled += 1
            self.close()

    def forget(self, state: Tree, sets: Sequence[str] = ()) -> None:
        """Frees the state table and the sets of a task that this worker will not serve again."""
        with self._turn:
            _, key = self._tables.pop(id(state), (None, ""))
            self._sent.discard(key)
            self.cases.retire()
            for name in sets:
                self.sizes.pop(name, None)
                if self.placed.pop(name, None) is not None and self._session is not None:
                    # the process has ended, and its memory with it
                    with contextlib.suppress(Rejected, WorkerError, DeviceError, CandidateError):
                        self.call("set_free", {"set": name}, limit_s=BULK_LIMIT_S)

    @property
    def judged_on(self) -> str:
        """The device, for records: "cuda:0", "cpu", "gfx942 (simulated)"."""
        return self.simulated or self.device

    @property
    def session(self) -> Session | None:
        """The process, by which callers notice that it was replaced."""
        return self._session

    def limit_for(self, program: Program) -> float:
        """Wall seconds of one call of a program."""
        return self.host_code_limit_s if program.form == "modelnew" else self.call_limit_s

    def _alive(self) -> Session:
        with self._lock:
            if self._session is None or not self._session.alive:
                self._sent.clear()
                self.cases.clear()
                self.placed.clear()
                self._session = self.standby.take() if self.standby is not None else self.start()
                self._session.extend = self.canary.stalled if self.canary is not None else None
            return self._session

    def start(self) -> Session:
        """A new process, for this worker or another one like it."""
        init = {
            "device": self.device,
            "driver": self.driver,
            "wave": self.wave,
            "memory_limit_bytes": self.memory_limit_bytes,
            "launch_limit_s": LAUNCH_LIMIT_S,
            "profile": self.profile,
        }
        return self.zygote.session(GPU_WORKER, init, limits=self.limits)

    def call(
        self,
        method: str,
        header: Mapping[str, Any],
        bundle: Tree = None,
        *,
        case: VerificationCase | None = None,
        limit_s: float | None = None,
        json_only: bool = False,
    ) -> tuple[dict[str, Any], Tree]:
        """One call of the service; json_only: without tensors.

        Raises GuardFailed, Rejected, or infrastructure errors; ends a broken process.
        """
        self.give_way()
        with self._lock:
            if self._session is None:
                raise WorkerError("the candidate's process has been replaced")
            try:
                with attributed(case, header):
                    limit = limit_s or self.call_limit_s
                    if json_only:
                        return self._session.call_json(method, dict(header), timeout_s=limit), None
                    reply = self._session.call(method, dict(header), bundle, timeout_s=limit)
            except GuardFailed:
                raise
            except Rejected as rejected:
                if rejected.verdict.evidence.get("broken") or isinstance(rejected.__cause__, WorkerError):
                    self.recycle()
                if rejected.verdict.status == "timeout" and self.canary is not None and self.canary.lost:
                    raise DeviceError("the GPU answers no process", hint="look at dmesg, and reset it") from rejected
                raise
            except Exception:
                self.recycle()
                raise
        return reply


@contextmanager
def as_candidate_error() -> Iterator[None]:
    """A context that raises a Rejected as a CandidateError, which evaluators expect outside a verification."""
    try:
        yield
    except Rejected as rejected:
        verdict = rejected.verdict
        raise CandidateError(
            verdict.message, status=verdict.status, stage=verdict.stage, evidence=dict(verdict.evidence)
        ) from rejected
