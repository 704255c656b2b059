"""One task open on a machine of its own, with which most use cases begin."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hipwright.api.inputs import TaskSource, task_source
from hipwright.errors import SandboxMissing
from hipwright.events import Listener, silent
from hipwright.machine import Machine, Workbench, machine


@contextmanager
def open_workbench(
    task: TaskSource | Path | str,
    targets: tuple[str, ...],
    *,
    seed: int | None = None,
    unsafe: bool = False,
    listener: Listener = silent,
    gpu_memory_gb: float = 0.0,
) -> Iterator[Workbench]:
    """A task on processes of its own, which end with the block; see `hipwright.machine`."""
    source = task_source(task)
    with machine(targets, unsafe=unsafe, gpu_memory_gb=gpu_memory_gb) as made:
        for context in made.gpus.values():
            context.one_task = True
        with open_on(made, source, seed=seed, listener=listener) as bench:
            yield bench


@contextmanager
def open_on(
    made: Machine, source: TaskSource, *, seed: int | None = None, listener: Listener = silent
) -> Iterator[Workbench]:
    """A task on a machine that runs already."""
    if source.path is not None:
        opening = made.open(source.path, seed=seed, listener=listener)
    else:
        opening = made.open_text(source.name, source.text, seed=seed, listener=listener)
    with opening as bench:
        yield bench


def require_sandbox(unsafe: bool) -> None:
    """Raises SandboxMissing where nothing can be contained on this machine, unless the caller asked for no sandbox.

    Checked once, before work that needs a sandbox for every item.
    """
    from hipwright.sandbox import available, sandbox_hint

    works, why = available()
    if not (works or unsafe):
        raise SandboxMissing(f"no sandbox: {why}", hint=sandbox_hint())
