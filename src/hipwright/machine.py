"""The contained processes that evaluate programs, and a task opened on them, for the command line, the MCP server and
training.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from hipwright import config
from hipwright.errors import BadInput, TaskError
from hipwright.events import Listener, doing, silent
from hipwright.nearest import file_hint, kind_hint, kind_of_file

if TYPE_CHECKING:
    from hipwright.evaluation import Evaluator
    from hipwright.evaluation.gpu.context import GpuContext
    from hipwright.evaluation.gpu.task import GpuTask
    from hipwright.sandbox import MakeZygote, Zygote
    from hipwright.task import TaskHandle
    from hipwright.toolchain.cache import BuildCache


@dataclass
class Workbench:
    """An opened task and its evaluator."""

    handle: TaskHandle
    evaluator: Evaluator


@dataclass(frozen=True)
class TaskText:
    """A task file's text, where there is no file of it. name: without a suffix."""

    name: str
    source: str


@dataclass
class Machine:
    """The contained processes that evaluate programs, for any number of tasks, also several at once."""

    host: Zygote
    candidates: Zygote
    cache: BuildCache
    targets: tuple[str, ...]
    unsafe: bool
    gpus: dict[str, GpuContext] = field(default_factory=dict)

    @contextmanager
    def open(self, task: Path | TaskText, *, seed: int | None, listener: Listener) -> Iterator[Workbench]:
        """Opens a task. seed: draws the verification inputs; None draws a secret one.

        Raises BadInput and TaskError for the task file, SandboxMissing and ToolchainError for this machine.
        """
        doing(f"opening the task {task.name}")
        listener("stage", {"text": f"opening the task {task.name} in its sandbox"})
        with open_handle(task, self.host) as handle, self.bench(handle, seed, listener) as bench:
            for gpu in bench.evaluator.gpus.values():
                gpu.begin()
            yield bench

    @contextmanager
    def open_text(
        self, name: str, source: str, *, seed: int | None, listener: Listener = silent
    ) -> Iterator[Workbench]:
        """As `open`, for a task without a file. name: without a suffix."""
        from hipwright.task import open_source

        with open_source(name, source, self.host) as handle, self.bench(handle, seed, listener) as bench:
            yield bench

    @contextmanager
    def bench(self, handle: TaskHandle, seed: int | None, listener: Listener) -> Iterator[Workbench]:
        """The evaluator of a task that is open in its host."""
        from hipwright.evaluation import Evaluator
        from hipwright.verify import Oracle

        with ExitStack() as stack:
            oracle = Oracle(handle, seed=seed, listener=listener)
            gpus: dict[str, GpuTask] = {}
            if self.gpus:
                from hipwright.evaluation.gpu.task import GpuTask

                gpus = {kind: stack.enter_context(GpuTask(gpu, handle)) for kind, gpu in self.gpus.items()}
            self._delegate(handle, gpus, stack)
            evaluator = Evaluator(
                handle, oracle, self.candidates, self.cache, self.targets, unsafe=self.unsafe, gpus=gpus
            )
            yield Workbench(handle, evaluator)

    def _delegate(self, handle: TaskHandle, gpus: Mapping[str, GpuTask], stack: ExitStack) -> None:
        """Large parameters stay on the GPU; where the cpu target judges too, in a process of their own."""
        from hipwright.held import ON_CPU, ON_GPU
        from hipwright.targets import CPU
        from hipwright.verify.gpu.hosts.held_reference import HeldReference
        from hipwright.verify.gpu.reference import open_reference

        if gpus and CPU.name not in self.targets:
            handle.delegate(HeldReference(lambda: next(iter(gpus.values())).open_holding()), ON_GPU)
        elif CPU.name in self.targets:
            _check_memory(handle.parameter_bytes)
            own = stack.enter_context(open_reference(handle, self.host, "cpu"))
            handle.delegate(HeldReference(lambda: own), ON_CPU)

    def close(self) -> None:
        """Ends every process; calls in them raise. May be called from any thread."""
        self.host.close()
        self.candidates.close()
        for gpu in self.gpus.values():
            gpu.abort()


