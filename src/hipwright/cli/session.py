"""What `optimize` and `eval` stand on: the contained processes, the opened task, the evaluator."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from hipwright import config
from hipwright.errors import BadInput
from hipwright.events import Listener

if TYPE_CHECKING:
    from hipwright.evaluate import Evaluator
    from hipwright.evaluate.gpu import Gpu
    from hipwright.sandbox import Zygote
    from hipwright.task import TaskHandle
    from hipwright.toolchain.cache import BuildCache


@dataclass
class Workbench:
    """An opened task and what judges programs for it."""

    handle: TaskHandle
    evaluator: Evaluator


@dataclass
class Machine:
    """The contained processes that judge programs, warm for any number of tasks, one after the other."""

    host: Zygote
    candidates: Zygote
    cache: BuildCache
    targets: tuple[str, ...]
    unsafe: bool
    gpus: dict[str, Gpu] = field(default_factory=dict)

    @contextmanager
    def open(
        self,
        task: Path,
        *,
        seed: int | None,
        listener: Listener,
    ) -> Iterator[Workbench]:
        """Open a task. seed: draws the verification inputs; None draws a secret one. BadInput and TaskError for the
        task file, SandboxMissing and ToolchainError for this machine."""
        from hipwright.evaluate import Evaluator
        from hipwright.task import open_task
        from hipwright.verify import Oracle

        path = existing_file(task, "task")
        listener("stage", {"text": f"opening the task {path.name} in its sandbox"})
        with ExitStack() as stack:
            handle = stack.enter_context(open_task(path, self.host))
            oracle = Oracle(handle, seed=seed, listener=listener)
            gpus = {kind: stack.enter_context(gpu.task(handle)) for kind, gpu in self.gpus.items()}
            evaluator = Evaluator(
                handle, oracle, self.candidates, self.cache, self.targets, unsafe=self.unsafe, gpus=gpus
            )
            yield Workbench(handle, evaluator)

    def close(self) -> None:
        """End every process; what runs in them raises. From any thread."""
        self.host.close()
        self.candidates.close()
        for gpu in self.gpus.values():
            gpu.abort()


@contextmanager
def machine(
    targets: tuple[str, ...], *, unsafe: bool, gpu: int = 0, gpu_memory_gb: float = 0.0, cache: Path | None = None
) -> Iterator[Machine]:
    """A Machine; every process that it starts ends with the block. gpu: the number of the one that GPU targets use.

    gpu_memory_gb: 10^9 bytes of it that all processes together may use; 0 for all. cache: another folder of builds than
    the user's.
    """
    from hipwright.cli.targets import GPUS
    from hipwright.sandbox import Zygote
    from hipwright.toolchain.cache import BuildCache
    from hipwright.verify import WORKER

    cache_folder = cache or config.cache_dir()
    cache_folder.mkdir(parents=True, exist_ok=True)
    preload = ("torch", WORKER.partition(":")[0], "hipwright.verify.warm")
    with ExitStack() as stack:
        opened = stack.enter_context
        host = opened(Zygote(("torch", "hipwright.task.warm"), unsafe=unsafe, name="task host"))
        candidates = opened(Zygote(preload, unsafe=unsafe, name="candidate worker", ro=(cache_folder,)))
        candidates.start()  # imports torch while the task opens
        found = Machine(host, candidates, BuildCache(cache_folder), targets, unsafe)
        for kind in (name for name in targets if name in GPUS):
            from hipwright.evaluate.gpu import open_gpu

            limit = int(gpu_memory_gb * 1e9)
            opening = open_gpu(kind, gpu, found.cache, unsafe=unsafe, memory_bytes=limit)  # type: ignore[arg-type]
            found.gpus[kind] = opened(opening)
        yield found


@contextmanager
def workbench(
    task: Path,
    targets: tuple[str, ...],
    *,
    seed: int | None,
    unsafe: bool,
    listener: Listener,
    gpu_memory_gb: float = 0.0,
) -> Iterator[Workbench]:
    """One task on a machine of its own; see `machine` and `Machine.open`."""
    existing_file(task, "task")
    with (
        machine(targets, unsafe=unsafe, gpu_memory_gb=gpu_memory_gb) as made,
        made.open(task, seed=seed, listener=listener) as bench,
    ):
        yield bench


def existing_file(path: Path, what: str) -> Path:
    """The absolute path of a readable file; BadInput otherwise."""
    if not path.exists():
        raise BadInput(f"no such {what} file: {path}")
    if not path.is_file():
        raise BadInput(f"the {what} is not a file: {path}")
    return path.absolute()


def read_text(path: Path, what: str) -> str:
    """A text file's content; BadInput when it cannot be read or is not UTF-8."""
    try:
        return existing_file(path, what).read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise BadInput(f"the {what} {path} is not UTF-8 text: byte {error.start} is wrong") from error
    except OSError as error:
        raise BadInput(f"cannot read the {what} {path}: {error.strerror}") from error
