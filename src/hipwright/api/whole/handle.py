"""The parent's side of a model host. Imports no torch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Self

from hipwright.api.whole.plan import Call
from hipwright.api.whole.source import ModelSource
from hipwright.errors import HipwrightError, TaskError, WorkerError
from hipwright.sandbox import GpuAccess, Limits, RemoteFailure, Session, WorkerDied, WorkerTimeout, Zygote
from hipwright.targets import CPU, REPRESENTATIVE, TARGETS, TORCH_GPU_0
from hipwright.tensors import Tree
from hipwright.verify.gpu.connection import DEVICE_HOST_WARM

SERVICE = "hipwright.api.whole.host:ModelHost"
CALL_S = 1800.0
_LIMITS = Limits(wall_s=600.0, cpu_s=24 * 3600.0, memory_mb=1 << 16)
_TMP_MB = 4096


@dataclass(frozen=True)
class Clock:
    """What a model's times are. times: "device", "processor" or "estimate"; where: whose, in words.

    architecture: of the estimate and of the least times, "" where it is not known. gpu: to run on, None without.
    """

    times: str
    where: str
    architecture: str
    gpu: GpuAccess | None = None

    @property
    def label(self) -> str:
        """A column's head: an estimate is called one."""
        return {"estimate": "ESTIMATE", "device": "measured", "processor": "measured on the processor"}[self.times]


def clock_of(targets: Sequence[str]) -> Clock:
    """The clock for these targets: a GPU's own, the processor's for the cpu target alone, an estimate otherwise.

    The GPU is the first that the environment (CUDA_VISIBLE_DEVICES) allows.
    """
    for name in targets:
        if TARGETS.is_gpu(name):
            from hipwright.device.topology import choose

            found = choose("all", name)[0]
            known = TARGETS.architecture(found.architecture)
            architecture = found.architecture if known is not None else ""
            return Clock(
                "device", f"{name} ({found.architecture})", architecture, GpuAccess(TARGETS[name], found.index)
            )
    if set(targets) == {CPU.name}:
        return Clock("processor", "this machine's processor", "")
    named = next((TARGETS[name] for name in targets if TARGETS[name].architectures), REPRESENTATIVE)
    return Clock("estimate", named.architecture.product, named.architecture.name)


class ModelHandle:
    """A loaded model in its own process. Raises TaskError for whatever the model's code does wrong."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self.told = self.ask("describe")[0]

    def ask(
        self, method: str, header: dict[str, Any] | None = None, bundle: Tree = None
    ) -> tuple[dict[str, Any], Tree]:
        """A request to the host."""
        with _blamed():
            return self._session.call(method, header, bundle, timeout_s=CALL_S)

    def profile(self, clock: Clock) -> list[Call]:
        """The calls of one forward with their times."""
        told, _ = self.ask("profile", {"times": clock.times, "architecture": clock.architecture})
        return [Call(**fields) for fields in told["calls"]]

    def tasks(self, numbers: Sequence[int]) -> dict[int, dict[str, str]]:
        """{"text"} of each call's task, or {"why"} it is none."""
        found = self.ask("tasks", {"numbers": list(numbers)})[0]["tasks"]
        return {int(number): told for number, told in found.items()}


def model_zygote(source: ModelSource, clock: Clock, *, warm: bool = False, unsafe: bool = False) -> Zygote:
    """The contained process in which sessions with the model begin. The caller closes it. warm: it imports the parts of
    torch that compile and trace, too."""
    preload = ("torch", "hipwright.api.whole.host", *([DEVICE_HOST_WARM] if warm else []))
    return Zygote(preload, ro=source.visible, unsafe=unsafe, name="model host", gpu=clock.gpu, tmp_mb=_TMP_MB)


@contextmanager
def opened(source: ModelSource, clock: Clock, zygote: Zygote) -> Iterator[ModelHandle]:
    """The model in a session of its own, which ends with the block."""
    init = {"source": source.plain(), "device": CPU.name if clock.gpu is None else TORCH_GPU_0}
    with _blamed():
        session = zygote.session(SERVICE, init, limits=_LIMITS)
    with session:
        yield ModelHandle(session)


class SecondModel:
    """The model in a second session, which holds no expected output. A thread may open it before it is needed. A
    context manager.
    """

    def __init__(self, source: ModelSource, clock: Clock, zygote: Zygote) -> None:
        self._zygote, self._opening = zygote, opened(source, clock, zygote)
        self._pool = ThreadPoolExecutor(1, "second model")
        self._handle: Future[ModelHandle] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._handle is not None and not self._handle.done():
            self._zygote.close()  # the opening ends with it
        self._pool.shutdown()
        if self._handle is not None and self._handle.exception() is None:
            with suppress(WorkerError):
                self._opening.__exit__(None, None, None)

    def start(self) -> None:
        """Opens it in the background."""
        if self._handle is None:
            self._handle = self._pool.submit(self._opening.__enter__)

    def trace(self, regions: Sequence[Mapping[str, Any]], turn: AbstractContextManager[object]) -> None:
        """Traces parts of it in the background, within `turn`, so that `install` need not: as `ReplacedModel.trace`."""
        self.start()
        opening = self._handle
        assert opening is not None

        def trace() -> ModelHandle:
            handle = opening.result()
            with suppress(HipwrightError), turn:  # `install` meets it again
                handle.ask("trace", {"regions": regions})
            return handle

        self._handle = self._pool.submit(trace)

    def handle(self) -> ModelHandle:
        """The handle, once it is open. Raises what opening it raises."""
        self.start()
        assert self._handle is not None
        return self._handle.result()


@contextmanager
def _blamed() -> Iterator[None]:
    """Failures of the process as the model's, whose code alone runs there."""
    try:
        yield
    except WorkerTimeout as error:
        raise TaskError(f"the model's process: {error.message}", hint="smaller inputs?") from error
    except WorkerDied as error:
        raise TaskError(f"the model ended its process: {error.message}", hint="more memory?") from error
    except RemoteFailure as error:
        raise TaskError(f"the model's process failed: {error.message}") from error