@contextmanager
def machine(
    targets: tuple[str, ...],
    *,
    unsafe: bool,
    gpu: int | None = None,
    gpu_memory_gb: float = 0.0,
    shared_hosts: int = 0,
    compile_s: float | None = None,
    baseline_s: float = 0.0,
    cache: Path | None = None,
    imported: tuple[str, ...] = (),
    compilers: int = 0,
    zygotes: MakeZygote | None = None,
) -> Iterator[Machine]:
    """A Machine, whose processes end with the block.

    gpu: the number of the one that GPU targets use; None for the first that the environment (CUDA_VISIBLE_DEVICES)
    allows. gpu_memory_gb: 10^9 bytes of it that all processes together may use; 0 for all. shared_hosts, compile_s,
    baseline_s, compilers: as in `open_gpu`. cache: another folder of builds than the user's. imported: modules that all
    tasks import, imported once for them; what they run at import is trusted by every task. zygotes: makes its zygotes,
    `Zygote` itself by default.
    """
    from hipwright.sandbox import Zygote
    from hipwright.targets import TARGETS
    from hipwright.toolchain.cache import BuildCache
    from hipwright.verify import WORKER

    cache_folder = cache or config.cache_dir()
    cache_folder.mkdir(parents=True, exist_ok=True)
    preload = ("torch", WORKER.partition(":")[0], "hipwright.verify.worker.warm")
    with ExitStack() as stack:
        opened, make = stack.enter_context, zygotes or Zygote
        on_gpu = [name for name in targets if TARGETS.is_gpu(name)]
        late = ("hipwright.capture.warm",) if on_gpu else ()  # with enough processors, imported before it is needed
        host = opened(make(("torch", "hipwright.task.host.warm", *late, *imported), unsafe=unsafe, name="task host"))
        candidates = opened(make(preload, unsafe=unsafe, name="candidate worker", ro=(cache_folder,)))
        if len(on_gpu) < len(targets):  # GPU targets have workers of their own
            candidates.start()  # imports torch while the task opens
        found = Machine(host, candidates, BuildCache(cache_folder), targets, unsafe)
        for name in on_gpu:
            from hipwright.evaluation.gpu.context import open_gpu

            limit = int(gpu_memory_gb * 1e9)
            opening = open_gpu(
                TARGETS[name],
                gpu,
                found.cache,
                unsafe=unsafe,
                compilers=compilers,
                memory_bytes=limit,
                shared_hosts=shared_hosts,
                compile_s=compile_s,
                baseline_s=baseline_s,
                zygotes=make,
            )
            found.gpus[name] = opened(opening)
        yield found


_CPU_COPIES = 18
"""Bytes that a verification on the cpu target takes at the most for each byte of parameters: four linear layers of
8192 x 8192 (1.07 GB) took 19.1 GB in all processes together, by `free`, beside what the machine held before.
"""


def _check_memory(parameter_bytes: int) -> None:
    """Raises TaskError where the cpu target would fill this machine's memory with copies of the parameters."""
    free = _available_bytes()
    if free is not None and parameter_bytes * _CPU_COPIES > free:
        raise TaskError(
            f"its {parameter_bytes / 1e9:.1f} GB of parameters need about {parameter_bytes * _CPU_COPIES / 1e9:.0f} GB "
            f"of memory on the cpu target, and {free / 1e9:.0f} GB are free",
            hint="judge it on a GPU alone (--target cuda or rocm), or make its layers narrower",
            status="unscorable",
        )


def _available_bytes() -> int | None:
    """Memory that processes can get without swapping; None where the system does not tell."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")), None)


def open_handle(task: Path | TaskText, host: Zygote) -> TaskHandle:
    """A task in a session of its sandboxed host. Raises BadInput and TaskError."""
    from hipwright.task import open_source, open_task

    if isinstance(task, TaskText):
        return open_source(task.name, task.source, host)
    return open_task(existing_file(task, "task"), host)


def existing_file(path: Path, what: str) -> Path:
    """The absolute path of a readable file. Raises BadInput otherwise, and for a task that is no Python file."""
    if what == "task" and (kind := kind_of_file(path)) is not None:
        raise BadInput(f"{path} is {kind}, not a task", hint=kind_hint(path, kind))
    if not path.exists():
        raise BadInput(f"no such {what} file: {path}", hint=file_hint(path, what))
    if not path.is_file():
        raise BadInput(f"the {what} is not a file: {path}", hint=file_hint(path, what))
    return path.absolute()
